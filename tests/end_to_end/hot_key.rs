//! A key that a handler holds for long delays its own copies, and no other message.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use idem_emulator::{Emulator, EventKind, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::{Sender, ServiceBus};
use idem_runtime::store::{Mysql, Postgres, Store};
use idem_runtime::{Consumer, Failure, Handler, State, Tx, idempotent};
use idem_tests::database::{MARIADB_URL, MysqlDatabase, PostgresDatabase};
use idem_tests::until;
use serde::Deserialize;
use sqlx::Executor;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

#[derive(Deserialize)]
struct Order {
    number: i64,
}

/// What holds orders with the number 0.
#[derive(Clone)]
struct Gate(Arc<Semaphore>);

const HOT: i64 = 0;

macro_rules! handlers {
    ($($store:ident $database:ident)+) => {$(
        mod $database {
            use super::*;

            #[idempotent(key = "number")]
            pub(super) async fn place(
                tx: &mut Tx<$store>,
                order: Order,
                State(gate): State<Gate>,
            ) -> Result<(), Failure> {
                let insert = format!("INSERT INTO placed VALUES ({})", order.number);
                tx.execute(sqlx::AssertSqlSafe(insert)).await?;
                if order.number == HOT {
                    let _passed = gate.0.acquire().await?;
                }
                Ok(())
            }
        }
    )+};
}

handlers! { Postgres postgres Mysql mysql }

const COPIES: usize = 200;

/// Nothing here takes this long unless it waits for the gate.
const HANG: Duration = Duration::from_secs(30);

async fn send(sender: &Sender, number: i64, copies: usize) {
    let messages = (0..copies).map(|copy| {
        let body = format!(r#"{{"number": {number}}}"#);
        let message = OutgoingMessage { body: body.into(), ..OutgoingMessage::default() };
        message.with_message_id(format!("{number}-{copy}"))
    });
    sender.send_all(messages.collect()).await.expect("sent");
}

/// `count` gives the rows of a table.
async fn a_held_key_holds_no_other<S: Store>(
    store: S,
    handler: impl Handler<S>,
    count: impl Fn(&'static str) -> BoxFuture<'static, i64> + Send + Sync,
) {
    let emulator = Emulator::builder().queue(QueueOptions::new("orders")).start().await;
    let emulator = emulator.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let sender = bus.sender("orders").await.expect("a sender");
    let gate = Gate(Arc::new(Semaphore::new(0)));
    let consumer = Consumer::builder(bus.queue("orders"), store)
        .handler(handler)
        .state(gate.clone())
        .in_flight_max(8)
        .build()
        .expect("a valid consumer");
    let counters = consumer.counters();
    let placed = async |orders: i64| count("SELECT count(*) FROM placed").await == orders;

    send(&sender, HOT, COPIES).await;
    send(&sender, 1, 1).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let run = consumer.run_until(async {
        stopped.await.ok();
    });
    let watch = async {
        let completed = async |id: &str| {
            let events = emulator.events();
            let completed = events.wait_for(|event| {
                event.kind == EventKind::Completed && event.message_id.as_deref() == Some(id)
            });
            timeout(HANG, completed).await.expect("it does not wait for the hot key");
        };
        let started = Instant::now();
        completed("1-0").await;
        let behind_all = started.elapsed();
        send(&sender, 2, 1).await;
        let sent = Instant::now();
        completed("2-0").await;
        let later = sent.elapsed();
        println!("behind {COPIES} copies: {behind_all:?} from the start; later: {later:?}");

        // All this happened while the first copy held the key, and was all that was held.
        assert_eq!(counters.summary().done, 2);
        assert_eq!(emulator.counts("orders").expect("it is there").locked, COPIES);
        gate.0.add_permits(1);
        let is_done = async || counters.summary().duplicates + 1 == COPIES as u64;
        until("the copies are duplicates", is_done).await;
        stop.send(()).expect("the consumer is running");
    };
    let (ran, ()) = tokio::join!(run, watch);
    ran.expect("the consumer starts");

    let summary = counters.summary();
    assert_eq!((summary.done, summary.duplicates, summary.busy), (3, COPIES as u64 - 1, 0));
    assert!(placed(3).await);
    assert_eq!(count("SELECT count(*) FROM idem_claim").await, 3);
    let counts = emulator.counts("orders").expect("it is there");
    assert_eq!((counts.active, counts.locked, counts.dead_lettered), (0, 0, 0));
    let totals = emulator.events().totals();
    assert_eq!(totals.delivered, COPIES as u64 + 2, "waiting cost no delivery");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_key_holds_no_other_on_postgres() {
    let Some(database) = PostgresDatabase::new().await else { return };
    let pool = database.store.pool().clone();
    pool.execute("CREATE TABLE placed (number bigint NOT NULL)").await.expect("a valid table");
    let count = move |query| -> BoxFuture<'static, i64> {
        let pool = pool.clone();
        async move { sqlx::query_scalar(query).fetch_one(&pool).await.expect("a count") }.boxed()
    };
    a_held_key_holds_no_other(database.store.clone(), postgres::PlaceHandler, count).await;
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_key_holds_no_other_on_mariadb() {
    let Some(database) = MysqlDatabase::new(MARIADB_URL).await else { return };
    let pool = database.store.pool().clone();
    pool.execute("CREATE TABLE placed (number bigint NOT NULL)").await.expect("a valid table");
    let count = move |query| -> BoxFuture<'static, i64> {
        let pool = pool.clone();
        async move { sqlx::query_scalar(query).fetch_one(&pool).await.expect("a count") }.boxed()
    };
    a_held_key_holds_no_other(database.store.clone(), mysql::PlaceHandler, count).await;
    database.remove().await;
}
