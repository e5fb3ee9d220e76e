//! A template that makes one id for all messages.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "payment"]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
