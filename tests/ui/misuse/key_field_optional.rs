//! An absent field would make unrelated messages the same.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    external_ref: Option<String>,
}

#[idempotent(key = "external_ref")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment) {
    let _ = book(tx, shipment).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
