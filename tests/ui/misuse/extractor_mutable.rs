//! A delivery to be changed.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Delivery, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

#[idempotent(key = "customer_id, external_ref")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment, delivery: &mut Delivery) -> Result<(), Failure> {
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment, delivery: &mut Delivery) {
    let _ = book(tx, shipment, delivery).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
