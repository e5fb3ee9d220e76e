//! A field that has no canonical value.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}/{amount}"]
struct Payment {
    order_no: String,
    amount: f64,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
