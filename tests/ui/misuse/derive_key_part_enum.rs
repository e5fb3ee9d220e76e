//! An enum, whose variants have no text that lasts.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, KeyPart, Tx, idempotent};

#[derive(serde::Deserialize, KeyPart)]
enum Currency {
    Euro,
    Krona,
}

#[derive(serde::Deserialize)]
struct Shipment {
    part: Currency,
}

#[idempotent(key = "part")]
async fn book(tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    Ok(())
}

fn main() {}
