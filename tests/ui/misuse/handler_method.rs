//! A handler that takes `self`.

#![allow(unused)]

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, Tx, idempotent};

#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
}

struct Bookings;

impl Bookings {
    #[idempotent(key = "customer_id")]
    async fn book(&self, tx: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
        Ok(())
    }
}

async fn calls(tx: &mut Tx<Sqlite>, shipment: Shipment) {
    let _ = Bookings.book(tx, shipment).await;
}

fn main() {}
