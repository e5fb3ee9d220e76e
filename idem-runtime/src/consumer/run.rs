//! The loop: receive while there is room, reopen what broke, and stop in order.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::Consumer;
use super::process::process;
use crate::backoff::Backoff;
use crate::broker::{BrokerError, Receiver, Source};
use crate::outcome::Chain;
use crate::store::{Store, StoreError};

/// Pauses before a broken receiver is opened again.
const REOPEN: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));

/// Why a consumer did not start. Once it runs, it deals with errors itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The database cannot be reached, or its ledger does not fit this build.
    #[error("the store is not ready")]
    Store(#[from] StoreError),
    /// The broker cannot be reached, or there is no such entity.
    #[error("the source is not ready")]
    Broker(#[from] BrokerError),
}

/// What the loop waited for.
enum Next {
    Received,
    Ended,
    Broke,
    Stop,
}

impl<B: Source, S: Store> Consumer<B, S> {
    /// Consumes until `shutdown` completes, then stops in order: no more messages are received,
    /// running handlers finish within the deadline and are settled, and the links are closed.
    ///
    /// Dropping the future stops at once: transactions that have not begun to commit are rolled
    /// back, locks run out, and the messages come again. Nothing is lost either way.
    ///
    /// # Errors
    ///
    /// When the database or the broker is not ready at start. Later failures are logged, counted
    /// and tried again.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        self.shared.store.check().await?;
        self.shared.enter_ledger().await?;
        self.shared.warn_of_few_connections();
        let mut receiver = self.source.open(self.shared.limits.in_flight_max).await?;
        info!(source = %self.source.id(), handler = ?self.shared.handler, "consuming");

        let mut upkeep = self.shared.keep_ledger();
        if let Some(waiting) = self.waiting.take() {
            upkeep.spawn(Arc::clone(&self.shared).execute_batches(waiting));
        }
        let mut shutdown = pin!(shutdown);
        let mut tasks = JoinSet::new();
        // Receivers that broke one after the other without having received anything.
        let mut failures = 0;
        loop {
            let next = tokio::select! {
                biased;
                () = &mut shutdown => Next::Stop,
                next = self.step(&mut receiver, &mut tasks) => next,
            };
            match next {
                Next::Received => failures = 0,
                Next::Ended => {}
                Next::Stop => break,
                Next::Broke => {
                    receiver.close().await;
                    receiver = tokio::select! {
                        biased;
                        () = &mut shutdown => {
                            self.finish(tasks).await;
                            return Ok(());
                        }
                        receiver = self.reopen(&mut failures) => receiver,
                    };
                }
            }
        }
        receiver.stop();
        self.finish(tasks).await;
        receiver.close().await;
        Ok(())
    }

    /// Waits for a delivery, if there is room for one, or for a task to end.
    async fn step(&self, receiver: &mut B::Receiver, tasks: &mut JoinSet<()>) -> Next {
        let places = &self.shared.places;
        let received = async {
            places.one_is_free().await;
            receiver.receive().await
        };
        tokio::select! {
            biased;
            Some(ended) = tasks.join_next() => {
                log_panic(ended);
                Next::Ended
            }
            received = received => match received {
                Ok(locked) => {
                    let (settler, place) = (receiver.settler(), places.try_take());
                    tasks.spawn(process(Arc::clone(&self.shared), locked, settler, place));
                    Next::Received
                }
                Err(error) => {
                    warn!(source = %self.source.id(), error = %Chain(&error), "receiving broke");
                    Next::Broke
                }
            },
        }
    }

    /// Opens a new receiver, after pauses that grow until one receives something.
    async fn reopen(&self, failures: &mut u32) -> B::Receiver {
        loop {
            *failures = failures.saturating_add(1);
            sleep(REOPEN.after(*failures)).await;
            match self.source.open(self.shared.limits.in_flight_max).await {
                Ok(receiver) => {
                    self.shared.counters.reconnects.increment();
                    info!(source = %self.source.id(), failures, "receiving again");
                    return receiver;
                }
                Err(error) => {
                    warn!(source = %self.source.id(), failures, error = %Chain(&error), "not open yet");
                }
            }
        }
    }

    /// Lets running handlers finish within the deadline, and drops those that do not. Messages that
    /// are held are given back at once.
    async fn finish(&self, mut tasks: JoinSet<()>) {
        info!(in_flight = tasks.len(), "stopping");
        self.shared.stop.send_replace(true);
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                log_panic(ended);
            }
        };
        if timeout(self.shared.limits.shutdown_deadline, all).await.is_err() {
            warn!(
                in_flight = tasks.len(),
                "not finished in time, rolled back; the messages come again"
            );
            tasks.shutdown().await;
        }
    }
}

/// Handlers' panics are caught further down: a panic here is a defect of ours. The message's lock
/// runs out and it comes again.
fn log_panic(ended: Result<(), JoinError>) {
    if let Err(panic) = ended {
        error!(%panic, "a delivery's task ended in a panic");
    }
}
