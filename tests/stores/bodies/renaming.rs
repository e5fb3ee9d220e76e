//! Handlers with another scope than they had: what was done under the earlier one is done.

use std::time::Duration;

use idem_runtime::store::{ScopeKeys, Store};
use idem_runtime::{Outcome, Pruned};
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use super::pruning::{hours, pruned, start};
use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery, priced};

pub(crate) async fn a_renamed_handler_meets_what_it_did_before<E: Engine>(engine: &E) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    for delivery_count in [1, 2] {
        let again = delivery("r1", "ok").with_delivery_count(delivery_count);
        assert_outcome!(engine.run::<E::Renamed>(again).await, Outcome::Duplicate(_));
    }
    assert_counts(engine, 1, 1).await;

    // A service of the earlier version, which knows no other scope, meets what the new one has done.
    assert_outcome!(engine.run::<E::Renamed>(delivery("r2", "ok")).await, Outcome::Done(_));
    assert_counts(engine, 2, 3).await;
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Duplicate(_));
    assert_outcome!(engine.run::<E::Renamed>(delivery("r2", "ok")).await, Outcome::Duplicate(_));

    // What fails is claimed under neither.
    assert_outcome!(engine.run::<E::Renamed>(delivery("r3", "fail")).await, Outcome::Retry(_));
    assert_counts(engine, 2, 3).await;
    assert_outcome!(engine.place("r3", "ok").await, Outcome::Done(_));
}

pub(crate) async fn a_renamed_handler_and_the_one_that_still_runs_exclude_each_other<E: Engine>(
    engine: &E,
) {
    let first = engine.place("r", "wait");
    let second = async {
        engine.gate().until_arrived().await;
        // An engine with one writer makes the second wait; others say that the key is busy.
        let early = engine.run::<E::Renamed>(delivery("r", "ok"));
        if let Ok(outcome) = timeout(Duration::from_millis(300), early).await {
            assert_outcome!(outcome, Outcome::Busy);
        }
        engine.gate().open();
    };
    let (first, ()) = tokio::join!(first, second);
    assert_outcome!(first, Outcome::Done(_));

    const ROUNDS: i64 = 10;
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let copies = (0..8).map(|copy| {
            let name = &name;
            async move {
                loop {
                    let outcome = match copy % 2 {
                        0 => engine.place(name, "ok").await,
                        _ => engine.run::<E::Renamed>(delivery(name, "ok")).await,
                    };
                    match outcome {
                        Outcome::Busy => sleep(Duration::from_millis(2)).await,
                        outcome => break outcome,
                    }
                }
            }
        });
        let outcomes = futures_util::future::join_all(copies).await;
        let done = outcomes.iter().filter(|o| matches!(o, Outcome::Done(_))).count();
        let duplicates = outcomes.iter().filter(|o| matches!(o, Outcome::Duplicate(_))).count();
        assert_eq!((done, duplicates), (1, 7), "{outcomes:?}");
    }
    assert_eq!(engine.effects().await, ROUNDS + 1);
}

/// The reply that was kept, if the message was handled.
fn reply(outcome: &Outcome) -> Option<i64> {
    match outcome {
        Outcome::Done(proof) | Outcome::Duplicate(proof) => proof.reply()?.decode().ok(),
        _ => None,
    }
}

pub(crate) async fn a_renamed_batch_handler_gives_the_earlier_replies<E: Engine>(engine: &E) {
    let first = engine.run::<E::Receipt>(priced("r1", 1, "EUR")).await;
    assert_outcome!(&first, Outcome::Done(_));

    let batch = || ["r1", "r2", "r3"].map(|name| priced(name, 1, "EUR")).into();
    let outcomes = engine.run_batch::<E::RenamedReceipts>(batch()).await;
    let [one, two, three] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    assert_outcome!(one, Outcome::Duplicate(_));
    assert_outcome!(two, Outcome::Done(_));
    assert_outcome!(three, Outcome::Done(_));
    assert!(reply(one).is_some() && reply(one) == reply(&first), "{outcomes:?}");
    // One claim of the first, and one under each of three scopes of the others.
    assert_counts(engine, 3, 1 + 2 * 3).await;

    // Each of the versions gives the replies of the others.
    let again = engine.run_batch::<E::RenamedReceipts>(batch()).await;
    for (outcome, again) in outcomes.iter().zip(&again) {
        assert_outcome!(again, Outcome::Duplicate(_));
        assert!(reply(again).is_some() && reply(again) == reply(outcome), "{again:?}");
    }
    let earlier = engine.run::<E::Receipt>(priced("r2", 1, "EUR")).await;
    assert_outcome!(&earlier, Outcome::Duplicate(_));
    assert_eq!(reply(&earlier), reply(two));
    let other = engine.run::<E::RenamedReceipts>(priced("r1", 2, "EUR")).await;
    assert_outcome!(other, Outcome::Conflict(_));
    assert_counts(engine, 3, 1 + 2 * 3).await;
}

/// As where `was` is declared only after the new version has run: the batch is then done one by one,
/// and claims nothing for what was done.
pub(crate) async fn a_batch_that_was_done_in_part_under_the_new_name_is_told_apart<E: Engine>(
    engine: &E,
) {
    let first = engine.run::<E::RenamedReceipts>(priced("r1", 1, "EUR")).await;
    assert_outcome!(&first, Outcome::Done(_));
    engine.execute("DELETE FROM idem_claim WHERE scope <> 'test.receipt.third'").await;
    assert_counts(engine, 1, 1).await;

    let batch = ["r1", "r2"].map(|name| priced(name, 1, "EUR")).into();
    let outcomes = engine.run_batch::<E::RenamedReceipts>(batch).await;
    let [one, two] = outcomes.as_slice() else { panic!("{outcomes:?}") };
    assert_outcome!(one, Outcome::Duplicate(_));
    assert_eq!(reply(one), reply(&first));
    assert_outcome!(two, Outcome::Done(_));
    assert_counts(engine, 2, 1 + 3).await;
}

pub(crate) async fn claims_that_were_pruned_under_an_earlier_scope_prove_nothing<E: Engine>(
    engine: &E,
) {
    #[expect(clippy::disallowed_methods, reason = "the database's clock is not ours to move")]
    let now = OffsetDateTime::now_utc();
    let sent = |name, ago| delivery(name, "ok").with_enqueued_at(now - hours(ago));
    assert_outcome!(engine.run::<E::ByKey>(sent("r1", 5)).await, Outcome::Done(_));
    engine.execute(&E::age_claims(5)).await;
    start(engine, "test.place", hours(2)).await;
    assert_eq!(pruned(engine).await, Pruned::All(1));

    let outcome = engine.run::<E::Renamed>(sent("r1", 5)).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "Unprovable");
    assert_counts(engine, 1, 0).await;
    assert_outcome!(engine.run::<E::Renamed>(sent("r2", 1)).await, Outcome::Done(_));
}

pub(crate) async fn a_consumer_keeps_the_ledger_of_earlier_scopes_too<E: Engine>(engine: &E) {
    let started = super::start::start(engine, engine.store(), E::RENAMED, 2).await;
    assert!(started.is_err(), "there is no broker");
    let scopes = engine.store().scopes().await.expect("read");
    assert_eq!(scopes, ["test.place", "test.place.renamed"], "both have a retention");
}

pub(crate) async fn an_earlier_scope_with_another_key_is_refused_at_start<E: Engine>(engine: &E) {
    let other = ScopeKeys { scope: "test.place".to_owned(), level: 2, key: "other".to_owned() };
    engine.store().register(&other).await.expect("registered");
    let refusal = super::start::refusal(engine, engine.store(), E::RENAMED).await;
    assert!(refusal.contains("scope `test.place` has level 2 and key `other`"), "{refusal}");
}
