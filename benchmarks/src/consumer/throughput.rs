//! How many messages a second: the consumer against the same protocol by hand, and in batches.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem_runtime::Consumer;
use idem_runtime::broker::servicebus::Queue;
use idem_runtime::consumer::ConsumerBuilder;
use idem_runtime::store::Postgres;
use idem_tests::database::PostgresDatabase;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::by_hand::ByHand;
use super::{Broker, CONNECTIONS, IN_FLIGHT_MAX, QUEUE, Targets};
use crate::execute::{Order, TABLE, on_postgres};
use crate::paired::Latencies;

const BY_HAND: usize = 0;
const IDEM: usize = 1;
const BATCH: usize = 2;
const VARIANTS: usize = 3;

const BATCH_MAX: u32 = 100;

/// Two batches are handled, while one is received and one is settled.
const BATCH_IN_FLIGHT_MAX: u32 = 4 * BATCH_MAX;

/// How often each variant empties a queue: often, so that what else the machine does hits all alike.
const ROUNDS: u32 = 48;

/// How many messages are in the queue then; the first of them, with which connections open and
/// caches fill, are not counted.
const MESSAGES: u32 = 3_000;
const UNCOUNTED: u32 = 500;

const RATIO_MIN: f64 = 0.95;
const BATCH_RATIO_MIN: f64 = 8.0;

pub(super) async fn run(targets: &mut Targets) -> Result<()> {
    let Some(database) = PostgresDatabase::new().await else { return Ok(()) };
    sqlx::query(TABLE).execute(database.store.pool()).await?;
    let store = Postgres::connect_with(database.url.parse()?, CONNECTIONS).await?;
    let broker = Broker::start().await?;
    let mut latencies = [const { Vec::new() }; VARIANTS];
    let mut order: [usize; VARIANTS] = std::array::from_fn(|variant| variant);
    for _ in 0..ROUNDS {
        fastrand::shuffle(&mut order);
        for variant in order {
            latencies[variant].push(empty(&broker, &store, variant).await?);
        }
    }
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(store.pool()).await?;
    let expected = i64::from(MESSAGES) * i64::from(ROUNDS) * i64::try_from(VARIANTS)?;
    anyhow::ensure!(rows == expected, "{rows} rows for {expected} messages");
    report(&Latencies::of(latencies), targets);
    store.pool().close().await;
    database.remove().await;
    Ok(())
}

fn report(latencies: &Latencies<VARIANTS>, targets: &mut Targets) {
    for (variant, name) in [(BY_HAND, "by_hand"), (IDEM, "idem"), (BATCH, "idem_in_batches")] {
        let rate = 1.0 / latencies.percentile(variant, 50).as_secs_f64();
        println!("consumer_{name}_messages_per_second: {rate:.0}");
    }
    let ratio = latencies.ratio(IDEM, BY_HAND);
    let holds = ratio.value() >= RATIO_MIN;
    targets.report("to_by_hand", &ratio, &format!("at least {RATIO_MIN}"), holds);
    let ratio = latencies.ratio(BATCH, BY_HAND);
    let holds = ratio.value() >= BATCH_RATIO_MIN;
    targets.report(
        "batch_handler_to_by_hand",
        &ratio,
        &format!("at least {BATCH_RATIO_MIN}"),
        holds,
    );
}

/// How long a message takes while a variant empties a queue.
async fn empty(broker: &Broker, store: &Postgres, variant: usize) -> Result<Duration> {
    let before = broker.completed()?;
    broker.send(&Order { customer_id: 7, amount_cents: 100 }, MESSAGES).await?;
    let measured = measure(broker, before);
    if variant == BY_HAND {
        let by_hand = ByHand::start(broker.emulator()?.port(), store.clone())?;
        let measured = measured.await?;
        by_hand.stop().await?;
        return Ok(measured);
    }
    let builder = Consumer::builder(broker.bus.queue(QUEUE), store.clone());
    let builder = match variant {
        IDEM => builder.handler(on_postgres::PlaceHandler).in_flight_max(IN_FLIGHT_MAX),
        _ => builder
            .handler(on_postgres::PlaceAllHandler)
            .in_flight_max(BATCH_IN_FLIGHT_MAX)
            .batch_max(BATCH_MAX),
    };
    while_it_consumes(builder, measured).await
}

async fn while_it_consumes(
    builder: ConsumerBuilder<Queue, Postgres>,
    measured: impl Future<Output = Result<Duration>>,
) -> Result<Duration> {
    let consumer = builder.build()?;
    let (stop, stopped) = oneshot::channel();
    let mut running = JoinSet::new();
    running.spawn(consumer.run_until(async {
        stopped.await.ok();
    }));
    let measured = measured.await?;
    stop.send(()).ok();
    running.join_next().await.context("it was spawned")???;
    Ok(measured)
}

/// The mean time from one completion to the next.
async fn measure(broker: &Broker, before: u64) -> Result<Duration> {
    let until = async |completed: u32| -> Result<Instant> {
        while broker.completed()? < before + u64::from(completed) {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(Instant::now())
    };
    let started = until(UNCOUNTED).await?;
    let ended = until(MESSAGES).await?;
    Ok((ended - started) / (MESSAGES - UNCOUNTED))
}
