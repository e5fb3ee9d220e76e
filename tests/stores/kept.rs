//! Connections of PostgreSQL that are kept from one transaction to the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_runtime::store::Postgres;
use idem_runtime::{Outcome, execute};
use serde_json::json;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection, Row};
use tokio::time::{Instant, sleep, timeout};

use crate::bodies::{assert_counts, assert_outcome};
use crate::engines::postgres::{OnPostgres, on_postgres};
use crate::engines::{Engine, delivery};

/// Nothing here takes this long unless it hangs.
const HANG: Duration = Duration::from_secs(30);

async fn store_with(engine: &OnPostgres, connections: u32) -> Postgres {
    let options = engine.database.store.pool().connect_options().as_ref().clone();
    Postgres::connect_with(options, connections).await.expect("it lets us in")
}

async fn place(
    engine: &OnPostgres,
    store: &Postgres,
    name: &str,
    then: impl Into<serde_json::Value>,
) -> Outcome {
    let context = engine.context_on(store, delivery(name, then.into()));
    execute::<<OnPostgres as Engine>::ByKey, _>(store, &context).await
}

/// Places messages until the connection of one is kept, and gives their number.
async fn place_until_one_is_kept(engine: &OnPostgres, store: &Postgres) -> i64 {
    for number in 1..100 {
        assert_outcome!(
            place(engine, store, &format!("kept {number}"), "ok").await,
            Outcome::Done(_)
        );
        // With the first one the store has asked for a setting, on a connection that is on its way
        // back.
        if number > 1 && away(store) == 1 {
            return number;
        }
    }
    panic!("no connection was kept");
}

/// How many connections are not in the pool.
fn away(store: &Postgres) -> usize {
    usize::try_from(store.pool().size()).expect("few") - store.pool().num_idle()
}

async fn are_given_back(store: &Postgres) {
    let given_back = async {
        while away(store) > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(HANG, given_back).await.expect("the connections come back to the pool");
}

/// Whether the server is in no transaction: a statement of its own begins when its transaction does.
async fn is_outside(connection: &mut PgConnection) -> bool {
    let row = sqlx::raw_sql("SELECT now() = statement_timestamp()").fetch_one(connection).await;
    row.expect("asked").get(0)
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_message_and_then_given_back_whole() {
    let Some(engine) = on_postgres().await else { return };
    let store = store_with(&engine, 4).await;
    let placed = place_until_one_is_kept(&engine, &store).await;
    are_given_back(&store).await;
    let mut connections = Vec::new();
    for _ in 0..store.pool().size() {
        let mut connection = store.pool().acquire().await.expect("acquired");
        assert!(
            !connection.is_in_transaction(),
            "the driver counts itself outside of transactions"
        );
        assert!(is_outside(&mut connection).await, "and so does the server");
        connections.push(connection);
    }
    let mut connection = connections.pop().expect("one of them");
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await.expect("begun");
    assert!(!is_outside(&mut connection).await, "which would say so otherwise");
    sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await.expect("ended");
    drop((connection, connections));
    assert_counts(&engine, placed, placed).await;
    engine.remove().await;
}

/// A kept connection is inside no transaction, whose time and snapshot would be old.
#[tokio::test]
async fn each_message_has_a_transaction_of_its_own_time() {
    let Some(engine) = on_postgres().await else { return };
    engine.execute("CREATE TABLE times (began timestamptz)").await;
    let store = store_with(&engine, 4).await;
    let notes = json!({ "run": "INSERT INTO times VALUES (now())" });
    for name in ["r1", "r2", "r3"] {
        assert_outcome!(place(&engine, &store, name, notes.clone()).await, Outcome::Done(_));
        sleep(Duration::from_millis(5)).await;
    }
    let apart = "SELECT count(*) FROM (SELECT began - lag(began) OVER (ORDER BY began) AS after \
         FROM times) AS t WHERE after >= interval '5 milliseconds'";
    assert_eq!(engine.count(apart).await, 2);
    engine.remove().await;
}

#[tokio::test]
async fn a_kept_connection_that_is_broken_costs_no_message_an_attempt() {
    let Some(engine) = on_postgres().await else { return };
    let store = store_with(&engine, 4).await;
    let mut broken = 0;
    for number in 0..20 {
        let placed = place(&engine, &store, &format!("before {number}"), "ok").await;
        assert_outcome!(placed, Outcome::Done(_));
        let was_kept = number > 0 && away(&store) == 1;
        let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid() \
               AND query LIKE 'CLOSE idem%'";
        let ended = engine.count(others).await;
        broken += i64::from(was_kept) * ended;
        let placed = place(&engine, &store, &format!("after {number}"), "ok").await;
        assert_outcome!(placed, Outcome::Done(_));
    }
    assert!(broken > 0, "a kept connection was broken at least once");
    assert_counts(&engine, 40, 40).await;
    engine.remove().await;
}

#[tokio::test]
async fn the_last_connection_of_a_pool_is_never_kept() {
    let Some(engine) = on_postgres().await else { return };
    let store = store_with(&engine, 1).await;
    let mut waits = Vec::new();
    for number in 0..20 {
        let placed = place(&engine, &store, &format!("r{number}"), "ok").await;
        assert_outcome!(placed, Outcome::Done(_));
        let asked = Instant::now();
        let acquired = timeout(HANG, store.pool().acquire()).await.expect("in time");
        acquired.expect("acquired");
        waits.push(asked.elapsed());
    }
    // What is kept comes back after 10 ms.
    let shortest = waits.into_iter().min().expect("some");
    assert!(shortest < Duration::from_millis(5), "{shortest:?}");
    assert_eq!(store.pool().size(), 1);
    engine.remove().await;
}

#[tokio::test]
async fn a_pool_can_be_closed_while_a_connection_is_kept() {
    let Some(engine) = on_postgres().await else { return };
    let store = store_with(&engine, 4).await;
    place_until_one_is_kept(&engine, &store).await;
    timeout(HANG, store.pool().close()).await.expect("it closes");
    assert_eq!(store.pool().size(), 0);
    let refused = place(&engine, &store, "late", "ok").await;
    assert_outcome!(refused, Outcome::Retry(_));
    engine.remove().await;
}

/// A busy store gives its connections back as well, so that the pool can look after them.
#[tokio::test]
async fn a_connection_that_is_always_used_goes_back_to_its_pool_each_second() {
    let Some(engine) = on_postgres().await else { return };
    let store = store_with(&engine, 4).await;
    engine.execute("CREATE TABLE sessions (pid integer, number bigint)").await;
    let started = Instant::now();
    let mut number = 0;
    while started.elapsed() < Duration::from_millis(2_500) {
        number += 1;
        let notes = format!("INSERT INTO sessions VALUES (pg_backend_pid(), {number})");
        let placed = place(&engine, &store, &format!("r{number}"), json!({ "run": notes })).await;
        assert_outcome!(placed, Outcome::Done(_));
    }
    // The pool has two from the start: what is given back is not the next that it gives.
    let changes = "SELECT count(*) FROM (SELECT pid <> lag(pid) OVER (ORDER BY number) AS differs \
         FROM sessions) AS t WHERE differs";
    let changes = engine.count(changes).await;
    assert!((2..number / 2).contains(&changes), "{changes} changes in {number} messages");
    engine.remove().await;
}

/// What the application has its pool do when a connection comes back is done for each message.
#[tokio::test]
async fn of_a_pool_of_the_application_nothing_is_kept() {
    let Some(engine) = on_postgres().await else { return };
    let released = Arc::new(AtomicUsize::new(0));
    let options = engine.database.store.pool().connect_options().as_ref().clone();
    let counted = Arc::clone(&released);
    let pool = PgPoolOptions::new().max_connections(4).after_release(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(true) })
    });
    let store = Postgres::from_pool(pool.connect_lazy_with(options));
    for number in 0..5 {
        let before = released.load(Ordering::SeqCst);
        let placed = place(&engine, &store, &format!("r{number}"), "ok").await;
        assert_outcome!(placed, Outcome::Done(_));
        let is_released = async {
            while released.load(Ordering::SeqCst) == before {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(HANG, is_released).await.expect("its connection comes back");
    }
    engine.remove().await;
}
