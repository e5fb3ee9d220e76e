//! Gathers deliveries into batches. Everything else about a delivery stays its own: its lock, its
//! patience and its settlement.

use std::mem;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::Shared;
use super::registry::Registered;
use super::run::log_panic;
use crate::handler::Context;
use crate::outcome::Outcome;
use crate::store::Store;
use crate::telemetry;

/// A delivery that waits for its batch.
pub(super) struct Waiting {
    context: Context,
    span: Span,
    outcome: oneshot::Sender<Outcome>,
}

/// Where deliveries join the next batch.
#[derive(Debug)]
pub(super) struct Batches {
    queue: mpsc::Sender<Waiting>,
}

impl Batches {
    /// With room for as many deliveries as can wait at once.
    pub(super) fn new(in_flight_max: u32) -> (Self, mpsc::Receiver<Waiting>) {
        let room = usize::try_from(in_flight_max.max(1)).unwrap_or(usize::MAX);
        let (queue, waiting) = mpsc::channel(room);
        (Self { queue }, waiting)
    }

    /// What the delivery came to in its batch; `None` when no batches are made any more.
    ///
    /// Dropping the future does not take it out of a batch that has begun: it may be committed, and
    /// the next delivery of its message then meets its claim.
    pub(super) async fn execute(&self, context: &Context) -> Option<Outcome> {
        let (outcome, decided) = oneshot::channel();
        let waiting = Waiting { context: context.clone(), span: Span::current(), outcome };
        self.queue.send(waiting).await.ok()?;
        decided.await.ok()
    }
}

impl<S: Store> Shared<S> {
    /// Executes the batches of a handler. A batch begins with what is ready when the one before has
    /// ended, so that nobody waits for it to become full; a full one does not wait for that either.
    pub(super) async fn execute_batches(
        self: Arc<Self>,
        handler: Arc<Registered<S>>,
        mut waiting: mpsc::Receiver<Waiting>,
    ) {
        let size_max = usize::try_from(self.limits.batch_max).unwrap_or(usize::MAX);
        let mut running = JoinSet::new();
        let mut batch = Vec::new();
        loop {
            let room = size_max - batch.len();
            tokio::select! {
                biased;
                Some(ended) = running.join_next() => log_panic(ended),
                received = waiting.recv_many(&mut batch, room), if room > 0 => {
                    if received == 0 {
                        return;
                    }
                }
            }
            if batch.len() == size_max || (running.is_empty() && !batch.is_empty()) {
                let (shared, handler) = (Arc::clone(&self), Arc::clone(&handler));
                running.spawn(shared.execute_batch(handler, mem::take(&mut batch)));
            }
        }
    }

    async fn execute_batch(self: Arc<Self>, handler: Arc<Registered<S>>, batch: Vec<Waiting>) {
        let scope = handler.spec().scope;
        let span = telemetry::of_batch(scope, batch.iter().map(|one| &one.span));
        telemetry::metrics::batch(scope, batch.len());
        let (contexts, outcomes): (Vec<_>, Vec<_>) =
            batch.into_iter().map(|one| (one.context, one.outcome)).unzip();
        let decided = handler.execute_batch(&self.store, &contexts).instrument(span).await;
        for (outcome, decided) in outcomes.into_iter().zip(decided) {
            // Nobody waits for it any more where its task has been stopped.
            outcome.send(decided).ok();
        }
    }
}
