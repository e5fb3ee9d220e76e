//! The broker: entities, messages, locks and dead-letter queues. No protocol and no sockets.
//!
//! Every operation is one short critical section on one queue. Whoever waits for messages leaves a
//! [`Waker`](std::task::Waker); whoever must act when time brings something waits on the [`Alarm`].

mod alarm;
mod duplicates;
mod limits;
mod message;
mod queue;
mod sessions;
mod store;
#[cfg(test)]
mod tests;
mod timers;
mod topology;
mod transaction;
mod waiters;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use tokio::sync::watch;
use uuid::{Builder, Uuid};

pub(crate) use alarm::Alarm;
pub(crate) use limits::LimitError;
#[cfg(test)]
pub(crate) use message::Amendments;
pub(crate) use message::{DeadLetter, Message, MessageState, Property, Submission};
pub use queue::{Counts, Kind};
pub(crate) use queue::{
    DeferredError, Delivery, MessageNotFound, Part, Queue, ReceiveMode, SendError, SessionError,
    SessionGrant, SessionWish, SettleError, Settlement,
};
use topology::Directory;
pub(crate) use topology::Topology;
pub(crate) use transaction::{Transaction, TransactionError};
pub(crate) use waiters::ConsumerId;

use crate::clock::{Clock, OnAdvance, Timestamp};
use crate::error::{EntityError, UnknownEntity};
use crate::events::Events;
use crate::faults::{Ending, Faults};
use crate::options::SubscriptionOptions;
use timers::Timers;

/// The dead-letter reason of a message whose deliveries failed too often.
const MAX_DELIVERY_COUNT_EXCEEDED: &str = "MaxDeliveryCountExceeded";

/// The dead-letter reason of a message that was not received in time.
const TTL_EXPIRED: &str = "TTLExpiredException";

/// The dead-letter reason of a message that was forwarded too often.
const TOO_MANY_FORWARDS: &str = "MaxTransferHopCountExceeded";

/// The dead-letter reason of a message that was to be forwarded to an entity that is gone.
const TARGET_NOT_FOUND: &str = "MessagingEntityNotFound";

/// The dead-letter reason of a message that was to be forwarded to an entity that is full.
const TARGET_FULL: &str = "QuotaExceeded";

/// The dead-letter reason of a message that came to an entity with sessions and has none.
const SESSION_ID_IS_NULL: &str = "Session ID is null";

/// The dead-letter reason of a message that a rule made too large.
const HEADER_SIZE_EXCEEDED: &str = "HeaderSizeExceeded";

/// How often a message may be forwarded.
const FORWARDS_MAX: u8 = 4;

/// How a client is to be told what became of what it sent or decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledgement {
    /// At once.
    Now,
    /// A fault delays it.
    At(Timestamp),
    /// A fault lost it.
    Never,
    /// A fault lost it, and ends the link.
    LinkEnds,
    /// A fault lost it, and ends the connection.
    ConnectionEnds(Ending),
}

/// What all queues of a broker share.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) clock: Clock,
    pub(crate) events: Events,
    pub(crate) faults: Faults,
    pub(crate) alarm: Alarm,
    timers: Timers,
    tokens: Tokens,
    /// The broker owns the entities, and they share this.
    directory: Weak<Directory>,
    /// Changes whenever entities are gone, so that the links to them can end.
    deletions: watch::Sender<()>,
}

impl Context {
    fn entity(&self, path: &str) -> Option<Arc<Queue>> {
        self.directory.upgrade()?.find(path)
    }
}

impl Context {
    /// Wakes somebody once, at a point in time.
    pub(crate) fn wake_at(&self, at: Timestamp, waker: Waker) {
        self.timers.add(at, waker);
        self.alarm.arm(at);
    }
}

/// A node that clients can address.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) queue: Arc<Queue>,
    pub(crate) part: Part,
}

impl Node {
    pub(crate) fn name(&self) -> &Arc<str> {
        self.queue.name(self.part)
    }
}

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) context: Arc<Context>,
    directory: Arc<Directory>,
    next_consumer: AtomicU64,
}

impl Broker {
    /// Checks the options, and makes what they describe.
    pub(crate) fn new(
        topology: Topology,
        clock: Clock,
        events: Events,
    ) -> Result<Self, EntityError> {
        let directory = Arc::new(Directory::default());
        let context = Arc::new(Context {
            clock,
            events,
            faults: Faults::default(),
            alarm: Alarm::default(),
            timers: Timers::default(),
            tokens: Tokens::new(),
            directory: Arc::downgrade(&directory),
            deletions: watch::Sender::new(()),
        });
        let broker = Self { context, directory, next_consumer: AtomicU64::new(1) };
        broker.create(topology)?;
        Ok(broker)
    }

    /// Checks the options, and makes what they describe: all or nothing.
    pub(crate) fn create(&self, topology: Topology) -> Result<(), EntityError> {
        self.directory.create(topology, &self.context)
    }

    pub(crate) fn create_subscription(
        &self,
        topic: &str,
        options: SubscriptionOptions,
    ) -> Result<(), EntityError> {
        self.directory.create_subscription(topic, options, &self.context)
    }

    /// Deletes an entity, a topic with its subscriptions. Their messages are gone, and the links to
    /// them are about to end.
    pub(crate) fn delete(&self, path: &str) -> Result<(), UnknownEntity> {
        let removed = self.directory.remove(path);
        if removed.is_empty() {
            return Err(UnknownEntity { name: path.to_owned() });
        }
        for entity in removed {
            entity.delete();
        }
        self.context.deletions.send_replace(());
        Ok(())
    }

    /// Changes after entities were deleted.
    pub(crate) fn deletions(&self) -> watch::Receiver<()> {
        self.context.deletions.subscribe()
    }

    /// Every entity, in the order of their paths.
    pub(crate) fn entities(&self) -> Vec<Arc<Queue>> {
        let mut entities = self.directory.all();
        entities.sort_by(|one, other| one.path().cmp(other.path()));
        entities
    }

    /// Finds `queue`, `topic` or `topic/Subscriptions/subscription`.
    pub(crate) fn entity(&self, path: &str) -> Result<Arc<Queue>, UnknownEntity> {
        self.directory.find(path).ok_or_else(|| UnknownEntity { name: path.to_owned() })
    }

    /// Finds `queue`, `topic` or `topic/Subscriptions/subscription`, or one of these with
    /// `/$DeadLetterQueue` or `/$Transfer/$DeadLetterQueue`.
    pub(crate) fn node(&self, path: &str) -> Option<Node> {
        let path = path.to_lowercase();
        let (name, part) = Part::of(&path);
        let queue = self.directory.find(name)?;
        let has_part = part == Part::Main || queue.kind() != Kind::Topic;
        has_part.then_some(Node { queue, part })
    }

    pub(crate) fn new_consumer(&self) -> ConsumerId {
        ConsumerId(self.next_consumer.fetch_add(1, Ordering::Relaxed))
    }

    /// Names something that clients refer to.
    pub(crate) fn new_token(&self) -> Uuid {
        self.context.tokens.next()
    }

    /// Does what is due in every queue; returns when there will be more.
    pub(crate) fn sweep(&self) -> Option<Timestamp> {
        // What becomes due earlier while this looks around arms the alarm again.
        self.context.alarm.disarm();
        let timer = self.context.timers.fire(self.context.clock.now());
        let queues = self.directory.all();
        let next = queues.iter().filter_map(|queue| queue.sweep()).chain(timer).min();
        if let Some(deadline) = next {
            self.context.alarm.expect(deadline);
        }
        next
    }

    /// Empties every queue, restores its rules, and forgets duplicates, faults, events and totals.
    pub(crate) fn reset(&self) {
        for queue in self.directory.all() {
            queue.reset();
        }
        self.context.faults.clear();
        self.context.events.clear();
    }
}

impl OnAdvance for Broker {
    fn advanced(&self) {
        self.sweep();
    }
}

/// Makes lock tokens and ids of transactions: unique within a broker, and unlike those of any other.
#[derive(Debug)]
struct Tokens {
    prefix: u64,
    next: AtomicU64,
}

impl Tokens {
    fn new() -> Self {
        Self { prefix: Self::prefix(), next: AtomicU64::new(1) }
    }

    #[cfg(not(any(test, fuzzing)))]
    fn prefix() -> u64 {
        Uuid::new_v4().as_u64_pair().0
    }

    /// One that is known, so that recorded requests name locks that there are.
    #[cfg(any(test, fuzzing))]
    fn prefix() -> u64 {
        0x1de3_1de3_1de3_4de3
    }

    fn next(&self) -> Uuid {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let bytes = (u128::from(self.prefix) << 64) | u128::from(count);
        Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid()
    }
}
