//! The derives: a type is parsed to an `Input`, checked, and expanded.

mod input;
mod key_part;
mod message_id;
mod template;

pub(crate) use key_part::key_part;
pub(crate) use message_id::message_id;
