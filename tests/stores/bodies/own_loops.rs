//! Deliveries that somebody else receives.

use std::time::Duration;

use idem_runtime::outcome::RetryReason;
use idem_runtime::{Executor, Outcome, Settlement, StartError};
use serde_json::json;

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery};

/// Long enough to see that nothing is waited for in vain, and short.
const PATIENCE: Duration = Duration::from_millis(300);

async fn executor<E: Engine>(engine: &E) -> Executor<E::ByKey, E::Store> {
    let executor = Executor::builder(engine.store().clone(), E::HANDLER)
        .state(engine.gate().clone())
        .state(engine.store().clone())
        .patience(PATIENCE)
        .start()
        .await;
    executor.expect("it starts")
}

pub(crate) async fn a_redelivery_to_a_loop_of_ones_own_is_a_duplicate<E: Engine>(engine: &E) {
    let executor = executor(engine).await;
    let first = executor.execute_once(delivery("r1", "ok")).await;
    assert_outcome!(first.outcome(), Outcome::Done(_));
    assert_outcome!(first.into_settlement(), Settlement::Complete(_));
    let again = executor.execute_once(delivery("r1", "ok").with_delivery_count(2)).await;
    assert_outcome!(again.outcome(), Outcome::Duplicate(_));
    let Settlement::Complete(proof) = again.into_settlement() else { panic!("not completed") };
    assert!(proof.claimed_at().is_some(), "by the first one's claim");
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_key_that_stays_busy_is_given_back_and_never_completed<E: Engine>(engine: &E) {
    if E::SERVER.is_none() {
        // One writer at a time: the others wait for the database, whatever their keys.
        return;
    }
    let executor = executor(engine).await;
    let holder = executor.execute_once(delivery("r1", "wait"));
    let others = async {
        engine.gate().until_arrived().await;
        for delivery_count in [1, 10, 99] {
            let other = delivery("r1", "ok").with_delivery_count(delivery_count);
            let other = executor.execute_once(other).await;
            assert_outcome!(other.outcome(), Outcome::Busy);
            assert_outcome!(other.into_settlement(), Settlement::Abandon(_));
        }
        engine.gate().open();
    };
    let (held, ()) = tokio::join!(holder, others);
    assert_outcome!(held.into_settlement(), Settlement::Complete(_));
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_key_that_is_busy_for_a_while_is_waited_for<E: Engine>(engine: &E) {
    let executor = Executor::builder(engine.store().clone(), E::HANDLER)
        .state(engine.gate().clone())
        .state(engine.store().clone())
        .patience(Duration::from_secs(60))
        .start()
        .await
        .expect("it starts");
    let holder = executor.execute_once(delivery("r1", "wait"));
    let other = async {
        engine.gate().until_arrived().await;
        let other = executor.execute_once(delivery("r1", "ok"));
        let open = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            engine.gate().open();
        };
        let (other, ()) = tokio::join!(other, open);
        assert_outcome!(other.outcome(), Outcome::Duplicate(_));
    };
    let (held, ()) = tokio::join!(holder, other);
    assert_outcome!(held.outcome(), Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_failure_is_given_back_until_the_last_delivery<E: Engine>(engine: &E) {
    let executor = executor(engine).await;
    let failed = executor.execute_once(delivery("r1", "fail")).await;
    assert_outcome!(failed.outcome(), Outcome::Retry(RetryReason::Handler(_)));
    assert_outcome!(failed.into_settlement(), Settlement::Abandon(_));
    let failed = executor.execute_once(delivery("r1", "panic").with_delivery_count(9)).await;
    assert_outcome!(failed.into_settlement(), Settlement::Abandon(_));
    let last = executor.execute_once(delivery("r1", "fail").with_delivery_count(10)).await;
    assert_outcome!(last.into_settlement(), Settlement::DeadLetter(why)
        if why.reason() == "DeliveriesExhausted" && why.description().contains("the shop is closed"));
    assert_counts(engine, 0, 0).await;
}

pub(crate) async fn what_can_never_be_handled_is_dead_lettered_with_its_reason<E: Engine>(
    engine: &E,
) {
    let executor = executor(engine).await;
    let rejected = executor.execute_once(delivery("r1", "reject")).await;
    assert_outcome!(rejected.outcome(), Outcome::Reject(_));
    assert_outcome!(rejected.into_settlement(), Settlement::DeadLetter(why)
        if why.reason() == "UnknownCustomer" && why.description() == "no customer 7");
    let undecodable = executor.execute_once(delivery("r1", json!({ "nonsense": 1 }))).await;
    assert_outcome!(undecodable.into_settlement(), Settlement::DeadLetter(why)
        if why.reason() == "UndecodableBody");
    assert_counts(engine, 0, 0).await;
}

pub(crate) async fn an_executor_that_cannot_work_does_not_start<E: Engine>(engine: &E) {
    let stateless = Executor::builder(engine.store().clone(), E::HANDLER).delivery_count_max(0);
    let error = stateless.handler_timeout(Duration::ZERO).start().await.err().expect("refused");
    let StartError::Description(problems) = &error else { panic!("{error:?}") };
    assert_eq!(problems.len(), 4, "two states and two numbers: {error}");

    engine.execute("DROP TABLE idem_scope").await;
    let error = Executor::builder(engine.store().clone(), E::HANDLER)
        .state(engine.gate().clone())
        .state(engine.store().clone())
        .start()
        .await
        .err()
        .expect("refused");
    assert_outcome!(error, StartError::Store(_));
}
