//! A template that is no string.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = 1]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
