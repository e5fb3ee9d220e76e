//! Fields of which nobody could tell where the first one ends.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}{attempt}"]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
