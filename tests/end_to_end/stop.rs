//! Stopping and pausing with work in flight.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness::{Database, Orders};
use idem_emulator::{Emulator, EventKind, QueueOptions};
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::store::{Postgres, Sqlite};
use idem_runtime::{Consumer, Failure, Health, State, Tx, idempotent};
use idem_tests::database::PostgresDatabase;
use idem_tests::until;
use serde::Deserialize;
use tokio::sync::watch;

use crate::bench::{Bench, message};

#[derive(Deserialize)]
struct Entry {
    account: i64,
}

/// Handlers stand before it until it is opened.
#[derive(Clone)]
struct Gate {
    is_open: Arc<watch::Sender<bool>>,
    came: Arc<AtomicUsize>,
}

impl Gate {
    fn closed() -> Self {
        Self { is_open: Arc::new(watch::Sender::new(false)), came: Arc::default() }
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }

    async fn pass(&self) {
        self.came.fetch_add(1, Ordering::SeqCst);
        self.is_open.subscribe().wait_for(|is_open| *is_open).await.expect("the gate is there");
    }

    async fn until_came(&self, count: usize) {
        until("handlers stand before the gate", async || self.came.load(Ordering::SeqCst) == count)
            .await;
    }
}

macro_rules! handler {
    ($module:ident, $store:ty) => {
        mod $module {
            use super::*;

            #[idempotent(key = "account", scope = "test.append")]
            pub(super) async fn append(
                tx: &mut Tx<$store>,
                entry: Entry,
                State(gate): State<Gate>,
            ) -> Result<(), Failure> {
                let insert = sqlx::query("INSERT INTO entries VALUES ($1)").bind(entry.account);
                insert.execute(&mut **tx).await?;
                gate.pass().await;
                Ok(())
            }
        }
    };
}

handler!(sqlite, Sqlite);
handler!(postgres, Postgres);

/// More than any handler takes.
const LONG: Duration = Duration::from_secs(600);

/// Three messages, whose handlers are to be stopped while they stand before the gate.
struct Stopping {
    emulator: Emulator,
    bus: ServiceBus,
    database: PostgresDatabase,
}

impl Stopping {
    async fn new() -> Option<Self> {
        let database = PostgresDatabase::new().await?;
        let table = "CREATE TABLE entries (account bigint NOT NULL)";
        sqlx::query(table).execute(database.store.pool()).await.expect("a valid table");
        let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(2));
        let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        let messages =
            (1..=3).map(|n| message(&format!("m-{n}"), format!(r#"{{"account": {n}}}"#)));
        let sender = bus.sender("entries").await.expect("a sender");
        sender.send_all(messages.collect()).await.expect("sent");
        Some(Self { emulator, bus, database })
    }

    fn consumer(&self, gate: &Gate, shutdown_deadline: Duration) -> Consumer<Queue, Postgres> {
        Consumer::builder(self.bus.queue("entries"), self.database.store.clone())
            .handler(postgres::AppendHandler)
            .state(gate.clone())
            .shutdown_deadline(shutdown_deadline)
            .build()
            .expect("a valid consumer")
    }

    async fn entries(&self) -> Vec<i64> {
        let entries = "SELECT account FROM entries ORDER BY account";
        let pool = self.database.store.pool();
        sqlx::query_scalar(entries).fetch_all(pool).await.expect("entries")
    }

    fn happened(&self, is_it: impl Fn(&EventKind) -> bool) -> usize {
        let events = self.emulator.events().snapshot();
        events.iter().filter(|event| is_it(&event.kind)).count()
    }
}

/// C-06, with time enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_finish_in_time_are_settled_before_the_end() {
    let Some(bench) = Stopping::new().await else { return };
    let gate = Gate::closed();
    let consumer = bench.consumer(&gate, LONG);
    let handle = consumer.handle();
    let stop = async {
        gate.until_came(3).await;
        handle.stop();
        handle.wait_for(|health| *health == Health::Stopping).await;
        gate.open();
    };
    let (ran, ()) = tokio::join!(consumer.run(), stop);
    ran.expect("the consumer starts");

    assert_eq!(bench.entries().await, [1, 2, 3]);
    let delivered = bench.happened(|kind| matches!(kind, EventKind::Delivered { .. }));
    assert_eq!(delivered, 3, "none came again");
    let counts = bench.emulator.counts("entries").expect("it is there");
    assert_eq!((counts.active, counts.locked, counts.dead_lettered), (0, 0, 0));
    assert_eq!(handle.counters().summary().done, 3);
    bench.database.remove().await;
}

/// C-06, with too little: 300 ms, and none at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_do_not_finish_are_rolled_back_and_their_messages_come_again() {
    for stop_now in [false, true] {
        let Some(bench) = Stopping::new().await else { return };
        let gate = Gate::closed();
        let deadline = if stop_now { LONG } else { Duration::from_millis(300) };
        let consumer = bench.consumer(&gate, deadline);
        let handle = consumer.handle();
        let stop = async {
            gate.until_came(3).await;
            handle.stop();
            if stop_now {
                handle.wait_for(|health| *health == Health::Stopping).await;
                handle.stop_now();
            }
        };
        let (ran, ()) = tokio::join!(consumer.run(), stop);
        ran.expect("the consumer starts");
        assert_eq!(bench.entries().await, [0_i64; 0], "rolled back");
        let abandoned = bench.happened(|kind| matches!(kind, EventKind::Abandoned { .. }));
        assert_eq!(abandoned, 3, "given back");
        let summary = handle.counters().summary();
        assert_eq!((summary.deliveries, summary.done, summary.retries), (3, 0, 0), "{summary:?}");

        let gate = Gate::closed();
        gate.open();
        let consumer = bench.consumer(&gate, LONG);
        let counters = consumer.counters();
        let counts = || bench.emulator.counts("entries").expect("it is there");
        let is_empty = async || counts().active + counts().locked == 0;
        consumer.run_until(until("the queue is empty", is_empty)).await.expect("it starts");
        assert_eq!(bench.entries().await, [1, 2, 3]);
        assert_eq!((counters.summary().done, counts().dead_lettered), (3, 0));
        bench.database.remove().await;
    }
}

/// What the client had fetched ahead comes again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_consumer_leaves_no_message_behind() {
    let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(2));
    let bench = Bench::with(queue.max_delivery_count(3)).await;
    let messages = (1..=10).map(|n| message(&format!("m-{n}"), format!(r#"{{"account": {n}}}"#)));
    bench.send(messages.collect()).await;
    let gate = Gate::closed();
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .handler(sqlite::AppendHandler)
        .state(gate.clone())
        .in_flight_max(2)
        .delivery_count_max(3)
        .build()
        .expect("a valid consumer");
    let handle = consumer.handle();
    let work = async {
        gate.until_came(1).await;
        handle.pause();
        handle.wait_for(|health| *health == Health::Pausing).await;
        gate.open();
        handle.wait_for(|health| *health == Health::Paused).await;
        let done = bench.entries().await.len();
        assert!((1..=2).contains(&done), "what was in flight: {done}");
        until("all locks have run out", async || {
            let counts = bench.emulator.counts("entries").expect("it is there");
            counts.active == 10 - done && counts.locked == 0
        })
        .await;
        assert_eq!(bench.entries().await.len(), done, "nothing is handled meanwhile");

        handle.resume();
        until("the queue is empty", async || bench.left() == 0).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(bench.entries().await, (1..=10).collect::<Vec<_>>());
    assert_eq!(bench.dead_letters(), []);
    let summary = handle.counters().summary();
    assert_eq!((summary.done, summary.reconnects), (10, 0), "{summary:?}");
}

/// A lock on the handlers' table holds them for as long as the test likes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_the_process_at_once() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let queue = QueueOptions::new("orders").lock_duration(Duration::from_secs(2));
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let opened = Database::open(&database.url).await.expect("the database opens");
    let orders = Orders::new(1, 1);
    let sender = bus.sender("orders").await.expect("a sender");
    sender.send_all(orders.messages().expect("messages")).await.expect("sent");
    let mut lock = database.store.pool().begin().await.expect("a transaction");
    sqlx::query("LOCK TABLE orders").execute(&mut *lock).await.expect("locked");

    let mut consumer = Command::new(env!("CARGO_BIN_EXE_consumer"))
        .env("SERVICEBUS_CONNECTION_STRING", emulator.connection_string())
        .env("DATABASE_URL", &database.url)
        .stdin(Stdio::null())
        .spawn()
        .expect("the consumer starts");
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass";
    until("the handler waits", async || {
        let waiting: i64 =
            sqlx::query_scalar(waits).fetch_one(database.store.pool()).await.expect("counted");
        waiting == 1
    })
    .await;
    let id = consumer.id().to_string();
    let terminate = || {
        Command::new("kill").args(["-TERM", &id]).status().expect("SIGTERM");
    };
    terminate();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(consumer.try_wait().expect("asked"), None, "it waits for its handler");
    terminate();
    let mut status = None;
    until("it has ended", async || {
        status = consumer.try_wait().expect("asked");
        status.is_some()
    })
    .await;
    assert_eq!(status.and_then(|status| status.code()), Some(130));

    lock.rollback().await.expect("unlocked");
    let rows = opened.count_orders(orders.run()).await.expect("the orders can be counted");
    assert!(rows.is_empty(), "rolled back: {rows:?}");
    until("the message is there again", async || {
        emulator.counts("orders").expect("it is there").active == 1
    })
    .await;
    emulator.shutdown().await;
    database.remove().await;
}
