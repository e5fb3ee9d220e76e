//! Stops, pauses and inspects a consumer while it runs.

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{info, warn};

use super::counters::Counters;
use super::health::{Condition, Health};
use crate::broker::BrokerError;
use crate::outcome::{Chain, Outcome, RetryReason};
use crate::store::{Fault, StoreError};

/// Stops, pauses and inspects a [`Consumer`](crate::Consumer), before, while and after it runs.
/// Cheap to clone.
///
/// ```no_run
/// # async fn run<B: idem_runtime::broker::Source, S: idem_runtime::store::Store>(
/// #     consumer: idem_runtime::Consumer<B, S>,
/// # ) -> Result<(), idem_runtime::consumer::RunError> {
/// let handle = consumer.handle();
/// let other_work = async {
///     handle.wait_for(|health| health.is_ready()).await;
///     println!("{}, {} messages so far", handle.health(), handle.counters().summary().deliveries);
///     handle.stop();
/// };
/// let (ran, ()) = tokio::join!(consumer.run(), other_work);
/// ran
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ConsumerHandle(Arc<Control>);

impl ConsumerHandle {
    pub(super) fn new(control: Arc<Control>) -> Self {
        Self(control)
    }

    /// Has the consumer stop in order, as when its `shutdown` completes: see
    /// [`run_until`](crate::Consumer::run_until). This is for good.
    pub fn stop(&self) {
        self.0.want(Wanted::Stop);
    }

    /// Has the consumer stop without waiting for running handlers, or go on waiting if it is
    /// stopping already. What has not begun to commit is rolled back, and its message comes again.
    pub fn stop_now(&self) {
        self.0.want(Wanted::StopNow);
    }

    /// Has the consumer receive no more until [`resume`](Self::resume). What is in flight finishes
    /// and is settled; then the link is closed, and the health is [`Health::Paused`].
    ///
    /// Messages that the client had fetched ahead are not handled. They come again when their locks
    /// have run out, here or elsewhere, and it costs them a delivery: without a link, nothing would
    /// keep their locks.
    pub fn pause(&self) {
        self.0.want(Wanted::Pause);
    }

    /// Has a paused consumer receive again, once all that was in flight when it was paused has
    /// finished.
    pub fn resume(&self) {
        self.0.want(Wanted::Consume);
    }

    /// How the consumer is right now.
    pub fn health(&self) -> Health {
        self.0.condition.borrow().health()
    }

    /// Waits until the consumer's health is as wanted, or [`Health::Stopped`], after which nothing
    /// changes any more; says which.
    pub async fn wait_for(&self, mut is_so: impl FnMut(&Health) -> bool + Send) -> Health {
        let mut condition = self.0.condition.subscribe();
        loop {
            let health = condition.borrow_and_update().health();
            let is_last = health == Health::Stopped;
            // The sender lives in the handle.
            if is_so(&health) || is_last || condition.changed().await.is_err() {
                return health;
            }
        }
    }

    /// Counts of what has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.0.counters
    }
}

/// What a consumer has been told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wanted {
    Consume,
    Pause,
    Stop,
    StopNow,
}

/// What a consumer and its handles share.
#[derive(Debug)]
pub(super) struct Control {
    wanted: watch::Sender<Wanted>,
    condition: watch::Sender<Condition>,
    counters: Arc<Counters>,
}

impl Control {
    pub(super) fn new(counters: Arc<Counters>) -> Self {
        Self {
            wanted: watch::Sender::new(Wanted::Consume),
            condition: watch::Sender::new(Condition::new()),
            counters,
        }
    }

    pub(super) fn wanted(&self) -> Wanted {
        *self.wanted.borrow()
    }

    /// Whoever was told to stop does nothing else any more.
    pub(super) fn want(&self, wanted: Wanted) {
        self.wanted.send_if_modified(|now| {
            let changes = *now != wanted && (*now < Wanted::Stop || wanted > *now);
            if changes {
                *now = wanted;
            }
            changes
        });
    }

    /// Completes when something else than this is wanted.
    pub(super) async fn other_than(&self, wanted: Wanted) {
        self.until_wanted(|now| now != wanted).await;
    }

    /// Completes when the consumer is to stop.
    pub(super) async fn stopping(&self) {
        self.until_wanted(|now| now >= Wanted::Stop).await;
    }

    /// Completes when the consumer is not even to wait for what is running.
    pub(super) async fn stopping_now(&self) {
        self.until_wanted(|now| now == Wanted::StopNow).await;
    }

    async fn until_wanted(&self, mut is_so: impl FnMut(Wanted) -> bool + Send) {
        self.wanted.subscribe().wait_for(|now| is_so(*now)).await.ok();
    }

    /// Says what the consumer's loop does.
    pub(super) fn set(&self, doing: Health) {
        self.condition.send_modify(|condition| condition.set(doing));
    }

    pub(super) fn reconnecting(&self, error: &BrokerError) {
        self.condition.send_modify(|condition| condition.reconnecting(&Chain(error)));
    }

    /// What an attempt of a handler tells about the database.
    ///
    /// Who lost a race has met it, and who was rejected may not have come as far.
    pub(super) fn note(&self, scope: &'static str, outcome: &Outcome) {
        match outcome {
            Outcome::Retry(RetryReason::NotStarted(error)) => self.database_failed(scope, error),
            Outcome::Done(_) | Outcome::Duplicate(_) | Outcome::Conflict(_) | Outcome::Busy => {
                self.database_answered(scope);
            }
            Outcome::Retry(_) | Outcome::Reject(_) | Outcome::Unknown(_) => {}
        }
    }

    fn database_failed(&self, scope: &'static str, error: &StoreError) {
        if error.fault() == Fault::Contention {
            return;
        }
        let mut is_news = false;
        self.condition.send_modify(|condition| {
            is_news = condition.database_failed(scope, &Chain(error));
        });
        if is_news {
            warn!(scope, error = %Chain(error), "the database is away");
        }
    }

    pub(super) fn database_answered(&self, scope: &str) {
        if self.has_database(scope) {
            return;
        }
        let mut ended = None;
        self.condition.send_if_modified(|condition| {
            ended = condition.database_answered(scope);
            ended.is_some()
        });
        if let Some(outage) = ended {
            info!(scope, lasted = ?outage.duration(), "the database is back");
        }
    }

    pub(super) fn has_database(&self, scope: &str) -> bool {
        self.condition.borrow().has_database(scope)
    }

    /// Completes when a handler has found no database.
    pub(super) async fn without_database(&self) {
        let mut condition = self.condition.subscribe();
        condition.wait_for(|condition| !condition.has_database_for_all()).await.ok();
    }
}

/// Says that the consumer has ended, however it does.
#[derive(Debug)]
pub(super) struct Alive(pub(super) Arc<Control>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.set(Health::Stopped);
    }
}
