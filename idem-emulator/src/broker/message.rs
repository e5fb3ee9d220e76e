//! What the broker knows of a message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::clock::Timestamp;

/// What is charged to a queue's size for each message beside its content: the message itself, its
/// place in the indexes and its lock.
pub(crate) const OVERHEAD_BYTES: u64 = 256;

/// What each property that a receiver adds counts beside its name and value: thousands of small ones
/// take more than their encoding.
const PROPERTY_BYTES: usize = 32;

/// A message as a sender hands it in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Submission {
    /// The message id as text, if the sender gave one.
    pub(crate) id: Option<Arc<str>>,
    /// The session that the message belongs to, if any.
    pub(crate) session_id: Option<Arc<str>>,
    /// Which messages the sender wants kept together. Sessions do that already.
    pub(crate) partition_key: Option<Arc<str>>,
    /// Where the entity sends the message on, if it is only on its way through.
    pub(crate) destination: Option<Arc<str>>,
    /// The size of the largest application property, its name included.
    pub(crate) property_size_max: usize,
    /// The size of all that is beside the body.
    pub(crate) properties_size: usize,
    /// How long the message is to live once it is enqueued.
    pub(crate) time_to_live: Option<Duration>,
    /// When the message is to be enqueued; now if this is absent or past.
    pub(crate) scheduled_for: Option<Timestamp>,
    /// The encoded message. Only rules look inside.
    pub(crate) content: Bytes,
}

/// A message in an entity. Clones share the content.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: Option<Arc<str>>,
    pub(crate) session_id: Option<Arc<str>>,
    /// Where it goes once it is enqueued, if its sender said so.
    pub(crate) destination: Option<Arc<str>>,
    pub(crate) time_to_live: Option<Duration>,
    pub(crate) content: Bytes,
    /// Given once per queue, counted from 1, and kept when the message is dead-lettered.
    pub(crate) sequence_number: i64,
    pub(crate) state: MessageState,
    pub(crate) enqueued_at: Timestamp,
    /// When it has lived long enough, unless a receiver holds it or it was set aside.
    pub(crate) expires_at: Option<Timestamp>,
    /// How many deliveries have failed: 0 at the first delivery.
    pub(crate) delivery_count: u32,
    /// What receivers added since; absent for most messages.
    pub(crate) amendments: Option<Arc<Amendments>>,
    /// The number in the first entity, of a message that was forwarded.
    pub(crate) original_number: Option<i64>,
    /// How often it was forwarded.
    pub(crate) forwards: u8,
}

/// Whether receivers can have a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageState {
    Active,
    /// Set aside by a receiver: only who knows its sequence number gets it.
    Deferred,
    /// Not enqueued yet.
    Scheduled {
        due: Timestamp,
    },
}

impl MessageState {
    /// The state as it goes on the wire.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Active => 0,
            Self::Deferred => 1,
            Self::Scheduled { .. } => 2,
        }
    }
}

impl Message {
    /// The bytes that this message is charged for.
    pub(crate) fn charge(&self) -> u64 {
        let amendments = self.amendments.as_ref().map_or(0, |amendments| amendments.size());
        bytes(self.content.len()) + bytes(amendments) + OVERHEAD_BYTES
    }

    pub(crate) fn dead_letter(&self) -> Option<&DeadLetter> {
        self.amendments.as_ref()?.dead_letter.as_ref()
    }
}

pub(crate) fn bytes(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Application properties that receivers set while settling, and why the message was dead-lettered.
#[derive(Debug, Clone, Default)]
pub(crate) struct Amendments {
    /// Encoded values by name.
    pub(crate) properties: BTreeMap<String, Bytes>,
    pub(crate) dead_letter: Option<DeadLetter>,
}

impl Amendments {
    /// Adds properties; a later value replaces an earlier one of the same name.
    pub(crate) fn merge(&mut self, properties: Vec<Property>) {
        self.properties.extend(properties.into_iter().map(|added| (added.name, added.value)));
    }

    pub(crate) fn size(&self) -> usize {
        let sizes = self.properties.iter().map(|(name, value)| name.len() + value.len());
        let properties: usize = sizes.map(|size| size + PROPERTY_BYTES).sum();
        properties + self.dead_letter.as_ref().map_or(0, DeadLetter::size)
    }
}

/// One application property; the value is encoded, and opaque to the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) name: String,
    pub(crate) value: Bytes,
}

/// Why and from where a message was dead-lettered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) reason: Option<Arc<str>>,
    pub(crate) description: Option<Arc<str>>,
    /// The entity that the message was in.
    pub(crate) source: Arc<str>,
}

impl DeadLetter {
    fn size(&self) -> usize {
        self.reason.as_ref().map_or(0, |text| text.len())
            + self.description.as_ref().map_or(0, |text| text.len())
    }
}
