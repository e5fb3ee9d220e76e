//! Azure Service Bus, through the crate `azservicebus`: the only place that knows it.
//!
//! ```no_run
//! # async fn run() -> Result<(), idem_runtime::broker::BrokerError> {
//! use idem_runtime::broker::servicebus::ServiceBus;
//!
//! let bus = ServiceBus::connect("Endpoint=sb://localhost;…;UseDevelopmentEmulator=true")?;
//! let waiting = bus.queue("orders").depth(1_000).await?;
//! let unbilled = bus.subscription("orders", "billing").depth(1_000).await?;
//! # Ok(()) }
//! ```

mod broker_clock;
mod credit;
mod depth;
mod error;
mod link;
mod links;
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

/// A queue as a source of deliveries, a topic's subscription, which is a queue to those who receive
/// from it, or the dead letters of either.
#[derive(Clone, Debug)]
pub struct Queue {
    bus: ServiceBus,
    /// The queue or the topic, which permissions go by.
    granted: Arc<str>,
    /// The path without the suffix of dead letters.
    path: Arc<str>,
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
        self.receiving_from(name, name)
    }

    /// What a subscription collects of its topic. Whether both exist shows when it is opened.
    ///
    /// Two subscriptions share no level 1 keys: each handles its own copy of a message.
    pub fn subscription(&self, topic: &str, subscription: &str) -> Queue {
        let topic = topic.trim_matches('/');
        let subscription = subscription.trim_matches('/');
        self.receiving_from(topic, &format!("{topic}/Subscriptions/{subscription}"))
    }

    /// Connects a sender to a queue or a topic.
    ///
    /// # Errors
    ///
    /// When the broker cannot be reached, refuses the credentials or has no such entity.
    pub async fn sender(&self, entity: &str) -> Result<Sender, BrokerError> {
        let entity = entity.trim_matches('/');
        let place = self.place(entity, entity.to_owned())?;
        Sender::open(Arc::clone(&self.connection_string), place).await
    }

    fn receiving_from(&self, granted: &str, path: &str) -> Queue {
        Queue {
            bus: self.clone(),
            id: SourceId::new(&self.connection_string.endpoint.to_string(), path),
            granted: granted.into(),
            path: path.into(),
            is_dead_letters: false,
        }
    }

    fn place(&self, granted: &str, path: String) -> Result<Place, BrokerError> {
        self.connection_string.check_entity(granted)?;
        Ok(Place { namespace: self.connection_string.endpoint.to_string(), entity: path })
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
    /// The dead letters, as a source of its own. Its id is that of the queue, so that a
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
        self.bus.place(&self.granted, format!("{}{suffix}", self.path))
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
