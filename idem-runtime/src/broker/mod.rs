//! The seam to the message broker: receive, renew, settle, send.
//!
//! The consumer knows only these traits. [`servicebus`] is the adapter for Azure Service Bus and
//! the only place that knows its client.

#[cfg(feature = "servicebus")]
mod connection_string;
#[cfg(feature = "servicebus")]
pub mod servicebus;

#[cfg(feature = "servicebus")]
pub use connection_string::ConnectionStringError;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::delivery::{Delivery, SourceId};
use crate::message_id::{MessageId, MessageIdError};
use crate::settle::Settlement;

/// Something that deliveries can be received from: a queue, a subscription, or the dead letters of
/// either.
pub trait Source: Send + Sync + 'static {
    /// The receiver that [`open`](Self::open) gives.
    type Receiver: Receiver;

    /// Where the deliveries come from, for level 1 keys.
    fn id(&self) -> &SourceId;

    /// Whether these are dead letters: there is no queue to dead-letter them to.
    fn is_dead_letter_queue(&self) -> bool;

    /// Connects and starts to receive.
    ///
    /// The broker may lock up to `prefetch` messages for this receiver ahead of
    /// [`Receiver::receive`]; at least one.
    fn open(
        &self,
        prefetch: u32,
    ) -> impl Future<Output = Result<Self::Receiver, BrokerError>> + Send;
}

/// An open receiver. Messages are locked for it, not taken away: what is not settled comes again.
pub trait Receiver: Send + 'static {
    /// Settles and renews what this receiver received.
    type Settler: Settler;

    /// A handle for the tasks that handle deliveries.
    fn settler(&self) -> Self::Settler;

    /// Waits for the next delivery, however long that takes.
    ///
    /// Dropping the future loses nothing. After an error the receiver is of no more use: open a
    /// new one.
    fn receive(&mut self) -> impl Future<Output = Result<Locked, BrokerError>> + Send;

    /// Takes no more messages, and gives back those that wait for [`receive`](Self::receive), which
    /// gives none from now on and only waits until the link has gone.
    ///
    /// What was received can be renewed and settled as before, until [`close`](Self::close).
    fn stop(&mut self);

    /// [Stops](Self::stop), lets what was given to the settler go out, and ends the links in order.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// A delivery under its lock.
#[derive(Debug)]
pub struct Locked {
    /// The message.
    pub delivery: Delivery,
    /// The lock that it is held under.
    pub lock: LockId,
    /// How long the lock holds from now, for all we know of the broker's clock: renewing tells for
    /// certain.
    pub lock_remaining: Duration,
}

/// Names a lock of one receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockId(pub u64);

/// Settles deliveries and renews their locks.
pub trait Settler: Clone + Send + Sync + 'static {
    /// Renews a lock and says how long it holds from now.
    fn renew(&self, lock: LockId) -> impl Future<Output = Result<Duration, BrokerError>> + Send;

    /// Has the broker told what becomes of a message. Returns when that is on its way, and `told`
    /// hears how it went. To wait for that here would wake a task for each message.
    ///
    /// [`Settlement::Leave`] tells nothing and forgets the lock.
    fn settle(
        &self,
        lock: LockId,
        settlement: Settlement,
        told: Told,
    ) -> impl Future<Output = ()> + Send;

    /// Gives a message back, for whoever is dropped before it has an outcome. A lock that is not held
    /// any more is none of its business.
    fn give_back(&self, lock: LockId);

    /// Says that a delivery waits for something else than a free place, and will be settled only when
    /// that has come about: until then the receiver receives another one in its place, where its
    /// deliveries come independently of each other. No more than [`ASIDE_MAX`] can be set aside.
    ///
    /// The lock stays as it is, and is renewed as before.
    fn set_aside(&self, lock: LockId) {
        let _ = lock;
    }
}

/// Hears once how a settlement went; [`BrokerError::Closed`] if the receiver ends before.
///
/// `Ok` means that the broker was told, not that it agreed: a lock may have run out, and then the
/// message comes again.
pub struct Told(Option<Hear>);

type Hear = Box<dyn FnOnce(Result<(), BrokerError>) + Send>;

impl Told {
    /// Calls `hear`, on whichever thread the settlement ends.
    pub fn new(hear: impl FnOnce(Result<(), BrokerError>) + Send + 'static) -> Self {
        Self(Some(Box::new(hear)))
    }

    /// Nobody wants to know.
    pub fn nobody() -> Self {
        Self(None)
    }

    /// Says how it went.
    pub fn tell(mut self, result: Result<(), BrokerError>) {
        self.say(result);
    }

    fn say(&mut self, result: Result<(), BrokerError>) {
        if let Some(hear) = self.0.take() {
            hear(result);
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.say(Err(BrokerError::Closed));
    }
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Told").finish_non_exhaustive()
    }
}

/// How many deliveries of one receiver can be [set aside](Settler::set_aside) at once.
pub const ASIDE_MAX: usize = 512;

/// What went wrong between us and the broker.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The connection string cannot be used.
    #[cfg(feature = "servicebus")]
    #[error(transparent)]
    ConnectionString(#[from] ConnectionStringError),
    /// The entity does not exist.
    #[error("there is no entity `{entity}` at `{namespace}`; create it, or correct the name")]
    NotFound {
        /// The namespace's host, and its port if that is not the usual one.
        namespace: String,
        /// The entity's path.
        entity: String,
    },
    /// The broker refused the credentials.
    #[error(
        "`{namespace}` refused the credentials; check key name and key, and that they may listen and send"
    )]
    Unauthorized {
        /// The namespace's host, and its port if that is not the usual one.
        namespace: String,
        /// The client's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The broker cannot be reached, or the connection broke.
    #[error("cannot reach `{namespace}`; check the endpoint, the network and that the broker runs")]
    Unreachable {
        /// The namespace's host, and its port if that is not the usual one.
        namespace: String,
        /// The client's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The lock is not held any more; the message comes again.
    #[error("the lock has run out")]
    LockLost,
    /// The receiver or sender has been closed.
    #[error("the link to the broker is closed")]
    Closed,
    /// The broker refused an operation for another reason.
    #[error("`{operation}` failed at `{namespace}`")]
    Operation {
        /// What was being done.
        operation: &'static str,
        /// The namespace's host, and its port if that is not the usual one.
        namespace: String,
        /// The client's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A message to be sent.
#[derive(Clone, Default)]
pub struct OutgoingMessage {
    /// The body's bytes.
    pub body: bytes::Bytes,
    /// The MessageId: level 1 and the broker's duplicate detection go by it. At most
    /// [128 bytes](crate::MESSAGE_ID_SIZE_MAX).
    pub message_id: Option<String>,
    /// The session that the message belongs to: within one, messages are handled in order. At most
    /// 128 characters. A queue with sessions takes no message without one; for others it means
    /// nothing.
    pub session_id: Option<String>,
    /// The subject, also known as label.
    pub subject: Option<String>,
    /// The content type of the body.
    pub content_type: Option<String>,
}

impl OutgoingMessage {
    /// A message whose body is `value` as JSON.
    ///
    /// # Errors
    ///
    /// When `value` cannot be serialized.
    pub fn json<T: serde::Serialize>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self {
            body: serde_json::to_vec(value)?.into(),
            content_type: Some("application/json".to_owned()),
            ..Self::default()
        })
    }

    /// Sets the MessageId.
    #[must_use]
    pub fn with_message_id(mut self, message_id: impl Into<String>) -> Self {
        self.message_id = Some(message_id.into());
        self
    }

    /// Sets the session that the message belongs to.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Sets the MessageId to that of `message`, which is the same whenever this message is sent: an
    /// entity with duplicate detection drops the second one.
    ///
    /// # Errors
    ///
    /// When `message` has no id that the broker takes.
    pub fn with_message_id_of<M: MessageId + ?Sized>(
        self,
        message: &M,
    ) -> Result<Self, MessageIdError> {
        Ok(self.with_message_id(message.message_id()?))
    }
}

impl fmt::Debug for OutgoingMessage {
    /// Bodies may be confidential: only the size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingMessage")
            .field("message_id", &self.message_id)
            .field("session_id", &self.session_id)
            .field("subject", &self.subject)
            .field("body_len", &self.body.len())
            .finish_non_exhaustive()
    }
}
