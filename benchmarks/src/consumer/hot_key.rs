//! How long a message waits since another key is hot: a handler works on that key for a second, and
//! many copies of its message wait for it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, Failure, State, Tx, idempotent};
use idem_tests::database::PostgresDatabase;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Broker, CONNECTIONS, IN_FLIGHT_MAX, QUEUE, Targets};
use crate::median::Median;

const HELD: Duration = Duration::from_secs(1);

/// Half as many copies as may be in flight, and more than may be.
const COPIES: [u32; 2] = [IN_FLIGHT_MAX / 2, 2 * IN_FLIGHT_MAX];

const ROUNDS: usize = 15;

const DELAY_MAX_MILLISECONDS: f64 = 20.0;

/// Far beyond what a round takes.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Touch {
    key: u64,
    is_hot: bool,
}

/// Where handlers say that they have begun.
type Begun = mpsc::UnboundedSender<u64>;

#[idempotent(key = "key", level = 2)]
async fn touch(
    tx: &mut Tx<Postgres>,
    touch: Touch,
    State(begun): State<Begun>,
) -> Result<(), Failure> {
    begun.send(touch.key).ok();
    sqlx::query("INSERT INTO touched (key) VALUES ($1)")
        .bind(i64::try_from(touch.key)?)
        .execute(&mut **tx)
        .await?;
    if touch.is_hot {
        sleep(HELD).await;
    }
    Ok(())
}

pub(super) async fn run(targets: &mut Targets) -> Result<()> {
    let Some(database) = PostgresDatabase::new().await else { return Ok(()) };
    sqlx::query("CREATE TABLE touched (key bigint NOT NULL)")
        .execute(database.store.pool())
        .await?;
    let broker = Broker::start().await?;
    let (begun, begins) = mpsc::unbounded_channel();
    let consumer = Consumer::builder(
        broker.bus.queue(QUEUE),
        Postgres::connect_with(database.url.parse()?, CONNECTIONS).await?,
    )
    .handler(TouchHandler)
    .state::<Begun>(begun)
    .in_flight_max(IN_FLIGHT_MAX)
    .build()?;
    let (stop, stopped) = oneshot::channel();
    let mut running = JoinSet::new();
    running.spawn(consumer.run_until(async {
        stopped.await.ok();
    }));
    let mut scene = Scene { broker, begins, keys: 0 };
    scene.rounds(targets).await?;
    stop.send(()).ok();
    running.join_next().await.context("it was spawned")???;
    database.remove().await;
    Ok(())
}

struct Scene {
    broker: Broker,
    begins: mpsc::UnboundedReceiver<u64>,
    keys: u64,
}

impl Scene {
    async fn rounds(&mut self, targets: &mut Targets) -> Result<()> {
        // What a first message costs does not count.
        self.unrelated().await?;
        let mut idle = Vec::new();
        let mut beside = COPIES.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            idle.push(self.unrelated().await?);
            for (copies, waits) in COPIES.into_iter().zip(&mut beside) {
                waits.push(self.unrelated_beside(copies).await?);
            }
        }
        let idle = Median::from(idle);
        println!("consumer_idle_wait_ms: {idle}");
        for (copies, waits) in COPIES.into_iter().zip(beside) {
            let delays = waits.into_iter().map(|wait| wait - idle.value()).collect::<Vec<_>>();
            let delay = Median::from(delays);
            let holds = delay.value() <= DELAY_MAX_MILLISECONDS;
            let name = format!("delay_ms_beside_a_hot_key_with_{copies}_copies");
            targets.report(&name, &delay, &format!("at most {DELAY_MAX_MILLISECONDS}"), holds);
        }
        Ok(())
    }

    /// How many milliseconds a message takes from its sender to its handler.
    async fn unrelated(&mut self) -> Result<f64> {
        let key = self.next_key();
        let started = Instant::now();
        self.broker.send(&Touch { key, is_hot: false }, 1).await?;
        self.until_begun(key).await?;
        Ok(1000.0 * started.elapsed().as_secs_f64())
    }

    async fn unrelated_beside(&mut self, copies: u32) -> Result<f64> {
        let key = self.next_key();
        self.broker.send(&Touch { key, is_hot: true }, 1).await?;
        self.until_begun(key).await?;
        self.broker.send(&Touch { key, is_hot: true }, copies).await?;
        // The consumer has as many of them as it takes, and the handler works for a while yet.
        sleep(HELD / 4).await;
        let wait = self.unrelated().await?;
        self.until_empty().await?;
        Ok(wait)
    }

    fn next_key(&mut self) -> u64 {
        self.keys += 1;
        self.keys
    }

    async fn until_begun(&mut self, key: u64) -> Result<()> {
        let begun = async {
            while self.begins.recv().await.context("the consumer runs")? != key {}
            Ok(())
        };
        timeout(PATIENCE, begun).await.context("the handler has not begun")?
    }

    async fn until_empty(&self) -> Result<()> {
        let empty = async {
            loop {
                let counts = self.broker.emulator()?.counts(QUEUE)?;
                if counts.active + counts.locked == 0 {
                    return Ok(());
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, empty).await.context("the queue does not become empty")?
    }
}
