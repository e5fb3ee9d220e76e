//! The sessions of a node: who holds them, what they have ready, and their state.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use uuid::Uuid;

use super::waiters::{ConsumerId, Waiters};
use crate::clock::Timestamp;

/// A session exists while it has messages, a state or a holder.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_id: BTreeMap<Arc<str>, Session>,
    /// The sessions that nobody holds and that have something ready, oldest message first.
    available: BTreeSet<(i64, Arc<str>)>,
    held: HashMap<ConsumerId, Arc<str>>,
    /// Receivers that take whichever session comes.
    waiters: Waiters,
}

#[derive(Debug, Default)]
struct Session {
    /// Sequence numbers of all messages.
    messages: BTreeSet<i64>,
    /// Sequence numbers of what may be handed out next.
    ready: BTreeSet<i64>,
    /// Sequence numbers of what a fault keeps back, and with it what comes behind.
    delayed: BTreeSet<i64>,
    /// Under which number it is among the available ones.
    available_as: Option<i64>,
    state: Option<State>,
    lock: Option<SessionLock>,
}

#[derive(Debug)]
struct State {
    value: Bytes,
    set_at: Timestamp,
}

/// A receiver holds a session, and with it every message that it was handed.
#[derive(Debug)]
pub(super) struct SessionLock {
    pub(super) consumer: ConsumerId,
    pub(super) until: Timestamp,
    /// The lock tokens of the messages that the holder has.
    pub(super) tokens: HashSet<Uuid>,
    /// Tells the holder of the end, whether it waits or not.
    pub(super) holder: Waker,
    /// The holder waits for a message.
    waiting: bool,
}

impl Session {
    /// What is to be handed out next.
    fn next(&self) -> Option<i64> {
        let first = self.ready.first().copied()?;
        let is_held_up = self.delayed.first().is_some_and(|delayed| *delayed < first);
        (!is_held_up).then_some(first)
    }

    /// Wakes the holder if it waits for a message.
    fn wake_holder(&mut self) {
        if let Some(lock) = &mut self.lock
            && std::mem::take(&mut lock.waiting)
        {
            lock.holder.wake_by_ref();
        }
    }

    fn is_needless(&self) -> bool {
        self.messages.is_empty() && self.state.is_none() && self.lock.is_none()
    }
}

impl Sessions {
    pub(super) fn add(&mut self, id: &Arc<str>, sequence_number: i64) {
        self.session(id).messages.insert(sequence_number);
    }

    pub(super) fn remove(&mut self, id: &Arc<str>, sequence_number: i64) {
        if let Some(session) = self.by_id.get_mut(id) {
            session.messages.remove(&sequence_number);
        }
        self.tidy(id);
    }

    /// A message may be handed out: wakes the holder, or somebody who waits for a session.
    pub(super) fn make_ready(&mut self, id: &Arc<str>, sequence_number: i64) {
        let session = self.session(id);
        session.ready.insert(sequence_number);
        session.wake_holder();
        self.relist(id);
    }

    /// Keeps a message back, and what comes behind it in the session.
    pub(super) fn delay(&mut self, id: &Arc<str>, sequence_number: i64) {
        self.session(id).delayed.insert(sequence_number);
        self.relist(id);
    }

    pub(super) fn end_delay(&mut self, id: &Arc<str>, sequence_number: i64) {
        if let Some(session) = self.by_id.get_mut(id) {
            session.delayed.remove(&sequence_number);
            session.wake_holder();
        }
        self.relist(id);
    }

    pub(super) fn make_unready(&mut self, id: &Arc<str>, sequence_number: i64) {
        if let Some(session) = self.by_id.get_mut(id) {
            session.ready.remove(&sequence_number);
        }
        self.relist(id);
    }

    /// Gives a session to a receiver; `false` if another has it.
    pub(super) fn take(
        &mut self,
        id: &Arc<str>,
        consumer: ConsumerId,
        holder: &Waker,
        until: Timestamp,
    ) -> bool {
        let session = self.session(id);
        if session.lock.is_some() {
            return false;
        }
        session.lock = Some(SessionLock {
            consumer,
            until,
            tokens: HashSet::new(),
            holder: holder.clone(),
            waiting: false,
        });
        self.held.insert(consumer, Arc::clone(id));
        // It may have asked again without being woken: a later wake-up must go to another.
        self.waiters.forget(consumer);
        self.relist(id);
        true
    }

    /// The available session with the oldest message.
    pub(super) fn next_available(&self) -> Option<Arc<str>> {
        self.available.first().map(|(_, id)| Arc::clone(id))
    }

    /// Ends the holding of a session, and hands back what its holder had.
    pub(super) fn give_up(&mut self, consumer: ConsumerId) -> Option<(Arc<str>, SessionLock)> {
        let id = self.held.remove(&consumer)?;
        let lock = self.by_id.get_mut(&id)?.lock.take()?;
        self.relist(&id);
        self.tidy(&id);
        Some((id, lock))
    }

    /// The session that a receiver holds.
    pub(super) fn of(&self, consumer: ConsumerId) -> Option<&Arc<str>> {
        self.held.get(&consumer)
    }

    pub(super) fn lock_mut(&mut self, id: &str) -> Option<&mut SessionLock> {
        self.by_id.get_mut(id)?.lock.as_mut()
    }

    pub(super) fn lock(&self, id: &str) -> Option<&SessionLock> {
        self.by_id.get(id)?.lock.as_ref()
    }

    pub(super) fn first_ready(&self, consumer: ConsumerId) -> Option<i64> {
        self.by_id.get(self.of(consumer)?)?.next()
    }

    pub(super) fn ready(&self, id: &str) -> impl Iterator<Item = i64> + use<'_> {
        self.by_id.get(id).into_iter().flat_map(|session| session.ready.iter().copied())
    }

    /// The holder waits for a message of its session.
    pub(super) fn wait_in_session(&mut self, consumer: ConsumerId) {
        let Some(id) = self.held.get(&consumer) else {
            return;
        };
        if let Some(lock) = self.by_id.get_mut(id).and_then(|session| session.lock.as_mut()) {
            lock.waiting = true;
        }
    }

    pub(super) fn wait_for_session(&mut self, consumer: ConsumerId, waker: &Waker) {
        self.waiters.wait(consumer, waker);
    }

    pub(super) fn stop_waiting(&mut self, consumer: ConsumerId) {
        self.waiters.forget(consumer);
        self.pass_on();
    }

    /// Lets the next waiting receiver have an available session.
    pub(super) fn pass_on(&mut self) {
        if !self.available.is_empty() {
            self.waiters.wake_next();
        }
    }

    pub(super) fn state(&self, id: &str) -> Option<Bytes> {
        self.by_id.get(id)?.state.as_ref().map(|state| state.value.clone())
    }

    /// Sets the state, or clears it; returns the one before.
    pub(super) fn set_state(
        &mut self,
        id: &Arc<str>,
        value: Option<Bytes>,
        now: Timestamp,
    ) -> Option<Bytes> {
        let state = value.map(|value| State { value, set_at: now });
        let before = std::mem::replace(&mut self.session(id).state, state);
        self.tidy(id);
        before.map(|state| state.value)
    }

    #[cfg(any(test, fuzzing))]
    pub(super) fn states(&self) -> impl Iterator<Item = &Bytes> {
        self.by_id.values().filter_map(|session| session.state.as_ref()).map(|state| &state.value)
    }

    /// The numbers of a session's messages from one on.
    pub(super) fn from(&self, id: &str, sequence_number: i64) -> impl Iterator<Item = i64> {
        let session = self.by_id.get(id);
        session
            .into_iter()
            .flat_map(move |session| session.messages.range(sequence_number..).copied())
    }

    pub(super) fn with_messages(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_id.iter().filter(|(_, session)| !session.messages.is_empty()).map(|(id, _)| id)
    }

    /// The sessions whose state was set after a time.
    pub(super) fn with_state_since(&self, time: Timestamp) -> impl Iterator<Item = &Arc<str>> {
        let is_newer = move |session: &Session| {
            session.state.as_ref().is_some_and(|state| state.set_at > time)
        };
        self.by_id.iter().filter(move |(_, session)| is_newer(session)).map(|(id, _)| id)
    }

    /// Forgets all messages and states. Holders keep their sessions.
    pub(super) fn clear(&mut self) {
        self.available.clear();
        self.by_id.retain(|_, session| session.lock.is_some());
        for session in self.by_id.values_mut() {
            session.messages.clear();
            session.ready.clear();
            session.delayed.clear();
            session.available_as = None;
            session.state = None;
            if let Some(lock) = &mut session.lock {
                lock.tokens.clear();
            }
        }
    }

    fn session(&mut self, id: &Arc<str>) -> &mut Session {
        self.by_id.entry(Arc::clone(id)).or_default()
    }

    /// Puts a session where it belongs among the available ones.
    fn relist(&mut self, id: &Arc<str>) {
        let Some(session) = self.by_id.get_mut(id) else {
            return;
        };
        let wanted = match session.lock {
            None => session.next(),
            Some(_) => None,
        };
        if wanted == session.available_as {
            return;
        }
        if let Some(number) = session.available_as {
            self.available.remove(&(number, Arc::clone(id)));
        }
        session.available_as = wanted;
        if let Some(number) = wanted {
            self.available.insert((number, Arc::clone(id)));
            self.waiters.wake_next();
        }
    }

    fn tidy(&mut self, id: &Arc<str>) {
        if self.by_id.get(id).is_some_and(Session::is_needless) {
            self.by_id.remove(id);
        }
    }
}
