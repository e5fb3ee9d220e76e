//! Handlers and derives in a crate of the edition before, to which the runtime has another name.

#![cfg(test)]
#![deny(warnings)]

use renamed::store::Sqlite;
use renamed::{idempotent, Delivery, Failure, Handler, KeyPart, Level, MessageId, State, Tx};

#[derive(serde::Deserialize, KeyPart)]
#[key_part(crate = ::renamed)]
struct Reference {
    customer_id: i64,
    external_ref: String,
}

#[derive(serde::Deserialize, MessageId)]
#[message_id = "{reference.customer_id}/{reference.external_ref}"]
#[message_id(crate = ::renamed)]
struct Order {
    reference: Reference,
}

#[idempotent(key = "reference", crate = ::renamed)]
async fn place_order(
    _tx: &mut Tx<Sqlite>,
    order: Order,
    delivery: &Delivery,
    State(gen): State<u32>,
) -> Result<(), Failure> {
    let _ = (order, delivery.message_id(), gen);
    Ok(())
}

#[idempotent(batch, crate = ::renamed)]
async fn store_all(_: &mut Tx<Sqlite>, orders: Vec<Order>) -> Result<(), Failure> {
    let _ = orders.len();
    Ok(())
}

fn level<H: Handler<Sqlite>>(_: H) -> Level {
    H::SPEC.level
}

#[test]
fn they_are_what_they_are_in_this_one() {
    assert_eq!(level(PlaceOrderHandler), Level::Two);
    assert_eq!(level(StoreAllHandler), Level::One);
    let reference = Reference { customer_id: 7, external_ref: "a/b".to_owned() };
    assert_eq!(Order { reference }.message_id().as_deref(), Ok("7/a%2Fb"));
}
