//! What the size of the ledger and its pruning cost those who claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use idem_runtime::horizon::Retention;
use idem_runtime::store::{ScopeKeys, Store};
use idem_runtime::{Handler, Pruned};
use idem_tests::database::{MARIADB_URL, MysqlDatabase, PostgresDatabase};
use sqlx::{AssertSqlSafe, Executor};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::execute::{TABLE, on_mariadb, on_postgres, through_idem};
use crate::paired::Latencies;

const EXPIRED: u64 = 1_000_000;
const SCOPE: &str = "benchmark.expired";

/// The load: so many workers, each with a message so often, are 200 messages a second.
const WORKERS: u32 = 4;
const PACE: Duration = Duration::from_millis(20);

/// How long the load runs without a pruning.
const QUIET: Duration = Duration::from_secs(15);

const BEFORE: usize = 0;
const DURING: usize = 1;

/// P-03: a million claims expire while 200 messages a second come.
pub(crate) async fn prune() -> anyhow::Result<()> {
    if let Some(database) = PostgresDatabase::new().await {
        let pool = database.store.pool();
        pool.execute(TABLE).await?;
        let fill = format!(
            "INSERT INTO idem_claim (digest, scope, claimed_at) \
             SELECT gen_random_uuid(), '{SCOPE}', now() - interval '1 day' \
             FROM generate_series(1, {EXPIRED})"
        );
        pool.execute(AssertSqlSafe(fill)).await?;
        pool.execute("ANALYZE idem_claim").await?;
        prune_under_load::<on_postgres::PlaceHandler, _>("postgres", &database.store).await?;
        database.remove().await;
    }
    if let Some(database) = MysqlDatabase::new(MARIADB_URL).await {
        let pool = database.store.pool();
        pool.execute(TABLE).await?;
        let fill = format!(
            "INSERT INTO idem_claim (digest, scope, holder, claimed_at) \
             SELECT random_bytes(16), '{SCOPE}', 0, now(6) - INTERVAL 1 DAY FROM seq_1_to_{EXPIRED}"
        );
        pool.execute(AssertSqlSafe(fill)).await?;
        prune_under_load::<on_mariadb::PlaceHandler, _>("mariadb", &database.store).await?;
        database.remove().await;
    }
    Ok(())
}

async fn prune_under_load<H: Handler<S>, S: Store>(engine: &str, store: &S) -> anyhow::Result<()> {
    let (scope, key) = (SCOPE.to_owned(), String::new());
    store.register(&ScopeKeys { scope, level: 1, key }).await?;
    let hour = Duration::from_secs(3600);
    store.keep_alive(SCOPE, Retention { horizon: hour, kept: hour }).await?;

    let before = under_load::<H, S, ()>(store, async {
        sleep(QUIET).await;
        Ok(())
    });
    let (before, ()) = before.await?;
    let (during, pruned) = under_load::<H, S, _>(store, async {
        Ok(idem_runtime::prune(store, Some(SCOPE), |_| {}).await?)
    })
    .await?;
    anyhow::ensure!(pruned == Pruned::All(EXPIRED), "{pruned:?}");

    let runs = (before.len(), during.len());
    let latencies = Latencies::of([before, during]);
    for percent in [50, 99] {
        let [before, during] = [BEFORE, DURING].map(|when| latencies.percentile(when, percent));
        let ratio = during.as_secs_f64() / before.as_secs_f64();
        println!("prune_{engine}_claim_p{percent}_during_to_quiet: {ratio:.2} (of {runs:?} runs)");
    }
    Ok(())
}

/// Handles messages at a steady pace for as long as something else takes.
async fn under_load<H: Handler<S>, S: Store, T>(
    store: &S,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(Vec<Duration>, T)> {
    let goes_on = Arc::new(AtomicBool::new(true));
    let mut workers = JoinSet::new();
    for _ in 0..WORKERS {
        let (store, goes_on) = (store.clone(), Arc::clone(&goes_on));
        workers.spawn(async move {
            let (mut latencies, mut pace) = (Vec::new(), interval(PACE));
            while goes_on.load(Ordering::Relaxed) {
                pace.tick().await;
                let started = Instant::now();
                through_idem::<H, S>(&store).await?;
                latencies.push(started.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let worked = work.await;
    goes_on.store(false, Ordering::Relaxed);
    let latencies: Vec<_> = workers.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
    Ok((latencies.concat(), worked?))
}

const FEW: u32 = 100_000;
const MANY: u32 = 10_000_000;
/// Rows of one statement, after each of which progress is shown.
const FILL: u32 = 500_000;

/// Claims in a large ledger and in a small one, message by message.
pub(crate) async fn growth() -> anyhow::Result<()> {
    const ROUNDS: u32 = 3000;
    let Some(small) = PostgresDatabase::new().await else { return Ok(()) };
    let large = PostgresDatabase::new().await.context("there is a server")?;
    for (database, claims) in [(&small, FEW), (&large, MANY)] {
        database.store.pool().execute(TABLE).await?;
        fill(database, claims).await?;
    }
    let stores = [&small.store, &large.store];
    let measured = Latencies::<2>::measure(ROUNDS, async |which| {
        through_idem::<on_postgres::PlaceHandler, _>(stores[which]).await
    });
    let latencies = measured.await?;
    for percent in [50, 99] {
        let [small, large] = [0, 1].map(|which| latencies.percentile(which, percent).as_secs_f64());
        println!("growth_postgres_p{percent}_of_{MANY}_to_{FEW}: {:.2}", large / small);
    }
    small.remove().await;
    large.remove().await;
    Ok(())
}

async fn fill(database: &PostgresDatabase, claims: u32) -> anyhow::Result<()> {
    let pool = database.store.pool();
    let mut filled = 0;
    while filled < claims {
        let more = FILL.min(claims - filled);
        let fill = format!(
            "INSERT INTO idem_claim (digest, scope, claimed_at) \
             SELECT gen_random_uuid(), 'benchmark.growth', now() - random() * interval '30 days' \
             FROM generate_series(1, {more})"
        );
        pool.execute(AssertSqlSafe(fill)).await?;
        filled += more;
        eprintln!("    {filled} of {claims} claims");
    }
    pool.execute("VACUUM (ANALYZE) idem_claim").await?;
    pool.execute("CHECKPOINT").await?;
    Ok(())
}
