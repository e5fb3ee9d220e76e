//! A message by `&mut` where the transaction belongs.

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
async fn book(shipment: &mut Shipment) -> Result<(), Failure> {
    Ok(())
}

async fn calls(shipment: &mut Shipment) {
    let _ = book(shipment).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
