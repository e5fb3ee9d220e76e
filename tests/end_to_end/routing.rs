//! Several types of messages on one queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem_emulator::QueueOptions;
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Failure, State, Tx, idempotent};
use idem_tests::until;
use serde::Deserialize;

use crate::bench::{Bench, message};

#[derive(Deserialize)]
struct Entry {
    account: i64,
}

async fn insert(tx: &mut Tx<Sqlite>, account: i64) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries VALUES ($1)").bind(account).execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(key = "account")]
async fn open_account(tx: &mut Tx<Sqlite>, entry: Entry) -> Result<(), Failure> {
    insert(tx, entry.account).await
}

#[idempotent(level = 1, batch)]
async fn close_accounts(tx: &mut Tx<Sqlite>, entries: Vec<Entry>) -> Result<(), Failure> {
    for entry in entries {
        insert(tx, -entry.account).await?;
    }
    Ok(())
}

/// How often accounts were looked at.
#[derive(Clone, Default)]
struct Views(Arc<AtomicUsize>);

#[idempotent(level = 0)]
async fn view_account(_: Entry, State(views): State<Views>) -> Result<(), Failure> {
    views.0.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

fn about(subject: &str, id: &str, account: i64) -> OutgoingMessage {
    let message = message(id, format!(r#"{{"account": {account}}}"#));
    OutgoingMessage { subject: Some(subject.to_owned()), ..message }
}

/// Handlers of all levels beside each other: what is the same for one is not for another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_has_the_effect_of_its_type_and_strangers_are_dead_lettered() {
    let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(30));
    let bench = Bench::with(queue).await;
    let mut messages = vec![
        about("Opened", "o-1", 1),
        about("Opened", "o-2", 2),
        about("Opened", "o-3", 1), // the same account under another id
        about("Viewed", "v-1", 1),
        about("Viewed", "v-1", 1), // not deduplicated
        about("opened", "stranger", 3),
        message("nameless", r#"{"account": 4}"#),
    ];
    messages.extend((1..=8).map(|account| about("Closed", &format!("c-{account}"), account)));
    messages.push(about("Closed", "c-1", 1)); // the same id
    messages.push(about("Closed", "c-9", 1)); // the same account under another id
    bench.send(messages).await;

    let views = Views::default();
    // ANCHOR: routes
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .route("Opened", OpenAccountHandler)
        .route("Closed", CloseAccountsHandler)
        .route("Viewed", ViewAccountHandler)
        .state(views.clone())
        .batch_max(8)
        .build()
        .expect("a valid consumer");
    // ANCHOR_END: routes
    let counters = consumer.counters();
    consumer
        .run_until(until("the queue is empty", async || bench.left() == 0))
        .await
        .expect("the consumer starts");

    assert_eq!(bench.entries().await, [-8, -7, -6, -5, -4, -3, -2, -1, -1, 1, 2]);
    assert_eq!(views.0.load(Ordering::SeqCst), 2);
    let summary = counters.summary();
    assert_eq!((summary.done, summary.duplicates, summary.rejected), (13, 2, 2), "{summary:?}");
    let routes = "there are routes for `Closed`, `Opened`, `Viewed`";
    let expected = [
        ("nameless", format!("the message has no subject, by which it is routed; {routes}")),
        ("stranger", format!("no route for subject `opened`; {routes}")),
    ];
    let expected = expected.map(|(id, text)| (id.to_owned(), "Unroutable".to_owned(), text));
    assert_eq!(bench.dead_letters(), expected);
}
