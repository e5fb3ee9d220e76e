//! What is claimed, and what a claim that is there already means.

use std::time::Duration;

use idem_runtime::horizon::Retention;
use idem_runtime::store::{Names, ScopeKeys, Store};
use idem_runtime::{Delivery, Outcome, SourceId, execute, execute_batch};
use tokio::time::sleep;

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery, priced};

pub(crate) async fn the_first_delivery_is_done_and_the_second_a_duplicate(engine: &impl Engine) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Done(_));
    assert_counts(engine, 2, 2).await;
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

/// two subscriptions of one topic, in one database, at both levels.
pub(crate) async fn each_consumer_of_one_event_runs_once<E: Engine>(engine: &E) {
    let order = priced("r1", 1, "EUR");
    let from = |subscription: &str| {
        let entity = format!("events/Subscriptions/{subscription}");
        Delivery::new(SourceId::new("bus.example.net", &entity), order.body().clone())
            .with_message_id("m-1")
    };
    for subscription in ["billing", "shipping"] {
        let outcome = engine.run::<E::ByMessageId>(from(subscription)).await;
        assert_outcome!(outcome, Outcome::Done(_));
    }
    assert_outcome!(engine.run::<E::ByKey>(from("billing")).await, Outcome::Done(_));
    assert_outcome!(engine.run::<E::Receipt>(from("shipping")).await, Outcome::Done(_));
    assert_counts(engine, 4, 4).await;
    for subscription in ["billing", "shipping"] {
        let outcome = engine.run::<E::ByMessageId>(from(subscription)).await;
        assert_outcome!(outcome, Outcome::Duplicate(_));
    }
    assert_outcome!(engine.run::<E::ByKey>(from("shipping")).await, Outcome::Duplicate(_));
    assert_outcome!(engine.run::<E::Receipt>(from("billing")).await, Outcome::Duplicate(_));
    assert_counts(engine, 4, 4).await;
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

/// Of the ledger's first version there is nothing but this, and its migration.
pub(crate) async fn claims_of_the_first_version_are_kept_by_migrations<E: Engine>(engine: &E) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    let columns = E::FIRST_COLUMNS;
    engine.execute(&E::keep_claims(columns)).await;
    engine.execute("DROP TABLE idem_claim").await;
    engine.execute("DROP TABLE idem_scope").await;
    engine.execute("DELETE FROM idem_migration WHERE version > 1").await;
    engine.execute(E::Store::MIGRATIONS[0]).await;
    engine.execute(&format!("INSERT INTO idem_claim ({columns}) SELECT {columns} FROM kept")).await;

    let refused = engine.store().check().await.expect_err("it is too old");
    assert!(refused.to_string().contains("run `idem migrate`"), "{refused}");
    engine.store().migrate().await.expect("it can be migrated");
    engine.store().check().await.expect("it fits");
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn ledgers_of_different_names_fit_into_one_database<E: Engine>(engine: &E) {
    let names = Names::prefix("shop_").expect("a name");
    let other = engine.store().clone().with_names(names).expect("every engine takes a prefix");
    let refused = other.check().await.expect_err("it is not made yet");
    assert!(refused.to_string().contains("run `idem migrate`"), "{refused}");
    for _ in 0..2 {
        other.migrate().await.expect("it is made beside the first");
    }
    other.check().await.expect("it fits");

    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    for (count, expected) in [(1, "done"), (1, "duplicate"), (2, "duplicate")] {
        let context = engine.context(delivery("r1", "ok").with_delivery_count(count));
        let outcome = execute::<E::ByKey, _>(&other, &context).await;
        let is_done = matches!(outcome, Outcome::Done(_));
        assert_eq!(is_done, expected == "done", "{outcome:?}");
    }
    let contexts = ["r2", "r1"].map(|name| engine.context(delivery(name, "ok")));
    let outcomes = execute_batch::<E::AllAtOnce, _>(&other, &contexts).await;
    let [Outcome::Done(_), Outcome::Duplicate(_)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_counts(engine, 3, 1).await;
    assert_eq!(engine.count("SELECT count(*) FROM shop_idem_claim").await, 2);

    let keys = ScopeKeys { scope: "test.place".to_owned(), level: 2, key: "id".to_owned() };
    other.register(&keys).await.expect("registered");
    let hour = Duration::from_secs(3600);
    let retention = Retention { horizon: hour, kept: hour };
    other.keep_alive("test.place", retention).await.expect("kept alive");
    assert_eq!(other.scopes().await.expect("asked"), ["test.place"]);
    assert_eq!(other.prune("test.place", 10).await.expect("pruned"), Some(0));
    assert!(engine.store().scopes().await.expect("asked").is_empty());
}
