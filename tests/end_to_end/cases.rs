//! Cases of what goes wrong around a handler: each looks at the effects, the claims, the queue, the
//! dead letters and the counts of deliveries.

use std::sync::Arc;
use std::time::Duration;

use idem_emulator::{Emulator, EventKind, Fault, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::consumer::{ConsumerBuilder, Counters};
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, Failure, State, Tx, idempotent};
use idem_tests::database::PostgresDatabase;
use idem_tests::log::Log;
use idem_tests::until;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum How {
    Well,
    PanicsWithText,
    PanicsWithNumber,
    PanicsInTask,
    PanicsInDestructor,
    FailsAtLength,
    Waits,
}

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    number: i64,
    how: How,
}

/// It is longer than a description of a dead letter may be, and whichever byte it is cut at, a
/// character is there.
fn long_text() -> String {
    "é".repeat(10_000)
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

/// Writes first, so that what fails has something to undo.
#[idempotent(key = "number", level = 2, scope = "test.cases")]
async fn place(
    tx: &mut Tx<Postgres>,
    order: Order,
    State(gate): State<Arc<Notify>>,
) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (number) VALUES ($1)")
        .bind(order.number)
        .execute(&mut **tx)
        .await?;
    match order.how {
        How::Well => {}
        How::PanicsWithText => panic!("a text"),
        How::PanicsWithNumber => std::panic::panic_any(7),
        How::PanicsInTask => {
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async { panic!("in a task") });
            if let Some(Err(panicked)) = tasks.join_next().await {
                return Err(panicked.into());
            }
        }
        How::PanicsInDestructor => drop(Bomb),
        How::FailsAtLength => return Err(long_text().into()),
        How::Waits => gate.notified().await,
    }
    Ok(())
}

/// An emulator with one queue, and a database.
struct Scene {
    emulator: Emulator,
    bus: ServiceBus,
    database: PostgresDatabase,
    gate: Arc<Notify>,
}

impl Scene {
    /// `None` where there is no server to test with.
    async fn new(queue: QueueOptions) -> Option<Self> {
        let database = PostgresDatabase::new().await?;
        let emulator = Emulator::builder().queue(queue).start().await.expect("it starts");
        let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
        let table = "CREATE TABLE effects (number bigint NOT NULL)";
        sqlx::query(table).execute(database.store.pool()).await.expect("a table");
        Some(Self { emulator, bus, database, gate: Arc::default() })
    }

    async fn send(&self, orders: &[Order]) {
        let messages = orders.iter().enumerate().map(|(place, order)| {
            let message = OutgoingMessage::json(order).expect("a message");
            message.with_message_id(format!("{}-{place}", order.number))
        });
        let sender = self.bus.sender("orders").await.expect("a sender");
        sender.send_all(messages.collect()).await.expect("sent");
    }

    fn consumer(&self) -> ConsumerBuilder<Queue, Postgres> {
        Consumer::builder(self.bus.queue("orders"), self.database.store.clone())
            .handler(PlaceHandler)
            .state(Arc::clone(&self.gate))
    }

    /// Consumes until `watch` has seen what it waits for.
    async fn consume(
        &self,
        consumer: ConsumerBuilder<Queue, Postgres>,
        watch: impl AsyncFnOnce(&Counters),
    ) {
        let consumer = consumer.build().expect("a valid consumer");
        let counters = consumer.counters();
        let (stop, stopped) = oneshot::channel::<()>();
        let run = consumer.run_until(async {
            stopped.await.ok();
        });
        let watch = async {
            watch(&counters).await;
            stop.send(()).expect("the consumer is running");
        };
        let (ran, ()) = tokio::join!(run, watch);
        ran.expect("the consumer starts");
    }

    async fn until_empty(&self) {
        until("the queue is empty", async || {
            let counts = self.emulator.counts("orders").expect("it is there");
            counts.active + counts.locked == 0
        })
        .await;
    }

    async fn assert_counts(&self, effects: i64, dead_letters: usize) {
        let (pool, claims) = (self.database.store.pool(), effects);
        let count = |statement| async move {
            sqlx::query_scalar::<_, i64>(statement).fetch_one(pool).await.expect("a count")
        };
        assert_eq!(count("SELECT count(*) FROM effects").await, effects, "effects");
        assert_eq!(count("SELECT count(DISTINCT number) FROM effects").await, effects, "once");
        assert_eq!(count("SELECT count(*) FROM idem_claim").await, claims, "claims");
        let counts = self.emulator.counts("orders").expect("it is there");
        assert_eq!((counts.active, counts.locked), (0, 0), "{counts:?}");
        assert_eq!(counts.dead_lettered, dead_letters, "{counts:?}");
    }

    async fn end(self) {
        self.emulator.shutdown().await;
        self.database.remove().await;
    }

    /// The counts with which a message was handed out.
    fn delivery_counts(&self, message_id: &str) -> Vec<u32> {
        let events = self.emulator.events().snapshot();
        let of_message = events.iter().filter(|it| it.message_id.as_deref() == Some(message_id));
        of_message
            .filter_map(|event| match event.kind {
                EventKind::Delivered { delivery_count } => Some(delivery_count),
                _ => None,
            })
            .collect()
    }
}

fn queue() -> QueueOptions {
    QueueOptions::new("orders").lock_duration(Duration::from_secs(60))
}

/// C-08: a handler that panics costs its own message its deliveries, and nobody else anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_panics_is_tried_again_and_dead_lettered_and_all_others_are_done() {
    const DELIVERIES: u32 = 3;
    let panics = [
        (How::PanicsWithText, "a text"),
        (How::PanicsWithNumber, "a payload that is no text"),
        (How::PanicsInTask, "in a task"),
        (How::PanicsInDestructor, "in a destructor"),
    ];
    for (how, text) in panics {
        let Some(scene) = Scene::new(queue().max_delivery_count(DELIVERIES)).await else { return };
        let how_of = |number| if number == 4 { how } else { How::Well };
        let order = |number| Order { number, how: how_of(number) };
        scene.send(&(1..=10).map(order).collect::<Vec<_>>()).await;
        let consumer = scene.consumer().delivery_count_max(DELIVERIES);
        scene
            .consume(consumer, async |counters| {
                scene.until_empty().await;
                // The consumer is as good as before.
                scene.send(&[Order { number: 11, how: How::Well }]).await;
                scene.until_empty().await;
                let summary = counters.summary();
                assert_eq!((summary.retries, summary.dead_letters), (3, 1), "{how:?}: {summary:?}");
                assert_eq!((summary.done, summary.reconnects), (10, 0), "{how:?}: {summary:?}");
            })
            .await;
        scene.assert_counts(10, 1).await;
        assert_eq!(scene.delivery_counts("4-3"), [0, 1, 2], "{how:?}");
        assert_eq!(scene.delivery_counts("5-4"), [0], "{how:?}");
        let dead = &scene.emulator.dead_letters("orders").expect("it is there")[0];
        assert_eq!(dead.dead_letter_reason.as_deref(), Some("DeliveriesExhausted"));
        let description = dead.dead_letter_description.as_deref().unwrap_or_default();
        assert!(description.contains(text), "{how:?}: {description}");
        scene.end().await;
    }
}

/// C-09: whatever a handler has to say, its message gets to the dead letters in one try.
#[tokio::test]
async fn an_error_of_any_length_is_cut_for_the_dead_letter_and_logged_in_full() {
    let Some(scene) = Scene::new(queue().max_delivery_count(1)).await else { return };
    scene.send(&[Order { number: 1, how: How::FailsAtLength }]).await;
    let log = Log::listen("idem_runtime=info");
    scene
        .consume(scene.consumer().delivery_count_max(1), async |_| scene.until_empty().await)
        .await;
    scene.assert_counts(0, 1).await;
    assert_eq!(scene.delivery_counts("1-0"), [0]);
    let totals = scene.emulator.events().totals();
    assert_eq!((totals.dead_lettered, totals.settlement_rejected), (1, 0), "{totals:?}");
    let dead = &scene.emulator.dead_letters("orders").expect("it is there")[0];
    assert_eq!(dead.dead_letter_reason.as_deref(), Some("DeliveriesExhausted"));
    let description = dead.dead_letter_description.as_deref().unwrap_or_default();
    assert!(description.chars().count() < 10_000, "cut");
    assert!(description.ends_with('é'), "at a character's end");
    assert!(log.text().contains(&long_text()), "the log has all of it");
    scene.end().await;
}

/// C-20: a busy message is tried again in the process, until its lock is lost; then the broker's own
/// copy goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trying_again_in_the_process_ends_with_the_lock() {
    let Some(scene) = Scene::new(queue().lock_duration(Duration::from_secs(1))).await else {
        return;
    };
    let refused = Fault::refuse_request().operation("renew-lock");
    let refused = scene.emulator.faults().add(refused);
    // The second waits for the key of the first.
    scene.send(&[Order { number: 1, how: How::Waits }, Order { number: 1, how: How::Waits }]).await;
    scene
        .consume(scene.consumer(), async |counters| {
            until("both locks are lost", async || counters.summary().locks_lost >= 2).await;
            until("the second is given up", async || counters.summary().busy >= 1).await;
            refused.remove();
            scene.gate.notify_one();
            scene.until_empty().await;
        })
        .await;
    assert!(refused.fired() > 0, "the fault has fired");
    scene.assert_counts(1, 0).await;
    for message_id in ["1-0", "1-1"] {
        let counts = scene.delivery_counts(message_id);
        assert!(counts.starts_with(&[0, 1]), "{message_id} came again: {counts:?}");
        assert!(counts.len() < 10, "within its budget: {counts:?}");
    }
    scene.end().await;
}
