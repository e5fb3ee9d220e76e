//! What is waited for before a message is given back, whoever receives.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::outcome::{Outcome, RetryReason};

/// Pauses before a busy key, or a database that is away, is tried again.
pub(crate) const HELD: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(2));

/// Pauses before a failed message is given back. The broker hands it out again at once, so the
/// waiting is done here, under the lock.
pub(crate) const GIVEN_BACK: Backoff = Backoff::new(Duration::from_millis(50), GIVEN_BACK_MAX);

pub(crate) const GIVEN_BACK_MAX: Duration = Duration::from_secs(30);

/// Whether it is nothing that the message or its handler could help, and may soon be over.
pub(crate) fn is_worth_waiting(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Busy | Outcome::Retry(RetryReason::NotStarted(_)) => true,
        Outcome::Done(_)
        | Outcome::Duplicate(_)
        | Outcome::Conflict(_)
        | Outcome::Retry(_)
        | Outcome::Reject(_)
        | Outcome::Unknown(_) => false,
    }
}

/// The reason for which a delivery is tried again, if it failed.
pub(crate) fn reason_of(outcome: &Outcome) -> Option<&RetryReason> {
    match outcome {
        Outcome::Retry(reason) => Some(reason),
        Outcome::Busy
        | Outcome::Done(_)
        | Outcome::Duplicate(_)
        | Outcome::Conflict(_)
        | Outcome::Reject(_)
        | Outcome::Unknown(_) => None,
    }
}
