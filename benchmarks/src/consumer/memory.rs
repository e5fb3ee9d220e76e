//! The consumer's memory over many messages: a process of its own, so that nothing else counts.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, shutdown_signal};
use idem_tests::database::PostgresDatabase;
use tokio::time::{Instant, sleep};

use super::{Broker, CONNECTIONS, IN_FLIGHT_MAX, QUEUE, Targets};
use crate::backlog::{Ended, peak_of};
use crate::execute::{Order, TABLE, on_postgres};

const SOME: u32 = 100_000;
const ALL: u32 = 1_000_000;

/// How many messages wait at most, and how many are sent at once.
const WAITING_MAX: u64 = 4_000;
const SENT_AT_ONCE: u32 = 1_000;

const GROWTH_MAX: f64 = 1.1;

/// The run is given up when nothing is completed for so long.
const STALL: Duration = Duration::from_secs(60);

/// The consumer's process.
#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    bus: String,
    database_url: String,
}

pub(crate) async fn work(arguments: Work) -> Result<()> {
    let store = Postgres::connect_with(arguments.database_url.parse()?, CONNECTIONS).await?;
    let bus = ServiceBus::connect(&arguments.bus)?;
    let consumer = Consumer::builder(bus.queue(QUEUE), store)
        .handler(on_postgres::PlaceHandler)
        .in_flight_max(IN_FLIGHT_MAX)
        .build()?;
    Ok(consumer.run_until(shutdown_signal()).await?)
}

pub(super) async fn run(targets: &mut Targets) -> Result<()> {
    let Some(database) = PostgresDatabase::new().await else { return Ok(()) };
    sqlx::query(TABLE).execute(database.store.pool()).await?;
    let broker = Broker::start().await?;
    let consumer = Command::new(std::env::current_exe()?)
        .args(["work", &broker.emulator()?.connection_string(), &database.url])
        .spawn()?;
    let mut consumer = Ended(consumer);
    let some = peak_after(SOME, &broker, &mut consumer).await?;
    let all = peak_after(ALL, &broker, &mut consumer).await?;
    drop(consumer);
    let done: i64 =
        sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(database.store.pool()).await?;
    ensure!(done == i64::from(ALL), "{done} orders of {ALL}");
    let growth = f64::from(all) / f64::from(some);
    let figure = format!("{growth:.3} ({all} KiB to {some} KiB)");
    let name = format!("peak_memory_{ALL}_to_{SOME}");
    targets.report(&name, &figure, &format!("at most {GROWTH_MAX}"), growth <= GROWTH_MAX);
    database.remove().await;
    Ok(())
}

/// The most memory that the consumer has used when so many messages are completed.
async fn peak_after(messages: u32, broker: &Broker, consumer: &mut Ended) -> Result<u32> {
    let mut moved = (0, Instant::now());
    loop {
        let totals = broker.emulator()?.events().totals();
        ensure!(totals.dead_lettered == 0, "messages were dead-lettered");
        ensure!(consumer.0.try_wait()?.is_none(), "the consumer has ended");
        if totals.completed != moved.0 {
            moved = (totals.completed, Instant::now());
        }
        ensure!(moved.1.elapsed() < STALL, "nothing was completed for {STALL:?}");
        if totals.completed >= u64::from(messages) {
            return peak_of(consumer.0.id());
        }
        let waiting = totals.enqueued - totals.completed;
        if totals.enqueued < u64::from(messages) && waiting < WAITING_MAX {
            broker.send(&Order { customer_id: 7, amount_cents: 100 }, SENT_AT_ONCE).await?;
        } else {
            sleep(Duration::from_millis(5)).await;
        }
    }
}
