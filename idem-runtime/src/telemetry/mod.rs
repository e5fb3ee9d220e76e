//! What can be watched from outside: spans, events and metrics.
//!
//! Each delivery has one span, which continues the trace of its sender, and one event that says what
//! it came to. What is counted goes to whichever recorder of the `metrics` facade is installed. None
//! of it holds a body, a key or a secret.

mod events;
pub(crate) mod metrics;
#[cfg(test)]
pub(crate) mod recording;
#[cfg(test)]
mod secrets;
mod span;
mod trace;

pub(crate) use events::report;
pub(crate) use span::{of_batch, of_delivery, record_outcome};
pub use trace::TraceContext;

use crate::outcome::{Outcome, RetryReason};
use crate::settle::Settlement;

/// The names of outcomes, as spans, events and metrics have them.
pub(crate) fn name_of_outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done(_) => "done",
        Outcome::Duplicate(_) => "duplicate",
        Outcome::Conflict(_) => "conflict",
        Outcome::Busy => "busy",
        Outcome::Retry(_) => "retry",
        Outcome::Reject(_) => "reject",
        Outcome::Unknown(_) => "unknown",
    }
}

/// The names of the reasons for which nothing was committed.
pub(crate) fn name_of_reason(reason: &RetryReason) -> &'static str {
    match reason {
        RetryReason::Handler(_) => "handler_failed",
        RetryReason::Panic(_) => "handler_panicked",
        RetryReason::TimedOut(_) => "handler_timed_out",
        RetryReason::NotStarted(_) => "not_started",
        RetryReason::NotCommitted(_) => "not_committed",
    }
}

/// The names of settlements.
pub(crate) fn name_of_settlement(settlement: &Settlement) -> &'static str {
    match settlement {
        Settlement::Complete(_) => "complete",
        Settlement::Abandon(_) => "abandon",
        Settlement::DeadLetter(_) => "dead_letter",
        Settlement::Leave => "leave",
    }
}
