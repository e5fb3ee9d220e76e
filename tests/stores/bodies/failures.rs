//! What handlers do wrong, and what fails under them.

use idem_runtime::outcome::RetryReason;
use idem_runtime::store::Fault;
use idem_runtime::{Outcome, execute, execute_batch};
use serde_json::json;

use super::{assert_broken, assert_counts, assert_outcome};
use crate::engines::{Engine, delivery, priced};

/// The invoices table has this number already.
const TAKEN: &str = "INSERT INTO invoices (number) VALUES (1)";

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

/// whatever constraint the handler's own statement breaks, that of the claims
/// included.
pub(crate) async fn a_violation_in_the_handler_is_never_a_duplicate(engine: &impl Engine) {
    let broken = [
        (TAKEN, "number"),
        ("INSERT INTO invoices (number) VALUES (NULL)", "number"),
        ("INSERT INTO invoices (number, amount) VALUES (2, -1)", "amount"),
        ("INSERT INTO invoices (number, customer_id) VALUES (3, 42)", "constraint"),
        ("INSERT INTO idem_claim SELECT * FROM idem_claim", ""),
    ];
    for (sql, named) in broken {
        assert_handler_failed(engine.place("r1", json!({ "run": sql })).await, named);
        assert_counts(engine, 0, 0).await;
    }
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
}

pub(crate) async fn a_violation_in_a_trigger_is_never_a_duplicate<E: Engine>(engine: &E) {
    engine.execute(E::TRIGGER).await;
    let fires = json!({ "run": "INSERT INTO customers (id) VALUES (8)" });
    assert_handler_failed(engine.place("r1", fires).await, "number");
    assert_counts(engine, 0, 0).await;
}

fn assert_handler_failed(outcome: Outcome, named: &str) {
    let Outcome::Retry(reason @ RetryReason::Handler(_)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.to_string().to_lowercase().contains(named), "{reason}");
}

/// PostgreSQL would answer our `COMMIT` with a rollback, and the driver call that success.
/// Other engines undo the failed statement only, so that the rest may be committed.
pub(crate) async fn a_swallowed_error_never_ends_as_done_where_it_dooms_the_transaction<
    E: Engine,
>(
    engine: &E,
) {
    swallow(engine, TAKEN).await;
}

pub(crate) async fn a_swallowed_time_out_is_like_any_other_error<E: Engine>(engine: &E) {
    if let Some(time_out) = E::SERVER.and_then(|server| server.time_out) {
        swallow(engine, time_out).await;
    }
}

async fn swallow<E: Engine>(engine: &E, sql: &str) {
    let outcome = engine.place("r1", json!({ "ignore": sql })).await;
    if E::ERRORS_DOOM {
        assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.to_string().contains("ignored an error"));
        assert_counts(engine, 0, 0).await;
        assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    } else {
        assert_outcome!(outcome, Outcome::Done(_));
    }
    assert_counts(engine, 1, 1).await;
}

/// in the key it works everywhere, since the claim holds a digest.
pub(crate) async fn a_text_with_nul_is_stored_or_refused<E: Engine>(engine: &E) {
    let outcome = engine.place("a\0b", json!({ "insert": "c\0d" })).await;
    if E::TAKES_NUL {
        assert_outcome!(outcome, Outcome::Done(_));
        assert_counts(engine, 2, 1).await;
    } else {
        assert_unstorable(outcome, "0x00");
        assert_counts(engine, 0, 0).await;
    }
}

fn assert_unstorable(outcome: Outcome, named: &str) {
    let Outcome::Reject(rejection) = outcome else { panic!("{outcome:?}") };
    assert_eq!(rejection.reason(), "UnstorableValue", "{rejection}");
    assert!(rejection.description().contains(named), "{rejection}");
}

/// R-13's kind: the next delivery would fail alike, and the one after it.
pub(crate) async fn what_the_database_can_never_take_is_rejected_at_once<E: Engine>(engine: &E) {
    engine.execute(E::TYPED).await;
    for sql in E::UNSTORABLE {
        assert_unstorable(engine.place(sql, json!({ "run": sql })).await, "the handler failed");
    }
    let batch = vec![
        delivery("r1", "ok"),
        delivery("r2", json!({ "run": E::UNSTORABLE[0] })),
        delivery("r3", "ok"),
    ];
    let outcomes = engine.run_batch::<E::AllAtOnce>(batch).await;
    let [Outcome::Done(_), Outcome::Reject(_), Outcome::Done(_)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_counts(engine, 2, 2).await;
    if !E::TAKES_NUL {
        for delivery_count in [1, 2] {
            let in_the_key = priced("a\0b", 1, "EUR").with_delivery_count(delivery_count);
            assert_unstorable(engine.run::<E::Guarded>(in_the_key).await, "0x00");
        }
    }
}

/// R-04's other half: what a violated constraint asks for may be there when the message comes again.
pub(crate) async fn what_may_pass_is_tried_again<E: Engine>(engine: &E) {
    let insert = "INSERT INTO invoices (number, customer_id) VALUES (3, 42)";
    assert_handler_failed(engine.place("r1", json!({ "run": insert })).await, "constraint");
    engine.execute("INSERT INTO customers (id) VALUES (42)").await;
    assert_outcome!(engine.place("r1", json!({ "run": insert })).await, Outcome::Done(_));

    assert_handler_failed(engine.place("r2", json!({ "run": TAKEN })).await, "number");
    engine.execute("DELETE FROM invoices WHERE number = 1").await;
    assert_outcome!(engine.place("r2", json!({ "run": TAKEN })).await, Outcome::Done(_));
    assert_counts(engine, 2, 2).await;
}

/// errors are told by their codes, one by one and in batches.
pub(crate) async fn the_servers_language_does_not_matter<E: Engine>(engine: &E) {
    let Some((store, duplicate)) = engine.in_german().await else { return };
    let run = async |delivery| execute::<E::ByKey, _>(&store, &engine.context(delivery)).await;
    assert_outcome!(run(delivery("r1", "ok")).await, Outcome::Done(_));
    assert_outcome!(run(delivery("r1", "ok")).await, Outcome::Duplicate(_));
    let outcome = run(delivery("r2", json!({ "run": TAKEN }))).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(error)) if error.to_string().contains(duplicate));
    assert_broken(run(delivery("r3", json!({ "run": "COMMIT" }))).await);
    if E::ERRORS_DOOM {
        let outcome = run(delivery("r4", json!({ "ignore": TAKEN }))).await;
        assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.to_string().contains("ignored an error"));
    }

    let batch = async |deliveries: Vec<_>| {
        let contexts: Vec<_> = deliveries.into_iter().map(|one| engine.context(one)).collect();
        execute_batch::<E::AllAtOnce, _>(&store, &contexts).await
    };
    let one_breaks = vec![
        delivery("r1", "ok"),
        delivery("r5", json!({ "run": TAKEN })),
        delivery("r6", "ok"),
        delivery("r6", "ok"),
    ];
    let outcomes = batch(one_breaks).await;
    let [
        Outcome::Duplicate(_),
        Outcome::Retry(RetryReason::Handler(_)),
        Outcome::Done(_),
        Outcome::Duplicate(_),
    ] = &outcomes[..]
    else {
        panic!("{outcomes:?}");
    };

    let guarded = async |amount| {
        execute::<E::Guarded, _>(&store, &engine.context(priced("r7", amount, "EUR"))).await
    };
    assert_outcome!(guarded(1).await, Outcome::Done(_));
    assert_outcome!(guarded(1).await, Outcome::Duplicate(_));
    assert_outcome!(guarded(2).await, Outcome::Conflict(_));
}

/// R-21's kind: the connection ends before the commit, whether the handler minds or not.
pub(crate) async fn a_connection_that_ends_in_the_handler_leaves_nothing_behind<E: Engine>(
    engine: &E,
) {
    let Some(server) = E::SERVER else { return };
    let outcome = engine.place("r1", json!({ "run": server.end_connection })).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(_)));
    let outcome = engine.place("r1", json!({ "ignore": server.end_connection })).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.fault() == Fault::Unavailable);
    assert_counts(engine, 0, 0).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

///
pub(crate) async fn a_transaction_that_idles_for_too_long_is_not_done<E: Engine>(engine: &E) {
    let Some((sql, millis)) = E::SERVER.and_then(|server| server.limit_idle) else { return };
    let outcome = engine.place("r1", json!({ "idle": { "sql": sql, "millis": millis } })).await;
    let Outcome::Retry(RetryReason::NotCommitted(error)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(error.fault(), Fault::Unavailable);
    assert!(error.to_string().contains("waits for something else"), "a hint: {error}");
    assert_counts(engine, 0, 0).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
}
