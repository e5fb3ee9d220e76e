//! The messages of one node, a queue or its dead-letter queue, and the locks on them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::message::Message;
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
    deadlines: BTreeSet<(Timestamp, Uuid)>,
    /// Messages with at least one lock.
    locked: usize,
    pub(super) waiters: Waiters,
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
        self.ready.insert(message.sequence_number);
        self.messages
            .insert(message.sequence_number, Entry { message, tokens: Vec::new(), owed: None });
    }

    /// Locks the first message that is ready, under `token`.
    pub(super) fn lock_next(&mut self, token: Uuid, until: Timestamp) -> Option<Locked> {
        let sequence_number = self.ready.pop_first()?;
        let entry = self.messages.get_mut(&sequence_number)?;
        if entry.tokens.is_empty() {
            self.locked += 1;
        }
        entry.tokens.push(token);
        self.locks.insert(token, Lock { sequence_number, until });
        self.deadlines.insert((until, token));
        Some(Locked { message: entry.message.clone(), copy: entry.owed.take() })
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

    /// Gives up one lock; the message is ready again once it has no other. Returns the second copy
    /// that was still owed: the message comes again anyway.
    pub(super) fn unlock(&mut self, token: Uuid) -> Option<Decision> {
        let lock = self.drop_lock(token)?;
        let entry = self.messages.get_mut(&lock.sequence_number)?;
        entry.tokens.retain(|held| *held != token);
        if !entry.tokens.is_empty() {
            return None;
        }
        self.locked -= 1;
        self.ready.insert(lock.sequence_number);
        entry.owed.take()
    }

    /// Removes the message under a lock, with all its locks.
    pub(super) fn remove_locked(&mut self, token: Uuid) -> Option<Removed> {
        let sequence_number = self.locks.get(&token)?.sequence_number;
        self.remove(sequence_number)
    }

    fn remove(&mut self, sequence_number: i64) -> Option<Removed> {
        let entry = self.messages.remove(&sequence_number)?;
        self.ready.remove(&sequence_number);
        if !entry.tokens.is_empty() {
            self.locked -= 1;
        }
        for token in entry.tokens {
            self.drop_lock(token);
        }
        Some(Removed { message: entry.message, owed: entry.owed })
    }

    fn drop_lock(&mut self, token: Uuid) -> Option<Lock> {
        let lock = self.locks.remove(&token)?;
        self.deadlines.remove(&(lock.until, token));
        Some(lock)
    }

    /// Moves the end of a lock; `false` if there is no such lock.
    pub(super) fn renew(&mut self, token: Uuid, until: Timestamp) -> bool {
        let Some(lock) = self.locks.get_mut(&token) else {
            return false;
        };
        self.deadlines.remove(&(lock.until, token));
        lock.until = until;
        self.deadlines.insert((until, token));
        true
    }

    /// A lock that has ended by `now`.
    pub(super) fn next_expired(&self, now: Timestamp) -> Option<Uuid> {
        self.deadlines.first().filter(|(until, _)| *until <= now).map(|(_, token)| *token)
    }

    /// When the next lock ends.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Messages without a lock, and messages with one.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.messages.len() - self.locked, self.locked)
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
        self.deadlines.clear();
        self.locked = 0;
        owed
    }
}
