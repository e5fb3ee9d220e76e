//! The engines, the handlers that the tests run on each, and the list of tests.

use std::sync::Arc;

use idem_runtime::handler::States;
use idem_runtime::store::Store;
use idem_runtime::{Context, Delivery, Handler, Outcome, SourceId, execute};
use serde::Deserialize;
use tokio::sync::Semaphore;

/// What the message asks of the handler.
#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer_id: i64,
    pub(crate) external_ref: String,
    /// What the handler does after it has inserted its row.
    #[serde(default)]
    pub(crate) then: Then,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    #[default]
    Ok,
    Fail,
    Reject,
    Panic,
    /// Waits at the gate.
    Wait,
    /// Breaks a constraint of the business table, and returns the error.
    BreakUnique,
    BreakNotNull,
    BreakCheck,
    BreakForeignKey,
    /// Breaks a constraint, and hides the error.
    Swallow,
    /// Ends the transaction behind our back.
    RawCommit,
    RawRollback,
    RollbackAndBegin,
}

/// Where handlers wait when their message says so.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) arrived: Arc<Semaphore>,
    pub(crate) opened: Arc<Semaphore>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: Arc::new(Semaphore::new(0)), opened: Arc::new(Semaphore::new(0)) }
    }
}

impl Gate {
    pub(crate) async fn pass(&self) {
        self.arrived.add_permits(1);
        self.opened.acquire().await.expect("never closed").forget();
    }

    pub(crate) async fn until_arrived(&self) {
        self.arrived.acquire().await.expect("never closed").forget();
    }

    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }
}

/// An engine as the test bodies see it.
pub(crate) trait Engine: Send + Sync {
    type Store: Store;
    type ByKey: Handler<Self::Store>;
    type ByMessageId: Handler<Self::Store>;
    type Idempotent: Handler<Self::Store>;

    /// Whether a failed statement dooms its transaction.
    const ERRORS_DOOM: bool;

    fn store(&self) -> &Self::Store;
    fn gate(&self) -> &Gate;
    /// A store on the same database with one connection.
    async fn with_one_connection(&self) -> Self::Store;
    async fn count(&self, sql: &'static str) -> i64;

    async fn effects(&self) -> i64 {
        self.count("SELECT count(*) FROM effects").await
    }

    async fn claims(&self) -> i64 {
        self.count("SELECT count(*) FROM idem_claim").await
    }

    fn context(&self, delivery: Delivery) -> Context {
        let mut states = States::default();
        states.insert(self.gate().clone());
        Context::new(delivery, states)
    }

    /// Runs the level 2 handler for this order.
    async fn place(&self, external_ref: &str, then: &str) -> Outcome {
        self.run::<Self::ByKey>(delivery(external_ref, then)).await
    }

    async fn run<H: Handler<Self::Store>>(&self, delivery: Delivery) -> Outcome {
        execute::<H, _>(self.store(), &self.context(delivery)).await
    }
}

pub(crate) fn delivery(external_ref: &str, then: &str) -> Delivery {
    let body = serde_json::json!({
        "customer_id": 7, "external_ref": external_ref, "then": then,
    });
    Delivery::new(SourceId::new("bus.example.net", "orders"), body.to_string())
}

/// The business tables. The handler writes `effects`; the others are there to be violated.
pub(crate) const TABLES: [&str; 4] = [
    "CREATE TABLE effects (customer_id bigint NOT NULL, external_ref text NOT NULL)",
    "CREATE TABLE customers (id bigint PRIMARY KEY)",
    "CREATE TABLE invoices (number bigint NOT NULL CONSTRAINT invoices_number_uq UNIQUE, \
     customer_id bigint REFERENCES customers (id), amount bigint CHECK (amount > 0))",
    "INSERT INTO invoices (number) VALUES (1)",
];

/// The handlers of one engine, by the same attribute and the same SQL.
macro_rules! handlers {
    ($store:ty) => {
        use idem_runtime::{Failure, State, Tx, idempotent};

        use crate::engines::{Gate, Order, Then};

        #[idempotent(key = "customer_id, external_ref", scope = "test.place")]
        pub(crate) async fn by_key(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
        ) -> Result<(), Failure> {
            insert(tx, order, gate).await
        }

        #[idempotent(level = 1, scope = "test.by_message_id")]
        pub(crate) async fn by_message_id(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
        ) -> Result<(), Failure> {
            insert(tx, order, gate).await
        }

        #[idempotent(level = 0, scope = "test.idempotent")]
        pub(crate) async fn naturally(
            tx: &mut Tx<$store>,
            order: Order,
            State(gate): State<Gate>,
        ) -> Result<(), Failure> {
            insert(tx, order, gate).await
        }

        async fn insert(tx: &mut Tx<$store>, order: Order, gate: Gate) -> Result<(), Failure> {
            sqlx::query("INSERT INTO effects (customer_id, external_ref) VALUES ($1, $2)")
                .bind(order.customer_id)
                .bind(order.external_ref.replace('\0', "<NUL>"))
                .execute(&mut **tx)
                .await?;
            let broken = "INSERT INTO invoices (number) VALUES (1)";
            let then = match order.then {
                Then::Ok => return Ok(()),
                Then::Fail => return Err("the shop is closed".into()),
                Then::Reject => return Err(Failure::reject("UnknownCustomer", "no customer 7")),
                Then::Panic => panic!("boom"),
                Then::Wait => {
                    gate.pass().await;
                    return Ok(());
                }
                Then::Swallow => {
                    sqlx::query(broken).execute(&mut **tx).await.expect_err("number 1 is taken");
                    return Ok(());
                }
                Then::BreakUnique => broken,
                Then::BreakNotNull => "INSERT INTO invoices (number) VALUES (NULL)",
                Then::BreakCheck => "INSERT INTO invoices (number, amount) VALUES (2, -1)",
                Then::BreakForeignKey => {
                    "INSERT INTO invoices (number, customer_id) VALUES (3, 42)"
                }
                Then::RawCommit => "COMMIT",
                Then::RawRollback => "ROLLBACK",
                Then::RollbackAndBegin => "ROLLBACK; BEGIN",
            };
            sqlx::raw_sql(then).execute(&mut **tx).await?;
            Ok(())
        }
    };
}

pub(crate) mod sqlite {
    use idem_runtime::store::Sqlite;
    use idem_tests::database::SqliteFile;

    handlers!(Sqlite);

    pub(crate) struct OnSqlite {
        file: SqliteFile,
        gate: Gate,
    }

    impl OnSqlite {
        pub(crate) async fn new() -> Option<Self> {
            let file = SqliteFile::new().await;
            for table in super::TABLES {
                sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
            }
            Some(Self { file, gate: Gate::default() })
        }

        pub(crate) async fn remove(self) {
            self.file.store.pool().close().await;
        }
    }

    impl super::Engine for OnSqlite {
        type Store = Sqlite;
        type ByKey = ByKeyHandler;
        type ByMessageId = ByMessageIdHandler;
        type Idempotent = NaturallyHandler;

        const ERRORS_DOOM: bool = false;

        fn store(&self) -> &Sqlite {
            &self.file.store
        }

        fn gate(&self) -> &Gate {
            &self.gate
        }

        async fn with_one_connection(&self) -> Sqlite {
            self.file.store.clone()
        }

        async fn count(&self, sql: &'static str) -> i64 {
            sqlx::query_scalar(sql).fetch_one(self.file.store.pool()).await.expect("a count")
        }
    }
}

pub(crate) mod postgres {
    use idem_runtime::store::Postgres;
    use idem_tests::database::PostgresDatabase;

    handlers!(Postgres);

    pub(crate) struct OnPostgres {
        pub(crate) database: PostgresDatabase,
        gate: Gate,
    }

    impl OnPostgres {
        pub(crate) async fn new() -> Option<Self> {
            let database = PostgresDatabase::new().await?;
            for table in super::TABLES {
                sqlx::query(table).execute(database.store.pool()).await.expect("a valid table");
            }
            Some(Self { database, gate: Gate::default() })
        }

        pub(crate) async fn remove(self) {
            self.database.remove().await;
        }
    }

    impl super::Engine for OnPostgres {
        type Store = Postgres;
        type ByKey = ByKeyHandler;
        type ByMessageId = ByMessageIdHandler;
        type Idempotent = NaturallyHandler;

        const ERRORS_DOOM: bool = true;

        fn store(&self) -> &Postgres {
            &self.database.store
        }

        fn gate(&self) -> &Gate {
            &self.gate
        }

        async fn with_one_connection(&self) -> Postgres {
            self.database.with_connections(1)
        }

        async fn count(&self, sql: &'static str) -> i64 {
            sqlx::query_scalar(sql).fetch_one(self.database.store.pool()).await.expect("a count")
        }
    }
}

/// Runs each body on each engine that is there.
macro_rules! on_every_engine {
    ($($body:ident)+) => {
        mod on_sqlite { $(on_every_engine!(@test sqlite::OnSqlite, $body);)+ }
        mod on_postgres { $(on_every_engine!(@test postgres::OnPostgres, $body);)+ }
    };
    (@test $module:ident::$engine:ident, $body:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $body() {
            if let Some(engine) = super::$module::$engine::new().await {
                crate::bodies::$body(&engine).await;
                engine.remove().await;
            }
        }
    };
}

on_every_engine! {
    the_first_delivery_is_done_and_the_second_a_duplicate
    a_failed_handler_leaves_nothing_behind_and_may_succeed_later
    a_panic_leaves_nothing_behind
    a_rejection_leaves_nothing_behind
    a_violation_in_the_handler_is_never_a_duplicate
    a_swallowed_error_never_ends_as_done_where_it_dooms_the_transaction
    an_ended_transaction_is_found_out
    a_transaction_rolled_back_and_begun_anew_is_found_out
    a_key_in_progress_is_not_a_duplicate
    a_key_whose_holder_rolls_back_is_free
    of_many_deliveries_at_once_exactly_one_is_done
    a_cancelled_delivery_leaves_no_open_transaction_behind
    keys_of_any_length_and_content_are_told_apart
    level_one_goes_by_message_id_and_source
    level_one_without_message_id_is_rejected
    level_zero_runs_every_time
    what_cannot_be_decoded_is_rejected_before_the_database_is_asked
    migrations_can_run_again_and_at_the_same_time
}
