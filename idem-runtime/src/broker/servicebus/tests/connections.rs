//! What breaks is told quickly, nothing is lost by it, and nothing is left behind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use idem_emulator::{Emulator, Fault, QueueOptions};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::ServiceBus;
use super::support::{
    HANG, SHORT_LOCK, SettleAndWait, complete, eventually, receive, send, start, start_with_orders,
};
use crate::broker::{BrokerError, Receiver, Settler, Source};
use crate::settle::Settlement;

async fn open_error(endpoint: &str) -> (BrokerError, Duration) {
    let text = format!("Endpoint=sb://{endpoint};SharedAccessKeyName=app;SharedAccessKey=key");
    let bus = ServiceBus::connect(&text).unwrap();
    let started = Instant::now();
    let error = bus.queue("orders").open(1).await.expect_err("nobody is there");
    (error, started.elapsed())
}

#[tokio::test]
async fn nobody_listening_is_told_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for endpoint in [format!("127.0.0.1:{port}"), format!("host.invalid:{port}")] {
        let (error, took) = open_error(&format!("{endpoint};UseDevelopmentEmulator=true")).await;
        assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(&endpoint), "{error}");
        assert!(took < Duration::from_secs(4), "{took:?}");
    }
}

#[tokio::test]
async fn a_listener_that_says_nothing_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (error, _) = open_error(&format!("127.0.0.1:{port};UseDevelopmentEmulator=true")).await;
    assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");
}

/// The whole of `127.0.0.0/8` is loopback on Linux, so that the port of TLS is free there.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_listener_without_tls_is_told() {
    let listener = TcpListener::bind("127.83.66.1:5671").await.unwrap();
    let refuse = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"no TLS here\r\n").await.unwrap();
        stream
    };
    let ((error, _), _stream) = tokio::join!(open_error("127.83.66.1"), refuse);
    let BrokerError::Unreachable { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("InvalidContentType"), "{source}");
}

#[tokio::test]
async fn a_broken_connection_is_told_to_all_who_wait() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 2).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let locked = receive(&mut receiver).await;
    receive(&mut receiver).await;
    emulator.shutdown().await;

    let error = timeout(HANG, receiver.receive()).await.unwrap().unwrap_err();
    assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");
    let error = timeout(HANG, settler.settled(locked.lock, complete())).await.unwrap().unwrap_err();
    assert!(matches!(error, BrokerError::Closed), "{error:?}");
    let error = timeout(HANG, settler.renew(locked.lock)).await.unwrap().unwrap_err();
    assert!(matches!(error, BrokerError::Closed), "{error:?}");
    let error = timeout(HANG, receiver.receive()).await.unwrap().unwrap_err();
    assert!(matches!(error, BrokerError::Closed), "{error:?}");
    timeout(HANG, receiver.close()).await.unwrap();
}

#[tokio::test]
async fn renewals_connect_again() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    let settler = receiver.settler();
    let locked = receive(&mut receiver).await;
    settler.renew(locked.lock).await.unwrap();
    let port = emulator.port();
    emulator.shutdown().await;
    let renewed = timeout(HANG, settler.renew(locked.lock)).await.unwrap();
    assert!(
        matches!(renewed, Err(BrokerError::Unreachable { .. } | BrokerError::Closed)),
        "{renewed:?}"
    );
    // A receiver with as many messages as it may hold does not notice. Its renewals do: the new
    // broker does not know the lock.
    let builder = Emulator::builder().queue(QueueOptions::new("orders")).port(port);
    let _emulator = builder.start().await.unwrap();
    let renewed = timeout(HANG, settler.renew(locked.lock)).await.unwrap();
    assert!(matches!(renewed, Err(BrokerError::LockLost)), "{renewed:?}");
}

#[tokio::test]
async fn connections_that_drop_at_random_lose_nothing() {
    const MESSAGES: usize = 500;
    const SEED: u64 = 7;
    let options = QueueOptions::new("orders").lock_duration(SHORT_LOCK).max_delivery_count(2_000);
    let (emulator, bus) = start(options).await;
    send(&bus, MESSAGES).await;
    let drops = [
        Fault::drop_connection_at_delivery().probability(0.01),
        Fault::drop_connection_at_settlement().probability(0.01),
    ];
    let drops = drops.map(|drop| emulator.faults().add(drop.on("orders").seed(SEED).times(6)));

    let consumed = timeout(4 * HANG, consume(&bus, &emulator)).await;
    let (reopened, seen) = consumed.expect("all is consumed in time");
    assert_eq!(seen.len(), MESSAGES);
    assert_eq!(emulator.events().totals().completed, MESSAGES as u64);
    let fired = drops.map(|drop| drop.fired());
    assert!(fired[0] >= 2 && fired[1] >= 2, "{fired:?}");
    assert!(reopened >= 2, "{reopened}");
}

/// Completes messages until the queue is empty. Gives the number of times that the receiver had to
/// be opened again, and the ids of what was completed.
async fn consume(bus: &ServiceBus, emulator: &Emulator) -> (usize, BTreeSet<String>) {
    let is_empty = || {
        let counts = emulator.counts("orders").unwrap();
        counts.active + counts.locked == 0
    };
    let mut opened = 0;
    let mut seen = BTreeSet::new();
    while !is_empty() {
        let Ok(mut receiver) = bus.queue("orders").open(16).await else { continue };
        opened += 1;
        let mut tasks = JoinSet::new();
        loop {
            match timeout(Duration::from_millis(100), receiver.receive()).await {
                Ok(Ok(locked)) => {
                    seen.insert(locked.delivery.message_id().unwrap().to_owned());
                    let settler = receiver.settler();
                    tasks.spawn(async move {
                        tokio::time::sleep(Duration::from_millis(3)).await;
                        // What fails is told by the receiver too.
                        settler.settled(locked.lock, complete()).await.ok();
                    });
                }
                Ok(Err(_)) => break,
                Err(_) if is_empty() => break,
                Err(_) => {}
            }
        }
        timeout(HANG, receiver.close()).await.expect("closing does not hang");
    }
    (opened - 1, seen)
}

#[tokio::test]
async fn closing_lets_go_out_what_was_given_before() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 50).await;
    let mut receiver = bus.queue("orders").open(50).await.unwrap();
    let settler = receiver.settler();
    let mut tasks = JoinSet::new();
    for _ in 0..50 {
        let locked = receive(&mut receiver).await;
        let settler = settler.clone();
        tasks.spawn(async move { settler.settled(locked.lock, complete()).await });
    }
    // On this test's single thread each task has given its command after it ran once.
    tokio::task::yield_now().await;
    timeout(HANG, receiver.close()).await.unwrap();
    for settled in tasks.join_all().await {
        settled.unwrap();
    }
    assert_eq!(emulator.events().totals().completed, 50);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn no_thread_is_left_behind() {
    // The thread's name is cut to 15 characters, so this one is this test's alone.
    let (emulator, bus) = start(QueueOptions::new("leak-check")).await;
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.trim_end() == "idem leak-check").count()
    };
    let queue = bus.queue("leak-check");
    let sender = bus.sender("leak-check").await.unwrap();
    sender.send(crate::broker::OutgoingMessage::default()).await.unwrap();
    let mut dropped = queue.open(4).await.unwrap();
    let locked = receive(&mut dropped).await;
    dropped.settler().renew(locked.lock).await.unwrap();
    let closed = queue.open(4).await.unwrap();
    assert_eq!(threads(), 3);

    timeout(HANG, closed.close()).await.unwrap();
    let settler = dropped.settler();
    drop((sender, dropped));
    queue.depth(1).await.unwrap();
    eventually("the end of all threads", || threads() == 0).await;
    let totals = emulator.events().totals();
    assert_eq!(totals.connection_opened, totals.connection_closed);
    let settled = settler.settled(locked.lock, Settlement::Abandon(None)).await;
    assert!(matches!(settled, Err(BrokerError::Closed)), "{settled:?}");

    // An opening that nobody waits for any more.
    timeout(Duration::ZERO, queue.open(1)).await.map(drop).unwrap_err();
    eventually("the end of the opening", || threads() == 0).await;
}
