//! What only MariaDB and MySQL do.

use std::str::FromStr;

use idem_runtime::store::{Mysql, Store};
use idem_runtime::{Outcome, execute};
use idem_tests::database::{MARIADB_URL, MysqlDatabase};
use sqlx::Executor;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

use crate::bodies::{assert_counts, assert_outcome};
use crate::engines::mysql::{OnMysql, on_mariadb};
use crate::engines::{Engine, delivery};

/// Handlers' connections do not commit by themselves; the application's must go on to.
#[tokio::test]
async fn the_applications_own_pool_commits_by_itself() {
    let Some(engine) = on_mariadb().await else { return };
    for round in 0..3 {
        assert_outcome!(engine.place(&format!("r{round}"), "ok").await, Outcome::Done(_));
        engine.execute("UPDATE balances SET amount = amount + 1 WHERE id = 1").await;
    }
    let other = engine.with_one_connection().await;
    let amount = "SELECT amount FROM balances WHERE id = 1";
    let amount: i64 = sqlx::query_scalar(amount).fetch_one(other.pool()).await.expect("a row");
    assert_eq!(amount, 3);
    engine.remove().await;
}

/// L-06: DDL cannot be rolled back, so a migration may stop between a table and its version.
#[tokio::test]
async fn an_interrupted_migration_is_taken_up_and_keeps_the_claims() {
    let Some(engine) = on_mariadb().await else { return };
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    for statement in ["DELETE FROM idem_migration", "DROP TABLE idem_migration"] {
        engine.execute(statement).await;
        let refused = engine.store().check().await.expect_err("the version is not recorded");
        assert!(refused.to_string().contains("run `idem migrate`"), "{refused}");
        engine.store().migrate().await.expect("it is taken up");
        engine.store().check().await.expect("the ledger fits");
    }
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Duplicate(_));
    assert_counts(&engine, 1, 1).await;
    engine.remove().await;
}

/// The lock that migrations wait on is the database's, not the server's.
#[tokio::test]
async fn migrations_of_an_empty_database_can_start_together() {
    let Some(database) = MysqlDatabase::new(MARIADB_URL).await else { return };
    let drop = "DROP TABLE idem_claim, idem_scope, idem_migration";
    sqlx::raw_sql(drop).execute(database.store.pool()).await.expect("they are there");
    let stores: Vec<_> = (0..6).map(|_| database.with_connections(1)).collect();
    let migrated = futures_util::future::join_all(stores.iter().map(Store::migrate)).await;
    for migrated in migrated {
        migrated.expect("they wait for each other");
    }
    database.store.check().await.expect("the ledger fits");
    database.remove().await;
}

/// The pool's own settings reach the handlers' connections, and ours come after them.
#[tokio::test]
async fn a_session_that_only_reads_by_default_writes_all_the_same() {
    let Some(engine) = on_mariadb().await else { return };
    let options = MySqlConnectOptions::from_str(&engine.database.url).expect("a readable URL");
    let read_only = MySqlPoolOptions::new().max_connections(1).after_connect(|connection, _| {
        Box::pin(async move {
            connection.execute("SET SESSION TRANSACTION READ ONLY").await?;
            Ok(())
        })
    });
    let store = Mysql::from_pool(read_only.connect_lazy_with(options));
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<<OnMysql as Engine>::ByKey, _>(&store, &context).await;
    assert_outcome!(outcome, Outcome::Done(_));
    engine.remove().await;
}

/// One pruner at a time, in however many processes.
#[tokio::test]
async fn a_pruner_finds_another_one_at_work() {
    let Some(engine) = on_mariadb().await else { return };
    let mut other = engine.database.store.pool().acquire().await.expect("connected");
    let lock = "SELECT get_lock(concat('idemp:', sha1(database())), 0)";
    let locked: i64 = sqlx::query_scalar(lock).fetch_one(&mut *other).await.expect("asked");
    assert_eq!(locked, 1);
    assert_eq!(engine.store().prune("test.place", 1).await.expect("asked"), None);
    other.close().await.expect("unlocked");
    assert_eq!(engine.store().prune("test.place", 1).await.expect("asked"), Some(0));
    engine.remove().await;
}
