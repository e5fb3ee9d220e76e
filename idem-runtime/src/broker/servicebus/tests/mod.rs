//! The adapter against the emulator, over TCP.

mod connections;
mod locks;
mod raw;
mod receiving;
mod sending;
mod sessions;
mod shapes;
mod speed;
mod support;
