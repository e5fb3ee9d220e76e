//! Keeps a message locked while it is being handled.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Counters;
use crate::broker::{BrokerError, LockId, Settler};
use crate::outcome::Chain;

/// A lock is renewed no more often than this, however short it is.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// Renews the lock of one delivery.
pub(super) struct Renewal<'a, L> {
    pub(super) settler: &'a L,
    pub(super) lock: LockId,
    pub(super) remaining: Duration,
    pub(super) renewal_max: Duration,
    pub(super) counters: &'a Counters,
}

impl<L: Settler> Renewal<'_, L> {
    /// Runs `work`, and renews the lock each time half of it has passed.
    ///
    /// A lost lock does not cancel the work: what has claimed its key may finish and commit, since
    /// the claim turns the other delivery into a duplicate. Nothing is renewed after the work has
    /// ended.
    pub(super) async fn during<T>(self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            result = work => result,
            never = self.renew() => match never {},
        }
    }

    async fn renew(self) -> Infallible {
        let until = Instant::now() + self.renewal_max;
        let mut remaining = self.remaining;
        loop {
            sleep((remaining / 2).max(INTERVAL_MIN)).await;
            if Instant::now() >= until {
                warn!(limit = ?self.renewal_max, "the handler runs on, its lock is renewed no more");
                return pending().await;
            }
            match self.settler.renew(self.lock).await {
                Ok(renewed) => {
                    debug!(lock = self.lock.0, ?renewed, "lock renewed");
                    remaining = renewed;
                }
                Err(BrokerError::LockLost | BrokerError::Closed) => {
                    self.counters.locks_lost.increment();
                    warn!(lock = self.lock.0, "the lock is lost, the message comes again");
                    return pending().await;
                }
                Err(error) => {
                    warn!(lock = self.lock.0, error = %Chain(&error), "renewal failed, trying again");
                    remaining /= 2;
                }
            }
        }
    }
}
