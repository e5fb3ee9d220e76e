//! SQL Server.

use idem_runtime::store::{SqlServer, Store};
use idem_tests::database::SqlServerDatabase;
use tiberius::error::Error;

use crate::engines::Server;

super::handlers::handlers!(SqlServer);

async fn insert(tx: &mut Tx<SqlServer>, customer: i64, text: &str) -> Result<(), Error> {
    let insert = "INSERT INTO effects (customer_id, external_ref) VALUES (@P1, @P2)";
    tx.execute(insert, &[&customer, &text]).await?;
    Ok(())
}

async fn insert_once(tx: &mut Tx<SqlServer>, order: &Priced) -> Result<(), Error> {
    let (id, text) = (&order.customer_id, &order.external_ref);
    let insert = "INSERT INTO orders_once VALUES (@P1, @P2, @P3, @P4)";
    tx.execute(insert, &[id, text, &order.amount_cents, &order.currency]).await?;
    Ok(())
}

/// A `BEGIN` alone begins a block of statements here.
async fn run(tx: &mut Tx<SqlServer>, sql: String) -> Result<(), Error> {
    let sql = sql.replace("; BEGIN", "; BEGIN TRANSACTION");
    tx.simple_query(sql).await?.into_results().await?;
    Ok(())
}

async fn count_effects(tx: &mut Tx<SqlServer>) -> Result<(), Error> {
    tx.query("SELECT count(*) FROM effects", &[]).await?.into_results().await?;
    Ok(())
}

async fn read_elsewhere(store: &SqlServer) -> Result<(), Failure> {
    let mut transaction = store.begin().await?;
    transaction.query("SELECT count(*) FROM effects", &[]).await?.into_results().await?;
    SqlServer::rollback(transaction).await;
    Ok(())
}

async fn read_balance(tx: &mut Tx<SqlServer>) -> Result<i64, Failure> {
    let row = tx.query("SELECT amount FROM balances WHERE id = 1", &[]).await?.into_row().await?;
    Ok(row.and_then(|row| row.get(0)).ok_or("there is no balance")?)
}

pub(crate) struct OnSqlServer {
    pub(crate) database: SqlServerDatabase,
    gate: Gate,
}

pub(crate) async fn on_sqlserver() -> Option<OnSqlServer> {
    let database = SqlServerDatabase::new().await?;
    for table in super::TABLES {
        // A `text` is of another kind here.
        database.execute(&table.replace(" text ", " nvarchar(max) ")).await;
    }
    Some(OnSqlServer { database, gate: Gate::default() })
}

impl OnSqlServer {
    pub(crate) async fn remove(self) {
        self.database.remove().await;
    }
}

impl super::Engine for OnSqlServer {
    type Store = SqlServer;
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
    const GOES_ON_WITHOUT_TRANSACTION: bool = false;
    const KNOWS_FATES: bool = true;
    const FIRST_COLUMNS: &'static str = "digest, scope, holder, claimed_at";
    const DDL_COMMITS: bool = false;
    const TAKES_NUL: bool = true;
    const HAS_OWN_CONNECTIONS: bool = true;
    const TYPED: &'static str = "CREATE TABLE typed (id bigint, number bigint)";
    // None of its errors is taken for one of the value alone yet.
    const UNSTORABLE: &'static [&'static str] = &[];
    const TRIGGER: &'static str = "CREATE TRIGGER invoice ON customers AFTER INSERT AS \
         INSERT INTO invoices (number) VALUES (1)";
    const TAKES_SECONDS: &'static str = "WAITFOR DELAY '00:00:03'";
    // Time-outs of statements and of transactions are the client's here.
    const SERVER: Option<Server> = Some(Server {
        end_connection: "RAISERROR(N'the end', 20, 1) WITH LOG",
        time_out: None,
        limit_idle: None,
        limit_lock_wait: "SET LOCK_TIMEOUT 50",
    });

    fn store(&self) -> &SqlServer {
        &self.database.store
    }

    fn url(&self) -> &str {
        &self.database.url
    }

    fn gate(&self) -> &Gate {
        &self.gate
    }

    async fn with_one_connection(&self) -> SqlServer {
        self.database.with_connections(1)
    }

    /// How long a connection is waited for cannot be set here.
    async fn with_few_connections(&self, connections: u32, _: Duration) -> SqlServer {
        self.database.with_connections(connections)
    }

    async fn in_german(&self) -> Option<(SqlServer, &'static str)> {
        None
    }

    async fn as_user_with(&self, _: &[&str]) -> Option<(SqlServer, String)> {
        None
    }

    /// A session that says so can write all the same.
    async fn reading_only(&self) -> Option<SqlServer> {
        None
    }

    /// Sessions have no zone here.
    async fn in_time_zone(&self, _: &str) -> SqlServer {
        self.database.with_connections(4)
    }

    fn keep_claims(columns: &str) -> String {
        format!("SELECT {columns} INTO kept FROM idem_claim")
    }

    fn age_claims(hours: u32) -> String {
        format!("UPDATE idem_claim SET claimed_at = DATEADD(hour, -{hours}, claimed_at)")
    }

    async fn count(&self, sql: &'static str) -> i64 {
        self.database.count(sql).await
    }

    async fn execute(&self, sql: &str) {
        self.database.execute(sql).await;
    }
}
