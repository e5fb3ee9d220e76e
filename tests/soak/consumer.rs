//! One of the consumers, in a process of its own: a level 2 handler for one queue and a level 1
//! handler for the other.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::consumer::{Counters, RunError};
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, Handler, shutdown_signal};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::interval;
use tracing_subscriber::EnvFilter;

use crate::messages::{ENTRIES, ORDERS};

/// The exit code of a consumer that could not start: the database or the broker was away.
pub(crate) const NOT_STARTED: u8 = 3;

/// Together fewer than the store's pool has connections.
const ORDERS_IN_FLIGHT_MAX: u32 = 16;
const ENTRIES_IN_FLIGHT_MAX: u32 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    #[arg(long, env = "SERVICEBUS_CONNECTION_STRING", hide_env_values = true)]
    bus: String,
    /// The log, to which is appended
    #[arg(long)]
    log: PathBuf,
}

mod handlers {
    use std::time::Duration;

    use idem_runtime::store::Postgres;
    use idem_runtime::{Delivery, Failure, Tx, idempotent};
    use tokio::time::sleep;

    use crate::messages::{ENTRIES, Intent, ORDERS};

    #[idempotent(key = "customer_id, name", level = 2, scope = "soak.orders")]
    pub(super) async fn place(
        tx: &mut Tx<Postgres>,
        order: Intent,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        write(tx, ORDERS, order, delivery).await
    }

    #[idempotent(level = 1, scope = "soak.entries")]
    pub(super) async fn append(
        tx: &mut Tx<Postgres>,
        entry: Intent,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        write(tx, ENTRIES, entry, delivery).await
    }

    /// The row is there before the work, so that whatever goes wrong meanwhile finds a transaction
    /// that has written.
    async fn write(
        tx: &mut Tx<Postgres>,
        queue: &'static str,
        intent: Intent,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        sqlx::query("INSERT INTO effects (queue, name, delivery_count) VALUES ($1, $2, $3)")
            .bind(queue)
            .bind(intent.name)
            .bind(i64::from(delivery.delivery_count()))
            .execute(&mut **tx)
            .await?;
        sleep(Duration::from_millis(intent.milliseconds)).await;
        Ok(())
    }
}

/// What a consumer says of itself, a line of JSON each time.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) duplicates: u64,
    pub(crate) busy: u64,
    pub(crate) retries: u64,
    pub(crate) unknown: u64,
    pub(crate) held: u64,
    pub(crate) locks_lost: u64,
    pub(crate) settlements_failed: u64,
    pub(crate) reconnects: u64,
}

impl Tally {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            duplicates: self.duplicates + other.duplicates,
            busy: self.busy + other.busy,
            retries: self.retries + other.retries,
            unknown: self.unknown + other.unknown,
            held: self.held + other.held,
            locks_lost: self.locks_lost + other.locks_lost,
            settlements_failed: self.settlements_failed + other.settlements_failed,
            reconnects: self.reconnects + other.reconnects,
        }
    }

    fn of(counters: &Counters) -> Self {
        let summary = counters.summary();
        Self {
            duplicates: summary.duplicates,
            busy: summary.busy,
            retries: summary.retries,
            unknown: summary.unknown,
            held: summary.held,
            locks_lost: summary.locks_lost,
            settlements_failed: summary.settlements_failed,
            reconnects: summary.reconnects,
        }
    }
}

/// Consumes until it is asked to stop, or the soak has ended.
pub(crate) async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let log = std::fs::File::options().create(true).append(true).open(&options.log);
    let log = Arc::new(log.context("cannot write the log")?);
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("info,idem_runtime=debug"))
        .with_ansi(false)
        .with_writer(log)
        .init();
    let store = match Postgres::connect(&options.database_url).await {
        Ok(store) => store,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "not started");
            return Ok(NOT_STARTED.into());
        }
    };
    let bus = ServiceBus::connect(&options.bus)?;
    let (stop, stopped) = watch::channel(false);
    let orders = build(&bus, &store, ORDERS, ORDERS_IN_FLIGHT_MAX, handlers::PlaceHandler)?;
    let entries = build(&bus, &store, ENTRIES, ENTRIES_IN_FLIGHT_MAX, handlers::AppendHandler)?;
    let counters = [orders.counters(), entries.counters()];
    let consumed = async {
        let consumed = tokio::try_join!(
            orders.run_until(until(stopped.clone())),
            entries.run_until(until(stopped)),
        );
        consumed.map(drop)
    };
    tokio::select! {
        consumed = consumed => Ok(ended(consumed)),
        never = stop_and_tell(stop, &counters) => never,
    }
}

fn build<H: Handler<Postgres>>(
    bus: &ServiceBus,
    store: &Postgres,
    queue: &str,
    in_flight_max: u32,
    handler: H,
) -> anyhow::Result<Consumer<idem_runtime::broker::servicebus::Queue, Postgres>> {
    let builder = Consumer::builder(bus.queue(queue), store.clone()).handler(handler);
    Ok(builder.in_flight_max(in_flight_max).build()?)
}

fn ended(consumed: Result<(), RunError>) -> ExitCode {
    match consumed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "not started");
            NOT_STARTED.into()
        }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    stopped.wait_for(|stopped| *stopped).await.ok();
}

/// Passes on a signal, or the end of the soak, and says what was done so far.
async fn stop_and_tell(
    stop: watch::Sender<bool>,
    counters: &[Arc<Counters>; 2],
) -> anyhow::Result<ExitCode> {
    end_with_the_soak();
    let mut signal = std::pin::pin!(shutdown_signal());
    let mut asked = false;
    let mut ticks = interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            // It listens before it says that it is at work.
            biased;
            () = &mut signal, if !asked => {
                asked = true;
                stop.send_replace(true);
            }
            _ = ticks.tick() => {
                let [orders, entries] = counters.each_ref().map(|counters| Tally::of(counters));
                let line = serde_json::to_string(&orders.plus(entries))?;
                // Whoever does not listen any more has ended.
                writeln!(std::io::stdout(), "{line}").ok();
            }
        }
    }
}

/// The soak holds the other end of the input, which closes however it ends.
fn end_with_the_soak() {
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        #[expect(clippy::disallowed_methods, reason = "nobody is there to stop it in order")]
        std::process::exit(1);
    });
}
