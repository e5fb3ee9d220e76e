//! Describes a consumer and refuses what cannot work before the first delivery.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::batches::Batches;
use super::places::Places;
use super::process::GIVEN_BACK_MAX;
use super::registry::Registered;
use super::{Consumer, Counters, Limits, Shared};
use crate::broker::Source;
use crate::execute::BusyKeys;
use crate::handler::{Handler, States};
use crate::horizon::{Horizon, Readable, Retention};
use crate::store::Store;

/// Describes a [`Consumer`].
#[derive(Debug)]
pub struct ConsumerBuilder<B: Source, S: Store> {
    source: B,
    store: S,
    handler: Option<Registered<S>>,
    states: States,
    limits: Limits,
    horizon: Option<Horizon>,
    retention: Option<Duration>,
}

impl<B: Source, S: Store> ConsumerBuilder<B, S> {
    pub(super) fn new(source: B, store: S) -> Self {
        let limits = Limits {
            in_flight_max: 16,
            batch_max: 1,
            delivery_count_max: 10,
            renewal_max: Duration::from_secs(5 * 60),
            shutdown_deadline: Duration::from_secs(30),
        };
        Self {
            source,
            store,
            handler: None,
            states: States::default(),
            limits,
            horizon: None,
            retention: None,
        }
    }

    /// The handler for all messages of the source: the struct that the attribute generated.
    #[must_use]
    pub fn handler<H: Handler<S>>(mut self, _: H) -> Self {
        self.handler = Some(Registered::new::<H>());
        self
    }

    /// A value that handlers can take as [`State<T>`](crate::State); one for each type.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// How many messages are held and handled at once; 1 to 2,000, by default 16.
    ///
    /// A message whose key is busy gives its place to another one while it waits. Up to
    /// [512](crate::broker::ASIDE_MAX) are held like that, beside those in flight.
    ///
    /// The store's pool should have more connections than this.
    #[must_use]
    pub fn in_flight_max(mut self, messages: u32) -> Self {
        self.limits.in_flight_max = messages;
        self
    }

    /// How many messages are handled in one transaction at most; by default 1, and no more than are
    /// in flight.
    ///
    /// A batch takes what is ready when the one before has ended. Messages that have failed or were
    /// busy before, by their delivery count too, are handled one by one, and so is a batch that
    /// cannot be done together: see [`execute_batch()`](crate::execute_batch()).
    #[must_use]
    pub fn batch_max(mut self, messages: u32) -> Self {
        self.limits.batch_max = messages;
        self
    }

    /// The `MaxDeliveryCount` of the queue, by default 10.
    ///
    /// A message that fails on this delivery is dead-lettered with the real reason, where the
    /// broker would only say that the count was exceeded.
    #[must_use]
    pub fn delivery_count_max(mut self, deliveries: u32) -> Self {
        self.limits.delivery_count_max = deliveries;
        self
    }

    /// How long the lock of a delivery is renewed while its handler runs; by default 5 minutes.
    ///
    /// A handler that runs longer may still finish and commit: the other delivery that then
    /// starts meets its claim. While a message is held for a busy key or a database that is away,
    /// its lock is renewed for as long as that takes.
    #[must_use]
    pub fn renewal_max(mut self, duration: Duration) -> Self {
        self.limits.renewal_max = duration;
        self
    }

    /// How long running handlers may take to finish after the shutdown began; by default 30
    /// seconds. What has not finished by then is rolled back, and its message comes again.
    #[must_use]
    pub fn shutdown_deadline(mut self, duration: Duration) -> Self {
        self.limits.shutdown_deadline = duration;
        self
    }

    /// Prunes claims that no message can meet any more, while the consumer runs. Without this,
    /// claims are kept for ever.
    ///
    /// What is declared here, the renewal of locks and the number of deliveries make the time within
    /// which a message that was handled may come again. It is written to the ledger, where nobody
    /// can prune below it. Consumers of one scope that declare different times keep claims for the
    /// longest of them; a time is never lowered by starting a consumer.
    #[must_use]
    pub fn horizon(mut self, horizon: Horizon) -> Self {
        self.horizon = Some(horizon);
        self
    }

    /// How long claims are kept, where that is longer than [`horizon`](Self::horizon) needs.
    #[must_use]
    pub fn retention(mut self, duration: Duration) -> Self {
        self.retention = Some(duration);
        self
    }

    /// Checks the description.
    ///
    /// # Errors
    ///
    /// All problems at once.
    pub fn build(self) -> Result<Consumer<B, S>, BuildError> {
        let mut problems = self.limits.problems();
        let retention = self.checked_retention().unwrap_or_else(|problem| {
            problems.push(problem);
            None
        });
        let Some(mut handler) = self.handler else {
            problems.push("there is no handler; call `.handler(PlaceOrderHandler)`".to_owned());
            return Err(BuildError { problems });
        };
        problems.extend(handler.unmet(&self.states));
        if !problems.is_empty() {
            return Err(BuildError { problems });
        }
        handler.set_states(self.states);
        let (batches, waiting) = match self.limits.batch_max {
            ..=1 => (None, None),
            2.. => {
                let (batches, waiting) = Batches::new(self.limits.in_flight_max);
                (Some(batches), Some(waiting))
            }
        };
        let shared = Shared {
            store: self.store,
            handler,
            limits: self.limits,
            places: Places::new(self.limits.in_flight_max),
            busy_keys: BusyKeys::default(),
            retention,
            from_dead_letters: self.source.is_dead_letter_queue(),
            batches,
            counters: Arc::new(Counters::default()),
            stop: watch::Sender::new(false),
        };
        Ok(Consumer { source: self.source, shared: Arc::new(shared), waiting })
    }
}

impl<B: Source, S: Store> ConsumerBuilder<B, S> {
    fn checked_retention(&self) -> Result<Option<Retention>, String> {
        let Some(horizon) = self.horizon else {
            return match self.retention {
                Some(_) => Err("`retention` needs a `horizon`, which says what is safe".to_owned()),
                None => Ok(None),
            };
        };
        let limits = self.limits;
        let delivery_max = limits.renewal_max.saturating_add(GIVEN_BACK_MAX);
        let least = horizon.total(delivery_max, limits.delivery_count_max);
        let kept = self.retention.unwrap_or(least);
        if kept >= least {
            return Ok(Some(Retention { horizon: least, kept }));
        }
        Err(format!(
            "a `retention` of {} is shorter than the time within which a message may come again, \
             {}: {} deliveries of up to {} and a lock, {} among the dead letters, and {} in which \
             the sender repeats itself",
            Readable(kept),
            Readable(least),
            limits.delivery_count_max,
            Readable(delivery_max),
            Readable(horizon.dead_letter_age_max),
            Readable(horizon.resend_window),
        ))
    }
}

impl Limits {
    fn problems(self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=2000).contains(&self.in_flight_max) {
            problems
                .push(format!("`in_flight_max` must be 1 to 2000, found {}", self.in_flight_max));
        }
        if !(1..=self.in_flight_max.max(1)).contains(&self.batch_max) {
            problems.push(format!(
                "`batch_max` must be 1 to `in_flight_max`, which is {}, found {}",
                self.in_flight_max, self.batch_max
            ));
        }
        if self.delivery_count_max == 0 {
            problems.push("`delivery_count_max` must be at least 1, found 0".to_owned());
        }
        if self.renewal_max.is_zero() {
            problems.push("`renewal_max` must be longer than zero".to_owned());
        }
        problems
    }
}

/// What is wrong with a consumer's description.
#[derive(Debug, thiserror::Error)]
#[error("the consumer cannot be built: {}", problems.join("; "))]
pub struct BuildError {
    problems: Vec<String>,
}

impl BuildError {
    /// One sentence for each problem.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}
