//! The id of a message that has none.

#![allow(unused)]

use idem_runtime::MessageId;

struct Payment {
    order_no: String,
}

fn sends(payment: &Payment) -> String {
    id(payment)
}

fn id<M: MessageId>(message: &M) -> String {
    message.message_id().unwrap()
}

fn main() {}
