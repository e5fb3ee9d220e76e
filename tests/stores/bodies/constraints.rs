//! A unique constraint of the handler's own table in place of a claim.

use idem_runtime::Outcome;
use idem_runtime::outcome::RetryReason;
use idem_runtime::store::Store;

use super::{assert_broken, assert_counts, assert_outcome};
use crate::engines::{Engine, priced};

async fn orders<E: Engine>(engine: &E) -> i64 {
    engine.count("SELECT count(*) FROM orders_once").await
}

pub(crate) async fn the_row_of_an_earlier_message_makes_a_duplicate<E: Engine>(engine: &E) {
    assert_outcome!(engine.run::<E::Guarded>(priced("r1", 1, "EUR")).await, Outcome::Done(_));
    for delivery_count in [1, 2] {
        let again = priced("r1", 1, "EUR").with_delivery_count(delivery_count);
        assert_outcome!(engine.run::<E::Guarded>(again).await, Outcome::Duplicate(_));
    }
    let first_seen_late = priced("r2", 1, "EUR").with_delivery_count(2);
    assert_outcome!(engine.run::<E::Guarded>(first_seen_late).await, Outcome::Done(_));
    assert_counts(engine, 2, 0).await;
    assert_eq!(orders(engine).await, 2);
}

pub(crate) async fn a_row_that_says_something_else_makes_a_conflict<E: Engine>(engine: &E) {
    assert_outcome!(engine.run::<E::Guarded>(priced("r1", 1, "EUR")).await, Outcome::Done(_));
    for delivery_count in [1, 2] {
        let other = priced("r1", 2, "CHF").with_delivery_count(delivery_count);
        let outcome = engine.run::<E::Guarded>(other).await;
        assert_outcome!(outcome, Outcome::Conflict(c) if c.fields() == ["amount_cents", "currency"]);
    }
    engine.execute("UPDATE orders_once SET currency = NULL").await;
    let outcome = engine.run::<E::Guarded>(priced("r1", 1, "EUR")).await;
    assert_outcome!(outcome, Outcome::Conflict(conflict) if conflict.fields() == ["currency"]);
    assert_counts(engine, 1, 0).await;
}

pub(crate) async fn of_many_at_once_one_leaves_its_row<E: Engine>(engine: &E) {
    for round in 0..10 {
        let copies = (0..8).map(|_| {
            let order = priced(&format!("r{round}"), 1, "EUR");
            engine.run::<E::Guarded>(order)
        });
        let outcomes = futures_util::future::join_all(copies).await;
        let count = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(|o| wanted(o)).count();
        let done = count(|outcome| matches!(outcome, Outcome::Done(_)));
        let duplicates = count(|outcome| matches!(outcome, Outcome::Duplicate(_)));
        assert_eq!((done, duplicates), (1, 7), "{outcomes:?}");
    }
    assert_counts(engine, 10, 0).await;
}

/// What a handler's own row violates would be taken back with the rest of its work.
pub(crate) async fn a_row_of_the_handlers_own_or_another_constraint_proves_nothing<E: Engine>(
    engine: &E,
) {
    for amount_cents in [13, 14] {
        let outcome = engine.run::<E::Guarded>(priced("r1", amount_cents, "EUR")).await;
        assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(_)));
    }
    assert_counts(engine, 0, 0).await;
    assert_eq!(orders(engine).await, 0);
}

pub(crate) async fn a_handler_that_ends_its_transaction_is_found_out<E: Engine>(engine: &E) {
    assert_broken(engine.run::<E::Guarded>(priced("r1", 15, "EUR")).await);
    assert_outcome!(engine.run::<E::Guarded>(priced("r2", 1, "EUR")).await, Outcome::Done(_));
}

pub(crate) async fn in_batches_each_message_is_judged_alone<E: Engine>(engine: &E) {
    let batch = vec![priced("r1", 1, "EUR"), priced("r2", 2, "EUR")];
    let outcomes = engine.run_batch::<E::Guarded>(batch).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(_))), "{outcomes:?}");
    let batch = vec![priced("r3", 3, "EUR"), priced("r1", 1, "EUR"), priced("r3", 4, "EUR")];
    let outcomes = engine.run_batch::<E::Guarded>(batch).await;
    let [Outcome::Done(_), Outcome::Duplicate(_), Outcome::Conflict(_)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_counts(engine, 3, 0).await;
}

pub(crate) async fn a_constraint_that_proves_nothing_is_refused<E: Engine>(engine: &E) {
    let found = engine.store().constraint("orders_once_uq").await.expect("it proves it");
    assert_eq!(found.columns, ["customer_id", "external_ref"]);
    for (name, problem) in [
        ("no_such_uq", "there is no unique constraint `no_such_uq`"),
        ("orders_plain_ix", "is not unique"),
        ("orders_nullable_uq", "has a column that may be null"),
    ] {
        let refused = engine.store().constraint(name).await.expect_err("it proves nothing");
        assert!(refused.to_string().contains(problem), "{refused}");
    }
}
