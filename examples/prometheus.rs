//! A consumer that Prometheus watches: 50 orders, ten of them sent twice, and then what Prometheus
//! would read.
//!
//! Needs nothing but Rust: `cargo run --release --example prometheus`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use harness::{Orders, PlaceOrder};
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{Consumer, Failure, Tx, idempotent};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio::time::sleep;

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

/// Runs a consumer until its queue is empty, and returns what Prometheus would read.
pub(crate) async fn run() -> anyhow::Result<String> {
    // ANCHOR: install
    let seconds = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 60.0, 600.0];
    let prometheus = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)?
        // In a service, `.with_http_listener(address).install()?` serves `/metrics`.
        .install_recorder()?;
    // ANCHOR_END: install

    let emulator = Emulator::builder().queue(QueueOptions::new("watched")).start().await?;
    let bus = ServiceBus::connect(&emulator.connection_string())?;
    let queue = bus.queue("watched");
    let folder = tempfile::tempdir()?;
    let file = format!("sqlite://{}", folder.path().join("orders.db").display());
    let store = Sqlite::connect(&file).await?;
    store.migrate().await?;
    sqlx::query("CREATE TABLE orders (customer_id bigint, external_ref text, amount_cents bigint)")
        .execute(store.pool())
        .await?;
    bus.sender("watched").await?.send_all(Orders::new(1, 50).messages()?).await?;

    let consumer = Consumer::builder(queue.clone(), store).handler(PlaceOrderHandler).build()?;
    consumer.run_until(until_empty(&queue)).await?;
    emulator.shutdown().await;
    Ok(prometheus.render())
}

async fn until_empty(queue: &Queue) {
    while queue.depth(1).await.unwrap_or(1) > 0 {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Says whether a scrape has this value for the metric with these labels.
pub(crate) fn has(scrape: &str, metric: &str, labels: &[&str], value: &str) -> bool {
    scrape.lines().any(|line| {
        line.starts_with(metric)
            && labels.iter().all(|label| line.contains(label))
            && line.ends_with(&format!(" {value}"))
    })
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main(async {
        let scrape = run().await?;
        println!("{scrape}");
        let scope = r#"scope="orders.place""#;
        for (outcome, count) in [(r#"outcome="done""#, "50"), (r#"outcome="duplicate""#, "10")] {
            let told = has(&scrape, "idem_deliveries_total{", &[scope, outcome], count);
            ensure!(told, "there are not {count} deliveries with {outcome}");
        }
        Ok(true)
    })
    .await
}
