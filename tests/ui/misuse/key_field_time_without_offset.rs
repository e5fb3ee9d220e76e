//! A time without an offset, which is two instants in one night of the year.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    part: time::PrimitiveDateTime,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
