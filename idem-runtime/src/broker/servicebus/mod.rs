//! Azure Service Bus, through the crate `azservicebus`: the only place that knows it.
//!
//! ```no_run
//! # async fn run() -> Result<(), idem_runtime::broker::BrokerError> {
//! use idem_runtime::broker::servicebus::ServiceBus;
//!
//! let bus = ServiceBus::connect("Endpoint=sb://localhost;…;UseDevelopmentEmulator=true")?;
//! let waiting = bus.queue("orders").depth(1_000).await?;
//! # Ok(()) }
//! ```

mod broker_clock;
mod credit;
mod depth;
mod error;
mod link;
mod message;
mod receiver;
mod renewal;
mod sender;
#[cfg(test)]
mod tests;
mod worker;

pub use receiver::{LinkReceiver, LinkSettler};
pub use sender::Sender;

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};

use super::connection_string::ConnectionString;
use super::{BrokerError, Source};
use crate::delivery::SourceId;
use error::Place;

const DEAD_LETTER_SUFFIX: &str = "/$DeadLetterQueue";

/// A namespace of Azure Service Bus, or an emulator. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ServiceBus {
    connection_string: Arc<ConnectionString>,
}

/// A queue, or its dead-letter queue, as a source of deliveries.
#[derive(Clone, Debug)]
pub struct Queue {
    bus: ServiceBus,
    /// The name without suffix, which permissions go by.
    name: Arc<str>,
    is_dead_letters: bool,
    id: SourceId,
}

impl ServiceBus {
    /// Takes a connection string, and checks it; nothing is connected yet.
    ///
    /// With `UseDevelopmentEmulator=true` connections go without TLS to the endpoint's port,
    /// otherwise by TLS.
    ///
    /// # Errors
    ///
    /// When the connection string cannot be used, and what to write instead.
    pub fn connect(connection_string: &str) -> Result<Self, BrokerError> {
        let connection_string = ConnectionString::parse(connection_string)?;
        choose_cryptography();
        Ok(Self { connection_string: Arc::new(connection_string) })
    }

    /// A queue of the namespace. Whether it exists shows when it is opened.
    pub fn queue(&self, name: &str) -> Queue {
        let name = name.trim_matches('/');
        Queue {
            bus: self.clone(),
            id: SourceId::new(&self.connection_string.endpoint.to_string(), name),
            name: name.into(),
            is_dead_letters: false,
        }
    }

    /// Connects a sender to a queue.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached, refuses the credentials or has no such queue.
    pub async fn sender(&self, queue: &str) -> Result<Sender, BrokerError> {
        let place = self.place(queue.trim_matches('/'), "")?;
        Sender::open(Arc::clone(&self.connection_string), place).await
    }

    fn place(&self, entity: &str, suffix: &str) -> Result<Place, BrokerError> {
        self.connection_string.check_entity(entity)?;
        Ok(Place {
            namespace: self.connection_string.endpoint.to_string(),
            entity: format!("{entity}{suffix}"),
        })
    }
}

/// The client takes the default of rustls, which is what the program has chosen, or else the only
/// one that is built in. Where other crates have built in another, there would be none, and
/// connecting would panic.
fn choose_cryptography() {
    if CryptoProvider::get_default().is_none() {
        // Fails when somebody else has just chosen.
        ring::default_provider().install_default().ok();
    }
}

impl Queue {
    /// The queue's dead letters, as a source of its own. Its id is that of the queue, so that a
    /// message keeps its level 1 key when it is handled from there.
    ///
    /// A dead letter that fails again is given back after a pause, and one that is rejected again
    /// stays locked until its lock ends: there is no other place for either. As many of these as
    /// may be in flight hide the ones behind them, so remove what can never be handled.
    #[must_use]
    pub fn dead_letters(mut self) -> Self {
        self.is_dead_letters = true;
        self
    }

    /// Counts the messages in the queue, up to `at_most`: also those that are locked, scheduled or
    /// deferred. It looks at each message, so `at_most` bounds the cost too.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached, refuses the credentials or has no such queue.
    pub async fn depth(&self, at_most: u32) -> Result<u32, BrokerError> {
        depth::count(self.connection_string(), self.place()?, at_most).await
    }

    fn connection_string(&self) -> Arc<ConnectionString> {
        Arc::clone(&self.bus.connection_string)
    }

    fn place(&self) -> Result<Place, BrokerError> {
        let suffix = if self.is_dead_letters { DEAD_LETTER_SUFFIX } else { "" };
        self.bus.place(&self.name, suffix)
    }
}

impl Source for Queue {
    type Receiver = LinkReceiver;

    fn id(&self) -> &SourceId {
        &self.id
    }

    fn is_dead_letter_queue(&self) -> bool {
        self.is_dead_letters
    }

    async fn open(&self, prefetch: u32) -> Result<LinkReceiver, BrokerError> {
        let place = self.place()?;
        LinkReceiver::open(self.connection_string(), place, self.id.clone(), prefetch).await
    }
}
