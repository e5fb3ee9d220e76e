//! A handler inside an `impl`, without `self`.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
}

impl Shipment {
    #[idempotent(key = "customer_id")]
    async fn book(tx: &mut Tx<Sqlite>, shipment: Self) -> Result<(), Failure> {
        Ok(())
    }
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment) {
    let _ = Shipment::book(tx, shipment).await;
}

fn main() {}
