//! An enum, whose variants have no fields in common.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}/payment"]
enum Payment {
    Card { order_no: String },
    Cash { order_no: String },
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
