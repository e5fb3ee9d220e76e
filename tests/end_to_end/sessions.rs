//! Sessions through the consumer: in order within each, many at once, and after every failure.

use std::collections::BTreeMap;
use std::time::Duration;

use idem_emulator::{Emulator, Fault, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::consumer::Summary;
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Delivery, Failure, Tx, idempotent};
use idem_tests::database::SqliteFile;
use idem_tests::until;
use serde::Deserialize;

#[derive(Deserialize)]
struct Step {
    number: i64,
    /// How many deliveries fail.
    fails: u32,
    reject: bool,
}

#[idempotent(level = 1)]
async fn take(tx: &mut Tx<Sqlite>, step: Step, delivery: &Delivery) -> Result<(), Failure> {
    let session = delivery.session_id().ok_or("a message without a session")?;
    sqlx::query("INSERT INTO steps (session, number) VALUES ($1, $2)")
        .bind(session)
        .bind(step.number)
        .execute(&mut **tx)
        .await?;
    if step.reject {
        return Err(Failure::reject("NoSuchStep", "it leads nowhere"));
    }
    if delivery.delivery_count() <= step.fails {
        return Err("not yet".into());
    }
    Ok(())
}

struct Bench {
    emulator: Emulator,
    bus: ServiceBus,
    file: SqliteFile,
}

impl Bench {
    async fn new(lock: Duration) -> Self {
        let queue = QueueOptions::new("steps").requires_session(true).lock_duration(lock);
        let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        let file = SqliteFile::new().await;
        let table = "CREATE TABLE steps \
                     (at INTEGER PRIMARY KEY, session text NOT NULL, number bigint NOT NULL)";
        sqlx::query(table).execute(file.store.pool()).await.expect("a valid table");
        Self { emulator, bus, file }
    }

    /// Sends steps 1 to 5 of each session, of which `odd` says what happens to it.
    async fn send(&self, sessions: usize, odd: fn(i64) -> (u32, bool)) {
        let sender = self.bus.sender("steps").await.expect("a sender");
        let messages = (1..=5).flat_map(|number| (0..sessions).map(move |of| (number, of)));
        let messages = messages.map(|(number, session)| {
            let (fails, reject) = odd(number);
            let body = format!(r#"{{"number": {number}, "fails": {fails}, "reject": {reject}}}"#);
            OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }
                .with_session_id(format!("s-{session}"))
                .with_message_id(format!("s-{session}-{number}"))
        });
        for message in messages {
            sender.send(message).await.expect("sent");
        }
    }

    /// Consumes until the queue is empty.
    async fn consume(&self, sessions_max: u32) -> Summary {
        // ANCHOR: sessions
        let source = self.bus.queue("steps").sessions(sessions_max);
        let consumer = Consumer::builder(source, self.file.store.clone())
            .handler(TakeHandler)
            .in_flight_max(8)
            .build()
            .expect("a valid consumer");
        // ANCHOR_END: sessions
        let counters = consumer.counters();
        let is_empty = async || {
            let counts = self.emulator.counts("steps").expect("it is there");
            counts.active + counts.locked == 0
        };
        consumer.run_until(until("the queue is empty", is_empty)).await.expect("it starts");
        counters.summary()
    }

    /// The steps of each session, in the order of their effects.
    async fn steps(&self) -> BTreeMap<String, Vec<i64>> {
        let steps = "SELECT session, number FROM steps ORDER BY at";
        let steps: Vec<(String, i64)> =
            sqlx::query_as(steps).fetch_all(self.file.store.pool()).await.expect("steps");
        let mut by_session: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (session, number) in steps {
            by_session.entry(session).or_default().push(number);
        }
        by_session
    }
}

/// C-15: what fails is not overtaken by what is behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effects_are_in_order_although_one_message_fails_once() {
    let bench = Bench::new(Duration::from_secs(60)).await;
    bench.send(1, |number| (u32::from(number == 2), false)).await;
    let summary = bench.consume(4).await;
    assert_eq!(bench.steps().await["s-0"], [1, 2, 3, 4, 5]);
    assert_eq!((summary.done, summary.retries, summary.dead_letters), (5, 1, 0));
    let totals = bench.emulator.events().totals();
    assert_eq!((totals.delivered, totals.abandoned, totals.completed), (6, 1, 5));
    let counts = bench.emulator.counts("steps").expect("it is there");
    assert_eq!((counts.active, counts.locked, counts.dead_lettered), (0, 0, 0));
}

/// More sessions than may be held at once, with failures in each, and a step that is dead-lettered:
/// only that one lets the others pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_sessions_are_handled_each_in_order() {
    let bench = Bench::new(Duration::from_secs(60)).await;
    bench.send(6, |number| (u32::from(number % 2 == 0), number == 3)).await;
    let summary = bench.consume(3).await;
    let steps = bench.steps().await;
    assert_eq!(steps.len(), 6);
    assert!(steps.values().all(|numbers| *numbers == [1, 2, 4, 5]), "{steps:?}");
    assert_eq!((summary.done, summary.retries, summary.dead_letters), (24, 12, 6));
    let letters = bench.emulator.dead_letters("steps").expect("it is there");
    assert_eq!(letters.len(), 6);
    assert!(
        letters.iter().all(|letter| letter.dead_letter_reason.as_deref() == Some("NoSuchStep"))
    );
}

/// Lost sessions, lost settlements and cut connections: the order holds, and each step counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_sessions_and_connections_change_no_order_and_repeat_no_effect() {
    const SEED: u64 = 11;
    let bench = Bench::new(Duration::from_secs(2)).await;
    bench.send(6, |number| (u32::from(number == 4), false)).await;
    let faults = [
        Fault::lose_session_lock(),
        Fault::drop_connection_at_delivery(),
        Fault::drop_connection_at_settlement(),
    ];
    let faults = faults.map(|fault| {
        let fault = fault.on("steps").probability(0.2).seed(SEED).times(4);
        bench.emulator.faults().add(fault)
    });
    let summary = bench.consume(3).await;
    let fired = faults.map(|fault| fault.fired());
    assert!(fired.iter().all(|fired| *fired > 0), "{fired:?}");
    let steps = bench.steps().await;
    assert_eq!(steps.len(), 6);
    assert!(steps.values().all(|numbers| *numbers == [1, 2, 3, 4, 5]), "{steps:?}");
    assert_eq!((summary.done, summary.dead_letters), (30, 0), "{summary:?}");
}
