//! A field that has no canonical value.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
struct Money {
    currency: String,
    amount: f64,
}

#[derive(serde::Deserialize)]
struct Shipment {
    part: Money,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
