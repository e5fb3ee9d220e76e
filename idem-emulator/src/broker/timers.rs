//! Who wants to be woken at a point in time, by the emulator's clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::clock::Timestamp;

/// Each entry stands for one thing that a connection has put off, and leaves at its time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    next_id: u64,
    wakers: BTreeMap<(Timestamp, u64), Waker>,
}

impl Timers {
    pub(super) fn add(&self, at: Timestamp, waker: Waker) {
        let mut pending = self.pending();
        let id = pending.next_id;
        pending.next_id += 1;
        pending.wakers.insert((at, id), waker);
    }

    /// Wakes those whose time has come; returns when there will be more.
    pub(super) fn fire(&self, now: Timestamp) -> Option<Timestamp> {
        let mut pending = self.pending();
        while let Some(entry) = pending.wakers.first_entry() {
            if entry.key().0 > now {
                break;
            }
            entry.remove().wake();
        }
        pending.wakers.first_key_value().map(|((at, _), _)| *at)
    }

    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
