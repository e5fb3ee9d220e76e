//! One topic, two subscriptions, one database: each subscription handles its own copy.

use std::time::Duration;

use idem_emulator::{Emulator, SubscriptionOptions, TopicOptions};
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::broker::{BrokerError, OutgoingMessage};
use idem_runtime::consumer::{RunError, Summary};
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Delivery, Failure, Tx, idempotent};
use idem_tests::database::SqliteFile;
use idem_tests::until;
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    number: i64,
    fails: bool,
}

/// Both subscriptions run this one handler, so that only the source tells their keys apart.
#[idempotent(level = 1)]
async fn note(tx: &mut Tx<Sqlite>, order: Order, delivery: &Delivery) -> Result<(), Failure> {
    sqlx::query("INSERT INTO notes VALUES ($1, $2)")
        .bind(delivery.source().entity())
        .bind(order.number)
        .execute(&mut **tx)
        .await?;
    // Only the subscription itself refuses it: from among the dead letters it is handled.
    match order.fails && delivery.property("DeadLetterReason").is_none() {
        true => Err(Failure::reject("Refused", "not now")),
        false => Ok(()),
    }
}

const BILLING: &str = "orders/subscriptions/billing";
const SHIPPING: &str = "orders/subscriptions/shipping";

struct Bench {
    emulator: Emulator,
    bus: ServiceBus,
    file: SqliteFile,
}

impl Bench {
    async fn new() -> Self {
        let topic = TopicOptions::new("orders")
            .subscription(SubscriptionOptions::new("billing"))
            .subscription(SubscriptionOptions::new("shipping"));
        let emulator = Emulator::builder().topic(topic).start().await.expect("the emulator starts");
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        let file = SqliteFile::new().await;
        let table = "CREATE TABLE notes (source text NOT NULL, number bigint NOT NULL)";
        sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
        Self { emulator, bus, file }
    }

    /// Sends each message twice: the second one is a duplicate for each subscription.
    async fn send_twice(&self, numbers: &[i64], fails: bool) {
        let sender = self.bus.sender("orders").await.expect("a topic is sent to like a queue");
        for number in numbers.iter().chain(numbers) {
            let body = format!(r#"{{"number": {number}, "fails": {fails}}}"#);
            let message = OutgoingMessage { body: body.into(), ..OutgoingMessage::default() };
            sender.send(message.with_message_id(number.to_string())).await.expect("sent");
        }
    }

    async fn consume(&self, source: &Queue) -> Summary {
        let consumer = Consumer::builder(source.clone(), self.file.store.clone())
            .handler(NoteHandler)
            .build()
            .expect("a valid consumer");
        let counters = consumer.counters();
        let is_empty = async || source.depth(1).await.expect("peeked") == 0;
        consumer.run_until(until("the source is empty", is_empty)).await.expect("it starts");
        counters.summary()
    }

    async fn notes(&self) -> Vec<(String, i64)> {
        let notes = "SELECT source, number FROM notes ORDER BY source, number";
        sqlx::query_as(notes).fetch_all(self.file.store.pool()).await.expect("notes")
    }

    async fn claims(&self) -> i64 {
        let count = "SELECT count(*) FROM idem_claim";
        sqlx::query_scalar(count).fetch_one(self.file.store.pool()).await.expect("a count")
    }
}

fn notes(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter().map(|(source, number)| ((*source).to_owned(), *number)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_subscription_handles_each_message_once() {
    let bench = Bench::new().await;
    bench.send_twice(&[1, 2, 3], false).await;
    // ANCHOR: subscriptions
    let billing = bench.bus.subscription("orders", "billing");
    let shipping = bench.bus.subscription("orders", "shipping");
    // ANCHOR_END: subscriptions
    assert_eq!(billing.depth(100).await.expect("peeked"), 6);
    let (billed, shipped) = tokio::join!(bench.consume(&billing), bench.consume(&shipping));

    for summary in [billed, shipped] {
        assert_eq!((summary.done, summary.duplicates, summary.dead_letters), (3, 3, 0));
    }
    let both = [BILLING, SHIPPING].map(|source| [1, 2, 3].map(|number| (source, number)));
    assert_eq!(bench.notes().await, notes(both.as_flattened()));
    assert_eq!(bench.claims().await, 6);
    for subscription in [BILLING, SHIPPING] {
        let counts = bench.emulator.counts(subscription).expect("it is there");
        assert_eq!((counts.active, counts.locked, counts.dead_lettered), (0, 0, 0));
    }
    assert_eq!(bench.emulator.events().totals().delivered, 12);
}

/// What one subscription dead-letters concerns no other, and keeps its key when it is redriven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_has_dead_letters_of_its_own() {
    let bench = Bench::new().await;
    bench.send_twice(&[7], true).await;
    let billing = bench.bus.subscription("/orders/", "/billing/");
    let summary = bench.consume(&billing).await;
    assert_eq!((summary.rejected, summary.dead_letters), (2, 2));
    assert_eq!(bench.emulator.dead_letters(BILLING).expect("it is there").len(), 2);
    assert_eq!(bench.emulator.dead_letters(SHIPPING).expect("it is there").len(), 0);

    let dead_letters = billing.clone().dead_letters();
    assert_eq!(dead_letters.depth(100).await.expect("peeked"), 2);
    let summary = bench.consume(&dead_letters).await;
    assert_eq!((summary.done, summary.duplicates), (1, 1));
    assert_eq!(bench.notes().await, notes(&[(BILLING, 7)]));
    assert_eq!(bench.claims().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_is_not_there_is_named() {
    let bench = Bench::new().await;
    let consumer =
        Consumer::builder(bench.bus.subscription("orders", "biling"), bench.file.store.clone())
            .handler(NoteHandler)
            .build()
            .expect("a valid consumer");
    let error = consumer.run_until(tokio::time::sleep(Duration::from_secs(60))).await;
    let Err(RunError::Broker(error @ BrokerError::NotFound { .. })) = error else {
        panic!("{error:?}")
    };
    assert!(error.to_string().contains("`orders/Subscriptions/biling`"), "{error}");
}
