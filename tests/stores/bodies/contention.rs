//! Deliveries that get in each other's way.

use std::time::Duration;

use futures_util::future::join_all;
use idem_runtime::Outcome;
use idem_runtime::outcome::RetryReason;
use idem_runtime::store::{Fault, Store};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::{assert_counts, assert_outcome};
use crate::engines::Engine;

/// while the first is open, the second is neither completed nor a duplicate.
pub(crate) async fn a_key_in_progress_is_not_a_duplicate<E: Engine>(engine: &E) {
    let first = engine.place("r1", "wait");
    let second = async {
        engine.gate().until_arrived().await;
        // An engine with one writer makes the second wait; others say that the key is busy.
        let early = timeout(Duration::from_millis(300), engine.place("r1", "ok")).await;
        if let Ok(outcome) = early {
            assert_outcome!(outcome, Outcome::Busy);
        }
        engine.gate().open();
    };
    let (first, ()) = tokio::join!(first, second);
    assert_outcome!(first, Outcome::Done(_));
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));
    assert_counts(engine, 1, 1).await;
}

/// a holder that dies leaves no mark that blocks the next.
pub(crate) async fn a_key_whose_holder_is_dropped_is_free<E: Engine>(engine: &E) {
    let first = timeout(Duration::from_millis(200), engine.place("r1", "wait")).await;
    assert!(first.is_err(), "the first is dropped while its handler runs");
    let outcome = timeout(Duration::from_secs(5), until_not_busy(engine, "r1"));
    assert_outcome!(outcome.await.expect("the key becomes free"), Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

async fn until_not_busy(engine: &impl Engine, external_ref: &str) -> Outcome {
    loop {
        match engine.place(external_ref, "ok").await {
            Outcome::Busy => sleep(Duration::from_millis(5)).await,
            outcome => break outcome,
        }
    }
}

///
pub(crate) async fn of_those_that_wait_for_a_failing_holder_one_is_done(engine: &impl Engine) {
    for round in 0..5 {
        let name = format!("r{round}");
        let first = engine.place(&name, "wait_and_fail");
        let others = async {
            engine.gate().until_arrived().await;
            let opens = async {
                sleep(Duration::from_millis(50)).await;
                engine.gate().open();
            };
            let others = join_all((0..3).map(|_| until_not_busy(engine, &name)));
            tokio::join!(others, opens).0
        };
        let (first, others) = tokio::join!(first, others);
        assert_outcome!(first, Outcome::Retry(RetryReason::Handler(_)));
        let done = others.iter().filter(|o| matches!(o, Outcome::Done(_))).count();
        let duplicates = others.iter().filter(|o| matches!(o, Outcome::Duplicate(_))).count();
        assert_eq!((done, duplicates), (1, 2), "{others:?}");
    }
    assert_counts(engine, 5, 5).await;
}

/// distinct keys, and one row that all of them change.
pub(crate) async fn messages_that_change_one_row_are_all_done(engine: &impl Engine) {
    let change = json!({ "run": "UPDATE balances SET amount = amount + 1 WHERE id = 1" });
    let names: Vec<_> = (0..20).map(|number| format!("r{number}")).collect();
    let outcomes = join_all(names.iter().map(|name| engine.place(name, change.clone()))).await;
    for outcome in outcomes {
        assert_outcome!(outcome, Outcome::Done(_));
    }
    assert_eq!(engine.count("SELECT amount FROM balances WHERE id = 1").await, 20);
    assert_counts(engine, 20, 20).await;
}

/// The handler's own statement waits for a row that another message's handler holds.
pub(crate) async fn a_lock_that_is_not_to_be_had_is_contention<E: Engine>(engine: &E) {
    let Some(server) = E::SERVER else { return };
    let (first, second) = (change(1), format!("{}; {}", server.limit_lock_wait, change(1)));
    let holder = engine.place("holder", cross(&first, "SELECT 1", false));
    let waiter = async {
        engine.gate().until_arrived().await;
        let outcome = engine.place("waiter", json!({ "run": second })).await;
        let Outcome::Retry(RetryReason::Handler(error)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(E::Store::fault_of(error.as_ref()), Some(Fault::Contention));
        engine.gate().open();
    };
    let (holder, ()) = tokio::join!(holder, waiter);
    assert_outcome!(holder, Outcome::Done(_));
    assert_outcome!(engine.place("waiter", "ok").await, Outcome::Done(_));
    assert_counts(engine, 2, 2).await;
}

pub(crate) async fn a_deadlock_is_tried_again<E: Engine>(engine: &E) {
    if E::SERVER.is_none() {
        return;
    }
    let (one, other) = deadlock(engine, false).await;
    assert_outcome!(one, Outcome::Done(_));
    assert_outcome!(other, Outcome::Done(_));
    assert!(engine.gate().arrivals() > 0, "one of them was tried again");
    assert_counts(engine, 2, 2).await;
}

/// On MariaDB the rest of the handler would be in no transaction.
pub(crate) async fn a_swallowed_deadlock_is_not_done<E: Engine>(engine: &E) {
    if E::SERVER.is_none() {
        return;
    }
    match deadlock(engine, true).await {
        (Outcome::Done(_), Outcome::Retry(RetryReason::NotCommitted(error)))
        | (Outcome::Retry(RetryReason::NotCommitted(error)), Outcome::Done(_)) => {
            assert_eq!(error.fault(), Fault::Refused);
        }
        outcomes => panic!("{outcomes:?}"),
    }
    assert_counts(engine, 1, 1).await;
    for name in ["one", "other"] {
        assert_outcome!(engine.place(name, "ok").await, Outcome::Done(_) | Outcome::Duplicate(_));
    }
    assert_counts(engine, 2, 2).await;
}

/// Two handlers change two rows in opposite order.
async fn deadlock<E: Engine>(engine: &E, ignore: bool) -> (Outcome, Outcome) {
    let both_have_one = async {
        engine.gate().until_arrived().await;
        engine.gate().until_arrived().await;
        (0..10).for_each(|_| engine.gate().open());
    };
    let one = engine.place("one", cross(&change(1), &change(2), ignore));
    let other = engine.place("other", cross(&change(2), &change(1), ignore));
    let (one, other, ()) = tokio::join!(one, other, both_have_one);
    (one, other)
}

fn change(id: u8) -> String {
    format!("UPDATE balances SET amount = amount + 1 WHERE id = {id}")
}

fn cross(first: &str, second: &str, ignore: bool) -> Value {
    json!({ "cross": { "first": first, "second": second, "ignore": ignore } })
}
