//! The examples' job on each seed.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use harness::{Database, Options, Report};
use idem_tests::database::PostgresDatabase;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

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
        for_all_seeds(
            |seed| async move { crate::place_order::job().run(&options(seed, None)).await },
        );
    assert_exactly_once(&reports.await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_order_exactly_once_on_postgres() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let url = database.url.clone();
    // PostgreSQL refuses `CREATE TABLE IF NOT EXISTS` to all but one of those who come at once.
    Database::open(&url).await.expect("the tables are made");
    let reports = for_all_seeds(move |seed| {
        let options = options(seed, Some(url.clone()));
        async move { crate::place_order::job().run(&options).await }
    });
    assert_exactly_once(&reports.await);
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_naive_handler_loses_both_races_on_every_seed() {
    let reports =
        for_all_seeds(|seed| async move { crate::naive::job().run(&options(seed, None)).await });
    for report in reports.await {
        assert!(report.crash_window > 0, "{report}");
        assert!(report.concurrency_window > 0, "{report}");
    }
}
