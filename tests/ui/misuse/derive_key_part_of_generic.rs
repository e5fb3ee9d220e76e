//! A type parameter that is given a type which is no key part.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
struct Id<T>(T);

#[derive(serde::Deserialize)]
struct Shipment {
    part: Id<f64>,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
