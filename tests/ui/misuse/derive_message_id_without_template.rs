//! A derive without a template.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
