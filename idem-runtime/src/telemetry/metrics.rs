//! Counters, gauges and histograms, by the `metrics` facade.
//!
//! The list in the book is compared with what a run records. Labels are bounded: a source, a scope, an
//! outcome, never an id or a key.

use std::time::Duration;

use ::metrics::{
    Gauge, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use time::OffsetDateTime;

use super::{name_of_outcome, name_of_reason, name_of_settlement};
use crate::delivery::{Delivery, SourceId};
use crate::outcome::{Outcome, RetryReason};
use crate::settle::Settlement;

const DELIVERIES: &str = "idem_deliveries_total";
const FAILURES: &str = "idem_failures_total";
const PROCESSING: &str = "idem_processing_seconds";
const ENQUEUED_TO_DONE: &str = "idem_enqueued_to_done_seconds";
const IN_FLIGHT: &str = "idem_in_flight_messages";
const HELD: &str = "idem_held_total";
const BATCH: &str = "idem_batch_messages";
const SETTLEMENTS: &str = "idem_settlements_total";
const SETTLEMENTS_FAILED: &str = "idem_settlements_failed_total";
const LOCK_RENEWALS: &str = "idem_lock_renewals_total";
const LOCKS_LOST: &str = "idem_locks_lost_total";
const RECONNECTS: &str = "idem_reconnects_total";
const CLAIMS_PRUNED: &str = "idem_claims_pruned_total";
const PRUNINGS_FAILED: &str = "idem_prunings_failed_total";
const OLDEST_CLAIM: &str = "idem_oldest_claim_age_seconds";

/// Tells the recorder what each metric is.
pub(crate) fn describe() {
    let counters = [
        (DELIVERIES, "Deliveries that came to an outcome."),
        (FAILURES, "Deliveries that failed and are tried again, by what failed."),
        (HELD, "Deliveries held since their key was busy or the database away."),
        (SETTLEMENTS, "What the broker is told about deliveries."),
        (SETTLEMENTS_FAILED, "Settlements that the broker could not be told."),
        (LOCK_RENEWALS, "Locks renewed while their messages were handled."),
        (LOCKS_LOST, "Locks that ran out while their messages were handled."),
        (RECONNECTS, "Times that a receiver was opened again."),
        (CLAIMS_PRUNED, "Claims deleted since they had outlived their retention."),
        (PRUNINGS_FAILED, "Prunings that the database has failed."),
    ];
    for (name, description) in counters {
        describe_counter!(name, Unit::Count, description);
    }
    describe_gauge!(IN_FLIGHT, Unit::Count, "Messages received and not yet settled.");
    describe_gauge!(OLDEST_CLAIM, Unit::Seconds, "Age of the oldest claim at the last pruning.");
    let processing = "Time from the receipt of a delivery to its outcome.";
    describe_histogram!(PROCESSING, Unit::Seconds, processing);
    let done = "Time from when the broker took a message to when its effects were committed.";
    describe_histogram!(ENQUEUED_TO_DONE, Unit::Seconds, done);
    describe_histogram!(BATCH, Unit::Count, "Messages that were handled together.");
}

/// Records under the name of one source.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    source: SharedString,
}

impl Recorder {
    pub(crate) fn new(source: &SourceId) -> Self {
        Self { source: SharedString::from_shared(source.to_string().into()) }
    }

    fn source(&self) -> SharedString {
        self.source.clone()
    }

    /// Counts a message among those in flight until what is returned is dropped.
    pub(crate) fn in_flight(&self) -> InFlight {
        let gauge = gauge!(IN_FLIGHT, "source" => self.source());
        gauge.increment(1);
        InFlight(gauge)
    }

    pub(crate) fn decided(
        &self,
        scope: &'static str,
        delivery: &Delivery,
        outcome: &Outcome,
        took: Duration,
    ) {
        let (source, name) = (|| self.source(), name_of_outcome(outcome));
        counter!(DELIVERIES, "source" => source(), "scope" => scope, "outcome" => name)
            .increment(1);
        histogram!(PROCESSING, "source" => source(), "scope" => scope, "outcome" => name)
            .record(took);
        match outcome {
            Outcome::Done(_) => {
                if let Some(age) = delivery.enqueued_at().map(age) {
                    histogram!(ENQUEUED_TO_DONE, "source" => source(), "scope" => scope)
                        .record(age);
                }
            }
            Outcome::Retry(reason) => {
                let cause = name_of_reason(reason);
                counter!(FAILURES, "source" => source(), "scope" => scope, "cause" => cause)
                    .increment(1);
            }
            Outcome::Duplicate(_)
            | Outcome::Conflict(_)
            | Outcome::Busy
            | Outcome::Reject(_)
            | Outcome::Unknown(_) => {}
        }
    }

    pub(crate) fn held(&self, scope: &'static str, reason: Option<&RetryReason>) {
        let cause = reason.map_or("busy", name_of_reason);
        counter!(HELD, "source" => self.source(), "scope" => scope, "cause" => cause).increment(1);
    }

    pub(crate) fn settling(&self, settlement: &Settlement) {
        let name = name_of_settlement(settlement);
        counter!(SETTLEMENTS, "source" => self.source(), "settlement" => name).increment(1);
    }

    pub(crate) fn settlement_failed(&self) {
        counter!(SETTLEMENTS_FAILED, "source" => self.source()).increment(1);
    }

    pub(crate) fn lock_renewed(&self) {
        counter!(LOCK_RENEWALS, "source" => self.source()).increment(1);
    }

    pub(crate) fn lock_lost(&self) {
        counter!(LOCKS_LOST, "source" => self.source()).increment(1);
    }

    pub(crate) fn reconnected(&self) {
        counter!(RECONNECTS, "source" => self.source()).increment(1);
    }
}

/// A message in flight.
#[must_use]
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

pub(crate) fn batch(scope: &'static str, messages: usize) {
    let messages = u32::try_from(messages).unwrap_or(u32::MAX);
    histogram!(BATCH, "scope" => scope).record(messages);
}

pub(crate) fn pruned(scope: &'static str, claims: u64) {
    counter!(CLAIMS_PRUNED, "scope" => scope).increment(claims);
}

pub(crate) fn pruning_failed(scope: &'static str) {
    counter!(PRUNINGS_FAILED, "scope" => scope).increment(1);
}

/// Without any claim, none is old.
pub(crate) fn oldest_claim(scope: &'static str, age: Option<Duration>) {
    gauge!(OLDEST_CLAIM, "scope" => scope).set(age.unwrap_or_default());
}

/// How long ago the broker took a message. Its clock is not ours: what it took in our future, it took
/// now.
fn age(enqueued_at: OffsetDateTime) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "the database has no part in it")]
    let now = OffsetDateTime::now_utc();
    (now - enqueued_at).try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_is_younger_than_none() {
        #[expect(clippy::disallowed_methods, reason = "this is what is tested")]
        let now = OffsetDateTime::now_utc();
        assert_eq!(age(now + Duration::from_secs(3600)), Duration::ZERO);
        assert_eq!(
            age(OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT)),
            Duration::ZERO
        );
        let hour = age(now - Duration::from_secs(3600));
        assert!((3600..3700).contains(&hour.as_secs()), "{hour:?}");
    }
}
