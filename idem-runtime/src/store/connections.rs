//! The connections of PostgreSQL, of which some are kept from one transaction to the next.
//!
//! A connection that goes back to its pool is asked whether it still works, by a task of its own.
//! That is one of five round trips of a message. So a connection whose transaction is committed is
//! kept for a moment, and where the next transaction begins within it, that one has the connection.
//!
//! Nobody goes without a connection for that: no more are kept than the pool has left to give.
//!
//! The driver counts itself inside a transaction as long as a connection is kept, so that the next one
//! begins as a plain statement.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::PgPool;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::transaction::Transaction;

/// How long a connection is kept for the next transaction.
const IDLE_MAX: Duration = Duration::from_millis(10);

/// How long a connection is away from its pool, which looks after its age and its health.
const AWAY_MAX: Duration = Duration::from_secs(1);

/// How long giving a connection back may take; then it is given back as it is.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub(super) struct Connections {
    pool: PgPool,
    /// There are none of a pool that is the application's: it may have the pool do something each
    /// time that a connection comes back.
    kept: Option<Arc<Mutex<Kept>>>,
}

#[derive(Debug, Default)]
struct Kept {
    /// The one that was used last is the last.
    idle: Vec<Idle>,
    /// Gives back what is idle for too long; ends when there is nothing left.
    watch: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Idle {
    begun: Begun,
    since: Instant,
}

/// A transaction, and since when its connection has been away from the pool.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) transaction: Transaction<sqlx::Postgres>,
    away_since: Instant,
}

impl Connections {
    /// Those of a pool of our own.
    pub(super) fn of_ours(pool: PgPool) -> Self {
        Self { pool, kept: Some(Arc::default()) }
    }

    /// Those of a pool that is the application's.
    pub(super) fn of_application(pool: PgPool) -> Self {
        Self { pool, kept: None }
    }

    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Begins on the connection that was kept last, and otherwise on one of the pool.
    pub(super) async fn begin(&self, statement: &'static str) -> sqlx::Result<Begun> {
        if let Some(mut kept) = self.take() {
            if kept.transaction.execute(statement).await.is_ok() {
                return Ok(kept);
            }
            // What broke this connection has probably broken the others.
            self.give_back_all();
        }
        let transaction = Transaction::begin(&self.pool, statement).await?;
        Ok(Begun { transaction, away_since: Instant::now() })
    }

    /// Whether the connection of this transaction may be [kept](Self::keep).
    pub(super) fn may_keep(&self, begun: &Begun) -> bool {
        let Some(kept) = &self.kept else { return false };
        let is_fresh = begun.away_since.elapsed() <= AWAY_MAX;
        is_fresh && !self.pool.is_closed() && lock(kept).idle.len() < self.spare()
    }

    /// Keeps the connection of a transaction that is committed.
    pub(super) fn keep(&self, begun: Begun) {
        let Some(kept) = &self.kept else { return };
        let idle = Arc::downgrade(kept);
        let mut kept = lock(kept);
        kept.idle.push(Idle { begun, since: Instant::now() });
        if kept.watch.as_ref().is_none_or(JoinHandle::is_finished) {
            #[expect(clippy::disallowed_methods, reason = "it ends when nothing is kept any more")]
            let watch = tokio::spawn(watch(idle));
            kept.watch = Some(watch);
        }
    }

    /// How many connections the pool can give to whoever asks for one now.
    fn spare(&self) -> usize {
        let can_open = self.pool.options().get_max_connections().saturating_sub(self.pool.size());
        usize::try_from(can_open).unwrap_or(usize::MAX).saturating_add(self.pool.num_idle())
    }

    fn take(&self) -> Option<Begun> {
        if self.pool.is_closed() {
            self.give_back_all();
        }
        lock(self.kept.as_ref()?).idle.pop().map(|idle| idle.begun)
    }

    fn give_back_all(&self) {
        if let Some(kept) = &self.kept {
            let idle = std::mem::take(&mut lock(kept).idle);
            drop(idle);
        }
    }
}

/// Gives back what is idle for too long, until there is nothing left.
async fn watch(kept: Weak<Mutex<Kept>>) {
    loop {
        sleep(IDLE_MAX).await;
        let Some(unused) = kept.upgrade().and_then(|kept| lock(&kept).unused()) else { return };
        for idle in unused {
            give_back(idle.begun).await;
        }
    }
}

/// Gives a connection back to its pool, inside a transaction as the driver counts: what the driver
/// rolls back outside of any would be a warning in the server's log.
async fn give_back(mut begun: Begun) {
    timeout(GIVE_BACK_MAX, begun.transaction.execute("BEGIN")).await.ok();
}

impl Kept {
    /// Takes out what is idle for too long; `None` when nothing is kept any more.
    fn unused(&mut self) -> Option<Vec<Idle>> {
        if self.idle.is_empty() {
            self.watch = None;
            return None;
        }
        let unused = self.idle.partition_point(|idle| idle.since.elapsed() >= IDLE_MAX);
        Some(self.idle.drain(..unused).collect())
    }
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
