//! MariaDB and MySQL.

use crate::engines::Server;
use idem_runtime::store::Mysql;
use idem_tests::database::{MARIADB_URL, MYSQL_URL, MysqlDatabase};

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

    const ERRORS_DOOM: bool = false;
    const GOES_ON_WITHOUT_TRANSACTION: bool = false;
    const KNOWS_FATES: bool = false;
    const FIRST_COLUMNS: &'static str = "digest, scope, holder, claimed_at";
    const DDL_COMMITS: bool = true;
    const TAKES_NUL: bool = true;
    const TRIGGER: &'static str = "CREATE TRIGGER invoice AFTER INSERT ON customers FOR EACH ROW \
         INSERT INTO invoices (number) VALUES (1)";
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

    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn with_one_connection(&self) -> Mysql {
        self.database.with_connections(1)
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
