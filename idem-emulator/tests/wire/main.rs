//! The emulator over the wire, driven by the client that idem uses and by hand-made frames.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod book;
mod cases;
#[cfg(feature = "control")]
mod control;
mod entities;
mod faults;
mod load;
mod locks;
mod protocol;
mod queues;
mod sessions;
mod states;
mod topics;
mod transactions;
