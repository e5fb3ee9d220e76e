//! What senders get wrong: each message ends on the dead-letter queue with a reason that helps,
//! and the messages beside it are handled.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_emulator::{Fault, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::Queue;
use idem_runtime::consumer::{RunError, Summary};
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{Consumer, Delivery, Failure, Handler, Horizon, State, Tx, idempotent};
use idem_tests::until;
use serde::Deserialize;
use tokio::sync::oneshot;

use crate::bench::{Bench, message};

#[derive(Deserialize)]
struct Entry {
    account: i64,
    #[serde(default)]
    fails: u32,
}

#[idempotent(level = 1)]
async fn append(tx: &mut Tx<Sqlite>, entry: Entry, delivery: &Delivery) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries VALUES ($1)").bind(entry.account).execute(&mut **tx).await?;
    if delivery.delivery_count() <= entry.fails {
        return Err(format!("account {} is closed", entry.account).into());
    }
    Ok(())
}

/// How many messages each call got.
#[derive(Clone, Default)]
struct Sizes(Arc<Mutex<Vec<usize>>>);

#[idempotent(level = 1, batch)]
async fn append_all(
    tx: &mut Tx<Sqlite>,
    entries: Vec<Entry>,
    State(sizes): State<Sizes>,
) -> Result<(), Failure> {
    sizes.0.lock().expect("nobody panics with it").push(entries.len());
    for entry in entries {
        let insert = sqlx::query("INSERT INTO entries VALUES ($1)").bind(entry.account);
        insert.execute(&mut **tx).await?;
        if entry.fails > 0 {
            return Err(Failure::reject("ClosedAccount", format!("{} is closed", entry.account)));
        }
    }
    Ok(())
}

const LOCK: Duration = Duration::from_secs(2);

impl Bench {
    async fn new(lock: Duration) -> Self {
        Self::with(QueueOptions::new("entries").lock_duration(lock).max_delivery_count(5)).await
    }

    /// Consumes until nothing is left on the source.
    async fn consume(&self, source: Queue, handler: impl Handler<Sqlite>) -> Summary {
        // ANCHOR: horizon
        let days = |days: u64| Duration::from_secs(days * 24 * 3600);
        let consumer = Consumer::builder(source.clone(), self.file.store.clone())
            .handler(handler)
            .delivery_count_max(3)
            .horizon(Horizon { dead_letter_age_max: days(14), resend_window: days(1) })
            .build()
            .expect("a valid consumer");
        // ANCHOR_END: horizon
        let counters = consumer.counters();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = consumer.run_until(async {
            stopped.await.ok();
        });
        let watch = async {
            until("the source is empty", async || source.depth(1).await.expect("peeked") == 0)
                .await;
            stop.send(()).expect("the consumer is running");
        };
        let (ran, ()) = tokio::join!(run, watch);
        ran.expect("the consumer starts");
        counters.summary()
    }
}

/// Duplicates and bad messages among them: each is settled for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_settled_message_by_message() {
    let bench = Bench::new(LOCK).await;
    let of = |id: &str, account: i64, fails: u32| {
        let body = format!(r#"{{"account": {account}, "fails": {fails}}}"#);
        OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }.with_message_id(id)
    };
    let mut messages: Vec<_> = (1..=60).map(|n| of(&format!("m-{n}"), n, 0)).collect();
    messages.insert(30, of("bad", 0, 1));
    messages.push(of("m-7", 7, 0));
    messages.push(message("text", "no JSON"));
    bench.send(messages).await;

    let sizes = Sizes::default();
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .handler(AppendAllHandler)
        .state(sizes.clone())
        .in_flight_max(32)
        .batch_max(20)
        .build()
        .expect("a valid consumer");
    let counters = consumer.counters();
    let source = bench.bus.queue("entries");
    consumer
        .run_until(async {
            let is_empty = async || source.depth(1).await.expect("peeked") == 0;
            until("the queue is empty", is_empty).await;
        })
        .await
        .expect("the consumer starts");

    assert_eq!(bench.entries().await, (1..=60).collect::<Vec<_>>());
    let summary = counters.summary();
    assert_eq!((summary.done, summary.duplicates, summary.dead_letters), (60, 1, 2));
    let reasons: Vec<_> = bench.dead_letters().into_iter().map(|(_, reason, _)| reason).collect();
    assert_eq!(reasons, ["ClosedAccount", "UndecodableBody"]);
    let sizes = sizes.0.lock().expect("nobody panics with it").clone();
    assert!(sizes.iter().any(|size| *size > 1), "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 20), "{sizes:?}");
}

/// A claim that is older than all that could meet it goes while the consumer runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_with_a_horizon_prunes_its_scope() {
    let bench = Bench::new(LOCK).await;
    let claims = async || -> i64 {
        let count = "SELECT count(*) FROM idem_claim";
        sqlx::query_scalar(count).fetch_one(bench.file.store.pool()).await.expect("a count")
    };
    bench.send(vec![message("1", r#"{"account": 1}"#), message("2", r#"{"account": 2}"#)]).await;
    bench.consume(bench.bus.queue("entries"), AppendHandler).await;
    let age = "UPDATE idem_claim SET claimed_at = claimed_at - 20 * 86400 \
               WHERE digest = (SELECT min(digest) FROM idem_claim)";
    sqlx::query(age).execute(bench.file.store.pool()).await.expect("updated");

    bench.send(vec![message("3", r#"{"account": 3}"#)]).await;
    let summary = bench.consume(bench.bus.queue("entries"), AppendHandler).await;
    assert_eq!(summary.done, 1);
    assert_eq!(claims().await, 2, "of three, the old one is gone");
    assert_eq!(bench.entries().await, [1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_handled_is_dead_lettered_with_a_reason_and_the_rest_is_done() {
    let bench = Bench::new(LOCK).await;
    let without_id = OutgoingMessage { body: r#"{"account": 9}"#.into(), ..Default::default() };
    bench
        .send(vec![
            message("1 good", r#"{"account": 1}"#),
            message("2 text", "account 2"),
            message("3 empty", ""),
            without_id,
            message("4 type", r#"{"account": "four"}"#),
            message("5 missing", "{}"),
            message("6 good", "\u{feff}{\"account\": 6}"),
        ])
        .await;
    let summary = bench.consume(bench.bus.queue("entries"), AppendHandler).await;

    assert_eq!(bench.entries().await, [1, 6]);
    assert_eq!((summary.done, summary.rejected, summary.dead_letters), (2, 5, 5));
    let expected = [
        ("", "MissingMessageId", "the message has no MessageId"),
        ("2 text", "UndecodableBody", "the body is not JSON"),
        ("3 empty", "EmptyBody", "the body is empty"),
        ("4 type", "UndecodableBody", "field `account` does not fit the message: expected i64"),
        ("5 missing", "UndecodableBody", "missing field `account`"),
    ];
    let dead_letters = bench.dead_letters();
    assert_eq!(dead_letters.len(), expected.len(), "{dead_letters:#?}");
    for (letter, (id, reason, description)) in dead_letters.iter().zip(expected) {
        assert_eq!((letter.0.as_str(), letter.1.as_str()), (id, reason));
        assert!(letter.2.contains(description), "{letter:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_keeps_failing_is_dead_lettered_with_its_error_and_redriven_once() {
    let bench = Bench::new(LOCK).await;
    bench
        .send(vec![
            message("twice", r#"{"account": 1, "fails": 2}"#),
            message("always", r#"{"account": 2, "fails": 3}"#),
        ])
        .await;
    let summary = bench.consume(bench.bus.queue("entries"), AppendHandler).await;
    assert_eq!(bench.entries().await, [1]);
    assert_eq!((summary.done, summary.retries, summary.dead_letters), (1, 5, 1));
    let texts = bench.dead_letters();
    let description = "the handler failed: account 2 is closed".to_owned();
    assert_eq!(texts, [("always".to_owned(), "DeliveriesExhausted".to_owned(), description)]);

    // The broker goes on counting where it was: the third delivery is repeated, and the fourth
    // succeeds. What fails among the dead letters can only be given back.
    let dead_letters = bench.bus.queue("entries").dead_letters();
    let redriven = bench.consume(dead_letters, AppendHandler).await;
    assert_eq!(bench.entries().await, [1, 2]);
    assert_eq!((redriven.done, redriven.retries, redriven.dead_letters), (1, 1, 0));
}

struct Poison;

impl<'de> Deserialize<'de> for Poison {
    fn deserialize<D: serde::Deserializer<'de>>(body: D) -> Result<Self, D::Error> {
        let text = String::deserialize(body)?;
        assert_ne!(text, "poison", "a type of the user's panics");
        Ok(Self)
    }
}

#[idempotent(level = 1)]
async fn taste(tx: &mut Tx<Sqlite>, _: Poison) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries VALUES (1)").execute(&mut **tx).await?;
    Ok(())
}

/// More poison than may be in flight, and a good message behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_whose_decoding_panics_do_not_make_the_consumer_deaf() {
    let bench = Bench::new(LOCK).await;
    let mut messages: Vec<_> =
        (0..20).map(|number| message(&format!("poison {number}"), r#""poison""#)).collect();
    messages.push(message("good", r#""food""#));
    bench.send(messages).await;
    let summary = bench.consume(bench.bus.queue("entries"), TasteHandler).await;
    assert_eq!(bench.entries().await, [1]);
    assert_eq!((summary.done, summary.dead_letters), (1, 20));
    let letter = &bench.dead_letters()[0];
    assert!(
        letter.2.contains("panicked: ") && letter.2.contains("a type of the user's"),
        "{letter:?}"
    );
}

/// Completions that never arrive: the broker gives up on a message that was done long ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_was_done_is_a_duplicate_when_it_is_redriven() {
    let bench = Bench::new(Duration::from_millis(300)).await;
    let lost = Fault::lose_settlement().on("entries").message("m-1");
    let lost = bench.emulator.faults().add(lost);
    bench.send(vec![message("m-1", r#"{"account": 1}"#)]).await;
    let summary = bench.consume(bench.bus.queue("entries"), AppendHandler).await;
    assert_eq!(lost.fired(), 5, "each completion was lost");
    assert_eq!((summary.done, summary.duplicates, summary.dead_letters), (1, 4, 0));
    assert_eq!(bench.dead_letters()[0].1, "MaxDeliveryCountExceeded");

    let dead_letters = bench.bus.queue("entries").dead_letters();
    let redriven = bench.consume(dead_letters, AppendHandler).await;
    assert_eq!((redriven.duplicates, redriven.done), (1, 0));
    assert_eq!(bench.entries().await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_cannot_start_says_what_is_missing() {
    let bench = Bench::new(LOCK).await;
    let start = async |queue: &str, store: &Sqlite| {
        let consumer = Consumer::builder(bench.bus.queue(queue), store.clone())
            .handler(AppendHandler)
            .build()
            .expect("a valid consumer");
        consumer.run_until(std::future::pending()).await.expect_err("it cannot start")
    };
    let no_queue = start("entires", &bench.file.store).await;
    let RunError::Broker(error) = no_queue else { panic!("{no_queue:?}") };
    assert!(error.to_string().contains("no entity `entires`"), "{error}");

    let empty = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite://{}", empty.path().join("empty.db").display());
    let no_ledger = start("entries", &Sqlite::connect(&url).await.expect("opened")).await;
    let RunError::Store(error) = no_ledger else { panic!("{no_ledger:?}") };
    assert!(error.to_string().contains("run `idem migrate`"), "{error}");
    bench.file.store.check().await.expect("the other one is fine");

    bench.emulator.shutdown().await;
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .handler(AppendHandler)
        .build()
        .expect("a valid consumer");
    let gone = consumer.run_until(std::future::pending()).await.expect_err("nobody listens");
    let RunError::Broker(error) = gone else { panic!("{gone:?}") };
    assert!(error.to_string().contains("cannot reach"), "{error}");
}
