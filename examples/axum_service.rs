//! A web service with a consumer beside it: one process answers HTTP, handles the messages of a
//! queue, tells a probe whether it can, and stops both in order.
//!
//! Needs nothing but Rust: `cargo run --release --example axum_service`, and then
//! `curl http://127.0.0.1:8080/health/ready` and `curl http://127.0.0.1:8080/orders`.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use clap::Parser;
use harness::{Orders, PlaceOrder};
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{Consumer, ConsumerHandle, Failure, Health, Tx, idempotent, shutdown_signal};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[idempotent(key = "customer_id, external_ref", scope = "orders.place")]
async fn place_order(tx: &mut Tx<Sqlite>, order: PlaceOrder) -> Result<(), Failure> {
    sqlx::query("INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)")
        .bind(order.customer_id)
        .bind(&order.external_ref)
        .bind(order.amount_cents)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The service's table.
pub(crate) const ORDERS: &str = "CREATE TABLE IF NOT EXISTS orders \
     (customer_id bigint NOT NULL, external_ref text NOT NULL, amount_cents bigint NOT NULL)";

// ANCHOR: serve
/// Answers HTTP and handles messages until `shutdown` completes, or one of them fails. The consumer
/// stops first: the probe says so for as long as handlers finish.
pub(crate) async fn serve(
    listener: TcpListener,
    queue: Queue,
    store: Sqlite,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let consumer =
        Consumer::builder(queue, store.clone()).route("OrderPlaced", PlaceOrderHandler).build()?;
    let handle = consumer.handle();
    let mut consuming = JoinSet::new();
    consuming.spawn(consumer.run_until(shutdown));

    let app = Router::new()
        .route("/health/ready", get(ready))
        .with_state(handle.clone())
        .route("/orders", get(count_orders))
        .with_state(store);
    let stopped = {
        let handle = handle.clone();
        async move {
            handle.wait_for(|health| *health == Health::Stopped).await;
        }
    };
    let served = axum::serve(listener, app).with_graceful_shutdown(stopped).await;
    handle.stop();
    for ended in consuming.join_all().await {
        ended?;
    }
    Ok(served?)
}

async fn ready(State(consumer): State<ConsumerHandle>) -> (StatusCode, String) {
    let health = consumer.health();
    let status = match health.is_ready() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, health.to_string())
}
// ANCHOR_END: serve

async fn count_orders(State(store): State<Sqlite>) -> Result<Json<i64>, StatusCode> {
    let count = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(store.pool()).await;
    count.map(Json).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)
}

/// Where the service listens, and what it is sent.
#[derive(Debug, Parser)]
struct Options {
    /// The address of the service.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How many orders are sent at start; a fifth of them twice.
    #[arg(long, default_value_t = 1000)]
    orders: u32,
}

/// Messages about orders, with the subject that the service routes by.
pub(crate) async fn send(bus: &ServiceBus, queue: &str, orders: &Orders) -> anyhow::Result<()> {
    let mut messages = orders.messages()?;
    for message in &mut messages {
        message.subject = Some("OrderPlaced".to_owned());
    }
    Ok(bus.sender(queue).await?.send_all(messages).await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt::init();
    let options = Options::parse();
    let emulator = Emulator::builder().queue(QueueOptions::new("orders")).start().await?;
    let bus = ServiceBus::connect(&emulator.connection_string())?;
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite://{}", folder.path().join("orders.db").display());
    let store = Sqlite::connect(&url).await?;
    store.migrate().await?;
    sqlx::query(ORDERS).execute(store.pool()).await?;
    send(&bus, "orders", &Orders::new(fastrand::u64(..), options.orders)).await?;

    let listener = TcpListener::bind(options.listen).await?;
    println!("http://{}/health/ready and /orders, until Ctrl-C", listener.local_addr()?);
    serve(listener, bus.queue("orders"), store, shutdown_signal()).await?;
    emulator.shutdown().await;
    Ok(())
}
