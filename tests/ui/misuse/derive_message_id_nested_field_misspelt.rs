//! A field that a field of the message does not have.

#![allow(unused)]

use idem_runtime::MessageId;

struct Order {
    number: i64,
}

#[derive(MessageId)]
#[message_id = "{order.no}/payment"]
struct Payment {
    order: Order,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
