//! What a consumer says of itself while the broker or the database is away, and what it does.

use std::time::Duration;

use idem_emulator::{Emulator, EventKind, Fault, QueueOptions};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::broker::{Receiver, Source};
use idem_runtime::store::{Postgres, Sqlite};
use idem_runtime::{Consumer, Delivery, Failure, Health, LAST_FAILURE, Property, Tx, idempotent};
use idem_tests::database::PostgresDatabase;
use idem_tests::log::Log;
use idem_tests::proxy::Proxy;
use idem_tests::until;
use serde::Deserialize;

use crate::bench::{Bench, message};

#[derive(Deserialize)]
struct Entry {
    account: i64,
}

#[idempotent(key = "account")]
async fn append(tx: &mut Tx<Sqlite>, entry: Entry) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries VALUES ($1)").bind(entry.account).execute(&mut **tx).await?;
    Ok(())
}

#[idempotent(level = 1)]
async fn refuse(_: &mut Tx<Sqlite>, _: Entry) -> Result<(), Failure> {
    Err("the shop is closed".into())
}

mod postgres {
    use super::*;

    #[idempotent(key = "account")]
    pub(super) async fn append(
        tx: &mut Tx<Postgres>,
        entry: Entry,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        sqlx::query("INSERT INTO entries VALUES ($1, $2)")
            .bind(entry.account)
            .bind(i64::from(delivery.delivery_count()))
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
}

fn about(account: i64) -> idem_runtime::broker::OutgoingMessage {
    message(&format!("m-{account}"), format!(r#"{{"account": {account}}}"#))
}

/// C-14: an outage costs no message a delivery, let alone all that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_outage_shows_in_health_and_dead_letters_nothing() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let table = "CREATE TABLE entries (account bigint NOT NULL, delivery_count bigint NOT NULL)";
    sqlx::query(table).execute(database.store.pool()).await.expect("a valid table");
    let (_, place) = database.url.split_once('@').expect("the URL has a user");
    let (server, _) = place.split_once('/').expect("the URL has a database");
    let proxy = Proxy::new(server.to_owned()).await;
    let proxied = database.url.replace(server, &proxy.address().to_string());
    let store = Postgres::connect(&proxied).await.expect("PostgreSQL lets us in");

    let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(60));
    let queue = queue.max_delivery_count(2);
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let consumer = Consumer::builder(bus.queue("entries"), store)
        .handler(postgres::AppendHandler)
        .delivery_count_max(2)
        .build()
        .expect("a valid consumer");
    let handle = consumer.handle();
    let counts = || emulator.counts("entries").expect("it is there");
    let work = async {
        handle.wait_for(Health::is_ready).await;
        proxy.set_down(true);
        let sender = bus.sender("entries").await.expect("a sender");
        sender.send_all((1..=50).map(about).collect()).await.expect("sent");
        let health = handle.wait_for(|health| !health.is_ready()).await;
        assert!(matches!(health, Health::DatabaseAway(_)), "{health}");
        until("all places are held", async || handle.counters().summary().held == 16).await;
        let health = handle.health();
        assert!(health.to_string().starts_with("the database is away for "), "{health}");
        assert_eq!((counts().active + counts().locked, counts().dead_lettered), (50, 0));

        proxy.set_down(false);
        handle.wait_for(Health::is_ready).await;
        until("the queue is empty", async || counts().active + counts().locked == 0).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");

    let rows: Vec<(i64, i64)> = sqlx::query_as("SELECT * FROM entries ORDER BY account")
        .fetch_all(database.store.pool())
        .await
        .expect("entries");
    let expected: Vec<_> = (1..=50).map(|account| (account, 1)).collect();
    assert_eq!(rows, expected, "each in its first delivery");
    assert_eq!(counts().dead_lettered, 0);
    let summary = handle.counters().summary();
    assert_eq!((summary.done, summary.duplicates, summary.retries), (50, 0, 0), "{summary:?}");
    database.remove().await;
}

/// C-18: the link is detached with an error, and cannot be attached again for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_goes_and_comes_again_shows_in_health() {
    let queue = || QueueOptions::new("entries").lock_duration(Duration::from_secs(60));
    let bench = Bench::with(queue()).await;
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .handler(AppendHandler)
        .build()
        .expect("a valid consumer");
    let handle = consumer.handle();
    let work = async {
        handle.wait_for(Health::is_ready).await;
        bench.emulator.delete("entries").expect("it is there");
        let says_why =
            |health: &Health| health.to_string().contains("there is no entity `entries`");
        let health = handle.wait_for(says_why).await;
        assert!(matches!(health, Health::Reconnecting(_)) && !health.is_ready(), "{health}");

        bench.emulator.create_queue(queue()).expect("it can be made again");
        handle.wait_for(Health::is_ready).await;
        bench.send(vec![about(1)]).await;
        until("the message is handled", async || bench.left() == 0).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(bench.entries().await, [1]);
    assert!(handle.counters().summary().reconnects >= 1);
}

/// C-18: the broker closes the connection while a message is in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_was_closed_by_force_is_opened_again() {
    let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(1));
    let bench = Bench::with(queue).await;
    let closed = Fault::close_connection_at_delivery().on("entries").times(1);
    let closed = bench.emulator.faults().add(closed);
    let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
        .handler(AppendHandler)
        .build()
        .expect("a valid consumer");
    let handle = consumer.handle();
    let work = async {
        handle.wait_for(Health::is_ready).await;
        bench.send(vec![about(1)]).await;
        until("it has reconnected", async || handle.counters().summary().reconnects > 0).await;
        handle.wait_for(Health::is_ready).await;
        bench.send(vec![about(2)]).await;
        until("all is handled", async || bench.left() == 0).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(closed.fired(), 1);
    assert_eq!((bench.entries().await, bench.dead_letters()), (vec![1, 2], vec![]));
}

/// C-19: the lower limit counts, and whose it was shows in the reason.
#[tokio::test]
async fn of_two_delivery_limits_the_lower_one_counts() {
    let exhausted = "the handler failed: the shop is closed";
    for (queues, ours, deliveries, reason, description) in
        [(10, 5, 5, "DeliveriesExhausted", exhausted), (3, 5, 3, "MaxDeliveryCountExceeded", "")]
    {
        let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(60));
        let bench = Bench::with(queue.max_delivery_count(queues)).await;
        bench.send(vec![about(1)]).await;
        let log = Log::listen("idem=info");
        let consumer = Consumer::builder(bench.bus.queue("entries"), bench.file.store.clone())
            .handler(RefuseHandler)
            .delivery_count_max(ours)
            .build()
            .expect("a valid consumer");
        let counters = consumer.counters();
        let run = consumer.run_until(until("the queue is empty", async || bench.left() == 0));
        run.await.expect("the consumer starts");

        let letters = bench.dead_letters();
        assert_eq!((letters.len(), letters[0].1.as_str()), (1, reason), "{letters:?}");
        assert!(letters[0].2.contains(description), "{letters:?}");
        let delivered = |kind: &EventKind| matches!(kind, EventKind::Delivered { .. });
        let events = bench.emulator.events().snapshot();
        let delivered = events.iter().filter(|event| delivered(&event.kind)).count();
        assert_eq!((delivered, counters.summary().retries), (deliveries, deliveries as u64));
        let text = log.text();
        let said = text.lines().filter(|line| line.contains("the shop is closed")).count();
        assert!(said >= deliveries, "the real reason is in the log: {text}");
        assert!(text.contains(&format!("delivery_count_max={ours}")), "said at start: {text}");
        assert_eq!(bench.entries().await, [0_i64; 0]);

        let letter = bench.bus.queue("entries").dead_letters().open(1).await;
        let letter = letter.expect("open").receive().await.expect("the dead letter");
        let last = letter.delivery.property(LAST_FAILURE);
        assert!(
            matches!(last, Some(Property::Text(text)) if text == exhausted),
            "whoever dead-letters it: {last:?}"
        );
    }
}
