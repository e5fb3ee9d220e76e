//! A handler without a message.

#![allow(unused)]

use idem_runtime::broker::Source;
use idem_runtime::store::Sqlite;
use idem_runtime::{ConsumerBuilder, Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
    external_ref: String,
}

#[idempotent]
async fn book(tx: &mut Tx<Sqlite>) -> Result<(), Failure> {
    Ok(())
}

async fn calls(tx: &mut Tx<Sqlite>) {
    let _ = book(tx).await;
}

fn registers<B: Source>(builder: ConsumerBuilder<B, Sqlite>) {
    builder.handler(BookHandler);
}

fn main() {}
