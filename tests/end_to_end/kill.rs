//! `kill -9` of the consumer's process, and what its successor finds.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use harness::{Database, Orders};
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_tests::database::{PostgresDatabase, SqliteFile};
use idem_tests::until;

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
