//! What the attribute implements: a handler, its description and its arguments.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::delivery::{Decode, Delivery};
use crate::execute::Asker;
use crate::key::{Digest, Fingerprint, KeyEncoder};
use crate::outcome::{Failure, Reply};
use crate::store::{AnyWork, Store, Work};

/// How a handler is made idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The handler itself is naturally idempotent: nothing is claimed.
    Zero,
    /// Deduplicated by the broker's MessageId, within its source.
    One,
    /// Deduplicated by the fields that identify the operation.
    Two,
}

impl Level {
    /// The number that the attribute takes.
    pub const fn number(self) -> u8 {
        match self {
            Self::Zero => 0,
            Self::One => 1,
            Self::Two => 2,
        }
    }
}

/// The fixed facts about a handler.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandlerSpec {
    /// The function's name, for logs.
    pub name: &'static str,
    /// The stable name under which its keys live.
    pub scope: &'static str,
    /// Names under which they lived earlier: what was done under these is done.
    pub was: &'static [&'static str],
    /// How it is made idempotent.
    pub level: Level,
    /// The key's field paths in their declared order; empty below level 2.
    pub key: &'static [&'static str],
    /// The unique constraint of a table of the handler's that stands in place of a claim: the key's
    /// fields are its columns, in its order.
    pub constraint: Option<&'static str>,
    /// The paths of the fields that must agree among messages of one key.
    pub same: &'static [&'static str],
}

impl HandlerSpec {
    /// The facts that every handler has.
    pub const fn new(name: &'static str, scope: &'static str, level: Level) -> Self {
        Self { name, scope, was: &[], level, key: &[], constraint: None, same: &[] }
    }

    /// With the names under which its keys lived earlier.
    #[must_use]
    pub const fn with_was(mut self, scopes: &'static [&'static str]) -> Self {
        self.was = scopes;
        self
    }

    /// With the key's field paths, which level 2 needs.
    #[must_use]
    pub const fn with_key(mut self, fields: &'static [&'static str]) -> Self {
        self.key = fields;
        self
    }

    /// With a unique constraint in place of a claim.
    #[must_use]
    pub const fn with_constraint(mut self, name: &'static str) -> Self {
        self.constraint = Some(name);
        self
    }

    /// With the paths of the fields that must agree among messages of one key.
    #[must_use]
    pub const fn with_same(mut self, fields: &'static [&'static str]) -> Self {
        self.same = fields;
        self
    }

    /// All scopes that it claims under, its own last.
    ///
    /// A handler that had another scope claims under that one too. So both versions of a service can
    /// run side by side, and exclude each other.
    pub fn scopes(&self) -> impl Iterator<Item = &'static str> + use<> {
        let scope = self.scope;
        self.was.iter().copied().filter(move |was| *was != scope).chain([scope])
    }
}

/// A handler for deliveries, with its effects in the database of `S`: a [`Definition`] whose
/// transaction is one of that store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler for `{S}`",
    label = "not a handler for this store",
    note = "pass the struct that `#[idempotent]` generates: `place_order` becomes `PlaceOrderHandler`",
    note = "its transaction `&mut Tx<_>` must name the store that the consumer was built with"
)]
pub trait Handler<S: Store>: Definition<Work: Work<S>> {}

#[diagnostic::do_not_recommend]
impl<D: Definition<Work: Work<S>>, S: Store> Handler<S> for D {}

/// What [`#[idempotent]`](crate::idempotent) says of a function, for the struct that it generates.
///
/// Whoever implements it by hand answers for what the attribute would refuse, such as a level without
/// the transaction that it takes.
pub trait Definition: Send + Sync + 'static {
    /// The fixed facts about this handler.
    const SPEC: HandlerSpec;

    /// What a delivery's body is decoded into.
    type Message: Send;

    /// What decodes it: [`Json`](crate::delivery::Json), or what the handler names with `decode`.
    type Decode: Decode<Self::Message>;

    /// The unit of work that the handler runs in: [`Tx<S>`](crate::Tx), or
    /// [`NoTransaction`](crate::store::NoTransaction) at level 0.
    type Work: AnyWork;

    /// Appends the key's fields; does nothing below level 2.
    fn key(message: &Self::Message, key: &mut KeyEncoder) {
        let _ = (message, key);
    }

    /// Appends the fields that must agree among messages of one key.
    fn same(message: &Self::Message, same: &mut Fingerprint) {
        let _ = (message, same);
    }

    /// Names what the extractors need, so that a consumer without it is refused at start.
    fn require(requirements: &mut Requirements) {
        let _ = requirements;
    }

    /// Calls the function. A reply is kept with the claim, for duplicates.
    ///
    /// # Errors
    ///
    /// When an extractor finds nothing.
    fn call<'a>(
        work: &'a mut Self::Work,
        message: Self::Message,
        context: &'a Context,
    ) -> Result<Calling<'a>, Failure>;

    /// Calls the function for many messages in one transaction: once, if it takes them all, and
    /// otherwise for one after the other. There are as many replies as messages.
    ///
    /// # Errors
    ///
    /// When an extractor finds nothing.
    fn call_batch<'a>(
        work: &'a mut Self::Work,
        messages: Vec<Self::Message>,
        contexts: &'a [&'a Context],
    ) -> Result<Calling<'a, Vec<Option<Reply>>>, Failure> {
        Ok(Box::pin(async move {
            let mut replies = Vec::with_capacity(messages.len());
            for (message, context) in messages.into_iter().zip(contexts) {
                replies.push(Self::call(work, message, context)?.await?);
            }
            Ok(replies)
        }))
    }
}

/// The call of a handler, which runs when it is awaited.
///
/// It is boxed, since it costs the compiler much less than a type of its own for each handler.
pub type Calling<'a, T = Option<Reply>> =
    Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// What a handler is called with beside its transaction and message.
#[derive(Clone, Debug)]
pub struct Context {
    delivery: Arc<Delivery>,
    states: Arc<States>,
    handler_timeout: Option<Duration>,
    /// Its relation to other deliveries of its key, where there may be some.
    asker: Option<Asker>,
}

impl Context {
    /// The context of one delivery, with the states that extractors take.
    pub fn new(delivery: impl Into<Arc<Delivery>>, states: impl Into<Arc<States>>) -> Self {
        let (delivery, states) = (delivery.into(), states.into());
        Self { delivery, states, handler_timeout: None, asker: None }
    }

    /// The context of one delivery, for a handler that takes no [`State`].
    pub fn of(delivery: impl Into<Arc<Delivery>>) -> Self {
        Self::new(delivery, States::default())
    }

    /// Limits how long the handler may run; without this it may take as long as it takes.
    ///
    /// A handler that runs longer is stopped where it waits, its transaction is rolled back, and the
    /// outcome is [`RetryReason::TimedOut`](crate::outcome::RetryReason::TimedOut). Beginning,
    /// claiming and committing are no part of this time, and are never stopped. Of a batch that is
    /// handled together, the shortest limit is for all.
    #[must_use]
    pub fn with_handler_timeout(mut self, limit: Duration) -> Self {
        self.handler_timeout = Some(limit);
        self
    }

    /// The delivery that is being handled.
    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    pub(crate) fn handler_timeout(&self) -> Option<Duration> {
        self.handler_timeout
    }

    /// Waits for other deliveries of its key in this process, and lets them wait for it.
    pub(crate) fn among(mut self, asker: Asker) -> Self {
        self.asker = Some(asker);
        self
    }

    pub(crate) fn asker(&self) -> Option<&Asker> {
        self.asker.as_ref()
    }

    /// Whether the delivery has found its key busy.
    pub(crate) fn has_waited(&self) -> bool {
        self.asker().is_some_and(Asker::has_waited)
    }

    /// Whether another delivery of this process is busy with the key.
    pub(crate) fn is_behind(&self, digest: Digest) -> bool {
        self.asker().is_some_and(|asker| asker.is_behind(digest))
    }

    /// Says that this delivery is busy with the key.
    pub(crate) fn go_ahead(&self, digest: Digest) {
        if let Some(asker) = self.asker() {
            asker.go_ahead(digest);
        }
    }
}

/// An argument that a handler may take after its message.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a handler can take",
    label = "not an extractor",
    note = "after the message come extractors: `&Delivery` or `State<T>`"
)]
pub trait FromContext<'a>: Sized {
    /// Takes the argument out of the context.
    ///
    /// # Errors
    ///
    /// When the context lacks what [`require`](Self::require) names.
    fn from_context(context: &'a Context) -> Result<Self, Failure>;

    /// Names what must be there before the first delivery.
    fn require(requirements: &mut Requirements) {
        let _ = requirements;
    }
}

impl<'a> FromContext<'a> for &'a Delivery {
    fn from_context(context: &'a Context) -> Result<Self, Failure> {
        Ok(context.delivery())
    }
}

/// An argument that a handler may take after a batch of messages.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an argument that a `batch` handler can take",
    label = "not an extractor for batches",
    note = "after the messages comes `State<T>`; a batch has many deliveries, so there is no `&Delivery`"
)]
pub trait FromBatch: Sized {
    /// Takes the argument out of the contexts of the batch.
    ///
    /// # Errors
    ///
    /// When they lack what [`require`](Self::require) names.
    fn from_batch(contexts: &[&Context]) -> Result<Self, Failure>;

    /// Names what must be there before the first delivery.
    fn require(requirements: &mut Requirements);
}

impl<T: Clone + Send + Sync + 'static> FromBatch for State<T> {
    fn from_batch(contexts: &[&Context]) -> Result<Self, Failure> {
        let context = contexts.first().ok_or("a batch has no messages")?;
        Self::from_context(context)
    }

    fn require(requirements: &mut Requirements) {
        <Self as FromContext<'_>>::require(requirements);
    }
}

/// Shared state for handlers: a client, a pool, a configuration.
///
/// Give the value to the consumer with [`state`](crate::ConsumerBuilder::state); each call gets a
/// clone.
#[derive(Clone, Copy, Debug)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromContext<'_> for State<T> {
    fn from_context(context: &Context) -> Result<Self, Failure> {
        match context.states.get::<T>() {
            Some(value) => Ok(Self(value.clone())),
            None => Err(Failure::from(missing_state(type_name::<T>()))),
        }
    }

    fn require(requirements: &mut Requirements) {
        requirements.0.push((TypeId::of::<T>(), type_name::<T>()));
    }
}

fn missing_state(name: &str) -> String {
    format!("the handler takes `State<{name}>`, but no such state was given; call `.state(value)`")
}

/// The states that handlers can take, one a type.
#[derive(Default)]
pub struct States(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl States {
    /// Adds a state, in place of an earlier one of the same type.
    pub fn insert<T: Clone + Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// One sentence for each requirement that is not met.
    pub(crate) fn unmet(&self, requirements: &Requirements) -> Vec<String> {
        let missing = requirements.0.iter().filter(|(id, _)| !self.0.contains_key(id));
        missing.map(|(_, name)| missing_state(name)).collect()
    }
}

impl std::fmt::Debug for States {
    /// States may hold secrets: only their number is shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("States").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

/// What a handler's extractors need from the consumer.
#[derive(Debug, Default)]
pub struct Requirements(Vec<(TypeId, &'static str)>);
