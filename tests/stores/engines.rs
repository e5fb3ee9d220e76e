//! The engines, the handlers that the tests run on each, and the list of tests.

mod handlers;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;
pub(crate) mod sqlserver;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::handler::States;
use idem_runtime::store::Store;
use idem_runtime::{Context, Delivery, Handler, Outcome, SourceId, execute, execute_batch};
use serde::Deserialize;
use serde_json::{Value, json};
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

/// An order whose price must not change.
#[derive(Debug, Deserialize)]
pub(crate) struct Priced {
    pub(crate) customer_id: i64,
    pub(crate) external_ref: String,
    pub(crate) amount_cents: i64,
    pub(crate) currency: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Then {
    #[default]
    Ok,
    Fail,
    Reject,
    Panic,
    /// Waits at the gate.
    Wait,
    WaitAndFail,
    /// Runs a statement and returns its error.
    Run(String),
    /// Runs a statement and hides its error.
    Ignore(String),
    /// Runs a statement, and fails whether that succeeds or not.
    RunAndFail(String),
    /// Runs a statement, and leaves the transaction idle.
    Idle {
        sql: String,
        millis: u64,
    },
    /// Runs a statement, waits at the gate and runs another.
    Cross {
        first: String,
        second: String,
        ignore: bool,
    },
    /// Drops a statement that runs, arrives at the gate, and goes on.
    Hurry {
        polls: u64,
    },
    /// Inserts another row with this text.
    Insert(String),
    /// Reads by the pool that the handlers' transactions come from.
    ReadElsewhere,
    /// Reads, lets others run, and writes what follows from it.
    ReadAndWrite,
}

/// Where handlers wait when their message says so.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) arrived: Arc<Semaphore>,
    pub(crate) opened: Arc<Semaphore>,
    /// How many messages each call of a `batch` handler got.
    pub(crate) batches: Arc<Mutex<Vec<usize>>>,
}

impl Default for Gate {
    fn default() -> Self {
        let [arrived, opened] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
        Self { arrived, opened, batches: Arc::default() }
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

    /// How many messages each call of a `batch` handler got since this was last asked.
    pub(crate) fn take_batches(&self) -> Vec<usize> {
        std::mem::take(&mut self.batches.lock().expect("nobody panics with it"))
    }

    /// How many have arrived that nobody waited for.
    pub(crate) fn arrivals(&self) -> usize {
        self.arrived.available_permits()
    }

    pub(crate) fn open(&self) {
        self.opened.add_permits(1);
    }
}

/// Polls a statement so often and then drops it; whether it had not ended by then.
pub(crate) async fn is_dropped_after(polls: u64, statement: impl Future) -> bool {
    let mut statement = pin!(statement);
    for _ in 0..polls {
        if futures_util::poll!(&mut statement).is_ready() {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

/// Statements of an engine that has a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server {
    /// Ends its own connection.
    pub(crate) end_connection: &'static str,
    /// Runs into a time-out of statements.
    pub(crate) time_out: Option<&'static str>,
    /// Limits how long a transaction may be idle, and for how many milliseconds.
    pub(crate) limit_idle: Option<(&'static str, u64)>,
    /// Limits how long statements wait for locks.
    pub(crate) limit_lock_wait: &'static str,
}

/// An engine as the test bodies see it.
pub(crate) trait Engine: Send + Sync {
    type Store: Store;
    type ByKey: Handler<Self::Store>;
    type ByMessageId: Handler<Self::Store>;
    type Idempotent: Handler<Self::Store>;
    type Receipt: Handler<Self::Store>;
    type Verbose: Handler<Self::Store>;
    type Guarded: Handler<Self::Store>;
    type AllAtOnce: Handler<Self::Store>;
    type Receipts: Handler<Self::Store>;
    type Renamed: Handler<Self::Store>;
    type RenamedReceipts: Handler<Self::Store>;

    const HANDLER: Self::ByKey;
    const RENAMED: Self::Renamed;
    /// Whether a failed statement dooms its transaction.
    const ERRORS_DOOM: bool;
    /// Whether what a handler writes after it has rolled back by itself is committed at once.
    const GOES_ON_WITHOUT_TRANSACTION: bool;
    /// Whether the server can be asked what became of a transaction.
    const KNOWS_FATES: bool;
    /// The columns of a claim in the ledger's first version.
    const FIRST_COLUMNS: &'static str;
    /// Whether DDL commits the transaction.
    const DDL_COMMITS: bool;
    /// Whether texts may hold NUL.
    const TAKES_NUL: bool;
    /// Whether handlers' transactions have connections that nobody else can take.
    const HAS_OWN_CONNECTIONS: bool;
    /// Statements that fail for a value alone, after this table is made.
    const TYPED: &'static str;
    const UNSTORABLE: &'static [&'static str];
    /// Makes inserting a customer insert an invoice whose number is taken.
    const TRIGGER: &'static str;
    /// A statement that takes some seconds.
    const TAKES_SECONDS: &'static str;
    /// What only engines with a server know.
    const SERVER: Option<Server>;

    fn store(&self) -> &Self::Store;
    fn url(&self) -> &str;
    fn gate(&self) -> &Gate;
    /// A store on the same database with one connection.
    async fn with_one_connection(&self) -> Self::Store;
    /// A store on the same database with so many connections, for which handlers wait so long.
    async fn with_few_connections(&self, connections: u32, patience: Duration) -> Self::Store;
    /// A store on the same database whose server speaks German, and how it then says *duplicate*;
    /// `None` where it cannot.
    async fn in_german(&self) -> Option<(Self::Store, &'static str)>;
    /// A store on the same database as a user who may do only this: `SELECT ON effects`, and what
    /// removes the user.
    async fn as_user_with(&self, privileges: &[&str]) -> Option<(Self::Store, String)>;
    /// A store on the same database whose sessions can only read; `None` where none can be made so.
    async fn reading_only(&self) -> Option<Self::Store>;
    /// A store on the same database whose sessions are in a time zone, `+09:00`.
    async fn in_time_zone(&self, zone: &str) -> Self::Store;
    /// The statement that keeps columns of the claims in a table `kept`.
    fn keep_claims(columns: &str) -> String {
        format!("CREATE TABLE kept AS SELECT {columns} FROM idem_claim")
    }

    /// The statement that makes claims older by so many hours.
    fn age_claims(hours: u32) -> String;
    async fn count(&self, sql: &'static str) -> i64;
    async fn execute(&self, sql: &str);

    async fn effects(&self) -> i64 {
        self.count("SELECT count(*) FROM effects").await
    }

    async fn claims(&self) -> i64 {
        self.count("SELECT count(*) FROM idem_claim").await
    }

    fn context(&self, delivery: Delivery) -> Context {
        let mut states = States::default();
        states.insert(self.gate().clone());
        states.insert(self.store().clone());
        Context::new(delivery, states)
    }

    /// The same for a handler whose pool is another store's.
    fn context_on(&self, store: &Self::Store, delivery: Delivery) -> Context {
        let mut states = States::default();
        states.insert(self.gate().clone());
        states.insert(store.clone());
        Context::new(delivery, states)
    }

    /// Runs the level 2 handler for this order.
    async fn place(&self, external_ref: &str, then: impl Into<Value>) -> Outcome {
        self.run::<Self::ByKey>(delivery(external_ref, then)).await
    }

    async fn run_batch<H: Handler<Self::Store>>(&self, deliveries: Vec<Delivery>) -> Vec<Outcome> {
        let contexts: Vec<_> = deliveries.into_iter().map(|one| self.context(one)).collect();
        execute_batch::<H, _>(self.store(), &contexts).await
    }

    async fn run<H: Handler<Self::Store>>(&self, delivery: Delivery) -> Outcome {
        execute::<H, _>(self.store(), &self.context(delivery)).await
    }
}

pub(crate) fn delivery(external_ref: &str, then: impl Into<Value>) -> Delivery {
    let then = then.into();
    let body = json!({ "customer_id": 7, "external_ref": external_ref, "then": then });
    Delivery::new(SourceId::new("bus.example.net", "orders"), body.to_string())
}

pub(crate) fn priced(external_ref: &str, amount_cents: i64, currency: &str) -> Delivery {
    let body = json!({
        "customer_id": 7,
        "external_ref": external_ref,
        "amount_cents": amount_cents,
        "currency": currency,
    });
    Delivery::new(SourceId::new("bus.example.net", "orders"), body.to_string())
}

/// The business tables. The handler writes `effects`; the others are there to be violated, and
/// `balances` to be fought over.
pub(crate) const TABLES: [&str; 11] = [
    "CREATE TABLE effects (customer_id bigint NOT NULL, external_ref text NOT NULL)",
    "CREATE TABLE customers (id bigint PRIMARY KEY)",
    "CREATE TABLE invoices (number bigint NOT NULL, customer_id bigint, \
     amount bigint CHECK (amount > 0), CONSTRAINT invoices_number_uq UNIQUE (number), \
     CONSTRAINT invoices_customer_fk FOREIGN KEY (customer_id) REFERENCES customers (id))",
    "INSERT INTO invoices (number) VALUES (1)",
    "CREATE TABLE balances (id bigint PRIMARY KEY, amount bigint NOT NULL)",
    "INSERT INTO balances (id, amount) VALUES (1, 0), (2, 0)",
    "CREATE TABLE orders_once (customer_id bigint NOT NULL, external_ref varchar(100) NOT NULL, \
     amount_cents bigint NOT NULL, currency varchar(3))",
    "CREATE UNIQUE INDEX orders_once_uq ON orders_once (customer_id, external_ref)",
    "CREATE TABLE nullable_once (id bigint)",
    "CREATE UNIQUE INDEX orders_nullable_uq ON nullable_once (id)",
    "CREATE INDEX orders_plain_ix ON orders_once (amount_cents)",
];

/// Runs each body on each engine that is there.
macro_rules! on_every_engine {
    ($($theme:ident: $($body:ident)+;)+) => {
        mod on_sqlite { $($(on_every_engine!(@test sqlite::on_sqlite, $theme::$body);)+)+ }
        mod on_postgres { $($(on_every_engine!(@test postgres::on_postgres, $theme::$body);)+)+ }
        mod on_mariadb { $($(on_every_engine!(@test mysql::on_mariadb, $theme::$body);)+)+ }
        mod on_mysql { $($(on_every_engine!(@test mysql::on_mysql, $theme::$body);)+)+ }
        mod on_sqlserver { $($(on_every_engine!(@test sqlserver::on_sqlserver, $theme::$body);)+)+ }
    };
    (@test $module:ident::$engine:ident, $theme:ident::$body:ident) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $body() {
            if let Some(engine) = super::$module::$engine().await {
                crate::bodies::$theme::$body(&engine).await;
                engine.remove().await;
            }
        }
    };
}

on_every_engine! {
    claims:
        the_first_delivery_is_done_and_the_second_a_duplicate
        of_many_deliveries_at_once_exactly_one_is_done
        keys_of_any_length_and_content_are_told_apart
        level_one_goes_by_message_id_and_source
        each_consumer_of_one_event_runs_once
        level_one_without_message_id_is_rejected
        level_zero_runs_every_time
        what_cannot_be_decoded_is_rejected_before_the_database_is_asked
        migrations_can_run_again_and_at_the_same_time
        ledgers_of_different_names_fit_into_one_database
        claims_of_the_first_version_are_kept_by_migrations;
    batches:
        a_batch_does_what_is_new_in_one_transaction
        exactly_the_message_that_was_done_before_is_the_duplicate
        a_message_that_fails_costs_its_neighbours_nothing_but_time
        a_key_in_progress_does_not_hold_its_neighbours
        a_key_in_a_running_batch_is_busy
        batches_in_opposite_orders_do_not_deadlock
        replies_and_conflicts_of_batches_are_those_of_their_messages
        too_few_replies_are_a_failure_and_nothing_done
        a_batch_that_ends_its_transaction_is_found_out
        plain_handlers_run_in_one_transaction_too;
    constraints:
        the_row_of_an_earlier_message_makes_a_duplicate
        a_row_that_says_something_else_makes_a_conflict
        of_many_at_once_one_leaves_its_row
        a_row_of_the_handlers_own_or_another_constraint_proves_nothing
        a_handler_that_ends_its_transaction_is_found_out
        in_batches_each_message_is_judged_alone
        a_constraint_that_proves_nothing_is_refused;
    pruning:
        only_claims_past_the_retention_of_their_own_scope_go
        while_no_consumer_runs_nothing_grows_old
        a_retention_is_never_lowered_and_its_horizon_is_a_floor
        the_same_claims_go_in_every_time_zone
        claims_go_oldest_first_in_bounded_transactions
        a_message_older_than_what_was_pruned_is_not_handled_again
        pruners_that_start_together_delete_each_claim_once
        pruning_keeps_pace_with_a_constant_load
        what_the_keys_of_a_scope_are_made_of_is_written_once;
    replies:
        a_reply_is_given_to_duplicates
        a_message_that_says_something_else_under_the_same_key_is_a_conflict
        a_duplicate_tells_when_its_key_was_claimed
        a_reply_that_is_too_large_is_rejected_and_nothing_done;
    renaming:
        a_renamed_handler_meets_what_it_did_before
        a_renamed_handler_and_the_one_that_still_runs_exclude_each_other
        a_renamed_batch_handler_gives_the_earlier_replies
        a_batch_that_was_done_in_part_under_the_new_name_is_told_apart
        claims_that_were_pruned_under_an_earlier_scope_prove_nothing
        a_consumer_keeps_the_ledger_of_earlier_scopes_too
        an_earlier_scope_with_another_key_is_refused_at_start;
    failures:
        a_failed_handler_leaves_nothing_behind_and_may_succeed_later
        a_panic_leaves_nothing_behind
        a_rejection_leaves_nothing_behind
        a_violation_in_the_handler_is_never_a_duplicate
        a_violation_in_a_trigger_is_never_a_duplicate
        a_swallowed_error_never_ends_as_done_where_it_dooms_the_transaction
        a_swallowed_time_out_is_like_any_other_error
        a_text_with_nul_is_stored_or_refused
        what_the_database_can_never_take_is_rejected_at_once
        what_may_pass_is_tried_again
        the_servers_language_does_not_matter
        a_connection_that_ends_in_the_handler_leaves_nothing_behind
        a_transaction_that_idles_for_too_long_is_not_done;
    transactions:
        an_ended_transaction_is_found_out
        what_a_handler_committed_before_it_failed_is_found_out
        ddl_is_part_of_the_transaction_or_found_out
        a_cancelled_delivery_leaves_no_open_transaction_behind
        a_statement_dropped_while_it_runs_confuses_nobody;
    own_loops:
        a_redelivery_to_a_loop_of_ones_own_is_a_duplicate
        a_key_that_stays_busy_is_given_back_and_never_completed
        a_key_that_is_busy_for_a_while_is_waited_for
        a_failure_is_given_back_until_the_last_delivery
        what_can_never_be_handled_is_dead_lettered_with_its_reason
        an_executor_that_cannot_work_does_not_start;
    timeouts:
        a_handler_that_hangs_after_its_writes_is_rolled_back
        a_handler_that_hangs_in_a_statement_is_rolled_back
        a_handler_that_hangs_after_a_commit_of_its_own_is_found_out
        a_handler_that_hangs_is_no_matter_of_its_batch;
    start:
        a_ledger_that_lacks_something_is_refused_at_start
        a_user_who_lacks_a_privilege_is_refused_at_start
        a_database_that_can_only_be_read_is_refused_at_start
        what_is_lost_while_running_is_no_messages_fault;
    pools:
        handlers_that_wait_for_their_own_pool_are_tried_again
        too_few_connections_are_said_at_start;
    processes:
        a_killed_process_leaves_no_claim_behind
        of_two_processes_one_handles_each_message;
    contention:
        a_key_in_progress_is_not_a_duplicate
        a_key_whose_holder_is_dropped_is_free
        of_those_that_wait_for_a_failing_holder_one_is_done
        messages_that_change_one_row_are_all_done
        a_lock_that_is_not_to_be_had_is_contention
        a_deadlock_is_tried_again
        a_swallowed_deadlock_is_not_done;
}
