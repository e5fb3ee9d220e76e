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
mod places;
mod process;
mod registry;
mod renewal;
mod run;
mod signal;
#[cfg(test)]
mod tests;
mod upkeep;

pub use builder::{BuildError, ConsumerBuilder};
pub use counters::{Counters, Summary};
pub use run::RunError;
pub use signal::shutdown_signal;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::broker::Source;
use crate::execute::BusyKeys;
use crate::horizon::Retention;
use crate::store::Store;
use batches::{Batches, Waiting};
use places::Places;
use registry::Registered;

/// Receives from one source and runs a handler for each delivery.
///
/// While [`run_until`](Self::run_until) runs, locks are renewed from the runtime it runs on; a
/// runtime that is blocked for longer than half a lock loses locks, and their messages come again.
#[derive(Debug)]
pub struct Consumer<B: Source, S: Store> {
    source: B,
    shared: Arc<Shared<S>>,
    /// Deliveries that are to be handled in batches.
    waiting: Option<mpsc::Receiver<Waiting>>,
}

/// What the tasks of all deliveries share.
#[derive(Debug)]
struct Shared<S: Store> {
    store: S,
    handler: Registered<S>,
    limits: Limits,
    places: Places,
    busy_keys: BusyKeys,
    /// How long claims are kept; for ever, if absent.
    retention: Option<Retention>,
    from_dead_letters: bool,
    /// Where deliveries are handled together, if they are.
    batches: Option<Batches>,
    counters: Arc<Counters>,
    /// Becomes true when the consumer is asked to stop.
    stop: watch::Sender<bool>,
}

impl<S: Store> Shared<S> {
    /// Completes when the consumer is asked to stop.
    async fn stopping(&self) {
        self.stop.subscribe().wait_for(|stop| *stop).await.ok();
    }
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    in_flight_max: u32,
    batch_max: u32,
    delivery_count_max: u32,
    renewal_max: Duration,
    shutdown_deadline: Duration,
}

impl<B: Source, S: Store> Consumer<B, S> {
    /// Starts to describe a consumer of this source with its effects in this store.
    pub fn builder(source: B, store: S) -> ConsumerBuilder<B, S> {
        ConsumerBuilder::new(source, store)
    }

    /// Counts of what has happened so far; readable while the consumer runs.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.shared.counters)
    }
}
