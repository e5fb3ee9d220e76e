//! The messages of one node, a queue or its dead-letter queue, the locks on them, and what is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::message::{Message, MessageState};
use super::waiters::Waiters;
use crate::clock::Timestamp;
use crate::faults::Decision;

/// Every operation costs at most the logarithm of the number of messages.
#[derive(Debug, Default)]
pub(super) struct Store {
    messages: BTreeMap<i64, Entry>,
    /// Sequence numbers of what may be handed out next. A locked message is in here only while a
    /// second copy of it is owed.
    ready: BTreeSet<i64>,
    locks: HashMap<Uuid, Lock>,
    /// What time will bring, in its order.
    due: BTreeSet<(Timestamp, Due)>,
    tally: Tally,
    pub(super) waiters: Waiters,
}

/// What happens by itself at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A scheduled message is to be enqueued.
    Activation(i64),
    /// A lock ends.
    LockEnd(Uuid),
    /// A message that nobody holds has lived long enough.
    Expiry(i64),
}

/// How many messages are not active. A locked message counts as locked, whatever its state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) locked: usize,
    pub(super) deferred: usize,
    pub(super) scheduled: usize,
}

#[derive(Debug)]
struct Entry {
    message: Message,
    /// The tokens of the locks on this message: one, or two after a redelivery fault.
    tokens: Vec<Uuid>,
    /// A fault wants a second copy handed out.
    owed: Option<Decision>,
}

#[derive(Debug, Clone, Copy)]
struct Lock {
    sequence_number: i64,
    until: Timestamp,
}

/// What decides where an unlocked message is listed.
#[derive(Debug, Clone, Copy)]
struct Listing {
    sequence_number: i64,
    state: MessageState,
    expires_at: Option<Timestamp>,
}

impl Listing {
    fn of(message: &Message) -> Self {
        Self {
            sequence_number: message.sequence_number,
            state: message.state,
            expires_at: message.expires_at,
        }
    }
}

/// A message that has just been locked.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) message: Message,
    /// Set if this is the second copy that a fault wanted.
    pub(super) copy: Option<Decision>,
}

/// A message that has left the store.
#[derive(Debug)]
pub(super) struct Removed {
    pub(super) message: Message,
    /// A second copy that will not be handed out any more.
    pub(super) owed: Option<Decision>,
}

impl Store {
    pub(super) fn insert(&mut self, message: Message) {
        self.list(Listing::of(&message));
        self.messages
            .insert(message.sequence_number, Entry { message, tokens: Vec::new(), owed: None });
    }

    /// Locks the first message that is ready, under `token`.
    pub(super) fn lock_next(&mut self, token: Uuid, until: Timestamp) -> Option<Locked> {
        let sequence_number = *self.ready.first()?;
        self.lock(sequence_number, token, until)
    }

    /// Locks a message, whatever its state.
    pub(super) fn lock(
        &mut self,
        sequence_number: i64,
        token: Uuid,
        until: Timestamp,
    ) -> Option<Locked> {
        let entry = self.messages.get_mut(&sequence_number)?;
        let first = entry.tokens.is_empty();
        entry.tokens.push(token);
        let locked = Locked { message: entry.message.clone(), copy: entry.owed.take() };
        if first {
            self.unlist(Listing::of(&locked.message));
            self.tally.locked += 1;
        } else {
            self.ready.remove(&sequence_number);
        }
        self.locks.insert(token, Lock { sequence_number, until });
        self.due.insert((until, Due::LockEnd(token)));
        Some(locked)
    }

    /// Takes the first message that is ready, without a lock.
    pub(super) fn take_next(&mut self) -> Option<Removed> {
        let sequence_number = *self.ready.first()?;
        self.remove(sequence_number)
    }

    /// Makes a locked message ready a second time.
    pub(super) fn owe_copy(&mut self, sequence_number: i64, decision: Decision) {
        if let Some(entry) = self.messages.get_mut(&sequence_number) {
            entry.owed = Some(decision);
            self.ready.insert(sequence_number);
        }
    }

    /// The message under a lock.
    pub(super) fn locked(&self, token: Uuid) -> Option<&Message> {
        let lock = self.locks.get(&token)?;
        self.messages.get(&lock.sequence_number).map(|entry| &entry.message)
    }

    pub(super) fn locked_mut(&mut self, token: Uuid) -> Option<&mut Message> {
        let lock = self.locks.get(&token)?;
        self.messages.get_mut(&lock.sequence_number).map(|entry| &mut entry.message)
    }

    /// A message in a state, if nobody holds it.
    pub(super) fn unlocked(
        &self,
        sequence_number: i64,
        is_state: impl FnOnce(MessageState) -> bool,
    ) -> Option<&Message> {
        let entry = self.messages.get(&sequence_number)?;
        (entry.tokens.is_empty() && is_state(entry.message.state)).then_some(&entry.message)
    }

    /// Gives up one lock; the message is listed again once it has no other. Returns the second copy
    /// that was still owed: the message comes again anyway.
    pub(super) fn unlock(&mut self, token: Uuid) -> Option<Decision> {
        let lock = self.drop_lock(token)?;
        let entry = self.messages.get_mut(&lock.sequence_number)?;
        entry.tokens.retain(|held| *held != token);
        if !entry.tokens.is_empty() {
            return None;
        }
        let owed = entry.owed.take();
        let listing = Listing::of(&entry.message);
        self.tally.locked -= 1;
        self.list(listing);
        owed
    }

    /// Sets the message under a lock aside, and gives up all its locks.
    pub(super) fn defer(&mut self, token: Uuid) -> Option<Decision> {
        let mut removed = self.remove_locked(token)?;
        removed.message.state = MessageState::Deferred;
        self.insert(removed.message);
        removed.owed
    }

    /// Removes the message under a lock, with all its locks.
    pub(super) fn remove_locked(&mut self, token: Uuid) -> Option<Removed> {
        let sequence_number = self.locks.get(&token)?.sequence_number;
        self.remove(sequence_number)
    }

    pub(super) fn remove(&mut self, sequence_number: i64) -> Option<Removed> {
        let entry = self.messages.remove(&sequence_number)?;
        if entry.tokens.is_empty() {
            self.unlist(Listing::of(&entry.message));
        } else {
            self.ready.remove(&sequence_number);
            self.tally.locked -= 1;
        }
        for token in entry.tokens {
            self.drop_lock(token);
        }
        Some(Removed { message: entry.message, owed: entry.owed })
    }

    fn drop_lock(&mut self, token: Uuid) -> Option<Lock> {
        let lock = self.locks.remove(&token)?;
        self.due.remove(&(lock.until, Due::LockEnd(token)));
        Some(lock)
    }

    /// Lists a message that nobody holds.
    fn list(&mut self, listing: Listing) {
        let sequence_number = listing.sequence_number;
        match listing.state {
            MessageState::Active => {
                self.ready.insert(sequence_number);
                if let Some(at) = listing.expires_at {
                    self.due.insert((at, Due::Expiry(sequence_number)));
                }
            }
            MessageState::Deferred => self.tally.deferred += 1,
            MessageState::Scheduled { due } => {
                self.tally.scheduled += 1;
                self.due.insert((due, Due::Activation(sequence_number)));
            }
        }
    }

    /// Undoes [`list`](Self::list).
    fn unlist(&mut self, listing: Listing) {
        let sequence_number = listing.sequence_number;
        match listing.state {
            MessageState::Active => {
                self.ready.remove(&sequence_number);
                if let Some(at) = listing.expires_at {
                    self.due.remove(&(at, Due::Expiry(sequence_number)));
                }
            }
            MessageState::Deferred => self.tally.deferred -= 1,
            MessageState::Scheduled { due } => {
                self.tally.scheduled -= 1;
                self.due.remove(&(due, Due::Activation(sequence_number)));
            }
        }
    }

    /// Moves the end of a lock; `false` if there is no such lock.
    pub(super) fn renew(&mut self, token: Uuid, until: Timestamp) -> bool {
        let Some(lock) = self.locks.get_mut(&token) else {
            return false;
        };
        self.due.remove(&(lock.until, Due::LockEnd(token)));
        lock.until = until;
        self.due.insert((until, Due::LockEnd(token)));
        true
    }

    /// The earliest of what is due by `now`, and when it was.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<(Timestamp, Due)> {
        self.due.first().filter(|(at, _)| *at <= now).copied()
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// How many messages there are in all.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// The messages from a sequence number on, in order, and whether each is locked.
    pub(super) fn from(&self, sequence_number: i64) -> impl Iterator<Item = (&Message, bool)> {
        self.messages
            .range(sequence_number..)
            .map(|(_, entry)| (&entry.message, !entry.tokens.is_empty()))
    }

    /// Removes every message and lock. Waiting receivers go on waiting. Returns the second copies
    /// that were owed.
    pub(super) fn clear(&mut self) -> Vec<Decision> {
        let owed = std::mem::take(&mut self.messages)
            .into_values()
            .filter_map(|entry| entry.owed)
            .collect();
        self.ready.clear();
        self.locks.clear();
        self.due.clear();
        self.tally = Tally::default();
        owed
    }
}
