//! The consumer: it receives, lets [`execute`](crate::execute()) do the work under a renewed lock,
//! and settles.
//!
//! Everything is bounded: as many messages are held as may be in flight, and a number of others that
//! wait for a busy key; back-pressure means not to receive. A message is settled only when its outcome is known; whatever happens to this
//! process, the broker gives an unsettled message out again, and the claim tells whether it was
//! done.

mod batches;
mod builder;
mod counters;
mod handle;
mod health;
mod places;
mod process;
mod refused;
mod registry;
mod renewal;
mod routes;
mod run;
mod signal;
#[cfg(test)]
mod tests;
mod upkeep;

pub use builder::{BuildError, ConsumerBuilder};
pub use counters::{Counters, Summary};
pub use handle::ConsumerHandle;
pub use health::{Health, Outage};
pub use run::RunError;
pub use signal::shutdown_signal;
pub(crate) use upkeep::enter_ledger;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::broker::Source;
use crate::delivery::Delivery;
use crate::execute::BusyKeys;
use crate::handler::{Context, States};
use crate::horizon::Retention;
use crate::store::Store;
use batches::Waiting;
use handle::{Alive, Control};
use places::Places;
use refused::Refused;
use registry::Registered;
use routes::Routes;

/// Receives from one source and runs a handler for each delivery.
///
/// While [`run_until`](Self::run_until) runs, locks are renewed from the runtime it runs on; a
/// runtime that is blocked for longer than half a lock loses locks, and their messages come again.
#[derive(Debug)]
pub struct Consumer<B: Source, S: Store> {
    source: B,
    shared: Arc<Shared<S>>,
    /// Deliveries that are to be handled in batches, by their handlers.
    waiting: Vec<(Arc<Registered<S>>, mpsc::Receiver<Waiting>)>,
    _alive: Alive,
}

/// What the tasks of all deliveries share.
#[derive(Debug)]
struct Shared<S: Store> {
    store: S,
    routes: Routes<S>,
    /// What handlers can take as `State<T>`.
    states: Arc<States>,
    limits: Limits,
    places: Places,
    busy_keys: BusyKeys,
    /// How long claims are kept; for ever, if absent.
    retention: Option<Retention>,
    from_dead_letters: bool,
    /// Dead letters that are not handled again.
    refused: Refused,
    counters: Arc<Counters>,
    /// What the consumer has been told to do, and how it is.
    control: Arc<Control>,
}

impl<S: Store> Shared<S> {
    fn context(&self, delivery: Delivery) -> Context {
        let context = Context::new(delivery, Arc::clone(&self.states));
        match self.limits.handler_timeout {
            Some(limit) => context.with_handler_timeout(limit),
            None => context,
        }
    }

    /// Completes when the consumer is asked to stop.
    async fn stopping(&self) {
        self.control.stopping().await;
    }
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    in_flight_max: u32,
    batch_max: u32,
    delivery_count_max: u32,
    renewal_max: Duration,
    handler_timeout: Option<Duration>,
    shutdown_deadline: Duration,
}

impl<B: Source, S: Store> Consumer<B, S> {
    /// Starts to describe a consumer of this source with its effects in this store.
    pub fn builder(source: B, store: S) -> ConsumerBuilder<B, S> {
        ConsumerBuilder::new(source, store)
    }

    /// Stops, pauses and inspects the consumer while it runs.
    pub fn handle(&self) -> ConsumerHandle {
        ConsumerHandle::new(Arc::clone(&self.shared.control))
    }

    /// Counts of what has happened so far; readable while the consumer runs.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }
}
