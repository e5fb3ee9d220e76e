//! Which claims are forgotten, when, and what follows for messages that come later still.

use std::time::Duration;

use idem_runtime::horizon::Retention;
use idem_runtime::store::{ScopeKeys, Store};
use idem_runtime::{Outcome, Pruned, oldest_claim_age, prune};
use time::OffsetDateTime;

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery, priced};

/// The scopes of the tests' handlers.
const PLACE: &str = "test.place";
const RECEIPT: &str = "test.receipt";

fn keys(scope: &str) -> ScopeKeys {
    ScopeKeys { scope: scope.to_owned(), level: 2, key: "customer_id, external_ref".to_owned() }
}

pub(super) fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

/// A consumer of the scope starts, and declares that its claims are kept for so long.
pub(super) async fn start<E: Engine>(engine: &E, scope: &str, kept: Duration) {
    engine.store().register(&keys(scope)).await.expect("registered");
    let retention = Retention { horizon: hours(1), kept };
    engine.store().keep_alive(scope, retention).await.expect("kept alive");
}

pub(super) async fn pruned<E: Engine>(engine: &E) -> Pruned {
    prune(engine.store(), None, |_| {}).await.expect("pruned")
}

/// All clocks of the ledger go back, which is as if time had passed since.
async fn let_hours_pass<E: Engine>(engine: &E, hours: u32) {
    engine.execute(&E::age_claims(hours)).await;
    let scopes = format!(
        "UPDATE idem_scope SET seen_at = seen_at - {hours} * 3600, \
         running_since = running_since - {hours} * 3600"
    );
    engine.execute(&scopes).await;
}

/// P-05. A scope that nobody has declared a retention for is kept for ever.
pub(crate) async fn only_claims_past_the_retention_of_their_own_scope_go<E: Engine>(engine: &E) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_outcome!(engine.run::<E::Receipt>(priced("r1", 1, "EUR")).await, Outcome::Done(_));
    let by_id = delivery("r1", "ok").with_message_id("m-1");
    assert_outcome!(engine.run::<E::ByMessageId>(by_id).await, Outcome::Done(_));
    engine.execute(&E::age_claims(3)).await;
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Done(_));

    start(engine, PLACE, hours(2)).await;
    start(engine, RECEIPT, hours(4)).await;
    assert_eq!(pruned(engine).await, Pruned::All(1));
    assert_eq!(pruned(engine).await, Pruned::All(0));
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Duplicate(_));
    let outcome = engine.run::<E::Receipt>(priced("r1", 1, "EUR")).await;
    assert_outcome!(outcome, Outcome::Duplicate(_));
    let by_id = delivery("r1", "ok").with_message_id("m-1");
    assert_outcome!(engine.run::<E::ByMessageId>(by_id).await, Outcome::Duplicate(_));
    assert_counts(engine, 4, 3).await;
}

/// P-01: what was handled and not settled before a long stop comes again after it.
pub(crate) async fn while_no_consumer_runs_nothing_grows_old<E: Engine>(engine: &E) {
    start(engine, PLACE, hours(4)).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    let_hours_pass(engine, 5).await;
    assert_eq!(pruned(engine).await, Pruned::All(0), "nobody is there to prune for");
    start(engine, PLACE, hours(4)).await;
    assert_eq!(pruned(engine).await, Pruned::All(0), "the backlog has yet to be seen");
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));

    run_for_hours(engine, 3).await;
    assert_eq!(pruned(engine).await, Pruned::All(0), "after three hours of running");
    run_for_hours(engine, 2).await;
    assert_eq!(pruned(engine).await, Pruned::All(1), "after five");

    let forgotten = "SELECT count(*) FROM idem_scope WHERE downtime = 0";
    assert_eq!(engine.count(forgotten).await, 0, "claims of before the stop are still kept longer");
    run_for_hours(engine, 5).await;
    assert_eq!(engine.count(forgotten).await, 1, "there are none any more");
}

/// The consumer says so in time, all the while.
async fn run_for_hours<E: Engine>(engine: &E, hours_passed: u32) {
    let_hours_pass(engine, hours_passed).await;
    let alive = format!("UPDATE idem_scope SET seen_at = seen_at + {hours_passed} * 3600");
    engine.execute(&alive).await;
    start(engine, PLACE, hours(4)).await;
}

/// P-02's floor: whoever writes a shorter time into the ledger.
pub(crate) async fn a_retention_is_never_lowered_and_its_horizon_is_a_floor<E: Engine>(engine: &E) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    engine.execute(&E::age_claims(3)).await;
    start(engine, PLACE, hours(4)).await;
    start(engine, PLACE, hours(2)).await;
    assert_eq!(pruned(engine).await, Pruned::All(0), "it has been declared for four hours");

    engine.execute("UPDATE idem_scope SET horizon = 14400, retention = 60").await;
    assert_eq!(pruned(engine).await, Pruned::All(0), "the horizon is four hours");
    engine.execute("UPDATE idem_scope SET horizon = 7200, retention = 60").await;
    assert_eq!(pruned(engine).await, Pruned::All(1));
}

/// P-04.
pub(crate) async fn the_same_claims_go_in_every_time_zone<E: Engine>(engine: &E) {
    start(engine, PLACE, hours(6)).await;
    for zone in ["+09:00", "-05:00", "+00:00"] {
        let store = engine.in_time_zone(zone).await;
        let place = async |external_ref: &str| {
            let context = engine.context(delivery(external_ref, "ok"));
            idem_runtime::execute::<E::ByKey, _>(&store, &context).await
        };
        assert_outcome!(place(&format!("old {zone}")).await, Outcome::Done(_));
        engine.execute(&E::age_claims(6)).await;
        assert_outcome!(place(&format!("young {zone}")).await, Outcome::Done(_));
        engine.execute(&E::age_claims(3)).await;

        let retention = Retention { horizon: hours(1), kept: hours(6) };
        store.keep_alive(PLACE, retention).await.expect("kept alive");
        let pruned = prune(&store, None, |_| {}).await.expect("pruned");
        assert_eq!(pruned, Pruned::All(1), "in {zone}");
        assert_outcome!(place(&format!("young {zone}")).await, Outcome::Duplicate(_));
        engine.execute("DELETE FROM idem_claim").await;
    }
}

pub(crate) async fn claims_go_oldest_first_in_bounded_transactions<E: Engine>(engine: &E) {
    for external_ref in ["r1", "r2", "r3", "r4", "r5"] {
        assert_outcome!(engine.place(external_ref, "ok").await, Outcome::Done(_));
        engine.execute(&E::age_claims(2)).await;
    }
    start(engine, PLACE, hours(1)).await;
    assert_eq!(engine.store().prune(PLACE, 2).await.expect("pruned"), Some(2));
    for left in ["r3", "r4", "r5"] {
        assert_outcome!(engine.place(left, "ok").await, Outcome::Duplicate(_));
    }
    assert_eq!(engine.store().prune(PLACE, 2).await.expect("pruned"), Some(2));
    assert_eq!(engine.store().prune(PLACE, 2).await.expect("pruned"), Some(1));
    assert_eq!(engine.store().prune(PLACE, 2).await.expect("pruned"), Some(0));
    assert_counts(engine, 5, 0).await;
}

/// That its claim is not there proves nothing any more.
pub(crate) async fn a_message_older_than_what_was_pruned_is_not_handled_again<E: Engine>(
    engine: &E,
) {
    #[expect(clippy::disallowed_methods, reason = "the database's clock is not ours to move")]
    let now = OffsetDateTime::now_utc();
    let sent = |external_ref, ago| delivery(external_ref, "ok").with_enqueued_at(now - hours(ago));
    assert_outcome!(engine.run::<E::ByKey>(sent("r1", 5)).await, Outcome::Done(_));
    engine.execute(&E::age_claims(5)).await;
    start(engine, PLACE, hours(2)).await;
    assert_eq!(pruned(engine).await, Pruned::All(1));

    let outcome = engine.run::<E::ByKey>(sent("r1", 5)).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "Unprovable");
    assert_counts(engine, 1, 0).await;
    assert_outcome!(engine.run::<E::ByKey>(sent("r2", 1)).await, Outcome::Done(_));
    let of_another_scope = sent("r1", 5).with_message_id("m-1");
    assert_outcome!(engine.run::<E::ByMessageId>(of_another_scope).await, Outcome::Done(_));
}

pub(crate) async fn pruners_that_start_together_delete_each_claim_once<E: Engine>(engine: &E) {
    for number in 0..50 {
        assert_outcome!(engine.place(&format!("r{number}"), "ok").await, Outcome::Done(_));
    }
    engine.execute(&E::age_claims(2)).await;
    start(engine, PLACE, hours(1)).await;
    let pruners = (0..4).map(|_| async {
        let mut deleted = 0;
        for _ in 0..50 {
            deleted += engine.store().prune(PLACE, 3).await.expect("no error").unwrap_or(0);
        }
        deleted
    });
    let deleted: u64 = futures_util::future::join_all(pruners).await.into_iter().sum();
    assert_eq!(deleted, 50);
    assert_counts(engine, 50, 0).await;
}

/// P-06: messages never cease, and each round of them grows old while the next is handled.
pub(crate) async fn pruning_keeps_pace_with_a_constant_load<E: Engine>(engine: &E) {
    const ROUNDS: u64 = 12;
    const EACH: u64 = 20;
    start(engine, PLACE, hours(3)).await;
    assert_eq!(oldest_claim_age(engine.store(), PLACE).await.expect("read"), None);
    let mut deleted = 0;
    for round in 0..ROUNDS {
        let load = async {
            for number in 0..EACH {
                let outcome = engine.place(&format!("r{round}.{number}"), "ok").await;
                assert_outcome!(outcome, Outcome::Done(_));
            }
        };
        let pruning = prune(engine.store(), Some(PLACE), |_| {});
        let ((), pruned) = tokio::join!(load, pruning);
        let Ok(Pruned::All(more)) = pruned else { panic!("{pruned:?}") };
        deleted += more;
        let oldest = oldest_claim_age(engine.store(), PLACE).await.expect("read").expect("some");
        assert!(oldest < hours(4), "round {round}: {oldest:?}");
        engine.execute(&E::age_claims(1)).await;
    }
    assert!(deleted >= (ROUNDS - 5) * EACH, "{deleted}");
    let left = i64::try_from(ROUNDS * EACH - deleted).expect("a few");
    assert_counts(engine, i64::try_from(ROUNDS * EACH).expect("a few"), left).await;
}

pub(crate) async fn what_the_keys_of_a_scope_are_made_of_is_written_once<E: Engine>(engine: &E) {
    let first = keys(PLACE);
    assert_eq!(engine.store().register(&first).await.expect("registered"), first);
    let other = ScopeKeys { level: 1, key: String::new(), ..first.clone() };
    assert_eq!(engine.store().register(&other).await.expect("there"), first);
}
