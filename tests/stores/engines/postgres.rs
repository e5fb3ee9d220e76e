//! PostgreSQL.

use crate::engines::Server;
use idem_runtime::store::Postgres;
use idem_tests::database::PostgresDatabase;
use sqlx::postgres::PgPoolOptions;

super::handlers::handlers!(Postgres);
super::handlers::statements!(
    Postgres,
    "INSERT INTO effects (customer_id, external_ref) VALUES ($1, $2)",
    "INSERT INTO orders_once VALUES ($1, $2, $3, $4)"
);

pub(crate) struct OnPostgres {
    pub(crate) database: PostgresDatabase,
    gate: Gate,
}

pub(crate) async fn on_postgres() -> Option<OnPostgres> {
    let database = PostgresDatabase::new().await?;
    for table in super::TABLES {
        sqlx::query(table).execute(database.store.pool()).await.expect("a valid table");
    }
    Some(OnPostgres { database, gate: Gate::default() })
}

impl OnPostgres {
    pub(crate) async fn remove(self) {
        self.database.remove().await;
    }
}

impl super::Engine for OnPostgres {
    type Store = Postgres;
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
    const ERRORS_DOOM: bool = true;
    const GOES_ON_WITHOUT_TRANSACTION: bool = true;
    const KNOWS_FATES: bool = true;
    const FIRST_COLUMNS: &'static str = "digest, scope, claimed_at";
    const DDL_COMMITS: bool = false;
    const TAKES_NUL: bool = false;
    const HAS_OWN_CONNECTIONS: bool = false;
    const TYPED: &'static str = "CREATE TABLE typed (short varchar(3), day date, number bigint, \
         document jsonb)";
    const UNSTORABLE: &'static [&'static str] = &[
        "INSERT INTO typed (short) VALUES ('long')",
        "INSERT INTO typed (day) VALUES ('some day')",
        "INSERT INTO typed (day) VALUES ('2026-02-30')",
        "INSERT INTO typed (number) VALUES ('a lot')",
        r#"INSERT INTO typed (document) VALUES ('{"a": "\u0000"}')"#,
    ];
    const TRIGGER: &'static str = "CREATE FUNCTION invoice() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN INSERT INTO invoices (number) VALUES (1); RETURN NEW; END'; \
         CREATE TRIGGER invoice AFTER INSERT ON customers FOR EACH ROW EXECUTE FUNCTION invoice()";
    const TAKES_SECONDS: &'static str = "SELECT pg_sleep(3)";
    const SERVER: Option<Server> = Some(Server {
        end_connection: "SELECT pg_terminate_backend(pg_backend_pid())",
        time_out: Some("SET LOCAL statement_timeout = 10; SELECT pg_sleep(60)"),
        limit_idle: Some(("SET LOCAL idle_in_transaction_session_timeout = 50", 500)),
        limit_lock_wait: "SET LOCAL lock_timeout = 50",
    });

    fn store(&self) -> &Postgres {
        &self.database.store
    }

    fn url(&self) -> &str {
        &self.database.url
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn with_one_connection(&self) -> Postgres {
        self.database.with_connections(1)
    }

    async fn with_few_connections(&self, connections: u32, patience: Duration) -> Postgres {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(patience);
        Postgres::from_pool(pool.connect_lazy_with(options))
    }

    async fn in_german(&self) -> Option<(Postgres, &'static str)> {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let options = options.options([("lc_messages", "de_DE.UTF-8")]);
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        // The locale may be missing, and so may the translations.
        let refused = sqlx::query("SELECT 1 / 0").execute(&pool).await.expect_err("refused");
        if !refused.to_string().contains("Division durch Null") {
            idem_tests::database::left_out("PostgreSQL in German, which it does not speak here");
            return None;
        }
        Some((Postgres::from_pool(pool), "doppelter Schlüsselwert"))
    }

    async fn as_user_with(&self, privileges: &[&str]) -> Option<(Postgres, String)> {
        let name = format!("idem_test_user_{:08x}", fastrand::u32(..));
        self.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD 'secret'")).await;
        for privilege in privileges {
            self.execute(&format!("GRANT {privilege} TO {name}")).await;
        }
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let options = options.username(&name).password("secret");
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        Some((Postgres::from_pool(pool), format!("DROP OWNED BY {name}; DROP ROLE {name}")))
    }

    async fn reading_only(&self) -> Option<Postgres> {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let options = options.options([("default_transaction_read_only", "on")]);
        Some(Postgres::from_pool(
            PgPoolOptions::new().max_connections(4).connect_lazy_with(options),
        ))
    }

    async fn in_time_zone(&self, zone: &str) -> Postgres {
        self.database.in_time_zone(zone)
    }

    fn age_claims(hours: u32) -> String {
        format!("UPDATE idem_claim SET claimed_at = claimed_at - interval '{hours} hours'")
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(self.database.store.pool()).await.expect("a count")
    }

    async fn execute(&self, sql: &str) {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(self.database.store.pool())
            .await
            .expect("a valid statement");
    }
}
