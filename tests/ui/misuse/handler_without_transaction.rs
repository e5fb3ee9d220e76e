//! Level 2 without a transaction.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Failure, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

#[idempotent(key = "customer_id, external_ref")]
async fn book(shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

async fn calls(shipment: Shipment) {
    let _ = book(shipment).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
