//! A database for one test, removed when the test ends.

use std::collections::BTreeSet;
use std::env;
use std::io::Write;
use std::str::FromStr;
use std::sync::Mutex;

use idem_runtime::store::{Mysql, Postgres, SqlServer, Sqlite, Store};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tempfile::TempDir;
use tiberius::{Client, Config};
use tokio::net::TcpStream;
use tokio_util::compat::TokioAsyncWriteCompatExt;

/// Names the PostgreSQL server of the tests; `cargo xtask test` starts one and sets it.
pub const POSTGRES_URL: &str = "IDEM_TEST_POSTGRES_URL";

/// Names the MariaDB server of the tests; `cargo xtask test` starts one and sets it.
pub const MARIADB_URL: &str = "IDEM_TEST_MARIADB_URL";

/// Names a MySQL server to run the same tests on, where there is one.
pub const MYSQL_URL: &str = "IDEM_TEST_MYSQL_URL";

/// Names an SQL Server to run the same tests on, where there is one.
pub const SQLSERVER_URL: &str = "IDEM_TEST_SQLSERVER_URL";

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
        let server = server(POSTGRES_URL)?;
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

    /// A store on this database whose sessions are in a time zone, `+09:00`.
    ///
    /// # Panics
    ///
    /// When the URL cannot be read, which `new` has done before.
    pub fn in_time_zone(&self, zone: &str) -> Postgres {
        // What has no name counts westward for this server, so that the sign is the other one.
        let zone = if let Some(east) = zone.strip_prefix('+') {
            format!("-{east}")
        } else {
            zone.replace('-', "+")
        };
        let options = PgConnectOptions::from_str(&self.url).expect("a readable URL");
        let options = options.options([("timezone", zone)]);
        Postgres::from_pool(PgPoolOptions::new().max_connections(4).connect_lazy_with(options))
    }

    /// Removes the database, whoever is connected to it.
    pub async fn remove(self) {
        self.store.pool().close().await;
        let name = &self.name;
        execute_on(&self.server, format!("DROP DATABASE {name} WITH (FORCE)")).await;
    }
}

/// A database on the tests' MariaDB or MySQL server, with the ledger in it.
#[derive(Debug)]
pub struct MysqlDatabase {
    /// The store on the database.
    pub store: Mysql,
    /// The URL of the database.
    pub url: String,
    name: String,
    server: MySqlConnectOptions,
}

impl MysqlDatabase {
    /// A new database on the server that a variable names; `None`, and a line that says so, where
    /// there is no server to test with.
    ///
    /// # Panics
    ///
    /// When the server is named but cannot be used.
    pub async fn new(variable: &'static str) -> Option<Self> {
        let server = server(variable)?;
        let name = format!("idem_test_{:016x}", fastrand::u64(..));
        let options = MySqlConnectOptions::from_str(&server).expect("a readable URL");
        execute_on_mysql(&options, format!("CREATE DATABASE {name}")).await;
        let (base, _) = server.rsplit_once('/').expect("the URL ends with a database");
        let url = format!("{base}/{name}");
        let store = Mysql::connect(&url).await.expect("the server lets us in");
        store.migrate().await.expect("the ledger's tables are made");
        Some(Self { store, url, name, server: options })
    }

    /// A store on this database with another number of connections.
    ///
    /// # Panics
    ///
    /// When the URL cannot be read, which `new` has done before.
    pub fn with_connections(&self, connections: u32) -> Mysql {
        let options = MySqlConnectOptions::from_str(&self.url).expect("a readable URL");
        let pool = MySqlPoolOptions::new().max_connections(connections).connect_lazy_with(options);
        Mysql::from_pool(pool)
    }

    /// A store on this database whose sessions are in a time zone, `+09:00`.
    ///
    /// # Panics
    ///
    /// When the URL cannot be read, which `new` has done before.
    pub fn in_time_zone(&self, zone: &str) -> Mysql {
        let options = MySqlConnectOptions::from_str(&self.url).expect("a readable URL");
        let options = options.timezone(zone.to_owned());
        Mysql::from_pool(MySqlPoolOptions::new().max_connections(4).connect_lazy_with(options))
    }

    /// Removes the database.
    ///
    /// # Panics
    ///
    /// When a transaction is left open in it.
    pub async fn remove(self) {
        self.store.pool().close().await;
        execute_on_mysql(
            &self.server,
            format!("SET lock_wait_timeout = 20; DROP DATABASE {}", self.name),
        )
        .await;
    }
}

/// A database on the tests' SQL Server, with the ledger in it.
#[derive(Debug)]
pub struct SqlServerDatabase {
    /// The store on the database.
    pub store: SqlServer,
    /// The URL of the database, without encryption after the login unless the server's URL asks for
    /// it, so that a proxy can read along.
    pub url: String,
    name: String,
    config: Config,
    server: Config,
}

impl SqlServerDatabase {
    /// A new database; `None`, and a line that says so, where there is no server to test with.
    ///
    /// # Panics
    ///
    /// When the server is named but cannot be used.
    pub async fn new() -> Option<Self> {
        let server_url = server(SQLSERVER_URL)?;
        let name = format!("idem_test_{:016x}", fastrand::u64(..));
        let (place, parameters) = server_url.split_once('?').unwrap_or((&server_url, ""));
        let (base, _) = place.rsplit_once('/').expect("the path is a database");
        let encrypt = if parameters.contains("encrypt=") { "" } else { "&encrypt=false" };
        let url = format!("{base}/{name}?{parameters}{encrypt}");
        let server = SqlServer::read_url(&server_url).expect("a readable URL");
        execute_on_sqlserver(&server, &format!("CREATE DATABASE {name}")).await;
        let store = SqlServer::connect(&url).await.expect("SQL Server lets us in");
        store.migrate().await.expect("the ledger's tables are made");
        let config = SqlServer::read_url(&url).expect("a readable URL");
        Some(Self { store, url, name, config, server })
    }

    /// A store on this database with another number of connections.
    pub fn with_connections(&self, connections: u32) -> SqlServer {
        SqlServer::from_config(self.config.clone(), connections)
    }

    /// Runs a batch of statements.
    ///
    /// # Panics
    ///
    /// When it is refused.
    pub async fn execute(&self, batch: &str) {
        execute_on_sqlserver(&self.config, batch).await;
    }

    /// The only value of a query.
    ///
    /// # Panics
    ///
    /// When it is no integer.
    pub async fn count(&self, query: &str) -> i64 {
        let query = format!("SELECT CAST(({query}) AS bigint)");
        let rows = execute_on_sqlserver(&self.config, &query).await;
        rows.first().and_then(|row| row.get(0)).expect("an integer")
    }

    /// Removes the database, whoever is connected to it.
    pub async fn remove(self) {
        let name = &self.name;
        let drop = format!(
            "ALTER DATABASE {name} SET SINGLE_USER WITH ROLLBACK IMMEDIATE; DROP DATABASE {name}"
        );
        execute_on_sqlserver(&self.server, &drop).await;
    }
}

/// The URL in a variable. Tests that need a server which is not there say so, once a process, and
/// pass.
fn server(variable: &'static str) -> Option<String> {
    let url = env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        let is_yours = [MYSQL_URL, SQLSERVER_URL].contains(&variable);
        let how = if is_yours { "" } else { "; `cargo xtask test` sets it" };
        left_out(&format!("tests that need {variable}, which is not set{how}"));
    }
    url
}

/// Says, once a process, what is not tested here.
pub fn left_out(what: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().is_ok_and(|mut said| said.insert(what.to_owned())) {
        // Not by `println!`, whose output the test runner hides when a test passes.
        std::io::stderr().write_all(format!("LEFT OUT: {what}\n").as_bytes()).ok();
    }
}

/// The statements are ours: a keyword and a name that we made.
async fn execute_on(server: &PgConnectOptions, statement: String) {
    let mut connection = PgConnection::connect_with(server).await.expect("the server is there");
    connection.execute(AssertSqlSafe(statement)).await.expect("the statement is allowed");
    connection.close().await.expect("the connection ends in order");
}

async fn execute_on_mysql(server: &MySqlConnectOptions, statement: String) {
    let mut connection = MySqlConnection::connect_with(server).await.expect("the server is there");
    connection.execute(AssertSqlSafe(statement)).await.expect("the statement is allowed");
    connection.close().await.expect("the connection ends in order");
}

async fn execute_on_sqlserver(server: &Config, batch: &str) -> Vec<tiberius::Row> {
    let stream = TcpStream::connect(server.get_addr()).await.expect("the server is there");
    let client = Client::connect(server.clone(), stream.compat_write()).await;
    let mut client = client.expect("the server lets us in");
    let answer = client.simple_query(batch).await.expect("the statement is allowed");
    answer.into_first_result().await.expect("the statement is allowed")
}
