//! A handler that holds something across an await that must stay on its thread.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

#[idempotent(key = "customer_id, external_ref")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    let counter = std::rc::Rc::new(shipment.customer_id);
    std::future::ready(()).await;
    drop(counter);
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment) {
    let _ = book(tx, shipment).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
