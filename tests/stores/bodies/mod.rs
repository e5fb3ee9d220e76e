//! The tests, on whichever engine.

pub(crate) mod batches;
pub(crate) mod claims;
pub(crate) mod constraints;
pub(crate) mod contention;
pub(crate) mod failures;
pub(crate) mod own_loops;
pub(crate) mod pools;
pub(crate) mod processes;
pub(crate) mod pruning;
pub(crate) mod renaming;
pub(crate) mod replies;
pub(crate) mod start;
pub(crate) mod timeouts;
pub(crate) mod transactions;

use idem_runtime::Outcome;

use crate::engines::Engine;

/// Asserts the outcome's variant, and shows the whole outcome when it is another.
macro_rules! assert_outcome {
    ($outcome:expr, $pattern:pat $(if $guard:expr)?) => {
        match $outcome {
            $pattern $(if $guard)? => {}
            other => panic!("expected {}, found {other:?}", stringify!($pattern)),
        }
    };
}
pub(crate) use assert_outcome;

pub(crate) async fn assert_counts(engine: &impl Engine, effects: i64, claims: i64) {
    assert_eq!(
        (engine.effects().await, engine.claims().await),
        (effects, claims),
        "effects, claims"
    );
}

pub(crate) fn assert_broken(outcome: Outcome) {
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
}
