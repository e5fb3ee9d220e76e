//! When something is due next, for the task that sleeps until then.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::sync::Notify;

use crate::clock::Timestamp;

const NEVER: i64 = i64::MAX;

/// The earliest deadline that the sleeping task knows of.
#[derive(Debug)]
pub(crate) struct Alarm {
    deadline: AtomicI64,
    changed: Notify,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { deadline: AtomicI64::new(NEVER), changed: Notify::new() }
    }
}

impl Alarm {
    /// Makes sure that the sleeper wakes by `deadline`; costs next to nothing if it will anyway.
    pub(super) fn arm(&self, deadline: Timestamp) {
        let deadline = deadline.milliseconds();
        if self.deadline.fetch_min(deadline, Ordering::AcqRel) > deadline {
            self.changed.notify_one();
        }
    }

    /// Notes what the sleeper is about to sleep for.
    pub(super) fn expect(&self, deadline: Timestamp) {
        self.deadline.fetch_min(deadline.milliseconds(), Ordering::AcqRel);
    }

    pub(super) fn disarm(&self) {
        self.deadline.store(NEVER, Ordering::Release);
    }

    /// Waits until an earlier deadline is armed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
