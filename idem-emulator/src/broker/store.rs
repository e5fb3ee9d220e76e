//! The messages of one node, a queue or its dead-letter queue, the locks on them, and what is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

use uuid::Uuid;

use super::message::{Message, MessageState};
use super::sessions::{SessionLock, Sessions};
use super::waiters::{ConsumerId, Waiters};
use crate::clock::Timestamp;
use crate::faults::Decision;

/// Every operation costs at most the logarithm of the number of messages.
#[derive(Debug, Default)]
pub(super) struct Store {
    messages: BTreeMap<i64, Entry>,
    /// Sequence numbers of what may be handed out next. A locked message is in here only while a
    /// second copy of it is owed. A node with sessions keeps these by session instead.
    ready: BTreeSet<i64>,
    /// Only on a node that requires sessions; then every message has one.
    pub(super) sessions: Option<Sessions>,
    locks: HashMap<Uuid, Lock>,
    /// What time will bring, in its order.
    due: BTreeSet<(Timestamp, Due)>,
    tally: Tally,
    waiters: Waiters,
}

/// What happens by itself at a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A scheduled message is to be enqueued.
    Activation(i64),
    /// A lock ends.
    LockEnd(Uuid),
    /// The lock of the session that this receiver holds ends.
    SessionEnd(ConsumerId),
    /// A message that nobody holds has lived long enough.
    Expiry(i64),
    /// A message that a fault keeps back may be handed out.
    Appearance(i64),
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
    delay: Delay,
}

/// Whether a fault keeps a message back. None does so twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delay {
    Never,
    Until(Timestamp),
    Over,
}

#[derive(Debug)]
struct Lock {
    sequence_number: i64,
    span: Span,
    reserved: Option<Reservation>,
}

/// A transaction will settle the message under a lock.
#[derive(Debug, Clone, Copy)]
struct Reservation {
    until: Timestamp,
    /// When the lock ends without the transaction, unless that is the end of its session.
    own_end: Option<Timestamp>,
}

/// How long a lock lasts.
#[derive(Debug)]
enum Span {
    Until(Timestamp),
    /// As long as the lock of this session.
    Session(Arc<str>),
}

impl Entry {
    fn peeked(&self) -> (&Message, bool) {
        (&self.message, !self.tokens.is_empty())
    }
}

/// What decides where an unlocked message is listed.
#[derive(Debug)]
struct Listing {
    sequence_number: i64,
    session_id: Option<Arc<str>>,
    state: MessageState,
    expires_at: Option<Timestamp>,
    delay: Delay,
}

impl Listing {
    fn of(Entry { message, delay, .. }: &Entry) -> Self {
        Self {
            delay: *delay,
            sequence_number: message.sequence_number,
            session_id: message.session_id.clone(),
            state: message.state,
            expires_at: message.expires_at,
        }
    }
}

/// A message that may be handed out.
#[derive(Debug)]
pub(super) struct Candidate<'a> {
    pub(super) message: &'a Message,
    /// It would be the second copy that a fault wanted.
    pub(super) is_copy: bool,
    /// A fault has kept it back before.
    pub(super) was_delayed: bool,
    /// The number of the message behind it, if that may be handed out first.
    pub(super) following: Option<i64>,
}

/// A message that has just been locked.
#[derive(Debug)]
pub(super) struct Locked {
    pub(super) message: Message,
    pub(super) until: Timestamp,
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
    pub(super) fn with_sessions() -> Self {
        Self { sessions: Some(Sessions::default()), ..Self::default() }
    }

    pub(super) fn insert(&mut self, message: Message) {
        if let (Some(sessions), Some(id)) = (&mut self.sessions, &message.session_id) {
            sessions.add(id, message.sequence_number);
        }
        let number = message.sequence_number;
        let entry = Entry { message, tokens: Vec::new(), owed: None, delay: Delay::Never };
        let listing = Listing::of(&entry);
        self.messages.insert(number, entry);
        self.list(&listing);
    }

    /// The first message that a receiver may have.
    pub(super) fn next_ready(&self, consumer: ConsumerId) -> Option<Candidate<'_>> {
        let (number, following) = match &self.sessions {
            None => {
                let mut numbers = self.ready.iter().copied();
                (numbers.next()?, numbers.next())
            }
            Some(sessions) => (sessions.first_ready(consumer)?, None),
        };
        let entry = self.messages.get(&number)?;
        Some(Candidate {
            message: &entry.message,
            is_copy: entry.owed.is_some(),
            was_delayed: entry.delay != Delay::Never,
            following,
        })
    }

    /// The first messages that may be handed out and are wanted, of one session or of all.
    pub(super) fn ready(
        &self,
        session_id: Option<&str>,
        max: usize,
        is_wanted: impl Fn(&Message) -> bool,
    ) -> Vec<i64> {
        let numbers: Box<dyn Iterator<Item = i64>> = match (&self.sessions, session_id) {
            (Some(sessions), Some(id)) => Box::new(sessions.ready(id)),
            (Some(_) | None, _) => Box::new(self.ready.iter().copied()),
        };
        let wanted = |number: &i64| {
            self.messages
                .get(number)
                .is_some_and(|entry| entry.tokens.is_empty() && is_wanted(&entry.message))
        };
        numbers.filter(wanted).take(max).collect()
    }

    /// Keeps a message back that nobody holds.
    pub(super) fn delay(&mut self, sequence_number: i64, until: Timestamp) {
        self.set_delay(sequence_number, Delay::Until(until));
    }

    pub(super) fn end_delay(&mut self, sequence_number: i64) {
        self.set_delay(sequence_number, Delay::Over);
    }

    fn set_delay(&mut self, sequence_number: i64, delay: Delay) {
        let Some(entry) = self.messages.get_mut(&sequence_number) else {
            return;
        };
        let before = Listing::of(entry);
        entry.delay = delay;
        let after = Listing::of(entry);
        self.unlist(&before);
        self.list(&after);
    }

    /// Locks a message, whatever its state: until `until`, or as long as its session is locked.
    pub(super) fn lock(
        &mut self,
        sequence_number: i64,
        token: Uuid,
        until: Timestamp,
    ) -> Option<Locked> {
        let entry = self.messages.get_mut(&sequence_number)?;
        let session = match (&mut self.sessions, &entry.message.session_id) {
            (Some(sessions), Some(id)) => Some((Arc::clone(id), sessions.lock_mut(id)?)),
            (Some(_) | None, _) => None,
        };
        let first = entry.tokens.is_empty();
        entry.tokens.push(token);
        let mut locked = Locked { message: entry.message.clone(), until, copy: entry.owed.take() };
        let span = match session {
            None => {
                self.due.insert((until, Due::LockEnd(token)));
                Span::Until(until)
            }
            Some((id, session)) => {
                locked.until = session.until;
                session.tokens.insert(token);
                Span::Session(id)
            }
        };
        self.locks.insert(token, Lock { sequence_number, span, reserved: None });
        let listing = Listing::of(entry);
        if first {
            self.unlist(&listing);
            self.tally.locked += 1;
        } else {
            self.make_unready(&listing);
        }
        Some(locked)
    }

    /// The receiver waits for a message that it may have.
    pub(super) fn wait(&mut self, consumer: ConsumerId, waker: &Waker) {
        match &mut self.sessions {
            None => self.waiters.wait(consumer, waker),
            Some(sessions) => sessions.wait_in_session(consumer),
        }
    }

    /// Lets the next waiting receiver have what is ready. Each receiver that leaves something behind
    /// does this, so one wake-up per message is enough.
    pub(super) fn pass_on(&mut self) {
        match &mut self.sessions {
            None if self.ready.is_empty() => {}
            None => drop(self.waiters.wake_next()),
            Some(sessions) => sessions.pass_on(),
        }
    }

    /// The receiver waits no more: a wake-up meant for it goes to another.
    pub(super) fn stop_waiting(&mut self, consumer: ConsumerId) {
        match &mut self.sessions {
            None => {
                self.waiters.forget(consumer);
                self.pass_on();
            }
            Some(sessions) => sessions.stop_waiting(consumer),
        }
    }

    /// Makes a locked message ready a second time.
    pub(super) fn owe_copy(&mut self, sequence_number: i64, decision: Decision) {
        if let Some(entry) = self.messages.get_mut(&sequence_number) {
            entry.owed = Some(decision);
            let listing = Listing::of(entry);
            self.make_ready(&listing);
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
        let listing = Listing::of(entry);
        self.tally.locked -= 1;
        self.list(&listing);
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
        let listing = Listing::of(&entry);
        if entry.tokens.is_empty() {
            self.unlist(&listing);
        } else {
            self.make_unready(&listing);
            self.tally.locked -= 1;
        }
        for token in entry.tokens {
            self.drop_lock(token);
        }
        if let (Some(sessions), Some(id)) = (&mut self.sessions, &listing.session_id) {
            sessions.remove(id, sequence_number);
        }
        Some(Removed { message: entry.message, owed: entry.owed })
    }

    fn drop_lock(&mut self, token: Uuid) -> Option<Lock> {
        let lock = self.locks.remove(&token)?;
        match lock.span {
            Span::Until(until) => drop(self.due.remove(&(until, Due::LockEnd(token)))),
            Span::Session(ref id) => {
                let session = self.sessions.as_mut().and_then(|sessions| sessions.lock_mut(id));
                session.map(|session| session.tokens.remove(&token));
            }
        }
        Some(lock)
    }

    /// Lists a message that nobody holds, and wakes a receiver that may have it.
    fn list(&mut self, listing: &Listing) {
        let sequence_number = listing.sequence_number;
        match listing.state {
            MessageState::Active => {
                if let Some(at) = listing.expires_at {
                    self.due.insert((at, Due::Expiry(sequence_number)));
                }
                match listing.delay {
                    Delay::Until(at) => {
                        self.due.insert((at, Due::Appearance(sequence_number)));
                        if let (Some(sessions), Some(id)) =
                            (&mut self.sessions, &listing.session_id)
                        {
                            sessions.delay(id, sequence_number);
                        }
                    }
                    Delay::Never | Delay::Over => self.make_ready(listing),
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
    fn unlist(&mut self, listing: &Listing) {
        let sequence_number = listing.sequence_number;
        match listing.state {
            MessageState::Active => {
                if let Some(at) = listing.expires_at {
                    self.due.remove(&(at, Due::Expiry(sequence_number)));
                }
                match listing.delay {
                    Delay::Until(at) => {
                        self.due.remove(&(at, Due::Appearance(sequence_number)));
                        if let (Some(sessions), Some(id)) =
                            (&mut self.sessions, &listing.session_id)
                        {
                            sessions.end_delay(id, sequence_number);
                        }
                    }
                    Delay::Never | Delay::Over => self.make_unready(listing),
                }
            }
            MessageState::Deferred => self.tally.deferred -= 1,
            MessageState::Scheduled { due } => {
                self.tally.scheduled -= 1;
                self.due.remove(&(due, Due::Activation(sequence_number)));
            }
        }
    }

    fn make_ready(&mut self, listing: &Listing) {
        match (&mut self.sessions, &listing.session_id) {
            (Some(sessions), Some(id)) => sessions.make_ready(id, listing.sequence_number),
            (Some(_) | None, _) => {
                self.ready.insert(listing.sequence_number);
                self.waiters.wake_next();
            }
        }
    }

    fn make_unready(&mut self, listing: &Listing) {
        match (&mut self.sessions, &listing.session_id) {
            (Some(sessions), Some(id)) => sessions.make_unready(id, listing.sequence_number),
            (Some(_) | None, _) => drop(self.ready.remove(&listing.sequence_number)),
        }
    }

    /// When a lock ends, if it has an end of its own, whatever a transaction adds to it.
    pub(super) fn lock_end(&self, token: Uuid) -> Option<Timestamp> {
        let lock = self.locks.get(&token)?;
        match (&lock.reserved, &lock.span) {
            (Some(reservation), _) => reservation.own_end,
            (None, Span::Until(end)) => Some(*end),
            (None, Span::Session(_)) => None,
        }
    }

    /// Moves the end of a lock, if it has an end of its own.
    pub(super) fn renew(&mut self, token: Uuid, until: Timestamp) {
        let Some(Lock { span: Span::Until(end), reserved, .. }) = self.locks.get_mut(&token) else {
            return;
        };
        self.due.remove(&(*end, Due::LockEnd(token)));
        *end = match reserved {
            None => until,
            Some(reservation) => {
                reservation.own_end = Some(until);
                until.max(reservation.until)
            }
        };
        self.due.insert((*end, Due::LockEnd(token)));
    }

    /// Keeps a locked message for a transaction: its lock lasts as long as that does.
    pub(super) fn reserve(&mut self, token: Uuid, until: Timestamp) {
        let Some(lock) = self.locks.get_mut(&token) else {
            return;
        };
        let own_end = match lock.span {
            Span::Until(end) => Some(end),
            Span::Session(_) => None,
        };
        lock.reserved = Some(Reservation { until, own_end });
        if let Some(end) = own_end {
            self.renew(token, end);
        }
    }

    /// The transaction has ended: the lock is as it would have been without it. Another may have
    /// reserved it since, if the transaction has lasted too long.
    pub(super) fn release(&mut self, token: Uuid, until: Timestamp) {
        let is_ours = |reservation: &mut Reservation| reservation.until == until;
        let lock = self.locks.get_mut(&token);
        let reserved = lock.and_then(|lock| lock.reserved.take_if(is_ours));
        if let Some(end) = reserved.and_then(|reservation| reservation.own_end) {
            self.renew(token, end);
        }
    }

    /// Whether a transaction will settle the message under a lock.
    pub(super) fn is_reserved(&self, token: Uuid, now: Timestamp) -> bool {
        let number = self.locks.get(&token).map(|lock| lock.sequence_number);
        let entry = number.and_then(|number| self.messages.get(&number));
        let mut tokens = entry.into_iter().flat_map(|entry| &entry.tokens);
        tokens.any(|token| {
            let lock = self.locks.get(token);
            lock.and_then(|lock| lock.reserved).is_some_and(|reserved| now < reserved.until)
        })
    }

    /// Gives a session to a receiver; `false` if another has it, or if there are no sessions.
    pub(super) fn take_session(
        &mut self,
        id: &Arc<str>,
        consumer: ConsumerId,
        holder: &Waker,
        until: Timestamp,
    ) -> bool {
        let sessions = self.sessions.as_mut();
        let taken = sessions.is_some_and(|sessions| sessions.take(id, consumer, holder, until));
        if taken {
            self.due.insert((until, Due::SessionEnd(consumer)));
        }
        taken
    }

    /// Moves the end of a session's lock; `false` if nobody holds the session.
    pub(super) fn renew_session(&mut self, id: &str, until: Timestamp) -> bool {
        let sessions = self.sessions.as_mut();
        let Some(lock) = sessions.and_then(|sessions| sessions.lock_mut(id)) else {
            return false;
        };
        self.due.remove(&(lock.until, Due::SessionEnd(lock.consumer)));
        lock.until = until;
        self.due.insert((until, Due::SessionEnd(lock.consumer)));
        true
    }

    /// Takes a receiver's session from it. The messages that it holds are still locked: whoever
    /// calls this gives up the tokens.
    pub(super) fn give_up_session(
        &mut self,
        consumer: ConsumerId,
    ) -> Option<(Arc<str>, SessionLock)> {
        let (id, lock) = self.sessions.as_mut()?.give_up(consumer)?;
        self.due.remove(&(lock.until, Due::SessionEnd(consumer)));
        Some((id, lock))
    }

    /// The earliest of what is due by `now`, and when it was.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<(Timestamp, Due)> {
        self.due.first().filter(|(at, _)| *at <= now).copied()
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
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
        self.messages.range(sequence_number..).map(|(_, entry)| entry.peeked())
    }

    /// The same, of one session.
    pub(super) fn session_from(
        &self,
        session_id: &str,
        sequence_number: i64,
    ) -> impl Iterator<Item = (&Message, bool)> {
        let numbers =
            self.sessions.iter().flat_map(move |all| all.from(session_id, sequence_number));
        numbers.filter_map(|number| self.messages.get(&number).map(Entry::peeked))
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
        self.due.retain(|(_, due)| matches!(due, Due::SessionEnd(_)));
        if let Some(sessions) = &mut self.sessions {
            sessions.clear();
        }
        self.tally = Tally::default();
        owed
    }
}
