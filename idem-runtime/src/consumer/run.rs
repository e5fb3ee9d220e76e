//! The loop: receive while there is room, reopen what broke, and stop in order.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::Consumer;
use super::handle::Wanted;
use super::health::Health;
use super::process::process;
use crate::backoff::Backoff;
use crate::broker::{BrokerError, Receiver, Source};
use crate::outcome::Chain;
use crate::store::{Store, StoreError};
use crate::telemetry;

/// Pauses before a broken receiver is opened again.
const REOPEN: Backoff = Backoff::new(Duration::from_millis(100), REOPEN_MAX);

const REOPEN_MAX: Duration = Duration::from_secs(30);

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

impl<B: Source, S: Store> Consumer<B, S> {
    /// Consumes until `shutdown` completes, or a [handle](Self::handle) stops it. Then it stops in
    /// order: no more messages are received, running handlers finish within the deadline and are
    /// settled, and the links are closed.
    ///
    /// The future can be spawned, on a runtime of one thread or of many. Dropping it stops at once:
    /// transactions that have not begun to commit are rolled back, locks run out, and the messages
    /// come again. Nothing is lost either way.
    ///
    /// # Errors
    ///
    /// When the database or the broker is not ready at start. Later failures are logged, counted
    /// and tried again.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        let control = Arc::clone(&self.shared.control);
        let told_to_stop = async {
            shutdown.await;
            control.want(Wanted::Stop);
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            ran = self.work() => ran,
            never = told_to_stop => match never {},
        }
    }

    /// Consumes until a [handle](Self::handle) stops it: [`run_until`](Self::run_until) without
    /// `shutdown`.
    ///
    /// # Errors
    ///
    /// Those of [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<(), RunError> {
        self.run_until(pending()).await
    }

    async fn work(&mut self) -> Result<(), RunError> {
        let control = Arc::clone(&self.shared.control);
        let mut receiver = tokio::select! {
            biased;
            () = control.stopping() => return Ok(()),
            receiver = self.start() => Some(receiver?),
        };
        let mut upkeep = self.shared.keep_ledger();
        for (handler, waiting) in self.waiting.drain(..) {
            upkeep.spawn(Arc::clone(&self.shared).execute_batches(handler, waiting));
        }
        let mut tasks = JoinSet::new();
        loop {
            match control.wanted() {
                Wanted::Consume => tokio::select! {
                    biased;
                    () = control.other_than(Wanted::Consume) => {}
                    never = self.consume(&mut receiver, &mut tasks) => match never {},
                },
                Wanted::Pause => tokio::select! {
                    biased;
                    () = control.stopping() => {}
                    () = self.pause(&mut receiver, &mut tasks) => {}
                },
                Wanted::Stop | Wanted::StopNow => break,
            }
        }
        control.set(Health::Stopping);
        if let Some(receiver) = &mut receiver {
            receiver.stop();
        }
        self.finish(tasks).await;
        if let Some(receiver) = receiver {
            receiver.close().await;
        }
        Ok(())
    }

    async fn start(&self) -> Result<B::Receiver, RunError> {
        telemetry::metrics::describe();
        self.shared.store.check().await?;
        self.shared.enter_ledger().await?;
        self.shared.warn_of_few_connections();
        let receiver = self.source.open(self.shared.limits.in_flight_max).await?;
        let delivery_count_max = self.shared.limits.delivery_count_max;
        let handlers = self.shared.routes.handlers();
        info!(source = %self.source.id(), ?handlers, delivery_count_max, "consuming");
        Ok(receiver)
    }

    /// Receives, and reopens what broke, until the future is dropped.
    async fn consume(
        &self,
        receiver: &mut Option<B::Receiver>,
        tasks: &mut JoinSet<()>,
    ) -> Infallible {
        // Receivers that broke one after the other without having received anything.
        let mut failures = 0;
        loop {
            let open = match receiver {
                Some(open) => open,
                None => receiver.insert(self.open_again(&mut failures).await),
            };
            self.shared.control.set(Health::Consuming);
            let opened = Instant::now();
            let error = loop {
                match self.step(open, tasks).await {
                    Ok(()) => failures = 0,
                    Err(error) => break error,
                }
            };
            warn!(source = %self.source.id(), error = %Chain(&error), "receiving broke");
            self.shared.control.reconnecting(&error);
            // The broker ends links that are idle for long: that is no failure of the one before.
            failures = if opened.elapsed() > REOPEN_MAX { 1 } else { failures.saturating_add(1) };
            if let Some(broken) = receiver.take() {
                broken.close().await;
            }
        }
    }

    /// Receives no more and lets what is in flight finish; then closes the link, whose messages
    /// would wait under locks that nobody keeps, and waits to be told otherwise.
    async fn pause(&self, receiver: &mut Option<B::Receiver>, tasks: &mut JoinSet<()>) {
        info!(source = %self.source.id(), in_flight = tasks.len(), "pausing");
        self.shared.control.set(Health::Pausing);
        if let Some(receiver) = receiver {
            receiver.stop();
        }
        join_all(tasks).await;
        if let Some(receiver) = receiver.take() {
            receiver.close().await;
        }
        self.shared.control.set(Health::Paused);
        self.shared.control.other_than(Wanted::Pause).await;
    }

    /// Waits for a delivery, once there is room for one, and has a task of its own handle it.
    async fn step(
        &self,
        receiver: &mut B::Receiver,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), BrokerError> {
        let places = &self.shared.places;
        places.one_is_free().await;
        let locked = receiver.receive().await?;
        let (settler, place) = (receiver.settler(), places.try_take());
        tasks.spawn(process(Arc::clone(&self.shared), locked, settler, place));
        // Only now and then: to be woken by each task that ends would cost as much as a message.
        while let Some(ended) = tasks.try_join_next() {
            log_panic(ended);
        }
        Ok(())
    }

    /// Opens a new receiver, after pauses that grow until one receives something.
    async fn open_again(&self, failures: &mut u32) -> B::Receiver {
        loop {
            if *failures > 0 {
                sleep(REOPEN.after(*failures)).await;
            }
            match self.source.open(self.shared.limits.in_flight_max).await {
                Ok(receiver) => {
                    if *failures > 0 {
                        self.shared.counters.reconnected();
                    }
                    info!(source = %self.source.id(), failures, "receiving again");
                    return receiver;
                }
                Err(error) => {
                    *failures = failures.saturating_add(1);
                    warn!(source = %self.source.id(), failures, error = %Chain(&error), "not open yet");
                    self.shared.control.reconnecting(&error);
                }
            }
        }
    }

    /// Lets running handlers finish within the deadline, and drops those that do not. Messages that
    /// are held are given back at once.
    async fn finish(&self, mut tasks: JoinSet<()>) {
        info!(in_flight = tasks.len(), "stopping");
        tokio::select! {
            biased;
            () = join_all(&mut tasks) => return,
            () = self.shared.control.stopping_now() => {}
            () = sleep(self.shared.limits.shutdown_deadline) => {}
        }
        warn!(
            in_flight = tasks.len(),
            "not finished in time, rolled back; the messages come again"
        );
        tasks.shutdown().await;
    }
}

async fn join_all(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        log_panic(ended);
    }
}

/// Handlers' panics are caught further down: a panic here is a defect of ours. The message's lock
/// runs out and it comes again.
pub(super) fn log_panic(ended: Result<(), JoinError>) {
    if let Err(panic) = ended {
        error!(%panic, "a delivery's task ended in a panic");
    }
}
