//! What the tests share: databases of their own, a proxy that breaks connections, and
//! what is logged.

pub mod database;
pub mod log;
pub mod proxy;

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// Waits until something is so.
///
/// # Panics
///
/// When it is not so after a minute.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < patience, "in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
