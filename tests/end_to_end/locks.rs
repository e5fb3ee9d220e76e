//! Cases of locks that end too early, too late, or unheard of: each looks at the effects, the claims,
//! the queue, the dead letters and the deliveries.

use std::sync::Arc;
use std::time::Duration;

use idem_emulator::{Emulator, EventTotals, Fault, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::consumer::ConsumerBuilder;
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, Failure, State, Tx, idempotent};
use idem_tests::database::PostgresDatabase;
use idem_tests::until;
use serde::Deserialize;
use sqlx::Executor;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

#[derive(Deserialize)]
struct Work {
    number: i64,
    milliseconds: u64,
    then: Then,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Then {
    Succeed,
    /// When the gate is open.
    Wait,
    Fail,
    Reject,
    Panic,
}

#[derive(Clone)]
struct Gate(Arc<Semaphore>);

#[idempotent(level = 1, scope = "test.locks")]
async fn work(tx: &mut Tx<Postgres>, work: Work, State(gate): State<Gate>) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO effects VALUES ($1)").bind(work.number);
    insert.execute(&mut **tx).await?;
    sleep(Duration::from_millis(work.milliseconds)).await;
    match work.then {
        Then::Succeed => Ok(()),
        Then::Wait => {
            let _passed = gate.0.acquire().await?;
            Ok(())
        }
        Then::Fail => Err("it fails".into()),
        Then::Reject => Err(Failure::reject("Refused", "it is refused")),
        Then::Panic => panic!("it panics"),
    }
}

const LOCK: Duration = Duration::from_secs(1);

struct Bench {
    emulator: Emulator,
    bus: ServiceBus,
    database: PostgresDatabase,
    gate: Gate,
}

impl Bench {
    /// `None` where there is no server.
    async fn new() -> Option<Self> {
        let database = PostgresDatabase::new().await?;
        let table = "CREATE TABLE effects (number bigint NOT NULL)";
        database.store.pool().execute(table).await.expect("a valid table");
        let queue = QueueOptions::new("work").lock_duration(LOCK);
        let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        Some(Self { emulator, bus, database, gate: Gate(Arc::new(Semaphore::new(0))) })
    }

    async fn send(&self, numbers: std::ops::Range<i64>, milliseconds: u64, then: &str) {
        let sender = self.bus.sender("work").await.expect("a sender");
        let messages = numbers.map(|number| {
            let body = format!(
                r#"{{"number": {number}, "milliseconds": {milliseconds}, "then": "{then}"}}"#
            );
            OutgoingMessage { body: body.into(), ..OutgoingMessage::default() }
                .with_message_id(number.to_string())
        });
        sender.send_all(messages.collect()).await.expect("sent");
    }

    fn builder(&self) -> ConsumerBuilder<Queue, Postgres> {
        Consumer::builder(self.bus.queue("work"), self.database.store.clone())
            .handler(WorkHandler)
            .state(self.gate.clone())
    }

    async fn until_empty(&self) {
        until("the queue is empty", async || self.left() == 0).await;
    }

    /// How many messages are on the queue, locked or not.
    fn left(&self) -> usize {
        let counts = self.emulator.counts("work").expect("it is there");
        counts.active + counts.locked
    }

    fn totals(&self) -> EventTotals {
        self.emulator.events().totals()
    }

    /// The counts of effects and claims, and of dead letters.
    async fn came_to(&self) -> (i64, i64, usize) {
        let count = async |query| {
            let count = sqlx::query_scalar(query).fetch_one(self.database.store.pool()).await;
            count.expect("a count")
        };
        let dead_letters = self.emulator.counts("work").expect("it is there").dead_lettered;
        let effects = count("SELECT count(*) FROM effects").await;
        (effects, count("SELECT count(*) FROM idem_claim").await, dead_letters)
    }
}

/// C-01: a handler outlives its lock, and its message comes again while it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_while_it_is_handled_is_done_once() {
    let Some(bench) = Bench::new().await else { return };
    bench.send(1..2, 0, "wait").await;
    let consumer = bench.builder().renewal_max(Duration::from_millis(1)).build().expect("valid");
    let counters = consumer.counters();
    let run = consumer.run_until(async {
        until("the second delivery", async || bench.totals().delivered == 2).await;
        assert_eq!(bench.came_to().await, (0, 0, 0), "nothing is committed yet");
        bench.gate.0.add_permits(1);
        bench.until_empty().await;
    });
    run.await.expect("it starts");
    let summary = counters.summary();
    assert_eq!((summary.done, summary.duplicates, summary.locks_lost), (1, 1, 1));
    assert_eq!(bench.came_to().await, (1, 1, 0));
    let totals = bench.totals();
    assert_eq!((totals.delivered, totals.lock_expired, totals.completed), (2, 1, 1));
    assert_eq!(
        totals.settlement_rejected, 1,
        "the first completion came too late, which is no harm"
    );
    bench.database.remove().await;
}

/// C-02: the broker forgets completions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_completions_are_forgotten_is_a_duplicate_each_time() {
    let Some(bench) = Bench::new().await else { return };
    let forgotten = Fault::forget_completion().on("work").times(3);
    let forgotten = bench.emulator.faults().add(forgotten);
    bench.send(1..2, 0, "succeed").await;
    let consumer = bench.builder().build().expect("a valid consumer");
    let counters = consumer.counters();
    consumer.run_until(bench.until_empty()).await.expect("it starts");
    let summary = counters.summary();
    assert_eq!(forgotten.fired(), 3);
    assert_eq!((summary.done, summary.duplicates), (1, 3));
    assert_eq!(bench.came_to().await, (1, 1, 0));
    assert_eq!((bench.totals().delivered, bench.totals().abandoned), (4, 0));
    bench.database.remove().await;
}

/// C-03: no renewal succeeds, and the lock is lost in the middle of the handler.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_cannot_be_renewed_is_counted_as_lost_and_costs_no_second_effect() {
    let Some(bench) = Bench::new().await else { return };
    let refused = Fault::refuse_request().on("work").operation("renew-lock");
    let refused = bench.emulator.faults().add(refused);
    bench.send(1..2, 0, "wait").await;
    let consumer = bench.builder().build().expect("a valid consumer");
    let counters = consumer.counters();
    let run = consumer.run_until(async {
        until("the lock is lost", async || counters.summary().locks_lost > 0).await;
        assert!(refused.fired() >= 2, "{}", refused.fired());
        refused.remove();
        bench.gate.0.add_permits(1);
        bench.until_empty().await;
    });
    run.await.expect("it starts");
    let summary = counters.summary();
    assert_eq!((summary.done, summary.retries), (1, 0));
    assert!(summary.duplicates >= 1, "{summary:?}");
    assert_eq!(bench.came_to().await, (1, 1, 0));
    assert_eq!(bench.totals().completed, 1);
    bench.database.remove().await;
}

/// C-04: whatever a message came to, its lock is not renewed after it is settled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_renewed_after_it_is_settled() {
    const EACH: i64 = 20;
    let Some(bench) = Bench::new().await else { return };
    for (kind, then) in (0..).zip(["succeed", "fail", "reject", "panic"]) {
        bench.send(kind * EACH..(kind + 1) * EACH, 700, then).await;
    }
    let consumer = bench.builder().in_flight_max(20).delivery_count_max(2).build();
    let consumer = consumer.expect("a valid consumer");
    let counters = consumer.counters();
    let run = consumer.run_until(async {
        bench.until_empty().await;
        let renewed = bench.totals().lock_renewed;
        assert!(renewed >= 4 * 20, "each was renewed: {renewed}");
        sleep(LOCK * 2).await;
        assert_eq!(bench.totals().lock_renewed, renewed);
    });
    run.await.expect("it starts");
    let summary = counters.summary();
    assert_eq!((summary.done, summary.rejected, summary.dead_letters), (20, 20, 60));
    assert_eq!(bench.came_to().await, (EACH, EACH, 60));
    assert_eq!(bench.totals().settlement_rejected, 0);
    bench.database.remove().await;
}

/// C-05: messages wait in the client for longer than their locks hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_lock_ran_out_before_it_was_handled_is_done_once() {
    let Some(bench) = Bench::new().await else { return };
    bench.send(0..16, 1300, "succeed").await;
    let consumer = bench.builder().in_flight_max(4).build().expect("a valid consumer");
    let counters = consumer.counters();
    consumer.run_until(bench.until_empty()).await.expect("it starts");
    assert!(bench.totals().lock_expired > 0, "they waited for too long");
    let summary = counters.summary();
    assert_eq!((summary.done, summary.retries), (16, 0), "{summary:?}");
    assert_eq!(bench.came_to().await, (16, 16, 0));
    bench.database.remove().await;
}

/// C-17: nothing is accepted before it is committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_is_gone_before_the_commit_has_accepted_nothing() {
    let Some(bench) = Bench::new().await else { return };
    bench.send(1..2, 0, "wait").await;
    let consumer = bench.builder().build().expect("a valid consumer");
    let mut running = JoinSet::new();
    running.spawn(consumer.run_until(std::future::pending()));
    until("the delivery", async || bench.totals().delivered == 1).await;
    running.shutdown().await;
    assert_eq!(bench.came_to().await, (0, 0, 0));
    assert_eq!((bench.totals().completed, bench.left()), (0, 1));

    bench.gate.0.add_permits(1);
    let consumer = bench.builder().build().expect("a valid consumer");
    consumer.run_until(bench.until_empty()).await.expect("it starts");
    assert_eq!(bench.came_to().await, (1, 1, 0));
    assert_eq!(bench.totals().completed, 1);
    assert!(bench.totals().delivered >= 2, "it came again");
    bench.database.remove().await;
}
