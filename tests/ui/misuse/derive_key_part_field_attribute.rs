//! The attribute on a field: every field is part of the key.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
struct Reference {
    number: i64,
    #[key_part(skip)]
    note: String,
}

#[derive(serde::Deserialize)]
struct Shipment {
    part: Reference,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
