//! What a consumer has done so far. Whatever happens is counted here once, for those who ask the
//! consumer and for those who read metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::delivery::{Delivery, SourceId};
use crate::outcome::{Outcome, RetryReason};
use crate::settle::Settlement;
use crate::telemetry::metrics::{InFlight, Recorder};

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Counts that only grow, shared with a running consumer.
        #[derive(Debug)]
        pub struct Counters {
            metrics: Recorder,
            $($name: Counter,)+
        }

        /// The counts at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Summary {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            pub(super) fn new(source: &SourceId) -> Self {
                Self { metrics: Recorder::new(source), $($name: Counter::default(),)+ }
            }

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
struct Counter(AtomicU64);

impl Counter {
    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// A delivery is in flight until what is returned is dropped.
    pub(super) fn received(&self) -> InFlight {
        self.deliveries.increment();
        self.metrics.in_flight()
    }

    pub(super) fn decided(
        &self,
        scope: &'static str,
        delivery: &Delivery,
        outcome: &Outcome,
        took: Duration,
    ) {
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
        self.metrics.decided(scope, delivery, outcome, took);
    }

    /// What is held for a busy key is too common to be counted among [`held`](Summary::held).
    pub(super) fn held(&self, scope: &'static str, reason: Option<&RetryReason>) {
        if reason.is_some() {
            self.held.increment();
        }
        self.metrics.held(scope, reason);
    }

    pub(super) fn settling(&self, settlement: &Settlement) {
        match settlement {
            Settlement::DeadLetter(_) => self.dead_letters.increment(),
            Settlement::Complete(_) | Settlement::Abandon(_) | Settlement::Leave => {}
        }
        self.metrics.settling(settlement);
    }

    pub(super) fn settlement_failed(&self) {
        self.settlements_failed.increment();
        self.metrics.settlement_failed();
    }

    pub(super) fn lock_renewed(&self) {
        self.metrics.lock_renewed();
    }

    pub(super) fn lock_lost(&self) {
        self.locks_lost.increment();
        self.metrics.lock_lost();
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.increment();
        self.metrics.reconnected();
    }
}
