//! Many deliveries in one transaction.

use std::time::{Duration, Instant};

use idem_runtime::{Delivery, Outcome, SourceId};
use serde_json::json;

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery, priced};

fn orders(names: &[&str]) -> Vec<Delivery> {
    names.iter().map(|name| delivery(name, "ok")).collect()
}

/// What each came to, in a word.
fn words(outcomes: &[Outcome]) -> Vec<&'static str> {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Done(_) => "done",
        Outcome::Duplicate(_) => "duplicate",
        Outcome::Conflict(_) => "conflict",
        Outcome::Busy => "busy",
        Outcome::Retry(_) => "retry",
        Outcome::Reject(_) => "reject",
        Outcome::Unknown(_) => "unknown",
    };
    outcomes.iter().map(word).collect()
}

pub(crate) async fn a_batch_does_what_is_new_in_one_transaction<E: Engine>(engine: &E) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    let mut batch = orders(&["r1", "r2", "r3", "r2", "r4"]);
    batch.push(Delivery::new(SourceId::new("bus.example.net", "orders"), "no JSON"));
    let outcomes = engine.run_batch::<E::AllAtOnce>(batch).await;
    let expected = ["duplicate", "done", "done", "duplicate", "done", "reject"];
    assert_eq!(words(&outcomes), expected, "{outcomes:?}");
    assert_eq!(engine.gate().take_batches(), [3], "one call, for those that are new");
    assert_counts(engine, 4, 4).await;

    let outcomes = engine.run_batch::<E::AllAtOnce>(orders(&["r4", "r3"])).await;
    assert_eq!(words(&outcomes), ["duplicate", "duplicate"]);
    assert!(engine.gate().take_batches().is_empty());
    assert!(engine.run_batch::<E::AllAtOnce>(Vec::new()).await.is_empty());
    assert_counts(engine, 4, 4).await;
}

/// R-23, at each place of the batch.
pub(crate) async fn exactly_the_message_that_was_done_before_is_the_duplicate<E: Engine>(
    engine: &E,
) {
    const SIZE: usize = 10;
    for place in 0..SIZE {
        let names: Vec<String> = (0..SIZE).map(|n| format!("r{place}.{n}")).collect();
        assert_outcome!(engine.place(&names[place], "ok").await, Outcome::Done(_));
        let batch = names.iter().map(|name| delivery(name, "ok")).collect();
        let outcomes = engine.run_batch::<E::AllAtOnce>(batch).await;
        let mut expected = ["done"; SIZE];
        expected[place] = "duplicate";
        assert_eq!(words(&outcomes), expected);
    }
    assert_counts(engine, 100, 100).await;
}

pub(crate) async fn a_message_that_fails_costs_its_neighbours_nothing_but_time<E: Engine>(
    engine: &E,
) {
    for (then, word) in [("fail", "retry"), ("reject", "reject"), ("panic", "retry")] {
        let mut batch = orders(&[&format!("{then} 1"), &format!("{then} 2")]);
        batch.insert(1, delivery(&format!("{then} bad"), then));
        let outcomes = engine.run_batch::<E::AllAtOnce>(batch).await;
        assert_eq!(words(&outcomes), ["done", word, "done"], "{outcomes:?}");
        assert_eq!(engine.gate().take_batches(), [3, 1, 1, 1], "together, then one by one");
    }
    assert_counts(engine, 6, 6).await;
}

/// C-10's kind: a hot key.
pub(crate) async fn a_key_in_progress_does_not_hold_its_neighbours<E: Engine>(engine: &E) {
    if E::SERVER.is_none() {
        // One writer at a time: the batch waits for the database, whatever the keys.
        return;
    }
    let holder = engine.place("hot", "wait");
    let batch = async {
        engine.gate().until_arrived().await;
        let started = Instant::now();
        let outcomes = engine.run_batch::<E::AllAtOnce>(orders(&["r1", "hot", "r2"])).await;
        assert_eq!(words(&outcomes), ["done", "busy", "done"], "{outcomes:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        engine.gate().open();
    };
    let (held, ()) = tokio::join!(holder, batch);
    assert_outcome!(held, Outcome::Done(_));
    assert_counts(engine, 3, 3).await;
}

/// The wait for a batch is bounded, for another batch too, and the handler's own waits are not.
pub(crate) async fn a_key_in_a_running_batch_is_busy<E: Engine>(engine: &E) {
    if E::SERVER.is_none() {
        return;
    }
    let holder =
        engine.run_batch::<E::AllAtOnce>(vec![delivery("r1", "ok"), delivery("r2", "wait")]);
    let others = async {
        engine.gate().until_arrived().await;
        let started = Instant::now();
        assert_outcome!(engine.place("r1", "ok").await, Outcome::Busy);
        let outcomes = engine.run_batch::<E::AllAtOnce>(orders(&["r1", "r3"])).await;
        assert_eq!(words(&outcomes), ["busy", "done"], "{outcomes:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
        engine.gate().open();
    };
    let (held, ()) = tokio::join!(holder, others);
    assert_eq!(words(&held), ["done", "done"]);
    assert_counts(engine, 3, 3).await;
}

pub(crate) async fn batches_in_opposite_orders_do_not_deadlock<E: Engine>(engine: &E) {
    const ROUNDS: i64 = 10;
    for round in 0..ROUNDS {
        let names: Vec<String> = (0..20).map(|n| format!("r{round}.{n}")).collect();
        let forward: Vec<_> = names.iter().map(|name| delivery(name, "ok")).collect();
        let backward: Vec<_> = forward.iter().rev().cloned().collect();
        let (one, other) = tokio::join!(
            engine.run_batch::<E::AllAtOnce>(forward),
            engine.run_batch::<E::AllAtOnce>(backward)
        );
        for (one, other) in one.iter().zip(other.iter().rev()) {
            let done = [one, other].iter().filter(|o| matches!(o, Outcome::Done(_))).count();
            assert_eq!(done, 1, "{one:?} and {other:?}");
        }
    }
    assert_counts(engine, 20 * ROUNDS, 20 * ROUNDS).await;
}

pub(crate) async fn replies_and_conflicts_of_batches_are_those_of_their_messages<E: Engine>(
    engine: &E,
) {
    let number = |outcome: &Outcome| match outcome {
        Outcome::Done(proof) | Outcome::Duplicate(proof) => {
            proof.reply().expect("it replays").decode::<i64>().expect("it is a number")
        }
        other => panic!("{other:?}"),
    };
    let batch = vec![priced("r1", 1, "EUR"), priced("r2", 2, "EUR"), priced("r3", 3, "EUR")];
    let first = engine.run_batch::<E::Receipts>(batch.clone()).await;
    let mut batch = batch;
    batch.insert(0, priced("r2", 999, "EUR"));
    batch.push(priced("r4", 4, "EUR"));
    batch.push(priced("r4", 5, "EUR"));
    batch.push(priced("r4", 4, "EUR"));
    let again = engine.run_batch::<E::Receipts>(batch).await;
    let expected =
        ["conflict", "duplicate", "duplicate", "duplicate", "done", "conflict", "duplicate"];
    assert_eq!(words(&again), expected, "{again:?}");
    for (first, again) in first.iter().zip(&again[1..]) {
        assert_eq!(number(first), number(again));
    }
    assert_eq!(number(&again[4]), number(&again[6]));
    let alone = engine.run::<E::Receipts>(priced("r3", 3, "EUR")).await;
    assert_eq!(number(&alone), number(&first[2]));
    assert_counts(engine, 4, 4).await;
}

pub(crate) async fn too_few_replies_are_a_failure_and_nothing_done<E: Engine>(engine: &E) {
    let batch = vec![priced("r1", 1, "EUR"), priced("r2", 13, "EUR")];
    let outcomes = engine.run_batch::<E::Receipts>(batch).await;
    assert_eq!(words(&outcomes), ["done", "retry"], "{outcomes:?}");
    let Outcome::Retry(reason) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert!(reason.to_string().contains("0 replies to 1 messages"), "{reason}");
    assert_counts(engine, 1, 1).await;
}

/// R-14's kind: the claims of all are committed with half of the work.
pub(crate) async fn a_batch_that_ends_its_transaction_is_found_out<E: Engine>(engine: &E) {
    for then in [json!({ "run": "COMMIT" }), json!({ "run_and_fail": "COMMIT" })] {
        let name = then.to_string();
        let mut batch = orders(&[&format!("{name} 1"), &format!("{name} 2")]);
        batch.push(delivery(&format!("{name} 3"), then));
        let outcomes = engine.run_batch::<E::AllAtOnce>(batch).await;
        assert_eq!(words(&outcomes), ["reject"; 3], "{outcomes:?}");
    }
}

pub(crate) async fn plain_handlers_run_in_one_transaction_too<E: Engine>(engine: &E) {
    let mut batch = orders(&["r1", "r2", "r3"]);
    let outcomes = engine.run_batch::<E::ByKey>(batch.clone()).await;
    assert_eq!(words(&outcomes), ["done"; 3]);
    batch.push(delivery("r4", "fail"));
    batch.push(delivery("r5", "ok"));
    let outcomes = engine.run_batch::<E::ByKey>(batch).await;
    assert_eq!(words(&outcomes), ["duplicate", "duplicate", "duplicate", "retry", "done"]);
    assert_counts(engine, 4, 4).await;

    let mut ids = orders(&["r1", "r1"]);
    ids = ids.into_iter().zip(["m-1", "m-2"]).map(|(d, id)| d.with_message_id(id)).collect();
    assert_eq!(words(&engine.run_batch::<E::ByMessageId>(ids).await), ["done"; 2]);
    assert_eq!(words(&engine.run_batch::<E::Idempotent>(orders(&["r1", "r1"])).await), ["done"; 2]);
    assert_counts(engine, 8, 6).await;
}
