//! What a consumer has done so far.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::outcome::Outcome;
use crate::settle::Settlement;

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counts that only grow, shared with a running consumer.
        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub(super) $name: Counter,)+
        }

        /// The counts at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Summary {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// Reads all counts.
            pub fn summary(&self) -> Summary {
                Summary { $($name: self.$name.get(),)+ }
            }
        }
    };
}

counters! {
    /// Deliveries received.
    deliveries,
    /// Deliveries whose handler ran and committed.
    done,
    /// Deliveries whose key was committed before.
    duplicates,
    /// Deliveries whose key was committed before, for a message that says something else.
    conflicts,
    /// Deliveries given up because another one held their key for too long.
    busy,
    /// Deliveries whose handler or database failed.
    retries,
    /// Deliveries that can never be handled.
    rejected,
    /// Deliveries whose commit was neither proven nor disproven.
    unknown,
    /// Messages moved to the dead-letter queue: rejected, or failed on their last delivery.
    dead_letters,
    /// Deliveries held because the database was away or refused us.
    held,
    /// Locks that ran out while their message was being handled.
    locks_lost,
    /// Settlements that could not be given to the broker; these messages come again.
    settlements_failed,
    /// Times the receiver was opened again after the connection broke.
    reconnects,
}

/// A count that only grows.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    pub(super) fn count_outcome(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Done(_) => &self.done,
            Outcome::Duplicate(_) => &self.duplicates,
            Outcome::Conflict(_) => &self.conflicts,
            Outcome::Busy => &self.busy,
            Outcome::Retry(_) => &self.retries,
            Outcome::Reject(_) => &self.rejected,
            Outcome::Unknown(_) => &self.unknown,
        };
        counter.increment();
    }

    pub(super) fn count_settlement(&self, settlement: &Settlement) {
        match settlement {
            Settlement::DeadLetter(_) => self.dead_letters.increment(),
            Settlement::Complete(_) | Settlement::Abandon | Settlement::Leave => {}
        }
    }
}
