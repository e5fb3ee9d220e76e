//! The adapter against the emulator, over TCP.

mod connections;
mod locks;
mod receiving;
mod sending;
mod support;
