//! What the tests share: databases of their own, and a proxy that breaks connections.

pub mod database;
pub mod proxy;
