//! A struct of which there is one value.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
struct Nothing;

#[derive(serde::Deserialize)]
struct Shipment {
    part: Nothing,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
