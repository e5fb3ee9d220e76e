//! What is refused at start, and what the refusal says.

use std::error::Error;
use std::time::{Duration, Instant};

use idem_runtime::store::{Fault, Mysql, Postgres, SqlServer, Sqlite, Store, StoreError};
use idem_tests::database::PostgresDatabase;
use tokio::net::TcpListener;

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[tokio::test]
async fn a_database_that_is_down_is_said_at_once_and_without_the_password() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let started = Instant::now();
    let url = format!("postgres://shop:hunter2@{free}/orders");
    assert_says_what_is_down(&Postgres::connect(&url).await.expect_err("nobody listens there"));
    let url = format!("mysql://shop:hunter2@{free}/orders");
    assert_says_what_is_down(&Mysql::connect(&url).await.expect_err("nobody listens there"));
    let url = format!("sqlserver://shop:hunter2@{free}/orders");
    assert_says_what_is_down(&SqlServer::connect(&url).await.expect_err("nobody listens there"));
    assert!(started.elapsed() < Duration::from_secs(5));
}

fn assert_says_what_is_down(error: &StoreError) {
    assert_eq!(error.fault(), Fault::Unavailable);
    let text = chain(error);
    assert!(text.contains("`orders`") && text.contains("check that it runs"), "{text}");
    assert!(!format!("{text}{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_url_that_cannot_be_read_is_said_with_an_example() {
    let error = Postgres::connect("localhost/orders").await.expect_err("no URL");
    assert!(error.to_string().contains("postgres://user:password@host:port/database"), "{error}");
    for url in ["localhost/orders", "mysql://shop@localhost:3306"] {
        let error = Mysql::connect(url).await.expect_err("no URL, or none of a database");
        assert!(error.to_string().contains("mysql://user:password@host:port/database"), "{error}");
    }
    let error = Sqlite::connect("orders?mode=strange").await.expect_err("no URL");
    assert!(error.to_string().contains("sqlite://path/to/file.db"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named() {
    let error = Sqlite::connect("sqlite:///nowhere/at/all/orders.db").await.expect_err("no folder");
    let text = chain(&error);
    assert!(text.contains("/nowhere/at/all/orders.db") && text.contains("writable"), "{text}");
}

#[tokio::test]
async fn a_ledger_that_is_missing_or_newer_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("empty.db").display());
    let store = Sqlite::connect(&url).await.unwrap();
    let missing = store.check().await.expect_err("no ledger yet");
    assert!(missing.to_string().contains("run `idem migrate`"), "{missing}");

    store.migrate().await.unwrap();
    store.check().await.expect("the ledger is there now");
    let newer = "INSERT INTO idem_migration (version) VALUES (99)";
    sqlx::query(newer).execute(store.pool()).await.unwrap();
    let newer = store.check().await.expect_err("made by a newer build");
    assert!(newer.to_string().contains("update idem"), "{newer}");
    assert!(store.migrate().await.is_err(), "a newer ledger is not touched");
}

#[tokio::test]
async fn a_postgres_without_ledger_is_refused() {
    let Some(database) = PostgresDatabase::new().await else {
        return;
    };
    sqlx::query("DROP TABLE idem_migration").execute(database.store.pool()).await.unwrap();
    let missing = database.store.check().await.expect_err("no ledger");
    assert!(missing.to_string().contains("run `idem migrate`"), "{missing}");
    database.remove().await;
}

/// Claims go by read committed whatever the database's default: at a higher level a duplicate
/// would be a serialization failure.
#[tokio::test]
async fn the_default_isolation_of_the_database_does_not_matter() {
    use crate::bodies::assert_outcome;
    use crate::engines::{Engine, postgres::on_postgres};
    use idem_runtime::Outcome;

    let Some(engine) = on_postgres().await else {
        return;
    };
    let serializable = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET \
        default_transaction_isolation = serializable', current_database()); END $$";
    sqlx::raw_sql(serializable).execute(engine.database.store.pool()).await.unwrap();
    let store = engine.database.with_connections(2);
    let level: String = sqlx::query_scalar("SHOW default_transaction_isolation")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(level, "serializable");

    let context = engine.context(crate::engines::delivery("r1", "wait"));
    let first =
        idem_runtime::execute::<crate::engines::postgres::ByKeyHandler, _>(&store, &context);
    let second = async {
        engine.gate().until_arrived().await;
        let context = engine.context(crate::engines::delivery("r1", "ok"));
        let busy =
            idem_runtime::execute::<crate::engines::postgres::ByKeyHandler, _>(&store, &context)
                .await;
        assert_outcome!(busy, Outcome::Busy);
        engine.gate().open();
    };
    let (first, ()) = tokio::join!(first, second);
    assert_outcome!(first, Outcome::Done(_));
    engine.remove().await;
}
