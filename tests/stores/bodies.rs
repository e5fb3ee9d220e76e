//! The tests, on whichever engine.

use std::time::Duration;

use idem_runtime::outcome::RetryReason;
use idem_runtime::store::Store;
use idem_runtime::{Delivery, Outcome, SourceId, execute};
use tokio::time::{sleep, timeout};

use crate::engines::{Engine, delivery};

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

async fn assert_counts(engine: &impl Engine, effects: i64, claims: i64) {
    assert_eq!(
        (engine.effects().await, engine.claims().await),
        (effects, claims),
        "effects, claims"
    );
}

pub(crate) async fn the_first_delivery_is_done_and_the_second_a_duplicate(engine: &impl Engine) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Done(_));
    assert_counts(engine, 2, 2).await;
}

pub(crate) async fn a_failed_handler_leaves_nothing_behind_and_may_succeed_later(
    engine: &impl Engine,
) {
    let failed = engine.place("r1", "fail").await;
    assert_outcome!(failed, Outcome::Retry(RetryReason::Handler(error)) if error.to_string() == "the shop is closed");
    assert_counts(engine, 0, 0).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_panic_leaves_nothing_behind(engine: &impl Engine) {
    for _ in 0..30 {
        let panicked = engine.place("r1", "panic").await;
        assert_outcome!(panicked, Outcome::Retry(RetryReason::Panic(text)) if text == "boom");
    }
    assert_counts(engine, 0, 0).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_rejection_leaves_nothing_behind(engine: &impl Engine) {
    let rejected = engine.place("r1", "reject").await;
    assert_outcome!(rejected, Outcome::Reject(rejection) if rejection.reason() == "UnknownCustomer");
    assert_counts(engine, 0, 0).await;
}

/// whatever constraint the handler's own statement breaks, unique ones included.
pub(crate) async fn a_violation_in_the_handler_is_never_a_duplicate(engine: &impl Engine) {
    for then in ["break_unique", "break_not_null", "break_check", "break_foreign_key"] {
        let outcome = engine.place("r1", then).await;
        let Outcome::Retry(reason @ RetryReason::Handler(_)) = outcome else {
            panic!("{then}: {outcome:?}");
        };
        assert!(reason.to_string().contains("constraint"), "{then}: {reason}");
        assert_counts(engine, 0, 0).await;
    }
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
}

/// PostgreSQL would answer our `COMMIT` with a rollback, and the driver call that success.
/// SQLite undoes the failed statement only, so that the rest may be committed.
pub(crate) async fn a_swallowed_error_never_ends_as_done_where_it_dooms_the_transaction<
    E: Engine,
>(
    engine: &E,
) {
    let outcome = engine.place("r1", "swallow").await;
    if E::ERRORS_DOOM {
        assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.to_string().contains("ignored an error"));
        assert_counts(engine, 0, 0).await;
    } else {
        assert_outcome!(outcome, Outcome::Done(_));
        assert_counts(engine, 1, 1).await;
    }
}

/// R-14's kind: the handler commits or rolls back by itself.
pub(crate) async fn an_ended_transaction_is_found_out(engine: &impl Engine) {
    for then in ["raw_commit", "raw_rollback"] {
        let outcome = engine.place(then, then).await;
        assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    }
    // The pool is as good as before.
    assert_outcome!(engine.place("r3", "ok").await, Outcome::Done(_));
}

pub(crate) async fn a_transaction_rolled_back_and_begun_anew_is_found_out(engine: &impl Engine) {
    let outcome = engine.place("r1", "rollback_and_begin").await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    assert_counts(engine, 0, 0).await;
}

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
pub(crate) async fn a_key_whose_holder_rolls_back_is_free<E: Engine>(engine: &E) {
    let first = timeout(Duration::from_millis(200), engine.place("r1", "wait")).await;
    assert!(first.is_err(), "the first is dropped while its handler runs");
    let outcome = timeout(Duration::from_secs(5), async {
        loop {
            match engine.place("r1", "ok").await {
                Outcome::Busy => sleep(Duration::from_millis(5)).await,
                outcome => break outcome,
            }
        }
    });
    assert_outcome!(outcome.await.expect("the key becomes free"), Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

/// sixteen copies at once, again and again.
pub(crate) async fn of_many_deliveries_at_once_exactly_one_is_done(engine: &impl Engine) {
    const ROUNDS: i64 = 25;
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let copies = (0..16).map(|_| async {
            loop {
                match engine.place(&name, "ok").await {
                    Outcome::Busy => sleep(Duration::from_millis(2)).await,
                    outcome => break outcome,
                }
            }
        });
        let outcomes = futures_util::future::join_all(copies).await;
        let done = outcomes.iter().filter(|o| matches!(o, Outcome::Done(_))).count();
        let duplicates = outcomes.iter().filter(|o| matches!(o, Outcome::Duplicate(_))).count();
        assert_eq!((done, duplicates), (1, 15), "{outcomes:?}");
    }
    assert_counts(engine, ROUNDS, ROUNDS).await;
}

/// a pool of one, deliveries dropped at any moment, and what is done must be visible.
pub(crate) async fn a_cancelled_delivery_leaves_no_open_transaction_behind<E: Engine>(engine: &E) {
    let store = engine.with_one_connection().await;
    let mut cancelled = 0;
    for round in 0..200u64 {
        let context = engine.context(delivery(&format!("cancelled {round}"), "ok"));
        let dropped = execute::<E::ByKey, _>(&store, &context);
        cancelled += i64::from(timeout(Duration::from_micros(round * 7), dropped).await.is_err());

        let context = engine.context(delivery(&format!("kept {round}"), "ok"));
        assert_outcome!(execute::<E::ByKey, _>(&store, &context).await, Outcome::Done(_));
    }
    assert!(cancelled > 0, "some deliveries were dropped");
    let kept = "SELECT count(*) FROM effects WHERE external_ref LIKE 'kept %'";
    assert_eq!(engine.count(kept).await, 200);
    assert_eq!(engine.effects().await, engine.claims().await);
}

/// the digest keeps collation, length and NUL out of the question.
pub(crate) async fn keys_of_any_length_and_content_are_told_apart(engine: &impl Engine) {
    let random: String = (0..70_000).map(|_| fastrand::alphanumeric()).collect();
    let keys = [
        "Ab1",
        "aB1",
        "é",
        "e",
        "e\u{301}",
        "ß",
        "ss",
        "a",
        "a ",
        "",
        "null",
        "a\0b",
        "a\0c",
        &"x".repeat(200),
        &"x".repeat(3000),
        &"x".repeat(70_000),
        &random[..3000],
        &random,
    ];
    for key in keys {
        assert_outcome!(engine.place(key, "ok").await, Outcome::Done(_));
    }
    for key in keys {
        assert_outcome!(engine.place(key, "ok").await, Outcome::Duplicate(_));
    }
    let keys = i64::try_from(keys.len()).expect("a few");
    assert_counts(engine, keys, keys).await;
}

/// the same id from two sources is two messages; from a dead-letter queue it is the same.
pub(crate) async fn level_one_goes_by_message_id_and_source<E: Engine>(engine: &E) {
    let from = |entity: &str, id: &str| {
        let order = delivery("r1", "ok");
        Delivery::new(SourceId::new("bus.example.net", entity), order.body().clone())
            .with_message_id(id)
    };
    let outcome = engine.run::<E::ByMessageId>(from("orders", "m-1")).await;
    assert_outcome!(outcome, Outcome::Done(_));
    let outcome = engine.run::<E::ByMessageId>(from("orders", "m-1")).await;
    assert_outcome!(outcome, Outcome::Duplicate(_));
    let outcome = engine.run::<E::ByMessageId>(from("orders/$DeadLetterQueue", "m-1")).await;
    assert_outcome!(outcome, Outcome::Duplicate(_));
    let outcome = engine.run::<E::ByMessageId>(from("refunds", "m-1")).await;
    assert_outcome!(outcome, Outcome::Done(_));
    let outcome = engine.run::<E::ByMessageId>(from("orders", "m-2")).await;
    assert_outcome!(outcome, Outcome::Done(_));
    assert_counts(engine, 3, 3).await;
}

pub(crate) async fn level_one_without_message_id_is_rejected<E: Engine>(engine: &E) {
    for delivery in [delivery("r1", "ok"), delivery("r1", "ok").with_message_id("")] {
        let outcome = engine.run::<E::ByMessageId>(delivery).await;
        assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "MissingMessageId");
    }
    assert_counts(engine, 0, 0).await;
}

pub(crate) async fn level_zero_runs_every_time<E: Engine>(engine: &E) {
    for _ in 0..2 {
        let outcome = engine.run::<E::Idempotent>(delivery("r1", "ok")).await;
        assert_outcome!(outcome, Outcome::Done(_));
    }
    let outcome = engine.run::<E::Idempotent>(delivery("r1", "fail")).await;
    assert_outcome!(outcome, Outcome::Retry(_));
    assert_counts(engine, 2, 0).await;
}

pub(crate) async fn what_cannot_be_decoded_is_rejected_before_the_database_is_asked<E: Engine>(
    engine: &E,
) {
    for (body, reason) in
        [("", "EmptyBody"), ("order 7", "UndecodableBody"), ("{}", "UndecodableBody")]
    {
        let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), body);
        let outcome = engine.run::<E::ByKey>(delivery).await;
        assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == reason);
    }
    assert_counts(engine, 0, 0).await;
}

pub(crate) async fn migrations_can_run_again_and_at_the_same_time<E: Engine>(engine: &E) {
    let store = engine.store();
    let at_once = futures_util::future::join_all((0..8).map(|_| store.migrate())).await;
    for migrated in at_once {
        migrated.expect("the ledger is there already");
    }
    store.check().await.expect("the ledger fits");
    let versions = "SELECT count(*) FROM idem_migration";
    assert_eq!(
        engine.count(versions).await,
        i64::try_from(E::Store::MIGRATIONS.len()).expect("a few")
    );
}
