//! What only SQLite does: one writer at a time, whoever it is.

use std::time::Duration;

use idem_runtime::horizon::Retention;
use idem_runtime::store::{ScopeKeys, Sqlite, Store};
use idem_runtime::{Executor, Outcome, Settlement, execute};
use idem_tests::log::Log;
use sqlx::sqlite::SqlitePoolOptions;

use crate::bodies::assert_counts;
use crate::bodies::processes::Process;
use crate::engines::sqlite::{OnSqlite, ReceiptHandler, on_sqlite};
use crate::engines::{Engine, delivery, priced};

const WORKERS: usize = 8;
const MESSAGES: usize = 200;
const OLD_CLAIMS: i64 = 2000;

/// R-17: handlers read before they write, and another process prunes all the while. A transaction
/// that took the write lock only when it writes would be refused at once, whatever the time-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_write_are_done_while_another_process_prunes() {
    let engine = on_sqlite().await.expect("a file");
    read_and_write(&engine, engine.store().clone()).await;

    let engine = on_sqlite().await.expect("a file");
    let options = engine.store().pool().connect_options().as_ref().clone();
    let options = options.busy_timeout(Duration::from_millis(200));
    let pool = SqlitePoolOptions::new().max_connections(8).connect_lazy_with(options);
    read_and_write(&engine, Sqlite::from_pool(pool)).await;
}

async fn read_and_write(engine: &OnSqlite, store: Sqlite) {
    let (scope, key) = ("test.place".to_owned(), "customer_id, external_ref".to_owned());
    store.register(&ScopeKeys { scope, level: 2, key }).await.expect("registered");
    let hour = Duration::from_secs(3600);
    let retention = Retention { horizon: hour, kept: hour };
    store.keep_alive("test.place", retention).await.expect("kept alive");
    let old = format!(
        "WITH RECURSIVE numbers (number) AS \
             (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {OLD_CLAIMS}) \
         INSERT INTO idem_claim (digest, scope, claimed_at) \
         SELECT randomblob(16), 'test.place', unixepoch() - 86400 FROM numbers"
    );
    engine.execute(&old).await;

    let mut pruner = Process::start("prune", engine.url());
    let worker = async |worker: usize| {
        for number in (0..MESSAGES).skip(worker).step_by(WORKERS) {
            let message = delivery(&format!("r{number}"), "read_and_write");
            let context = engine.context_on(&store, message);
            loop {
                match execute::<<OnSqlite as Engine>::ByKey, _>(&store, &context).await {
                    Outcome::Done(_) => break,
                    // Its fault is contention, which is waited for and never counted as failed.
                    Outcome::Retry(reason) => {
                        assert!(reason.to_string().contains("locked"), "{reason}")
                    }
                    outcome => panic!("{outcome:?}"),
                }
            }
        }
    };
    futures_util::future::join_all((0..WORKERS).map(worker)).await;
    idem_tests::until("all that is old is pruned", async || {
        engine.count("SELECT count(*) FROM idem_claim").await == 200
    })
    .await;
    pruner.kill();
    assert_counts(engine, 200, 200).await;
    assert_eq!(engine.count("SELECT amount FROM balances WHERE id = 1").await, 200);
}

#[tokio::test]
async fn a_reply_and_a_conflict_come_back_to_a_loop_of_ones_own() {
    let engine = on_sqlite().await.expect("a file");
    let executor = Executor::builder(engine.store().clone(), ReceiptHandler).start().await;
    let executor = executor.expect("it starts");
    let number = async |amount| {
        let executed = executor.execute_once(priced("r1", amount, "EUR")).await;
        executed.reply().map(|reply| reply.decode::<i64>().expect("a number"))
    };
    let first = number(1).await;
    assert!(first.is_some());
    let log = Log::listen("idem_runtime=info");
    assert_eq!(number(1).await, first);
    let text = log.text();
    assert!(text.contains(r#"process{otel.name="process orders""#), "a span: {text}");
    assert!(text.contains("duplicate ignored, already processed"), "an event: {text}");
    let conflict = executor.execute_once(priced("r1", 2, "EUR")).await;
    assert!(matches!(conflict.outcome(), Outcome::Conflict(_)), "{conflict:?}");
    assert!(conflict.reply().is_none());
    let settlement = conflict.into_settlement();
    let Settlement::DeadLetter(why) = settlement else { panic!("{settlement:?}") };
    assert_eq!(why.reason(), "IdempotencyConflict");
}
