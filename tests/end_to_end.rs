//! The examples' job, end to end: the emulator's wire, the consumer, and a database.

#[expect(dead_code, reason = "its main is the example's")]
#[path = "../examples/naive.rs"]
mod naive;
#[expect(dead_code, reason = "its main is the example's")]
#[path = "../examples/place_order.rs"]
mod place_order;

use std::collections::BTreeMap;
use std::future::Future;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use harness::{Database, Options, Orders, Report};
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_tests::database::{PostgresDatabase, SqliteFile};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;

fn options(seed: u64, database: Option<String>) -> Options {
    Options { orders: 250, seed: Some(seed), bus: None, queue: "orders".to_owned(), database }
}

/// How many runs go on at the same time: each takes up to 24 connections of the database server.
const RUNS_MAX: usize = 5;

/// Runs the job once for each seed, several at the same time.
async fn for_all_seeds<F>(run: impl Fn(u64) -> F) -> Vec<Report>
where
    F: Future<Output = anyhow::Result<Report>> + Send + 'static,
{
    let free = Arc::new(Semaphore::new(RUNS_MAX));
    let mut runs = JoinSet::new();
    for seed in SEEDS {
        let (free, run) = (Arc::clone(&free), run(seed));
        runs.spawn(async move {
            let _permit = free.acquire().await.expect("never closed");
            (seed, run.await)
        });
    }
    let reports = runs.join_all().await.into_iter();
    reports.map(|(seed, report)| report.unwrap_or_else(|e| panic!("seed {seed}: {e:#}"))).collect()
}

fn assert_exactly_once(reports: &[Report]) {
    let mut fired = BTreeMap::new();
    for report in reports {
        assert!(report.is_exactly_once(), "{report}");
        assert!(report.consumed.duplicates > 0, "{report}");
        assert!(report.crashes > 0, "{report}");
        for (name, times) in &report.faults {
            *fired.entry(*name).or_insert(0) += times;
        }
    }
    assert_eq!(fired.len(), 5);
    assert!(fired.values().all(|times| *times > 0), "every fault has fired: {fired:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_order_exactly_once_on_sqlite() {
    let reports =
        for_all_seeds(|seed| async move { place_order::job().run(&options(seed, None)).await });
    assert_exactly_once(&reports.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_order_exactly_once_on_postgres() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let url = database.url.clone();
    let reports = for_all_seeds(move |seed| {
        let options = options(seed, Some(url.clone()));
        async move { place_order::job().run(&options).await }
    });
    assert_exactly_once(&reports.await);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_handler_loses_both_races_on_every_seed() {
    let reports = for_all_seeds(|seed| async move { naive::job().run(&options(seed, None)).await });
    for report in reports.await {
        assert!(report.crash_window > 0, "{report}");
        assert!(report.concurrency_window > 0, "{report}");
    }
}

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

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < patience, "in vain: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
