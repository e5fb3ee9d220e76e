//! A template that leaves no room for its fields.

#![allow(unused)]

use idem_runtime::MessageId;

#[derive(MessageId)]
#[message_id = "{order_no}/payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-payment-"]
struct Payment {
    order_no: String,
    attempt: u32,
}

fn sends(payment: Payment) -> String {
    payment.message_id().unwrap()
}

fn main() {}
