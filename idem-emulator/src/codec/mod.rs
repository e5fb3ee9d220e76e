//! AMQP 1.0 encoding: values in, values out. No frames and no sockets.
//!
//! Values are read in place from checked bytes instead of being decoded into trees. That keeps
//! message bodies opaque, echoes what a peer sent bit by bit, accepts maps keyed by strings or
//! symbols alike, and bounds the depth of hostile input.

pub(crate) mod encode;
pub(crate) mod message;
pub(crate) mod raw;

pub(crate) use raw::{DecodeError, Raw};
