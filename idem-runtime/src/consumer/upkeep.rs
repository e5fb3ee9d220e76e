//! What a running consumer does for its ledger: it says that it is alive, and prunes.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::Shared;
use crate::handler::{HandlerSpec, Level};
use crate::horizon::Retention;
use crate::outcome::Chain;
use crate::prune::{Pruned, oldest_claim_age, prune};
use crate::store::{self, ScopeKeys, Store, StoreError};
use crate::telemetry::metrics;

/// Signs of life are this far apart.
const ALIVE_EVERY: Duration = Duration::from_secs(30);

/// A database that was away is asked so often whether it is back.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// Prunings are this far apart.
const PRUNE_EVERY: Duration = Duration::from_secs(5 * 60);

/// Refuses a handler whose scope has keys of another kind in the ledger, or whose constraint proves
/// nothing, and a ledger in which nothing can be claimed; says that a consumer is alive, where claims
/// are not kept for ever.
pub(crate) async fn enter_ledger<S: Store>(
    store: &S,
    spec: &HandlerSpec,
    retention: Option<Retention>,
) -> Result<(), StoreError> {
    if spec.level == Level::Zero {
        return Ok(());
    }
    for scope in spec.scopes() {
        let keys = ScopeKeys {
            scope: scope.to_owned(),
            level: i16::from(spec.level.number()),
            key: spec.key.join(", "),
        };
        store::register(store, &keys).await?;
    }
    match spec.constraint {
        Some(constraint) => {
            store::constraint(store, constraint, spec.key, spec.same).await?;
        }
        None => store::try_claim(store, spec.scope).await?,
    }
    if let Some(retention) = retention {
        for scope in spec.scopes() {
            store::keep_alive(store, scope, retention).await?;
            // Deletes nothing, and needs all that it takes to delete.
            store::prune(store, scope, 0).await?;
        }
    }
    Ok(())
}

impl<S: Store> Shared<S> {
    /// [Enters](enter_ledger) with each handler.
    pub(super) async fn enter_ledger(&self) -> Result<(), StoreError> {
        for handler in self.routes.handlers() {
            enter_ledger(&self.store, &handler.spec(), self.retention).await?;
        }
        Ok(())
    }

    /// Says so where handlers would have to wait for connections: they wait at most until their pool
    /// gives up, and their messages are then held.
    pub(super) fn warn_of_few_connections(&self) {
        let in_flight_max = self.limits.in_flight_max;
        if let Some(connections) = self.store.transactions_max()
            && connections <= in_flight_max
        {
            warn!(
                connections,
                in_flight_max,
                "the store's pool has no more connections than messages may be in flight: handlers \
                 will wait for each other's; give it more, or lower `in_flight_max`"
            );
        }
    }

    /// Keeps the ledger in the background until the tasks are dropped.
    pub(super) fn keep_ledger(self: &Arc<Self>) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(self);
        tasks.spawn(async move { shared.watch_database().await });
        for spec in self.routes.handlers().iter().map(|handler| handler.spec()) {
            let (Some(retention), Level::One | Level::Two) = (self.retention, spec.level) else {
                continue;
            };
            for scope in spec.scopes() {
                let shared = Arc::clone(self);
                tasks.spawn(async move { shared.keep_alive(scope, retention).await });
                let shared = Arc::clone(self);
                tasks.spawn(async move { shared.keep_pruned(scope).await });
            }
        }
        tasks
    }

    /// Finds out when a database that was away is back. Messages that are held find out by
    /// themselves; but they may have gone elsewhere, when their locks could not be kept.
    async fn watch_database(&self) {
        loop {
            self.control.without_database().await;
            sleep(PROBE_EVERY).await;
            for spec in self.routes.handlers().iter().map(|handler| handler.spec()) {
                if !self.control.has_database(spec.scope) && self.is_ready_for(spec).await {
                    self.control.database_answered(spec.scope);
                }
            }
        }
    }

    async fn is_ready_for(&self, spec: HandlerSpec) -> bool {
        self.store.check().await.is_ok()
            && enter_ledger(&self.store, &spec, self.retention).await.is_ok()
    }

    async fn keep_alive(&self, scope: &'static str, retention: Retention) {
        loop {
            sleep(ALIVE_EVERY).await;
            if let Err(error) = store::keep_alive(&self.store, scope, retention).await {
                warn!(scope, error = %Chain(&error), "the ledger does not know that we are alive");
            }
        }
    }

    /// Whether pruning keeps pace shows in the age of the oldest claim, whoever prunes.
    async fn report_pruning(&self, scope: &'static str, pruned: Pruned) {
        let (Pruned::All(deleted) | Pruned::Elsewhere(deleted)) = pruned;
        metrics::pruned(scope, deleted);
        let oldest = match oldest_claim_age(&self.store, scope).await {
            Ok(oldest) => oldest,
            Err(error) => {
                return warn!(scope, error = %Chain(&error), "the oldest claim is not known");
            }
        };
        metrics::oldest_claim(scope, oldest);
        if deleted > 0 {
            let oldest_seconds = oldest.map(|age| age.as_secs());
            info!(scope, deleted, oldest_seconds, "pruned");
        }
    }

    /// Errors wait for the next time: a claim that is kept for too long does no harm.
    async fn keep_pruned(&self, scope: &'static str) {
        loop {
            let progress = |deleted| debug!(scope, deleted, "pruning");
            match prune(&self.store, Some(scope), progress).await {
                Ok(pruned) => self.report_pruning(scope, pruned).await,
                Err(error) => {
                    metrics::pruning_failed(scope);
                    warn!(scope, error = %Chain(&error), "not pruned");
                }
            }
            // Not all consumers at the same time.
            sleep(PRUNE_EVERY.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        }
    }
}
