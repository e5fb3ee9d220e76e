//! SQLite.

use crate::engines::Server;
use idem_runtime::store::Sqlite;
use idem_tests::database::SqliteFile;
use sqlx::sqlite::SqlitePoolOptions;

super::handlers::handlers!(Sqlite);
super::handlers::statements!(
    Sqlite,
    "INSERT INTO effects (customer_id, external_ref) VALUES ($1, $2)",
    "INSERT INTO orders_once VALUES ($1, $2, $3, $4)"
);

pub(crate) struct OnSqlite {
    file: SqliteFile,
    gate: Gate,
}

pub(crate) async fn on_sqlite() -> Option<OnSqlite> {
    let file = SqliteFile::new().await;
    for table in super::TABLES {
        sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
    }
    Some(OnSqlite { file, gate: Gate::default() })
}

impl OnSqlite {
    pub(crate) async fn remove(self) {
        self.file.store.pool().close().await;
    }
}

impl super::Engine for OnSqlite {
    type Store = Sqlite;
    type ByKey = ByKeyHandler;
    type ByMessageId = ByMessageIdHandler;
    type Idempotent = NaturallyHandler;
    type Receipt = ReceiptHandler;
    type Verbose = VerboseHandler;
    type Guarded = GuardedHandler;
    type AllAtOnce = AllAtOnceHandler;
    type Receipts = ReceiptsHandler;
    type Renamed = RenamedHandler;
    type RenamedReceipts = RenamedReceiptsHandler;

    const HANDLER: ByKeyHandler = ByKeyHandler;
    const RENAMED: RenamedHandler = RenamedHandler;
    const ERRORS_DOOM: bool = false;
    const GOES_ON_WITHOUT_TRANSACTION: bool = true;
    const KNOWS_FATES: bool = false;
    const FIRST_COLUMNS: &'static str = "digest, scope, claimed_at";
    const DDL_COMMITS: bool = false;
    const TAKES_NUL: bool = true;
    const HAS_OWN_CONNECTIONS: bool = false;
    const TYPED: &'static str =
        "CREATE TABLE typed (id INTEGER PRIMARY KEY, number INTEGER) STRICT";
    const UNSTORABLE: &'static [&'static str] =
        &["INSERT INTO typed (number) VALUES ('a lot')", "INSERT INTO typed (id) VALUES ('a lot')"];
    const TRIGGER: &'static str = "CREATE TRIGGER invoice AFTER INSERT ON customers BEGIN \
         INSERT INTO invoices (number) VALUES (1); END";
    // It cannot sleep, so it counts: more than a second on a fast machine, and a slow one waits.
    const TAKES_SECONDS: &'static str = "WITH RECURSIVE n(i) AS \
         (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 16000000) SELECT count(*) FROM n";
    const SERVER: Option<Server> = None;

    fn store(&self) -> &Sqlite {
        &self.file.store
    }

    fn url(&self) -> &str {
        &self.file.url
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn with_one_connection(&self) -> Sqlite {
        self.file.store.clone()
    }

    async fn with_few_connections(&self, connections: u32, patience: Duration) -> Sqlite {
        let options = self.file.store.pool().connect_options().as_ref().clone();
        let pool = SqlitePoolOptions::new().max_connections(connections).acquire_timeout(patience);
        Sqlite::from_pool(pool.connect_lazy_with(options))
    }

    /// It knows no other language than English.
    async fn in_german(&self) -> Option<(Sqlite, &'static str)> {
        None
    }

    /// It knows no users.
    async fn as_user_with(&self, _: &[&str]) -> Option<(Sqlite, String)> {
        None
    }

    async fn reading_only(&self) -> Option<Sqlite> {
        let options = self.file.store.pool().connect_options().as_ref().clone();
        Some(Sqlite::from_pool(SqlitePoolOptions::new().connect_lazy_with(options.read_only(true))))
    }

    /// It has none.
    async fn in_time_zone(&self, _: &str) -> Sqlite {
        self.file.store.clone()
    }

    fn age_claims(hours: u32) -> String {
        format!("UPDATE idem_claim SET claimed_at = claimed_at - {hours} * 3600")
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.file.store.pool()).await.expect("a count")
    }

    async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(self.file.store.pool())
            .await
            .expect("a valid statement");
    }
}
