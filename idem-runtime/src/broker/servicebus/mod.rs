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
mod session_link;
mod sessions;
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

/// The sessions of a queue or subscription as a source of deliveries: see [`Queue::sessions`].
#[derive(Clone, Debug)]
pub struct Sessions {
    queue: Queue,
    sessions_max: u32,
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
    /// There is no other place for a dead letter that is not handled, so it stays. It is left under
    /// its lock, which lets those behind it pass, and comes again when the lock has run out: one that
    /// failed is then tried again, one that was rejected again is not, as long as the consumer runs.
    /// The next run handles it once more. More than [512](super::ASIDE_MAX) such letters hide the
    /// ones behind them: remove what can never be handled.
    #[must_use]
    pub fn dead_letters(mut self) -> Self {
        self.is_dead_letters = true;
        self
    }

    /// The sessions of a queue or subscription that requires them, up to `sessions_max` at once; at
    /// least one, and no more than may be in flight.
    ///
    /// Within a session, messages are handled one after the other in the order in which they were
    /// sent: the next one is received when the one before is settled, and one that is given back
    /// comes again before the others. Only a message that is dead-lettered lets those behind it pass.
    /// Sessions do not wait for each other. Where a session is busy elsewhere, since another
    /// consumer holds it, its messages are received there.
    ///
    /// A session is given up when it has had no message for a second, or has been held for half a
    /// minute, so that each session gets its turn, however many there are. Its lock is renewed as
    /// long as it is held. When it is lost, or this process ends, the session's messages go on where
    /// they were, here or elsewhere; what was committed meanwhile is met as a duplicate. The state of
    /// sessions is not used.
    ///
    /// Each session has a connection of its own, and one connection more asks for further sessions.
    /// The dead letters of a queue with sessions have none: receive them without this.
    #[must_use]
    pub fn sessions(self, sessions_max: u32) -> Sessions {
        Sessions { queue: self, sessions_max }
    }

    /// Counts the messages in the queue, up to `at_most`: also those that are locked, scheduled or
    /// deferred. It looks at each message, so `at_most` bounds the cost too. A queue with sessions
    /// shows its messages only session by session, and refuses to be counted.
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

impl Source for Sessions {
    type Receiver = LinkReceiver;

    fn id(&self) -> &SourceId {
        self.queue.id()
    }

    fn is_dead_letter_queue(&self) -> bool {
        self.queue.is_dead_letter_queue()
    }

    /// Each session has one message in flight, so there are no more sessions than `prefetch`.
    async fn open(&self, prefetch: u32) -> Result<LinkReceiver, BrokerError> {
        let place = self.queue.place()?;
        let sessions_max = self.sessions_max.min(prefetch);
        let (connection_string, id) = (self.queue.connection_string(), self.queue.id.clone());
        sessions::open(connection_string, place, id, sessions_max).await
    }
}
