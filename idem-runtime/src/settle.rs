//! From what was committed to what the broker is told. Nothing else settles a message.

use crate::execute::Proof;
use crate::outcome::{Outcome, Rejection, RetryReason, cut};

/// What the broker is told about a delivery.
#[derive(Debug)]
pub enum Settlement {
    /// Remove the message: its effect is committed, and here is the proof.
    Complete(Proof),
    /// Give the message back: it comes again at once, with a higher delivery count. If it failed, this
    /// says why, for the message's property [`LAST_FAILURE`].
    Abandon(Option<String>),
    /// Move the message to the dead-letter queue.
    DeadLetter(Rejection),
    /// Say nothing: the lock runs out and the message comes again.
    Leave,
}

/// The property of a message that says why it failed in its last delivery. It shows in the queue, and
/// stays with the message when the broker itself dead-letters it, which gives no reason of its own
/// but that the deliveries are used up.
///
/// At most 1,024 characters; the rest is cut.
pub const LAST_FAILURE: &str = "idem-last-failure";

const LAST_FAILURE_MAX: usize = 1024;

/// What happens to a message that is given back, which decides whether to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It comes again.
    Earlier,
    /// The broker dead-letters it, and can only say that its deliveries were used up.
    Last,
    /// It comes again, however often: it is in the dead-letter queue, and there is no other place
    /// to move it to. It is left there, so that its lock makes the pause before it comes.
    DeadLettered,
}

/// The settlement that follows from an outcome.
pub(crate) fn settlement(outcome: Outcome, standing: Standing) -> Settlement {
    match (outcome, standing) {
        (Outcome::Done(proof) | Outcome::Duplicate(proof), _) => Settlement::Complete(proof),
        (Outcome::Reject(rejection), Standing::Earlier | Standing::Last) => {
            Settlement::DeadLetter(rejection)
        }
        (Outcome::Conflict(conflict), Standing::Earlier | Standing::Last) => {
            Settlement::DeadLetter(Rejection::new("IdempotencyConflict", conflict.to_string()))
        }
        // The message did nothing wrong: it is given back as often as it takes.
        (Outcome::Retry(RetryReason::NotStarted(_)), _) => Settlement::Abandon(None),
        // Given back it would come again at once, before all others, and fail again at once.
        (Outcome::Reject(_) | Outcome::Conflict(_) | Outcome::Retry(_), Standing::DeadLettered) => {
            Settlement::Leave
        }
        (Outcome::Retry(reason), Standing::Last) => {
            Settlement::DeadLetter(Rejection::new("DeliveriesExhausted", reason.to_string()))
        }
        (Outcome::Retry(reason), Standing::Earlier) => {
            Settlement::Abandon(Some(cut(reason.to_string(), LAST_FAILURE_MAX)))
        }
        // Whoever holds the key may still fail, so a busy message is never dead-lettered by us.
        (Outcome::Busy, _) => Settlement::Abandon(None),
        // The commit may have happened: only the claim, met by the next delivery, can tell.
        (Outcome::Unknown(_), _) => Settlement::Leave,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outcome::Conflict;
    use crate::store::{Fault, StoreError};

    fn told(outcome: Outcome, standing: Standing) -> String {
        match settlement(outcome, standing) {
            Settlement::Complete(_) => "complete".to_owned(),
            Settlement::Abandon(None) => "abandon".to_owned(),
            Settlement::Abandon(Some(failure)) => format!("abandon: {failure}"),
            Settlement::DeadLetter(rejection) => format!("dead-letter {}", rejection.reason()),
            Settlement::Leave => "leave".to_owned(),
        }
    }

    const DISAGREES: &str = "dead-letter IdempotencyConflict";

    /// Every outcome in every standing.
    #[test]
    fn the_settlement_follows_from_the_outcome() {
        let done = || Outcome::Done(Proof::for_test());
        let duplicate = || Outcome::Duplicate(Proof::for_test());
        let conflict = || Outcome::Conflict(Conflict::new(vec!["amount", "currency"]));
        let busy = || Outcome::Busy;
        let failed = || Outcome::Retry(RetryReason::Handler("no".into()));
        let panicked = || Outcome::Retry(RetryReason::Panic("boom".to_owned()));
        let hung = || Outcome::Retry(RetryReason::TimedOut(Duration::from_secs(1)));
        let rejected = || Outcome::Reject(Rejection::new("UnknownCurrency", "XXX"));
        let in_doubt = || Outcome::Unknown(StoreError::found("commit", Fault::InDoubt));
        let away = || StoreError::found("begin", Fault::Unavailable);
        let not_started = || Outcome::Retry(RetryReason::NotStarted(away()));
        let not_committed = || Outcome::Retry(RetryReason::NotCommitted(away()));
        let table: [(&dyn Fn() -> Outcome, [&str; 3]); 11] = [
            (&done, ["complete", "complete", "complete"]),
            (&duplicate, ["complete", "complete", "complete"]),
            (&conflict, [DISAGREES, DISAGREES, "leave"]),
            (&busy, ["abandon", "abandon", "abandon"]),
            (
                &failed,
                ["abandon: the handler failed: no", "dead-letter DeliveriesExhausted", "leave"],
            ),
            (
                &panicked,
                ["abandon: the handler panicked: boom", "dead-letter DeliveriesExhausted", "leave"],
            ),
            (
                &hung,
                [
                    "abandon: the handler did not end within its time-out of 1s, and was stopped",
                    "dead-letter DeliveriesExhausted",
                    "leave",
                ],
            ),
            (&not_started, ["abandon", "abandon", "abandon"]),
            (&not_committed, ["abandon: begin", "dead-letter DeliveriesExhausted", "leave"]),
            (&rejected, ["dead-letter UnknownCurrency", "dead-letter UnknownCurrency", "leave"]),
            (&in_doubt, ["leave", "leave", "leave"]),
        ];
        for (outcome, expected) in table {
            let standings = [Standing::Earlier, Standing::Last, Standing::DeadLettered];
            for (standing, expected) in standings.into_iter().zip(expected) {
                assert_eq!(told(outcome(), standing), expected, "{:?}, {standing:?}", outcome());
            }
        }
    }

    #[test]
    fn a_long_failure_is_cut() {
        let failed = Outcome::Retry(RetryReason::Handler("é".repeat(10_000).into()));
        let Settlement::Abandon(Some(failure)) = settlement(failed, Standing::Earlier) else {
            panic!("it is given back");
        };
        assert_eq!(failure.chars().count(), LAST_FAILURE_MAX);
    }
}
