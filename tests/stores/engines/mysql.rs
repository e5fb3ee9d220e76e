//! MariaDB and MySQL.

use crate::engines::Server;
use idem_runtime::store::Mysql;
use idem_tests::database::{MARIADB_URL, MYSQL_URL, MysqlDatabase};
use sqlx::Executor;
use sqlx::mysql::MySqlPoolOptions;

super::handlers::handlers!(Mysql);
super::handlers::statements!(
    Mysql,
    "INSERT INTO effects (customer_id, external_ref) VALUES (?, ?)",
    "INSERT INTO orders_once VALUES (?, ?, ?, ?)"
);

/// MariaDB or MySQL.
pub(crate) struct OnMysql {
    pub(crate) database: MysqlDatabase,
    gate: Gate,
}

pub(crate) async fn on_mariadb() -> Option<OnMysql> {
    on(MARIADB_URL).await
}

pub(crate) async fn on_mysql() -> Option<OnMysql> {
    on(MYSQL_URL).await
}

async fn on(variable: &'static str) -> Option<OnMysql> {
    let database = MysqlDatabase::new(variable).await?;
    for table in super::TABLES {
        // A `text` has at most 64 KiB here.
        let table = AssertSqlSafe(table.replace(" text ", " longtext "));
        sqlx::query(table).execute(database.store.pool()).await.expect("a valid table");
    }
    Some(OnMysql { database, gate: Gate::default() })
}

impl OnMysql {
    pub(crate) async fn remove(self) {
        self.database.remove().await;
    }
}

impl super::Engine for OnMysql {
    type Store = Mysql;
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
    const GOES_ON_WITHOUT_TRANSACTION: bool = false;
    const KNOWS_FATES: bool = false;
    const FIRST_COLUMNS: &'static str = "digest, scope, holder, claimed_at";
    const DDL_COMMITS: bool = true;
    const TAKES_NUL: bool = true;
    const HAS_OWN_CONNECTIONS: bool = true;
    const TYPED: &'static str = "CREATE TABLE typed (short varchar(3), day date, number bigint)";
    const UNSTORABLE: &'static [&'static str] = &[
        "INSERT INTO typed (short) VALUES ('long')",
        "INSERT INTO typed (day) VALUES ('some day')",
        "INSERT INTO typed (day) VALUES ('2026-02-30')",
        "INSERT INTO typed (number) VALUES ('a lot')",
        "INSERT INTO typed (short) VALUES (x'ff')",
    ];
    const TRIGGER: &'static str = "CREATE TRIGGER invoice AFTER INSERT ON customers FOR EACH ROW \
         INSERT INTO invoices (number) VALUES (1)";
    const TAKES_SECONDS: &'static str = "SELECT sleep(3)";
    // MariaDB reads the comments that begin with M, MySQL those with a number.
    const SERVER: Option<Server> = Some(Server {
        end_connection: "KILL CONNECTION_ID()",
        time_out: Some(
            "/*M! SET STATEMENT max_statement_time = 0.01 FOR */ \
            SELECT /*+ MAX_EXECUTION_TIME(10) */ count(*) FROM information_schema.columns a, \
            information_schema.columns b, information_schema.columns c",
        ),
        limit_idle: Some((
            "/*M! SET SESSION idle_transaction_timeout = 1 */ \
             /*!80000 SET SESSION wait_timeout = 1 */",
            2500,
        )),
        limit_lock_wait: "SET SESSION innodb_lock_wait_timeout = 1",
    });

    fn store(&self) -> &Mysql {
        &self.database.store
    }

    fn url(&self) -> &str {
        &self.database.url
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn with_one_connection(&self) -> Mysql {
        self.database.with_connections(1)
    }

    async fn with_few_connections(&self, connections: u32, patience: Duration) -> Mysql {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(patience);
        Mysql::from_pool(pool.connect_lazy_with(options))
    }

    async fn in_german(&self) -> Option<(Mysql, &'static str)> {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let pool = MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute("SET SESSION lc_messages = 'de_DE'").await?;
                Ok(())
            })
        });
        Some((Mysql::from_pool(pool.connect_lazy_with(options)), "Doppelter Eintrag"))
    }

    async fn as_user_with(&self, privileges: &[&str]) -> Option<(Mysql, String)> {
        let name = format!("idem_{:08x}", fastrand::u32(..));
        self.execute(&format!("CREATE USER {name} IDENTIFIED BY 'secret'")).await;
        for privilege in privileges {
            self.execute(&format!("GRANT {privilege} TO {name}")).await;
        }
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let options = options.username(&name).password("secret");
        let pool = MySqlPoolOptions::new().max_connections(4).connect_lazy_with(options);
        Some((Mysql::from_pool(pool), format!("DROP USER {name}")))
    }

    async fn reading_only(&self) -> Option<Mysql> {
        let options = self.database.store.pool().connect_options().as_ref().clone();
        let pool = MySqlPoolOptions::new().max_connections(4).after_connect(|connection, _| {
            Box::pin(async move {
                connection.execute("SET SESSION TRANSACTION READ ONLY").await?;
                Ok(())
            })
        });
        Some(Mysql::from_pool(pool.connect_lazy_with(options)))
    }

    async fn in_time_zone(&self, zone: &str) -> Mysql {
        self.database.in_time_zone(zone)
    }

    fn age_claims(hours: u32) -> String {
        format!("UPDATE idem_claim SET claimed_at = claimed_at - INTERVAL {hours} HOUR")
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
