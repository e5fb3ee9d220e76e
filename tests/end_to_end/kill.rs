//! `kill -9` of the consumer's process, and what its successor finds.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Database, Orders};
use idem_emulator::{Clock, Emulator, EventKind, Fault, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_tests::database::{PostgresDatabase, SqliteFile};
use idem_tests::until;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_killed_in_mid_run_loses_nothing_on_sqlite() {
    let file = SqliteFile::new().await;
    kill_in_mid_run(&file.url).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_killed_in_mid_run_loses_nothing_on_postgres() {
    let Some(database) = PostgresDatabase::new().await else { return };
    kill_in_mid_run(&database.url).await;
    database.remove().await;
}

/// `kill -9` three times, each time with work in flight; then a last consumer finishes and is
/// asked to stop.
async fn kill_in_mid_run(database_url: &str) {
    let queue = QueueOptions::new("orders").lock_duration(Duration::from_secs(1));
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let database = Database::open(database_url).await.expect("the database opens");
    let orders = Orders::new(1, 600);
    let sender = bus.sender("orders").await.expect("a sender");
    sender.send_all(orders.messages().expect("messages")).await.expect("sent");

    let placed = async || {
        database.count_orders(orders.run()).await.expect("the orders can be counted").len()
    };
    for kill in 1..=3 {
        let enough = placed().await + 50;
        let mut consumer = spawn_consumer(&emulator, database_url);
        until("the consumer works", async || placed().await >= enough).await;
        consumer.kill().expect("SIGKILL");
        consumer.wait().expect("it is gone");
        assert!(placed().await < 600, "kill {kill} came in mid-run");
    }

    let mut consumer = spawn_consumer(&emulator, database_url);
    let queue = bus.queue("orders");
    until("the queue is empty", async || queue.depth(1).await.expect("peeked") == 0).await;
    let id = consumer.id().to_string();
    Command::new("kill").args(["-TERM", &id]).status().expect("SIGTERM");
    let status = consumer.wait().expect("it stops");
    assert!(status.success(), "an orderly stop: {status}");

    let rows = database.count_orders(orders.run()).await.expect("the orders can be counted");
    assert_eq!(rows.len(), 600, "nothing is lost");
    assert!(rows.values().all(|rows| *rows == 1), "nothing is done twice");
    assert_eq!(emulator.counts("orders").expect("it is there").dead_lettered, 0);
    emulator.shutdown().await;
}

fn spawn_consumer(emulator: &Emulator, database_url: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_consumer"))
        .env("SERVICEBUS_CONNECTION_STRING", emulator.connection_string())
        .env("DATABASE_URL", database_url)
        .stdin(Stdio::null())
        .spawn()
        .expect("the consumer starts")
}

/// How many messages are committed when the consumer is killed, and still locked since their
/// settlements were lost: half of those that may be in flight, after which the client asks for more.
/// How many have written and not committed, and how many have not begun, since there are no more
/// connections.
const COMMITTED: i64 = 8;
const WRITTEN: i64 = 6;
const WAITING: i64 = 10;

/// C-07: a kill with work in flight at each stage. All locks are given back when they end, and what
/// was committed is not done again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_each_stage_of_a_delivery_loses_nothing() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let table = "CREATE TABLE effects (number bigint NOT NULL)";
    sqlx::query(table).execute(database.store.pool()).await.expect("a table");
    let clock = Clock::manual();
    let queue = QueueOptions::new("orders").lock_duration(Duration::from_secs(60));
    let emulator = Emulator::builder().queue(queue).clock(clock.clone());
    let emulator = emulator.start().await.expect("the emulator starts");
    let lost: Vec<_> = (0..COMMITTED)
        .map(|number| Fault::lose_settlement().message(number.to_string()).times(1))
        .map(|fault| emulator.faults().add(fault))
        .collect();
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let sender = bus.sender("orders").await.expect("a sender");
    let all = COMMITTED + WRITTEN + WAITING;
    let message = |number: i64| {
        let body = json!({ "number": number, "holds": number >= COMMITTED });
        let message = OutgoingMessage::json(&body).expect("a message");
        message.with_message_id(number.to_string())
    };
    // Those that are committed first, so that their connections are free for the others.
    sender.send_all((0..COMMITTED).map(message).collect()).await.expect("sent");
    let mut consumer = spawn_holding(&emulator, &database.url, &["--hold"]);
    until("settlements were lost", async || lost.iter().all(|fault| fault.fired() == 1)).await;
    sender.send_all((COMMITTED..all).map(message).collect()).await.expect("sent");
    let output = BufReader::new(consumer.stdout.take().expect("a pipe"));
    assert_eq!(output.lines().take(usize::try_from(WRITTEN).expect("few")).count(), 6);
    let delivered = async || emulator.events().totals().delivered == all.unsigned_abs();
    until("all are in flight", delivered).await;
    consumer.kill().expect("SIGKILL");
    consumer.wait().expect("it is gone");
    let count = async |statement| {
        sqlx::query_scalar::<_, i64>(statement).fetch_one(database.store.pool()).await.expect("it")
    };
    assert_eq!(count("SELECT count(*) FROM effects").await, COMMITTED, "the others are undone");
    let counts = emulator.counts("orders").expect("it is there");
    assert_eq!((counts.active, counts.locked), (0, usize::try_from(all).expect("few")));

    clock.advance(Duration::from_secs(60));
    let mut consumer = spawn_holding(&emulator, &database.url, &[]);
    until("the queue is empty", async || {
        let counts = emulator.counts("orders").expect("it is there");
        counts.active + counts.locked == 0
    })
    .await;
    consumer.kill().expect("SIGKILL");
    consumer.wait().expect("it is gone");
    assert_eq!(count("SELECT count(*) FROM effects").await, all);
    assert_eq!(count("SELECT count(DISTINCT number) FROM effects").await, all, "each once");
    assert_eq!(count("SELECT count(*) FROM idem_claim").await, all);
    let totals = emulator.events().totals();
    assert_eq!((totals.completed, totals.dead_lettered), (all.unsigned_abs(), 0), "{totals:?}");
    let again = |kind: &EventKind| matches!(kind, EventKind::Delivered { delivery_count: 1 });
    let again = emulator.events().snapshot().iter().filter(|event| again(&event.kind)).count();
    assert_eq!(i64::try_from(again), Ok(all), "each came a second time, and no more");
    assert_eq!(totals.delivered, 2 * all.unsigned_abs());
    emulator.shutdown().await;
    database.remove().await;
}

fn spawn_holding(emulator: &Emulator, database_url: &str, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_holding"))
        .args(arguments)
        .env("SERVICEBUS_CONNECTION_STRING", emulator.connection_string())
        .env("DATABASE_URL", database_url)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the consumer starts")
}
