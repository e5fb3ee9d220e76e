//! A field that may be absent.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}/payment"]
struct Payment {
    order_no: Option<String>,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
