//! Keeps a message locked while it is being handled.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, warn};

use super::Counters;
use crate::broker::{BrokerError, LockId, Settler};
use crate::outcome::Chain;

/// A lock is renewed no more often than this, however short it is.
const INTERVAL_MIN: Duration = Duration::from_millis(50);

/// The lock of one delivery: what its renewal and its handling tell each other.
pub(super) struct Hold {
    /// Until when the lock is renewed; as long as it takes when not set.
    until: Mutex<Option<Instant>>,
    lost: SetOnce<()>,
}

impl Hold {
    pub(super) fn new() -> Self {
        Self { until: Mutex::new(None), lost: SetOnce::new() }
    }

    /// From now on the lock is renewed for this long at most; `None` for as long as it takes, and
    /// so is a time too long to be counted.
    pub(super) fn renew_for(&self, duration: Option<Duration>) {
        let until = duration.and_then(|duration| Instant::now().checked_add(duration));
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.initialized()
    }

    /// Completes when the lock is lost.
    pub(super) async fn lost(&self) {
        self.lost.wait().await;
    }

    fn is_over(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() >= until)
    }
}

/// Renews the lock of one delivery.
pub(super) struct Renewal<'a, L> {
    pub(super) settler: &'a L,
    pub(super) lock: LockId,
    pub(super) remaining: Duration,
    pub(super) hold: &'a Hold,
    pub(super) counters: &'a Counters,
}

impl<L: Settler> Renewal<'_, L> {
    /// Runs `work`, and renews the lock each time half of it has passed.
    ///
    /// A lost lock does not cancel the work: what has claimed its key may finish and commit, since
    /// the claim turns the other delivery into a duplicate. Nothing is renewed after the work has
    /// ended.
    pub(super) async fn during<T>(self, work: Pin<&mut impl Future<Output = T>>) -> T {
        tokio::select! {
            biased;
            result = work => result,
            never = self.renew_until_lost() => match never {},
        }
    }

    async fn renew_until_lost(self) -> Infallible {
        self.renew().await;
        self.counters.lock_lost();
        warn!(lock = self.lock.0, "the lock is lost, the message comes again");
        self.hold.lost.set(()).ok();
        pending().await
    }

    /// Returns when the lock is held no more.
    async fn renew(&self) {
        let mut ends = Instant::now() + self.remaining;
        loop {
            let remaining = ends.saturating_duration_since(Instant::now());
            sleep((remaining / 2).max(INTERVAL_MIN)).await;
            if self.hold.is_over() {
                warn!(lock = self.lock.0, "the handler runs too long, its lock is renewed no more");
                return sleep_until(ends).await;
            }
            match self.settler.renew(self.lock).await {
                Ok(renewed) => {
                    self.counters.lock_renewed();
                    debug!(lock = self.lock.0, ?renewed, "lock renewed");
                    ends = Instant::now() + renewed;
                }
                Err(BrokerError::LockLost | BrokerError::Closed) => return,
                Err(_) if Instant::now() >= ends => return,
                Err(error) => {
                    warn!(lock = self.lock.0, error = %Chain(&error), "renewal failed, trying again");
                }
            }
        }
    }
}
