//! Transactions that handlers end, and that end under them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use idem_runtime::outcome::RetryReason;
use idem_runtime::{Outcome, execute};
use serde_json::json;

use super::{assert_broken, assert_counts, assert_outcome};
use crate::engines::{Engine, delivery};

/// R-14's kind: the handler commits or rolls back by itself.
pub(crate) async fn an_ended_transaction_is_found_out<E: Engine>(engine: &E) {
    for sql in ["COMMIT", "COMMIT; BEGIN"] {
        assert_broken(engine.place(sql, json!({ "run": sql })).await);
    }
    for sql in ["ROLLBACK", "ROLLBACK; BEGIN"] {
        let outcome = engine.place(sql, json!({ "run": sql })).await;
        if E::GOES_ON_WITHOUT_TRANSACTION {
            assert_broken(outcome);
        } else {
            // Nothing is committed, so that trying again does no harm.
            assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.to_string().contains("was rolled back"));
        }
    }
    assert_counts(engine, 2, 2).await;
    // The pool is as good as before.
    assert_outcome!(engine.place("r3", "ok").await, Outcome::Done(_));
}

/// The claim is committed with half of the work: a redelivery would be a duplicate.
pub(crate) async fn what_a_handler_committed_before_it_failed_is_found_out(engine: &impl Engine) {
    let sqls = ["COMMIT", "COMMIT; BEGIN"];
    for sql in sqls {
        assert_broken(engine.place(sql, json!({ "run_and_fail": sql })).await);
    }
    assert_counts(engine, 2, 2).await;
    assert_outcome!(engine.place("r3", "fail").await, Outcome::Retry(_));
    assert_outcome!(engine.place("r3", "ok").await, Outcome::Done(_));
}

///
pub(crate) async fn ddl_is_part_of_the_transaction_or_found_out<E: Engine>(engine: &E) {
    let fails = json!({ "run_and_fail": "CREATE TABLE made (id bigint)" });
    let outcome = engine.place("r1", fails).await;
    if E::DDL_COMMITS {
        assert_broken(outcome);
        assert_broken(engine.place("r2", json!({ "run": "DROP TABLE made" })).await);
        // A temporary table commits nothing.
        let temporary = json!({ "run": "CREATE TEMPORARY TABLE made (id bigint)" });
        assert_outcome!(engine.place("r3", temporary).await, Outcome::Done(_));
        assert_counts(engine, 3, 3).await;
    } else {
        assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(_)));
        assert_counts(engine, 0, 0).await;
        let again = json!({ "run": "CREATE TABLE made (id bigint)" });
        assert_outcome!(engine.place("r1", again).await, Outcome::Done(_));
        assert_counts(engine, 1, 1).await;
    }
}

/// The handler has a time-out of its own around a statement, ignores it and goes on.
pub(crate) async fn a_statement_dropped_while_it_runs_confuses_nobody<E: Engine>(engine: &E) {
    let store = engine.with_one_connection().await;
    let mut done = 0;
    for round in 0..200u64 {
        let hurry = json!({ "hurry": { "polls": 1 + round % 10 } });
        let context = engine.context(delivery(&format!("hurried {round}"), hurry));
        match execute::<E::ByKey, _>(&store, &context).await {
            Outcome::Done(_) => done += 1,
            Outcome::Retry(RetryReason::NotCommitted(_)) => {}
            outcome => panic!("{outcome:?}"),
        }
        let context = engine.context(delivery(&format!("kept {round}"), "ok"));
        assert_outcome!(execute::<E::ByKey, _>(&store, &context).await, Outcome::Done(_));
    }
    assert!(engine.gate().arrivals() > 0, "some statements were dropped");
    assert_counts(engine, 200 + done, 200 + done).await;
}

/// a pool of one, deliveries dropped at any moment, and what is done must be visible.
pub(crate) async fn a_cancelled_delivery_leaves_no_open_transaction_behind<E: Engine>(engine: &E) {
    let store = engine.with_one_connection().await;
    let mut cancelled = 0;
    for round in 0..200 {
        let context = engine.context(delivery(&format!("cancelled {round}"), "ok"));
        let delivered = execute::<E::ByKey, _>(&store, &context);
        cancelled += i64::from(dropped_after(round % POLLS_MAX, delivered).await);

        let context = engine.context(delivery(&format!("kept {round}"), "ok"));
        assert_outcome!(execute::<E::ByKey, _>(&store, &context).await, Outcome::Done(_));
    }
    assert!(cancelled > 0, "some deliveries were dropped");
    let kept = "SELECT count(*) FROM effects WHERE external_ref LIKE 'kept %'";
    assert_eq!(engine.count(kept).await, 200);
    assert_eq!(engine.effects().await, engine.claims().await);
}

/// No engine has the answer to each step before it is asked, so that a delivery takes some of these.
const POLLS_MAX: u32 = 12;

/// Polls a future this often at most, each time as soon as it has woken, and tells whether it was
/// dropped before its end.
async fn dropped_after(polls_max: u32, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == polls_max {
            return Poll::Ready(true);
        }
        polls += 1;
        future.as_mut().poll(context).map(|_| false)
    })
    .await
}
