//! A database for one test, removed when the test ends.

use std::env;
use std::io::Write;
use std::str::FromStr;

use idem_runtime::store::{Postgres, Sqlite, Store};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;

/// Names the PostgreSQL server of the tests; `cargo xtask test` starts one and sets it.
pub const POSTGRES_URL: &str = "IDEM_TEST_POSTGRES_URL";

/// An SQLite file in a folder of its own, with the ledger in it.
#[derive(Debug)]
pub struct SqliteFile {
    /// The store on the file.
    pub store: Sqlite,
    /// The URL of the file.
    pub url: String,
    _folder: TempDir,
}

impl SqliteFile {
    /// A new file.
    ///
    /// # Panics
    ///
    /// When it cannot be made: the test cannot run.
    pub async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = format!("sqlite://{}", folder.path().join("test.db").display());
        let store = Sqlite::connect(&url).await.expect("SQLite opens its file");
        store.migrate().await.expect("the ledger's tables are made");
        Self { store, url, _folder: folder }
    }
}

/// A database on the tests' PostgreSQL server, with the ledger in it.
#[derive(Debug)]
pub struct PostgresDatabase {
    /// The store on the database, with a pool of 24.
    pub store: Postgres,
    /// The URL of the database.
    pub url: String,
    name: String,
    server: PgConnectOptions,
}

impl PostgresDatabase {
    /// A new database; `None`, and a line that says so, where there is no server to test with.
    ///
    /// # Panics
    ///
    /// When the server is named but cannot be used.
    pub async fn new() -> Option<Self> {
        let Some(server) = env::var(POSTGRES_URL).ok().filter(|url| !url.is_empty()) else {
            // Not by `println!`, whose output the test runner hides when a test passes.
            let note = format!("LEFT OUT: {POSTGRES_URL} is not set; `cargo xtask test` sets it\n");
            std::io::stderr().write_all(note.as_bytes()).ok();
            return None;
        };
        let name = format!("idem_test_{:016x}", fastrand::u64(..));
        let options = PgConnectOptions::from_str(&server).expect("a readable URL");
        execute_on(&options, format!("CREATE DATABASE {name}")).await;
        let (base, _) = server.rsplit_once('/').expect("the URL ends with a database");
        let url = format!("{base}/{name}");
        let store = Postgres::connect(&url).await.expect("PostgreSQL lets us in");
        store.migrate().await.expect("the ledger's tables are made");
        Some(Self { store, url, name, server: options })
    }

    /// A store on this database with another number of connections.
    ///
    /// # Panics
    ///
    /// When the URL cannot be read, which `new` has done before.
    pub fn with_connections(&self, connections: u32) -> Postgres {
        let options = PgConnectOptions::from_str(&self.url).expect("a readable URL");
        let pool = PgPoolOptions::new().max_connections(connections).connect_lazy_with(options);
        Postgres::from_pool(pool)
    }

    /// Removes the database, whoever is connected to it.
    pub async fn remove(self) {
        self.store.pool().close().await;
        let name = &self.name;
        execute_on(&self.server, format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}

/// The statements are ours: a keyword and a name that we made.
async fn execute_on(server: &PgConnectOptions, statement: String) {
    let mut connection = PgConnection::connect_with(server).await.expect("the server is there");
    connection.execute(AssertSqlSafe(statement)).await.expect("the statement is allowed");
    connection.close().await.expect("the connection ends in order");
}
