//! What is refused at start, and what the refusal says.

use std::error::Error;
use std::time::{Duration, Instant};

use idem_runtime::store::{Fault, Mysql, Postgres, SqlServer, Sqlite, Store, StoreError};
use idem_tests::database::{MARIADB_URL, MysqlDatabase, PostgresDatabase};
use tokio::net::TcpListener;
use tokio::time::timeout;

pub(crate) fn chain(error: &dyn Error) -> String {
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
    let error =
        Postgres::connect("mysql://shop@localhost/orders").await.expect_err("another's URL");
    assert!(error.to_string().contains("write `postgres://"), "{error}");
    let error = Sqlite::connect("postgres://shop@localhost/orders").await.expect_err("another's");
    assert!(error.to_string().contains("write `sqlite://"), "{error}");
    for url in
        ["localhost/orders", "mysql://shop@localhost:3306", "postgres://shop@localhost/orders"]
    {
        let error = Mysql::connect(url).await.expect_err("no URL, or none of a database");
        assert!(error.to_string().contains("mysql://user:password@host:port/database"), "{error}");
    }
    let error = Sqlite::connect("orders?mode=strange").await.expect_err("no URL");
    assert!(error.to_string().contains("sqlite://path/to/file.db"), "{error}");
}

/// The server answers, and refuses: not that user, no such database, or it is another kind of server.
#[tokio::test]
async fn a_server_that_does_not_let_us_in_is_said_with_what_it_said() {
    if let Some(database) = PostgresDatabase::new().await {
        let refused = async |url: String| {
            let error = Postgres::connect(&url).await.expect_err("it does not let us in");
            chain(&error)
        };
        let text = refused(format!("{}_none", database.url)).await;
        assert!(text.contains("cannot connect") && text.contains("does not exist"), "{text}");
        let text = refused(database.url.replacen("idem:", "idem:not", 1)).await;
        assert!(text.contains("password authentication failed"), "{text}");
        if let Some(other) = MysqlDatabase::new(MARIADB_URL).await {
            let text = refused(other.url.replacen("mysql", "postgres", 1)).await;
            assert!(text.contains("check that it runs"), "{text}");
            let url = database.url.replacen("postgres", "mysql", 1);
            let error = timeout(Duration::from_secs(60), Mysql::connect(&url)).await;
            let text = chain(&error.expect("it gives up").expect_err("another kind of server"));
            assert!(text.contains("check that it runs"), "{text}");
            other.remove().await;
        }
        database.remove().await;
    }
    let Some(database) = MysqlDatabase::new(MARIADB_URL).await else { return };
    let refused = async |url: String| {
        let error = Mysql::connect(&url).await.expect_err("it does not let us in");
        chain(&error)
    };
    let text = refused(format!("{}_none", database.url)).await;
    assert!(text.contains("cannot connect") && text.contains("Unknown database"), "{text}");
    let text = refused(database.url.replacen("idem:", "idem:not", 1)).await;
    assert!(text.contains("Access denied"), "{text}");
    database.remove().await;
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
