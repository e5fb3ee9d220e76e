//! A function that decodes a whole batch, where it is asked for each message.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Delivery, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

fn decode(delivery: &Delivery) -> Result<Vec<Shipment>, Failure> {
    Err(Failure::reject("NoShipment", "it is none"))
}

#[idempotent(key = "customer_id, external_ref", batch, decode = decode)]
async fn book(tx: &mut Tx<Sqlite>, shipments: Vec<Shipment>) -> Result<(), Failure> {
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>, shipments: Vec<Shipment>) {
    let _ = book(tx, shipments).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
