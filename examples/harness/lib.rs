//! The job that the examples share: send orders, consume them while everything goes wrong, and
//! count what the database holds in the end.

mod chaos;
mod database;
mod orders;
mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Parser;
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::servicebus::{Queue, ServiceBus};
use idem_runtime::consumer::{Counters, Summary};
use idem_runtime::store::{Postgres, Sqlite, Store};
use idem_runtime::{Consumer, Handler};
use indicatif::{ProgressBar, ProgressStyle};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

pub use chaos::Chaos;
use chaos::WireFaults;
pub use database::Database;
pub use orders::{Orders, PlaceOrder};
pub use report::Report;

/// Sends orders, consumes them while everything goes wrong, and counts what the database holds.
#[derive(Clone, Debug, Parser)]
pub struct Options {
    /// How many orders are sent; a fifth of them twice.
    #[arg(long, default_value_t = 1000)]
    pub orders: u32,
    /// What decides which faults happen; random when not given. The same seed gives the same
    /// faults to the same sequence of events.
    #[arg(long)]
    pub seed: Option<u64>,
    /// A real namespace, in place of the embedded emulator.
    #[arg(long, env = "SERVICEBUS_CONNECTION_STRING", hide_env_values = true)]
    pub bus: Option<String>,
    /// The queue; in a real namespace it must exist and be empty.
    #[arg(long, env = "SERVICEBUS_QUEUE", default_value = "orders")]
    pub queue: String,
    /// `postgres://…` or `sqlite://…`, in place of an SQLite file that is thrown away.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub database: Option<String>,
}

/// The emulator's lock duration: short, so that a lost settlement is seen again soon.
const LOCK: Duration = Duration::from_secs(1);

/// The job is given up when nothing is delivered for so long.
const STALL: Duration = Duration::from_secs(90);

/// How many messages are handled at once.
const IN_FLIGHT_MAX: u32 = 32;

/// The handler of the job, for either database.
#[derive(Clone, Copy, Debug)]
pub struct Job<L, P> {
    /// The handler whose effects are in SQLite.
    pub sqlite: L,
    /// The handler whose effects are in PostgreSQL.
    pub postgres: P,
}

impl<L: Handler<Sqlite>, P: Handler<Postgres>> Job<L, P> {
    /// Sends the orders, consumes them under fire, and reports what came of it.
    ///
    /// # Errors
    ///
    /// When the job cannot be set up, or stands still for 90 seconds.
    pub async fn run(self, options: &Options) -> anyhow::Result<Report> {
        let setting = Setting::prepare(options).await?;
        println!("seed {}, {}, {}", setting.seed, setting.broker_name(), setting.database.name());
        match setting.database.clone() {
            Database::Sqlite(store) => setting.run(store, self.sqlite).await,
            Database::Postgres(store) => setting.run(store, self.postgres).await,
        }
    }
}

/// The broker, the database and the faults of one run.
struct Setting {
    seed: u64,
    queue_name: String,
    queue: Queue,
    bus: ServiceBus,
    emulator: Option<Emulator>,
    database: Database,
    orders: Orders,
    chaos: Chaos,
    /// Where the SQLite file is that is thrown away.
    _folder: TempDir,
}

impl Setting {
    async fn prepare(options: &Options) -> anyhow::Result<Self> {
        let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
        let emulator = match options.bus {
            Some(_) => None,
            None => Some(start_emulator(&options.queue).await?),
        };
        let connection_string = match (&options.bus, &emulator) {
            (Some(given), _) => given.clone(),
            (None, Some(emulator)) => emulator.connection_string(),
            (None, None) => bail!("there is no broker"),
        };
        let bus = ServiceBus::connect(&connection_string)?;
        let queue = bus.queue(&options.queue);
        if queue.depth(1).await? > 0 {
            bail!("queue `{}` is not empty; purge it, or name another with --queue", options.queue);
        }
        let folder = tempfile::tempdir()?;
        let file = format!("sqlite://{}", folder.path().join("orders.db").display());
        let database = Database::open(options.database.as_ref().unwrap_or(&file)).await?;
        let orders = Orders::new(seed, options.orders);
        let chaos = Chaos::new(seed);
        let queue_name = options.queue.clone();
        Ok(Self {
            seed,
            queue_name,
            queue,
            bus,
            emulator,
            database,
            orders,
            chaos,
            _folder: folder,
        })
    }

    fn broker_name(&self) -> &'static str {
        match self.emulator {
            Some(_) => "embedded emulator",
            None => "the given namespace (no faults on the wire)",
        }
    }

    async fn run<S: Store>(self, store: S, handler: impl Handler<S>) -> anyhow::Result<Report> {
        let faults =
            self.emulator.as_ref().map(|e| WireFaults::add(e, &self.queue_name, self.seed));
        let started = Instant::now();
        let consumer = Consumer::builder(self.queue.clone(), store)
            .handler(handler)
            .state(self.chaos.clone())
            .state(self.database.clone())
            .in_flight_max(IN_FLIGHT_MAX)
            .build()?;
        let counters = consumer.counters();
        let (stop, stopped) = oneshot::channel();
        let consume = consumer.run_until(async {
            stopped.await.ok();
        });
        let watch = async {
            self.send().await?;
            self.until_empty(&counters).await?;
            stop.send(()).ok();
            anyhow::Ok(())
        };
        let (consumed, watched) = tokio::join!(consume, watch);
        consumed.context("the consumer did not run")?;
        watched?;
        let elapsed = started.elapsed();
        self.report(counters.summary(), faults, elapsed).await
    }

    async fn send(&self) -> anyhow::Result<()> {
        let sender = self.bus.sender(&self.queue_name).await?;
        sender.send_all(self.orders.messages()?).await?;
        Ok(())
    }

    /// Shows progress until nothing is left on the queue, locked messages included.
    async fn until_empty(&self, counters: &Counters) -> anyhow::Result<()> {
        let bar = progress_bar(u64::from(self.orders.count()));
        let mut seen = (0, Instant::now());
        loop {
            let summary = counters.summary();
            bar.set_position(summary.done.min(u64::from(self.orders.count())));
            bar.set_message(format!(
                "{} duplicates, {} retries",
                summary.duplicates, summary.retries
            ));
            if summary.deliveries != seen.0 {
                seen = (summary.deliveries, Instant::now());
            } else if seen.1.elapsed() > STALL {
                bail!(
                    "nothing was delivered for {STALL:?}, and the queue is not empty: {summary:?}"
                );
            }
            sleep(Duration::from_millis(200)).await;
            if summary.deliveries >= self.orders.sent() && self.queue.depth(1).await? == 0 {
                bar.finish_and_clear();
                return Ok(());
            }
        }
    }

    async fn report(
        self,
        consumed: Summary,
        faults: Option<WireFaults>,
        elapsed: Duration,
    ) -> anyhow::Result<Report> {
        let placed = self.database.count_orders(self.orders.run()).await?;
        let dead_letters = self.queue.clone().dead_letters().depth(u32::MAX).await?;
        let left = self.queue.depth(u32::MAX).await?;
        if let Some(emulator) = self.emulator {
            emulator.shutdown().await;
        }
        let mut report = Report {
            sent: self.orders.sent(),
            intents: u64::from(self.orders.count()),
            consumed,
            dead_letters,
            left,
            effects: placed.values().sum(),
            missing: u64::from(self.orders.count()) - u64::try_from(placed.len())?,
            crash_window: 0,
            concurrency_window: 0,
            crashes: self.chaos.crashes(),
            faults: faults.map(|f| f.fired()).unwrap_or_default(),
            elapsed,
        };
        for (external_ref, rows) in placed {
            let doubled = rows - 1;
            match self.chaos.has_crashed(&external_ref) {
                true => report.crash_window += doubled,
                false => report.concurrency_window += doubled,
            }
        }
        Ok(report)
    }
}

async fn start_emulator(queue: &str) -> anyhow::Result<Emulator> {
    let queue = QueueOptions::new(queue).lock_duration(LOCK).max_delivery_count(10);
    Ok(Emulator::builder().queue(queue).start().await?)
}

fn progress_bar(orders: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} orders, {msg} [{elapsed}]")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(orders).with_style(style)
}

/// Runs an example: logs of warnings where `RUST_LOG` says nothing else, and exit code 0 only when
/// the example says so.
pub async fn main(example: impl Future<Output = anyhow::Result<bool>>) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // Interrupted, it still removes its temporary files.
    let result = tokio::select! {
        result = example => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
