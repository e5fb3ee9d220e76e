//! One event for each delivery that says what it came to.

use tracing::{debug, error, info, warn};

use super::name_of_reason;
use crate::handler::Context;
use crate::outcome::{Chain, Outcome, RetryReason};

/// Says what a delivery came to, in one event of the target `idem_runtime::outcome`.
///
/// What is as it should be is told below `warn`, a duplicate too, so that redeliveries raise no alarm.
/// What comes again by itself is a warning, and what somebody has to look at is an error.
pub(crate) fn report(context: &Context, scope: &str, outcome: &Outcome) {
    let delivery = context.delivery();
    let message_id = delivery.message_id();
    let delivery_count = delivery.delivery_count();
    macro_rules! tell {
        ($level:ident, $outcome:literal, $($fields:tt)+) => {
            $level!(
                target: "idem_runtime::outcome",
                outcome = $outcome, scope, message_id, delivery_count, $($fields)+
            )
        };
    }
    match outcome {
        Outcome::Done(_) => tell!(debug, "done", "done"),
        Outcome::Duplicate(proof) => {
            let first_claimed_at = proof.claimed_at().map(tracing::field::display);
            tell!(info, "duplicate", first_claimed_at, "duplicate ignored, already processed");
        }
        Outcome::Conflict(conflict) => {
            let fields = conflict.fields().join(", ");
            tell!(
                warn,
                "conflict",
                fields,
                "another message with this key was processed before, and differs"
            );
        }
        Outcome::Busy => tell!(warn, "busy", "another delivery holds the key, given back"),
        Outcome::Retry(reason @ RetryReason::Panic(_)) => {
            tell!(error, "retry", cause = name_of_reason(reason), %reason, "failed");
        }
        Outcome::Retry(reason) => {
            tell!(warn, "retry", cause = name_of_reason(reason), %reason, "failed");
        }
        Outcome::Reject(rejection) => {
            let (cause, reason) = (rejection.reason(), rejection.description());
            tell!(error, "reject", cause, reason, "rejected");
        }
        Outcome::Unknown(error) => {
            tell!(warn, "unknown", reason = %Chain(error), "commit in doubt, left to come again");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::delivery::{Delivery, SourceId};
    use crate::execute::Proof;
    use crate::outcome::{Conflict, Rejection};
    use crate::store::{Fault, StoreError};
    use crate::telemetry::name_of_outcome;
    use crate::telemetry::recording::Recording;

    #[test]
    fn each_outcome_has_one_event_of_its_level_with_its_fields() {
        let retry = Outcome::Retry;
        let found = |fault| StoreError::found("commit", fault);
        let table = [
            (Outcome::Done(Proof::for_test()), Level::DEBUG, ""),
            (Outcome::Duplicate(Proof::for_test()), Level::INFO, ""),
            (Outcome::Conflict(Conflict::new(vec!["amount", "currency"])), Level::WARN, ""),
            (Outcome::Busy, Level::WARN, ""),
            (retry(RetryReason::Handler("no".into())), Level::WARN, "handler_failed"),
            (retry(RetryReason::Panic("boom".to_owned())), Level::ERROR, "handler_panicked"),
            (
                retry(RetryReason::TimedOut(std::time::Duration::from_secs(1))),
                Level::WARN,
                "handler_timed_out",
            ),
            (retry(RetryReason::NotStarted(found(Fault::Unavailable))), Level::WARN, "not_started"),
            (retry(RetryReason::NotCommitted(found(Fault::Refused))), Level::WARN, "not_committed"),
            (
                Outcome::Reject(Rejection::new("UnknownCurrency", "XXX")),
                Level::ERROR,
                "UnknownCurrency",
            ),
            (Outcome::Unknown(found(Fault::InDoubt)), Level::WARN, ""),
        ];
        let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), "{}");
        let context = Context::of(delivery.with_message_id("m-1").with_delivery_count(3));
        for (outcome, level, cause) in table {
            let recording = Recording::start();
            report(&context, "orders.place", &outcome);
            let events = recording.recorded().events;
            let [event] = &events[..] else { panic!("{events:?}") };
            assert_eq!((event.level, event.target.as_str()), (level, "idem_runtime::outcome"));
            assert_eq!(event.field("outcome"), name_of_outcome(&outcome));
            assert_eq!(event.field("cause"), cause, "{outcome:?}");
            let known = ["scope", "message_id", "delivery_count"].map(|name| event.field(name));
            assert_eq!(known, ["orders.place", "m-1", "3"]);
            if let Outcome::Conflict(_) = outcome {
                assert_eq!(event.field("fields"), "amount, currency");
            }
        }
    }
}
