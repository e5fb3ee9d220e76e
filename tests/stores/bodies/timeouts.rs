//! Handlers that take longer than they may.

use std::time::Duration;

use idem_runtime::outcome::RetryReason;
use idem_runtime::{Context, Outcome, execute, execute_batch};
use idem_tests::until;
use serde_json::{Value, json};

use super::{assert_broken, assert_counts, assert_outcome};
use crate::engines::{Engine, delivery};

/// Long enough for what a handler does before it hangs.
const LIMIT: Duration = Duration::from_secs(1);

fn limited(engine: &impl Engine, external_ref: &str, then: impl Into<Value>) -> Context {
    engine.context(delivery(external_ref, then)).with_handler_timeout(LIMIT)
}

fn assert_timed_out(outcome: &Outcome) {
    let Outcome::Retry(reason @ RetryReason::TimedOut(LIMIT)) = outcome else {
        panic!("{outcome:?}");
    };
    let expected = "the handler did not end within its time-out of 1s, and was stopped";
    assert_eq!(reason.to_string(), expected);
}

/// It has written its row, and waits for something that never comes.
pub(crate) async fn a_handler_that_hangs_after_its_writes_is_rolled_back<E: Engine>(engine: &E) {
    let store = engine.with_one_connection().await;
    for _ in 0..3 {
        let hanging = limited(engine, "r1", "wait");
        assert_timed_out(&execute::<E::ByKey, _>(&store, &hanging).await);
        engine.gate().until_arrived().await;
        assert_counts(engine, 0, 0).await;
    }
    let next = limited(engine, "r1", "ok");
    assert_outcome!(execute::<E::ByKey, _>(&store, &next).await, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

/// The answer of a statement that was dropped must not be taken for that of another.
pub(crate) async fn a_handler_that_hangs_in_a_statement_is_rolled_back<E: Engine>(engine: &E) {
    let store = engine.with_one_connection().await;
    let sleep = json!({ "run": E::TAKES_SECONDS });
    assert_timed_out(&execute::<E::ByKey, _>(&store, &limited(engine, "r1", sleep)).await);
    assert_counts(engine, 0, 0).await;
    let next = limited(engine, "r1", "ok");
    // Where the connection was closed, the server may work on for a while.
    until("the server lets go of the key", async || {
        match execute::<E::ByKey, _>(&store, &next).await {
            Outcome::Done(_) => true,
            Outcome::Busy | Outcome::Retry(RetryReason::NotStarted(_)) => false,
            outcome => panic!("{outcome:?}"),
        }
    })
    .await;
    for name in ["r2", "r3"] {
        let next = limited(engine, name, "ok");
        assert_outcome!(execute::<E::ByKey, _>(&store, &next).await, Outcome::Done(_));
        assert_outcome!(execute::<E::ByKey, _>(&store, &next).await, Outcome::Duplicate(_));
    }
    assert_counts(engine, 3, 3).await;
}

/// What it committed before it hung is found out: a redelivery would be a duplicate.
pub(crate) async fn a_handler_that_hangs_after_a_commit_of_its_own_is_found_out<E: Engine>(
    engine: &E,
) {
    let hanging = json!({ "cross": { "first": "COMMIT", "second": "", "ignore": false } });
    let outcome = execute::<E::ByKey, _>(engine.store(), &limited(engine, "r1", hanging)).await;
    assert_broken(outcome);
    engine.gate().until_arrived().await;
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_handler_that_hangs_is_no_matter_of_its_batch<E: Engine>(engine: &E) {
    let contexts = [("r1", "ok"), ("r2", "wait"), ("r3", "ok")];
    let contexts = contexts.map(|(name, then)| limited(engine, name, then));
    let outcomes = execute_batch::<E::AllAtOnce, _>(engine.store(), &contexts).await;
    let [Outcome::Done(_), hung @ Outcome::Retry(_), Outcome::Done(_)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_timed_out(hung);
    assert_eq!(engine.gate().take_batches(), [3, 1, 1, 1], "together, then one by one");
    engine.gate().until_arrived().await;
    engine.gate().until_arrived().await;
    assert_counts(engine, 2, 2).await;
}
