//! Dead letters as a source: those that cannot be handled stay, and hide none of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Delivery, Failure, State, Tx, idempotent};
use idem_tests::database::SqliteFile;
use idem_tests::until;
use serde::Deserialize;

#[derive(Deserialize)]
struct Letter {
    number: i64,
    is_good: bool,
}

/// How often the handler was called.
#[derive(Clone, Default)]
struct Calls(Arc<AtomicU64>);

/// Handles good letters, but only from among the dead ones.
#[idempotent(level = 1)]
async fn read(
    tx: &mut Tx<Sqlite>,
    letter: Letter,
    delivery: &Delivery,
    State(calls): State<Calls>,
) -> Result<(), Failure> {
    calls.0.fetch_add(1, Ordering::SeqCst);
    if !letter.is_good || delivery.property("DeadLetterReason").is_none() {
        return Err(Failure::reject("Illegible", "nobody can read it"));
    }
    let insert = sqlx::query("INSERT INTO read_letters VALUES ($1)").bind(letter.number);
    insert.execute(&mut **tx).await?;
    Ok(())
}

const BAD: u64 = 40;
const GOOD: u64 = 5;
const LOCK: Duration = Duration::from_secs(2);

/// More bad letters than may be in flight, and good ones behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn letters_that_are_rejected_again_stay_and_hide_none_behind_them() {
    let queue = QueueOptions::new("letters").lock_duration(LOCK);
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let file = SqliteFile::new().await;
    let table = "CREATE TABLE read_letters (number bigint NOT NULL)";
    sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
    let messages = (0..BAD + GOOD).map(|number| {
        let body = format!(r#"{{"number": {number}, "is_good": {}}}"#, number >= BAD);
        OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }
            .with_message_id(number.to_string())
    });
    let sender = bus.sender("letters").await.expect("a sender");
    sender.send_all(messages.collect()).await.expect("sent");

    let calls = Calls::default();
    let consumer = |source| {
        Consumer::builder(source, file.store.clone())
            .handler(ReadHandler)
            .state(calls.clone())
            .in_flight_max(8)
            .build()
            .expect("a valid consumer")
    };
    let dead_letters = || emulator.counts("letters").expect("it is there").dead_lettered;
    let all_are_dead = async || dead_letters() == 45;
    let run = consumer(bus.queue("letters")).run_until(until("all are dead", all_are_dead));
    run.await.expect("it starts");
    assert_eq!(calls.0.swap(0, Ordering::SeqCst), BAD + GOOD);

    // ANCHOR: dead_letters
    let redrive = consumer(bus.queue("letters").dead_letters());
    // ANCHOR_END: dead_letters
    let counters = redrive.counters();
    let started = Instant::now();
    let watch = async {
        until("the good ones are done", async || counters.summary().done == GOOD).await;
        // All bad ones come again when their locks have run out.
        until("the bad ones come again", async || counters.summary().deliveries >= GOOD + 2 * BAD)
            .await;
    };
    redrive.run_until(watch).await.expect("it starts");
    let locks_passed = 1 + started.elapsed().as_secs() / LOCK.as_secs();

    let summary = counters.summary();
    assert_eq!((summary.done, summary.rejected, summary.dead_letters), (GOOD, BAD, 0));
    assert_eq!(calls.0.load(Ordering::SeqCst), BAD + GOOD, "none is handled again");
    assert_eq!(dead_letters(), 40, "the bad ones are still there");
    assert!(
        summary.deliveries <= GOOD + BAD * (1 + locks_passed),
        "{} deliveries in {locks_passed} locks",
        summary.deliveries
    );
    let numbers: Vec<i64> = sqlx::query_scalar("SELECT number FROM read_letters ORDER BY number")
        .fetch_all(file.store.pool())
        .await
        .expect("letters");
    assert_eq!(numbers, [40, 41, 42, 43, 44]);
    let claims: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_claim")
        .fetch_one(file.store.pool())
        .await
        .expect("a count");
    assert_eq!(claims, 5);
}
