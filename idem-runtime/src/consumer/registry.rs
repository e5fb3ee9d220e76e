//! Handlers with their types erased, so that a consumer can hold them.

use std::any::TypeId;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;

use super::batches::Batches;
use crate::execute::{execute, execute_batch};
use crate::handler::{Context, Handler, HandlerSpec, Requirements, States};
use crate::outcome::Outcome;
use crate::store::Store;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A handler of a consumer.
pub(super) struct Registered<S: Store> {
    handler: Box<dyn Execute<S>>,
    type_id: TypeId,
    /// Where its deliveries are handled together, if they are.
    pub(super) batches: Option<Batches>,
}

impl<S: Store> Registered<S> {
    pub(super) fn new<H: Handler<S>>() -> Self {
        let handler = Box::new(Erased::<H>(PhantomData));
        Self { handler, type_id: TypeId::of::<H>(), batches: None }
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.type_id == other.type_id
    }

    pub(super) fn spec(&self) -> HandlerSpec {
        self.handler.spec()
    }

    /// One sentence for each state that the handler takes and `states` lacks.
    pub(super) fn unmet(&self, states: &States) -> Vec<String> {
        let mut requirements = Requirements::default();
        self.handler.require(&mut requirements);
        states.unmet(&requirements)
    }

    pub(super) async fn execute(&self, store: &S, context: &Context) -> Outcome {
        self.handler.execute(store, context).await
    }

    pub(super) async fn execute_batch(&self, store: &S, contexts: &[Context]) -> Vec<Outcome> {
        self.handler.execute_batch(store, contexts).await
    }
}

impl<S: Store> fmt::Debug for Registered<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.spec().fmt(f)
    }
}

trait Execute<S: Store>: Send + Sync {
    fn spec(&self) -> HandlerSpec;
    fn require(&self, requirements: &mut Requirements);
    fn execute<'a>(&'a self, store: &'a S, context: &'a Context) -> BoxFuture<'a, Outcome>;
    fn execute_batch<'a>(
        &'a self,
        store: &'a S,
        contexts: &'a [Context],
    ) -> BoxFuture<'a, Vec<Outcome>>;
}

struct Erased<H>(PhantomData<H>);

impl<H: Handler<S>, S: Store> Execute<S> for Erased<H> {
    fn spec(&self) -> HandlerSpec {
        H::SPEC
    }

    fn require(&self, requirements: &mut Requirements) {
        H::require(requirements);
    }

    fn execute<'a>(&'a self, store: &'a S, context: &'a Context) -> BoxFuture<'a, Outcome> {
        Box::pin(execute::<H, S>(store, context))
    }

    fn execute_batch<'a>(
        &'a self,
        store: &'a S,
        contexts: &'a [Context],
    ) -> BoxFuture<'a, Vec<Outcome>> {
        Box::pin(execute_batch::<H, S>(store, contexts))
    }
}
