//! A handler of one store, registered with the consumer of another.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::{Postgres, Sqlite};
use idem_runtime::{ConsumerBuilder, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

#[idempotent(key = "customer_id, external_ref")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment) {
    let _ = book(tx, shipment).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Postgres>) {
    builder.handler(BookHandler);
}

fn main() {}
