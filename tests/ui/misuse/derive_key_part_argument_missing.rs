//! The attribute without its argument.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
#[key_part]
struct Reference(i64);

#[derive(serde::Deserialize)]
struct Shipment {
    part: Reference,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
