//! The attribute on the message instead of the handler.

#![allow(unused)]

use idem_runtime::idempotent;

#[idempotent(key = "customer_id")]
#[derive(serde::Deserialize)]
struct Shipment {
    customer_id: i64,
}

fn uses(shipment: Shipment) -> i64 {
    shipment.customer_id
}

fn main() {}
