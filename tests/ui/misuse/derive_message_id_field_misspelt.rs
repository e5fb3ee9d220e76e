//! A field that the message does not have.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_nr}/payment"]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
