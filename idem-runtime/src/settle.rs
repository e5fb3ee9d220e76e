//! From what was committed to what the broker is told. Nothing else settles a message.

use crate::outcome::{Outcome, Rejection};
use crate::store::Proof;

/// What the broker is told about a delivery.
#[derive(Debug)]
pub enum Settlement {
    /// Remove the message: its effect is committed, and here is the proof.
    Complete(Proof),
    /// Give the message back: it comes again at once, with a higher delivery count.
    Abandon,
    /// Move the message to the dead-letter queue.
    DeadLetter(Rejection),
    /// Say nothing: the lock runs out and the message comes again.
    Leave,
}

/// The settlement that follows from an outcome.
///
/// `last_delivery` says that the broker would dead-letter the message when it comes back once
/// more: then it is dead-lettered now, with the real reason.
pub(crate) fn settlement(outcome: Outcome, last_delivery: bool) -> Settlement {
    match outcome {
        Outcome::Done(proof) | Outcome::Duplicate(proof) => Settlement::Complete(proof),
        Outcome::Reject(rejection) => Settlement::DeadLetter(rejection),
        Outcome::Retry(reason) if last_delivery => {
            Settlement::DeadLetter(Rejection::new("DeliveriesExhausted", reason.to_string()))
        }
        Outcome::Retry(_) => Settlement::Abandon,
        // Whoever holds the key may still fail, so a busy message is never dead-lettered by us.
        Outcome::Busy => Settlement::Abandon,
        // The commit may have happened: only the claim, met by the next delivery, can tell.
        Outcome::Unknown(_) => Settlement::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::RetryReason;
    use crate::store::{Fault, StoreError};

    fn told(outcome: Outcome, last_delivery: bool) -> String {
        match settlement(outcome, last_delivery) {
            Settlement::Complete(_) => "complete".to_owned(),
            Settlement::Abandon => "abandon".to_owned(),
            Settlement::DeadLetter(rejection) => format!("dead-letter {}", rejection.reason()),
            Settlement::Leave => "leave".to_owned(),
        }
    }

    /// Every outcome, on an earlier delivery and on the last one.
    #[test]
    fn the_settlement_follows_from_the_outcome() {
        let failed = || Outcome::Retry(RetryReason::Handler("no".into()));
        let panicked = || Outcome::Retry(RetryReason::Panic("boom".to_owned()));
        let rejected = || Outcome::Reject(Rejection::new("UnknownCurrency", "XXX"));
        let in_doubt = || Outcome::Unknown(StoreError::found("commit", Fault::InDoubt));
        let table: [(&dyn Fn() -> Outcome, &str, &str); 7] = [
            (&|| Outcome::Done(Proof::for_test()), "complete", "complete"),
            (&|| Outcome::Duplicate(Proof::for_test()), "complete", "complete"),
            (&|| Outcome::Busy, "abandon", "abandon"),
            (&failed, "abandon", "dead-letter DeliveriesExhausted"),
            (&panicked, "abandon", "dead-letter DeliveriesExhausted"),
            (&rejected, "dead-letter UnknownCurrency", "dead-letter UnknownCurrency"),
            (&in_doubt, "leave", "leave"),
        ];
        for (outcome, earlier, last) in table {
            assert_eq!(told(outcome(), false), earlier, "{:?}", outcome());
            assert_eq!(told(outcome(), true), last, "{:?}, last delivery", outcome());
        }
    }
}
