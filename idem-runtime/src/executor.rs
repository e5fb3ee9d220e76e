//! Exactly once for a loop that is not ours: a host of functions, a push endpoint, a receiver of
//! one's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span};

use crate::consumer::enter_ledger;
use crate::delivery::Delivery;
use crate::execute::execute;
use crate::handler::{Context, Handler, Requirements, States};
use crate::outcome::{Outcome, Reply};
use crate::patience::{GIVEN_BACK, HELD, is_worth_waiting, reason_of};
use crate::settle::{Settlement, Standing, settlement};
use crate::store::{Store, StoreError};
use crate::telemetry;
use crate::telemetry::metrics::Recorder;

/// Runs a handler once for each message, for whoever receives the messages.
///
/// It does all that a [`Consumer`](crate::Consumer) does between receiving and settling. Receiving,
/// renewing locks and settling are yours, and each delivery says how it is to be settled:
///
/// ```no_run
/// # use idem_runtime::{Delivery, Executor, Handler, Settlement, store::Store};
/// # async fn example<S: Store>(store: S, handler: impl Handler<S>, next: impl AsyncFn() -> Delivery)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// let orders = Executor::builder(store, handler).start().await?;
/// loop {
///     let delivery = next().await;
///     match orders.execute_once(delivery).await.into_settlement() {
///         Settlement::Complete(_) => { /* its effects are committed: remove it */ }
///         Settlement::Abandon(_failure) => { /* nothing was done: give it back */ }
///         Settlement::DeadLetter(why) => { /* it can never be handled: put it aside */ }
///         Settlement::Leave => { /* let its lock run out */ }
///     }
/// }
/// # }
/// ```
///
/// Only [`Settlement::Complete`] may remove a message. A host that can only say *handled* or *failed*
/// says *handled* for that one alone: a message whose key is busy is no duplicate yet, and would be
/// lost.
///
/// Start it once, and share it: deliveries can be executed at the same time, and how many is up to you
/// and to the store's connections. Claims are kept for ever; to prune is the duty of a consumer that
/// declares a [`horizon`](crate::ConsumerBuilder::horizon), since it also knows what may still come.
#[derive(Debug)]
pub struct Executor<H, S: Store> {
    handler: std::marker::PhantomData<fn() -> H>,
    store: S,
    states: Arc<States>,
    limits: Limits,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    patience: Duration,
    delivery_count_max: u32,
    handler_timeout: Option<Duration>,
}

/// Describes an [`Executor`].
#[derive(Debug)]
pub struct ExecutorBuilder<H, S: Store> {
    handler: std::marker::PhantomData<fn() -> H>,
    store: S,
    states: States,
    limits: Limits,
}

/// Why an executor did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The description does not hold together; one sentence for each problem.
    #[error("the executor cannot be started: {}", .0.join("; "))]
    Description(Vec<String>),
    /// The database cannot be reached, its ledger does not fit this build, or the scope's keys are of
    /// another kind there.
    #[error("the store is not ready")]
    Store(#[from] StoreError),
}

impl<H: Handler<S>, S: Store> Executor<H, S> {
    /// Starts to describe an executor of this handler with its effects in this store.
    pub fn builder(store: S, _: H) -> ExecutorBuilder<H, S> {
        let limits = Limits {
            patience: Duration::from_secs(10),
            delivery_count_max: 10,
            handler_timeout: None,
        };
        let (handler, states) = (std::marker::PhantomData, States::default());
        ExecutorBuilder { handler, store, states, limits }
    }

    /// Handles a delivery and says what it came to, and how it is to be settled.
    ///
    /// A handler's panic is one failed delivery. Dropping the future rolls back, except that a commit
    /// that has begun runs to its end; the message is then to come again.
    ///
    /// It is told in one span, one event and the metrics of deliveries, as a consumer's are.
    pub async fn execute_once(&self, delivery: Delivery) -> Executed {
        let recorder = Recorder::new(delivery.source());
        let _in_flight = recorder.in_flight();
        let span = telemetry::of_delivery(&delivery, Some(&H::SPEC));
        self.execute_and_tell(delivery, &recorder).instrument(span).await
    }

    async fn execute_and_tell(&self, delivery: Delivery, recorder: &Recorder) -> Executed {
        let (scope, count) = (H::SPEC.scope, delivery.delivery_count());
        let is_last = count >= self.limits.delivery_count_max;
        let standing = if is_last { Standing::Last } else { Standing::Earlier };
        let mut context = Context::new(delivery, Arc::clone(&self.states));
        if let Some(limit) = self.limits.handler_timeout {
            context = context.with_handler_timeout(limit);
        }
        let received = Instant::now();
        let outcome = self.execute_with_patience(&context, recorder).await;
        recorder.decided(scope, context.delivery(), &outcome, received.elapsed());
        telemetry::record_outcome(&Span::current(), &outcome);
        telemetry::report(&context, scope, &outcome);
        if reason_of(&outcome).is_some() && !is_last {
            let left = self.limits.patience.saturating_sub(received.elapsed());
            sleep(GIVEN_BACK.after(count).min(left)).await;
        }
        Executed { outcome, standing }
    }

    async fn execute_with_patience(&self, context: &Context, recorder: &Recorder) -> Outcome {
        let received = Instant::now();
        let mut holds: u32 = 0;
        loop {
            let outcome = execute::<H, S>(&self.store, context).await;
            holds = holds.saturating_add(1);
            let pause = HELD.after(holds);
            let has_patience = received.elapsed().saturating_add(pause) <= self.limits.patience;
            if !is_worth_waiting(&outcome) || !has_patience {
                return outcome;
            }
            if holds == 1 {
                recorder.held(H::SPEC.scope, reason_of(&outcome));
            }
            sleep(pause).await;
        }
    }
}

impl<H: Handler<S>, S: Store> ExecutorBuilder<H, S> {
    /// A value that the handler can take as [`State<T>`](crate::State); one for each type.
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// How long a delivery is held before it is to be given back; by default 10 seconds.
    ///
    /// A key that is busy, or a database that is away, is nothing that the message can help, and is
    /// tried again for so long. A message that has failed is held for a pause that grows with its
    /// deliveries, up to this. Both keep a broker that hands out at once what it is given back from
    /// using up the message's deliveries. It must be shorter than the lock that you hold.
    #[must_use]
    pub fn patience(mut self, duration: Duration) -> Self {
        self.limits.patience = duration;
        self
    }

    /// The `MaxDeliveryCount` of the queue, by default 10: a message that fails on this delivery is to
    /// be dead-lettered with the real reason.
    #[must_use]
    pub fn delivery_count_max(mut self, deliveries: u32) -> Self {
        self.limits.delivery_count_max = deliveries;
        self
    }

    /// How long the handler may run; without this, as long as it takes. It should be shorter than the
    /// lock that you hold. See [`Context::with_handler_timeout`].
    #[must_use]
    pub fn handler_timeout(mut self, limit: Duration) -> Self {
        self.limits.handler_timeout = Some(limit);
        self
    }

    /// Checks the description and the database, and registers the handler's scope in the ledger.
    ///
    /// # Errors
    ///
    /// All problems of the description at once, or what keeps the handler from claiming.
    pub async fn start(self) -> Result<Executor<H, S>, StartError> {
        let problems = self.problems();
        if !problems.is_empty() {
            return Err(StartError::Description(problems));
        }
        telemetry::metrics::describe();
        self.store.check().await?;
        enter_ledger(&self.store, &H::SPEC, None).await?;
        let Self { handler, store, states, limits } = self;
        Ok(Executor { handler, store, states: Arc::new(states), limits })
    }

    fn problems(&self) -> Vec<String> {
        let mut requirements = Requirements::default();
        H::require(&mut requirements);
        let mut problems = self.states.unmet(&requirements);
        if self.limits.delivery_count_max == 0 {
            problems.push("`delivery_count_max` must be at least 1, found 0".to_owned());
        }
        if self.limits.handler_timeout.is_some_and(|limit| limit.is_zero()) {
            problems.push("`handler_timeout` must be longer than zero".to_owned());
        }
        problems
    }
}

/// What a delivery came to, and how it is to be settled.
#[derive(Debug)]
#[must_use = "the message is to be settled as `into_settlement` says"]
pub struct Executed {
    outcome: Outcome,
    standing: Standing,
}

impl Executed {
    /// What it came to. Settle by [`into_settlement`](Self::into_settlement), which also knows whether
    /// this was the message's last delivery.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// What the handler returned, this time or when the message was first handled, if it is declared
    /// with `replay`.
    pub fn reply(&self) -> Option<&Reply> {
        match &self.outcome {
            Outcome::Done(proof) | Outcome::Duplicate(proof) => proof.reply(),
            Outcome::Conflict(_)
            | Outcome::Busy
            | Outcome::Retry(_)
            | Outcome::Reject(_)
            | Outcome::Unknown(_) => None,
        }
    }

    /// What the broker is to be told.
    pub fn into_settlement(self) -> Settlement {
        settlement(self.outcome, self.standing)
    }
}
