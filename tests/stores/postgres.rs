//! What only PostgreSQL does: errors that come with the `COMMIT`, and isolation levels.

use idem_runtime::outcome::RetryReason;
use idem_runtime::store::{Fault, Names, Postgres, Store};
use idem_runtime::{Outcome, execute, execute_batch};
use serde_json::json;
use sqlx::postgres::PgPoolOptions;

use crate::bodies::{assert_counts, assert_outcome};
use crate::engines::postgres::{OnPostgres, on_postgres};
use crate::engines::{Engine, delivery, priced};

/// A deferred constraint speaks only when we commit, and is the handler's all the same.
#[tokio::test]
async fn a_violation_that_comes_with_the_commit_is_named_and_no_duplicate() {
    let Some(engine) = on_postgres().await else { return };
    let deferred = "CREATE TABLE receipts (number bigint \
        CONSTRAINT receipts_uq UNIQUE DEFERRABLE INITIALLY DEFERRED); \
        INSERT INTO receipts VALUES (1)";
    engine.execute(deferred).await;
    let outcome = engine.place("r1", json!({ "run": "INSERT INTO receipts VALUES (1)" })).await;
    let Outcome::Retry(reason @ RetryReason::NotCommitted(_)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(reason.to_string().contains("receipts_uq"), "{reason}");
    assert_counts(&engine, 0, 0).await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    engine.remove().await;
}

/// a serialization failure may come with a statement or with the commit.
#[tokio::test]
async fn a_serialization_failure_is_tried_again_wherever_it_comes() {
    let Some(engine) = on_postgres().await else { return };
    // Sequences keep what a rolled back transaction took from them.
    let fails_twice = "CREATE SEQUENCE attempts; \
        CREATE FUNCTION fail_twice() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF nextval('attempts') % 3 <> 0 THEN \
                RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; \
            END IF; RETURN NULL; END $$; \
        CREATE TABLE at_statement (id bigint); CREATE TABLE at_commit (id bigint); \
        CREATE TRIGGER fail AFTER INSERT ON at_statement \
            FOR EACH ROW EXECUTE FUNCTION fail_twice(); \
        CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON at_commit \
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail_twice()";
    engine.execute(fails_twice).await;
    for (done, table) in (1..).zip(["at_statement", "at_commit"]) {
        let insert = format!("INSERT INTO {table} VALUES (1)");
        assert_outcome!(engine.place(table, json!({ "run": insert })).await, Outcome::Done(_));
        let attempts = engine.count("SELECT last_value FROM attempts").await;
        assert_eq!(attempts, 3 * done, "two of three attempts failed");
        assert_counts(&engine, done, done).await;
    }
    engine.remove().await;
}

#[tokio::test]
async fn a_serialization_failure_that_does_not_pass_is_left_for_later() {
    let Some(engine) = on_postgres().await else { return };
    let fails = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END $$; \
        CREATE TABLE at_commit (id bigint); \
        CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON at_commit \
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()";
    engine.execute(fails).await;
    let outcome = engine.place("r1", json!({ "run": "INSERT INTO at_commit VALUES (1)" })).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(error)) if error.fault() == Fault::Contention);
    assert_counts(&engine, 0, 0).await;
    engine.remove().await;
}

/// The claim is the transaction's first statement, after which PostgreSQL keeps its level.
#[tokio::test]
async fn a_handler_cannot_change_the_isolation_level() {
    let Some(engine) = on_postgres().await else { return };
    let serializable = json!({ "run": "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE" });
    let outcome = engine.place("r1", serializable).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(error)) if error.to_string().contains("must be called before any query"));
    assert_counts(&engine, 0, 0).await;
    engine.remove().await;
}

/// The handler commits, begins anew, and fails there: the new transaction is doomed, and hides
/// that the claim is committed.
#[tokio::test]
async fn a_commit_by_hand_is_found_out_behind_a_doomed_transaction() {
    let Some(engine) = on_postgres().await else { return };
    let commits = json!({ "run": "COMMIT; BEGIN; INSERT INTO invoices (number) VALUES (1)" });
    let outcome = engine.place("r1", commits).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    let ignored = json!({ "ignore": "COMMIT; BEGIN; INSERT INTO invoices (number) VALUES (1)" });
    let outcome = engine.place("r2", ignored).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    engine.remove().await;
}

/// One pruner at a time, in however many processes.
#[tokio::test]
async fn a_pruner_finds_another_one_at_work() {
    let Some(engine) = on_postgres().await else { return };
    let mut other = engine.database.store.pool().begin().await.expect("begun");
    // `idep` in ASCII, on which pruners wait for nobody.
    let lock = "SELECT pg_advisory_xact_lock(1768187248)";
    sqlx::query(lock).execute(&mut *other).await.expect("locked");
    assert_eq!(engine.store().prune("test.place", 1).await.expect("asked"), None);
    other.rollback().await.expect("unlocked");
    assert_eq!(engine.store().prune("test.place", 1).await.expect("asked"), Some(0));
    engine.remove().await;
}

#[tokio::test]
async fn a_constraint_that_speaks_late_or_for_some_rows_only_is_refused() {
    let Some(engine) = on_postgres().await else { return };
    let made = "\
        CREATE TABLE late (id bigint NOT NULL, CONSTRAINT late_uq UNIQUE (id) DEFERRABLE); \
        CREATE UNIQUE INDEX partial_uq ON late (id) WHERE id > 7; \
        CREATE UNIQUE INDEX expression_uq ON late ((id + 1)); \
        CREATE UNIQUE INDEX including_uq ON late (id) INCLUDE (id); \
        CREATE SCHEMA other; CREATE TABLE other.hidden (id bigint NOT NULL PRIMARY KEY)";
    engine.execute(made).await;
    for (name, problem) in [
        ("late_uq", "is deferrable"),
        ("partial_uq", "is for a part of the rows"),
        ("expression_uq", "on an expression"),
        ("hidden_pkey", "there is no unique constraint"),
    ] {
        let refused = engine.store().constraint(name).await.expect_err("it proves nothing");
        assert!(refused.to_string().contains(problem), "{name}: {refused}");
    }
    let found = engine.store().constraint("including_uq").await.expect("it proves it");
    assert_eq!(found.columns, ["id"]);
    engine.remove().await;
}

/// A table of the same name, and a constraint of the same name, in another schema.
#[tokio::test]
async fn the_violation_of_a_constraint_of_the_same_name_elsewhere_is_no_duplicate() {
    let Some(engine) = on_postgres().await else { return };
    let elsewhere = "\
        CREATE SCHEMA other; \
        CREATE TABLE other.orders_once (id bigint CONSTRAINT orders_once_uq UNIQUE); \
        INSERT INTO other.orders_once VALUES (1); \
        CREATE FUNCTION elsewhere() RETURNS trigger LANGUAGE plpgsql AS \
        'BEGIN INSERT INTO other.orders_once VALUES (1); RETURN NEW; END'; \
        CREATE TRIGGER elsewhere BEFORE INSERT ON orders_once FOR EACH ROW \
        EXECUTE FUNCTION elsewhere()";
    engine.execute(elsewhere).await;
    let outcome = engine.run::<<OnPostgres as Engine>::Guarded>(priced("r1", 1, "EUR")).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::Handler(_)));
    engine.remove().await;
}

/// A `search_path` that a handler leaves behind on its connection hides what has no schema.
#[tokio::test]
async fn a_ledger_in_a_schema_is_found_whatever_the_search_path() {
    let Some(engine) = on_postgres().await else { return };
    let store = engine.with_one_connection().await;
    let store = store.with_names(Names::schema("shop_idem").expect("a name")).expect("taken");
    store.migrate().await.expect("the schema is made too");
    store.check().await.expect("it fits");
    let deliver = async |name: &str, then| {
        execute::<<OnPostgres as Engine>::ByKey, _>(&store, &engine.context(delivery(name, then)))
            .await
    };
    let leaves = json!({ "run": "SET search_path = pg_catalog" });
    assert_outcome!(deliver("r1", leaves.clone()).await, Outcome::Done(_));
    let restores = json!({ "run": "SET search_path = public" });
    assert_outcome!(deliver("r1", restores).await, Outcome::Duplicate(_));
    let in_schema = "SELECT count(*) FROM shop_idem.idem_claim";
    assert_eq!(engine.count(in_schema).await, 1);
    assert_counts(&engine, 1, 0).await;
    engine.remove().await;
}

/// The claim's own wait is bounded, and the handler's are what the sessions of the pool say.
#[tokio::test]
async fn the_bound_of_the_claims_wait_is_not_the_handlers() {
    let Some(engine) = on_postgres().await else { return };
    let options = engine.database.store.pool().connect_options().as_ref().clone();
    for (number, setting) in ["0", "7s"].into_iter().enumerate() {
        let options = options.clone().options([("lock_timeout", setting)]);
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
        let store = Postgres::from_pool(pool);
        let check = json!({ "run": format!("DO $$ BEGIN \
            IF current_setting('lock_timeout') <> '{setting}' THEN RAISE EXCEPTION 'bounded'; \
            END IF; END $$") });
        let name = |which: &str| format!("{which} {number}");
        let context = engine.context_on(&store, delivery(&name("one"), check.clone()));
        assert_outcome!(
            execute::<<OnPostgres as Engine>::ByKey, _>(&store, &context).await,
            Outcome::Done(_)
        );
        let batch = ["two", "three"]
            .map(|which| engine.context_on(&store, delivery(&name(which), check.clone())));
        let outcomes = execute_batch::<<OnPostgres as Engine>::AllAtOnce, _>(&store, &batch).await;
        assert!(outcomes.iter().all(|one| matches!(one, Outcome::Done(_))), "{outcomes:?}");
        store.pool().close().await;
    }
    engine.remove().await;
}
