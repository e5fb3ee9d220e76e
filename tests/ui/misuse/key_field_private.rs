//! A key field that is private to another module.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    address: address::Address,
}

mod address {
    #[derive(serde::Deserialize)]
    pub struct Address {
        postcode: String,
    }
}

#[idempotent(key = "address.postcode")]
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
