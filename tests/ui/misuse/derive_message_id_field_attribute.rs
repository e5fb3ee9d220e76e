//! The attribute on a field.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}/payment"]
struct Payment {
    order_no: String,
    #[message_id]
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
