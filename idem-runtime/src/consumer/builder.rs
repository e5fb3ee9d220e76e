//! Describes a consumer and refuses what cannot work before the first delivery.

use std::any::type_name;
use std::sync::Arc;
use std::time::Duration;

use super::batches::Batches;
use super::handle::{Alive, Control};
use super::places::Places;
use super::refused::Refused;
use super::routes::RoutesDescription;
use super::{Consumer, Counters, Limits, Shared};
use crate::broker::Source;
use crate::execute::BusyKeys;
use crate::handler::{Handler, States};
use crate::horizon::{Horizon, Readable, Retention};
use crate::patience::GIVEN_BACK_MAX;
use crate::store::Store;

/// Describes a [`Consumer`].
#[derive(Debug)]
pub struct ConsumerBuilder<B: Source, S: Store> {
    source: B,
    store: S,
    routes: RoutesDescription<S>,
    states: States,
    /// The types of which more than one state was given.
    states_given_twice: Vec<&'static str>,
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
            handler_timeout: None,
            shutdown_deadline: Duration::from_secs(30),
        };
        Self {
            source,
            store,
            routes: RoutesDescription::default(),
            states: States::default(),
            states_given_twice: Vec::new(),
            limits,
            horizon: None,
            retention: None,
        }
    }

    /// The handler for all messages of the source: the struct that the attribute generated.
    ///
    /// Beside [routes](Self::route), it is for the messages that none of them names.
    #[must_use]
    pub fn handler<H: Handler<S>>(mut self, _: H) -> Self {
        self.routes.add_fallback::<H>();
        self
    }

    /// The handler for messages with this subject, to the letter; as many routes as there are
    /// subjects, and a handler may have several.
    ///
    /// A message that no route names is for [`handler`](Self::handler). Without one, it is
    /// dead-lettered as `Unroutable`, with what was found and what there are routes for.
    ///
    /// Each handler has its own level, scope and batches.
    #[must_use]
    pub fn route<H: Handler<S>>(mut self, subject: impl Into<String>, _: H) -> Self {
        self.routes.add_route::<H>(subject.into());
        self
    }

    /// Names the application property that [routes](Self::route) go by, in place of the subject: a
    /// text, or an integer in decimal digits.
    #[must_use]
    pub fn route_by_property(mut self, name: impl Into<String>) -> Self {
        self.routes.route_by_property(name.into());
        self
    }

    /// A value that handlers can take as [`State<T>`](crate::State); one for each type.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        if self.states.get::<T>().is_some() {
            self.states_given_twice.push(type_name::<T>());
        }
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
    /// A batch takes what is ready when the one before has ended, and does not wait to become full. A
    /// full one does not wait for that either: with `in_flight_max` at several times this, so many
    /// batches run side by side, each with a connection of its own. Messages that have failed or were
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
    /// broker would only say that the count was exceeded. A lower number than the queue's is allowed,
    /// and then counts.
    ///
    /// Links do not tell the queue's number, so that nobody warns of one that is lower than this. The
    /// broker then dead-letters by its own, as `MaxDeliveryCountExceeded`, and the real reasons are in
    /// the log alone.
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

    /// How long a handler may run; without this, as long as it takes.
    ///
    /// A handler that hangs keeps its place among the messages in flight, its connection and its key
    /// for ever. With a limit it is stopped where it waits, its transaction is rolled back, and its
    /// message fails like one whose handler returned an error. Nothing else is ever stopped: not the
    /// beginning of a transaction, nor the claim, nor the commit. What the handler has started
    /// elsewhere, such as a call to another service, may go on.
    ///
    /// A handler that waits for a statement of its own leaves the server at work: its rollback
    /// waits for that, for a minute at most, and its key is busy until then. A time-out of
    /// statements, set in the database and shorter than this one, spares that.
    ///
    /// At most [`renewal_max`](Self::renewal_max), so that the lock is held until the handler is
    /// stopped. A batch that is handled together has this time for all its messages, and each
    /// message has it again where they are then handled one by one.
    #[must_use]
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.limits.handler_timeout = Some(limit);
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
        problems.extend(self.routes.problems(&self.states));
        problems.extend(self.states_given_twice.iter().map(|name| {
            format!("two states of type `{name}` were given; wrap one of them in a type of its own")
        }));
        if !problems.is_empty() {
            return Err(BuildError { problems });
        }
        let mut queues = Vec::new();
        let routes = self.routes.into_routes(|handler| {
            if self.limits.batch_max > 1 {
                let (batches, waiting) = Batches::new(self.limits.in_flight_max);
                handler.batches = Some(batches);
                queues.push(waiting);
            }
        });
        let waiting = routes.handlers().iter().cloned().zip(queues).collect();
        let counters = Arc::new(Counters::new(self.source.id()));
        let control = Arc::new(Control::new(Arc::clone(&counters)));
        let alive = Alive(Arc::clone(&control));
        let shared = Shared {
            store: self.store,
            routes,
            states: Arc::new(self.states),
            limits: self.limits,
            places: Places::new(self.limits.in_flight_max),
            busy_keys: BusyKeys::default(),
            refused: Refused::default(),
            retention,
            from_dead_letters: self.source.is_dead_letter_queue(),
            counters,
            control,
        };
        let shared = Arc::new(shared);
        Ok(Consumer { source: self.source, shared, waiting, _alive: alive })
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
        if self.routes.leave_nothing() {
            return Err("`horizon` has no effect at level 0, where nothing is claimed".to_owned());
        }
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
        if let Some(limit) = self.handler_timeout {
            problems.extend(self.handler_timeout_problem(limit));
        }
        problems
    }

    fn handler_timeout_problem(self, limit: Duration) -> Option<String> {
        if limit.is_zero() {
            return Some("`handler_timeout` must be longer than zero".to_owned());
        }
        let renewal_max = self.renewal_max;
        (limit > renewal_max).then(|| {
            format!(
                "`handler_timeout` is {limit:?}, and locks are renewed for {renewal_max:?} only: a \
                 slow handler would lose its lock before it is stopped; lower it, or raise \
                 `renewal_max`"
            )
        })
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
