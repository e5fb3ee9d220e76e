//! The example service: a consumer inside axum.

use std::net::SocketAddr;
use std::time::Duration;

use harness::Orders;
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_tests::database::SqliteFile;
use idem_tests::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::axum_service::{ORDERS, send, serve};

/// The status and the body; `None` where nobody listens any more.
async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = String::new();
    stream.read_to_string(&mut response).await.ok()?;
    let (head, body) = response.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

async fn a_service_consumes_beside_its_http() {
    let queue = || QueueOptions::new("orders").lock_duration(Duration::from_secs(60));
    let emulator = Emulator::builder().queue(queue()).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let file = SqliteFile::new().await;
    sqlx::query(ORDERS).execute(file.store.pool()).await.expect("a valid table");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it has an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async {
        stopped.await.ok();
    };
    let mut service = JoinSet::new();
    service.spawn(serve(listener, bus.queue("orders"), file.store.clone(), shutdown));

    let is_ready = async || get(address, "/health/ready").await == Some((200, "consuming".into()));
    until("the service is ready", is_ready).await;
    send(&bus, "orders", &Orders::new(1, 100)).await.expect("sent");
    until("the orders are there", async || {
        get(address, "/orders").await == Some((200, "100".to_owned()))
    })
    .await;

    emulator.delete("orders").expect("it is there");
    until("the probe says why not", async || {
        let answer = get(address, "/health/ready").await;
        answer.is_some_and(|(status, text)| status == 503 && text.contains("there is no entity"))
    })
    .await;
    let orders = get(address, "/orders").await;
    assert_eq!(orders, Some((200, "100".to_owned())), "HTTP goes on");
    emulator.create_queue(queue()).expect("it can be made again");
    until("the service is ready again", is_ready).await;

    stop.send(()).expect("the service is running");
    let ended = service.join_next().await.expect("it was started").expect("no panic");
    ended.expect("both have ended in order");
    assert_eq!(get(address, "/health/ready").await, None, "nobody listens any more");
    emulator.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_consumes_beside_its_http_on_many_threads() {
    a_service_consumes_beside_its_http().await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_service_consumes_beside_its_http_on_one_thread() {
    a_service_consumes_beside_its_http().await;
}

/// A consumer that cannot start takes its service with it, and says why.
#[tokio::test]
async fn a_service_whose_consumer_cannot_start_ends() {
    let emulator = Emulator::builder().start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let file = SqliteFile::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let served = serve(listener, bus.queue("orders"), file.store.clone(), std::future::pending());
    let error = served.await.expect_err("there is no queue");
    assert!(format!("{error:#}").contains("there is no entity `orders`"), "{error:#}");
    emulator.shutdown().await;
}
