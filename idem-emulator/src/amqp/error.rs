//! AMQP errors, and how far each one reaches.

use std::borrow::Cow;

use bytes::BytesMut;

use crate::codec::{DecodeError, encode};

/// An error condition with its description, as told to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AmqpError {
    pub(super) condition: &'static str,
    pub(super) description: Cow<'static, str>,
}

impl AmqpError {
    pub(super) fn new(condition: &'static str, description: impl Into<Cow<'static, str>>) -> Self {
        Self { condition, description: description.into() }
    }

    pub(super) fn framing(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("amqp:connection:framing-error", description)
    }

    pub(super) fn not_implemented(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new("amqp:not-implemented", description)
    }

    pub(super) fn not_found(entity: &str) -> Self {
        let text = format!("The messaging entity '{entity}' could not be found.");
        Self::new("amqp:not-found", text)
    }

    pub(super) fn write(&self, out: &mut BytesMut) {
        encode::descriptor(out, 0x1d);
        encode::list(out, 3, |out| {
            encode::symbol(out, self.condition);
            encode::string(out, &self.description);
            encode::null(out);
        });
    }
}

impl From<DecodeError> for AmqpError {
    fn from(error: DecodeError) -> Self {
        Self::new("amqp:decode-error", error.to_string())
    }
}

/// A peer broke the protocol; what ends because of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Violation {
    Connection(AmqpError),
    Session(AmqpError),
    Link(u32, AmqpError),
}

impl From<AmqpError> for Violation {
    fn from(error: AmqpError) -> Self {
        Self::Connection(error)
    }
}

impl From<DecodeError> for Violation {
    fn from(error: DecodeError) -> Self {
        Self::Connection(error.into())
    }
}
