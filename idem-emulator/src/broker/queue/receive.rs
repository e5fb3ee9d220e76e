//! Receiving: what is handed out of a queue.

use std::collections::BTreeSet;
use std::task::Waker;

use uuid::Uuid;

use super::{MessageNotFound, Part, Queue, SessionError, State};
use crate::broker::message::{Message, MessageState};
use crate::broker::store::Candidate;
use crate::broker::waiters::ConsumerId;
use crate::clock::Timestamp;
use crate::events::EventKind;
use crate::faults::{Decision, DeliveryFault, Ending};

/// How many bytes of content are handed out in one step; the last message may go beyond.
const CONTENT_MAX: usize = 256 * 1024;

/// How a receiver takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveMode {
    /// Locked until settled or expired.
    PeekLock,
    /// Gone when handed out.
    ReceiveAndDelete,
}

/// A message handed to a receiver.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) message: Message,
    /// Unique to this delivery.
    pub(crate) token: Uuid,
    /// The end of the lock, if there is one.
    pub(crate) locked_until: Option<Timestamp>,
    /// How a fault ends the connection once this is written.
    pub(crate) ending: Option<Ending>,
}

/// Why deferred messages are not handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DeferredError {
    #[error(transparent)]
    NotFound(#[from] MessageNotFound),
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl Delivery {
    /// The lock token and the end of the lock, if there is one.
    pub(crate) fn lock(&self) -> Option<(Uuid, Timestamp)> {
        self.locked_until.map(|until| (self.token, until))
    }
}

impl Queue {
    /// Adds up to `max` deliveries to `deliveries`, fewer if they are large. Returns `true` if there
    /// are no more, and then the receiver waits: it is woken once when there may be more, and must
    /// then receive again or be forgotten.
    pub(crate) fn receive(
        &self,
        part: Part,
        mode: ReceiveMode,
        max: usize,
        consumer: ConsumerId,
        waker: &Waker,
        deliveries: &mut Vec<Delivery>,
    ) -> Result<bool, SessionError> {
        self.step(|state, now| {
            self.check_held(state, part, consumer)?;
            let wanted = deliveries.len() + max;
            let mut content = 0;
            let mut is_all = false;
            while deliveries.len() < wanted && content < CONTENT_MAX {
                let next = match mode {
                    ReceiveMode::PeekLock => self.deliver_locked(state, part, consumer, now),
                    ReceiveMode::ReceiveAndDelete => {
                        self.deliver_deleted(state, part, consumer, now)
                    }
                };
                let Some(delivery) = next else {
                    state.store(part).wait(consumer, waker);
                    is_all = true;
                    break;
                };
                content += delivery.message.content.len();
                let is_last = delivery.ending.is_some();
                deliveries.push(delivery);
                if is_last {
                    break;
                }
            }
            state.store(part).pass_on();
            Ok(is_all)
        })
    }

    /// The next message for a receiver, and what goes wrong at its delivery. Faults may put others
    /// before it.
    fn choose(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
        now: Timestamp,
        possible: impl Fn(DeliveryFault) -> bool,
    ) -> Option<(i64, Option<(DeliveryFault, Decision)>)> {
        loop {
            let Candidate { message, is_copy, was_delayed, following } =
                state.store(part).next_ready(consumer)?;
            let number = message.sequence_number;
            let possible = |fault| match fault {
                DeliveryFault::PassOver => following.is_some(),
                DeliveryFault::Delay(by) => !was_delayed && !by.is_zero(),
                DeliveryFault::Redeliver
                | DeliveryFault::ExpireLock
                | DeliveryFault::LoseSessionLock
                | DeliveryFault::EndConnection(_) => possible(fault),
            };
            // A second copy is the work of a fault itself.
            let decided = if is_copy { None } else { self.decide(part, message, possible) };
            match (decided, following) {
                (Some((DeliveryFault::Delay(by), decision)), _) => {
                    self.fire(part, message, &decision);
                    state.store(part).delay(number, now.plus(by));
                }
                (Some((DeliveryFault::PassOver, decision)), Some(following)) => {
                    self.fire(part, message, &decision);
                    return Some((following, None));
                }
                (decided, _) => return Some((number, decided)),
            }
        }
    }

    fn deliver_locked(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
        now: Timestamp,
    ) -> Option<Delivery> {
        let has_session = self.requires_sessions(part);
        let possible = |fault| has_session || !matches!(fault, DeliveryFault::LoseSessionLock);
        let (number, fault) = self.choose(state, part, consumer, now, possible)?;
        let token = self.context.tokens.next();
        let until = now.plus(self.settings.lock_duration);
        let locked = state.store(part).lock(number, token, until)?;
        let message = locked.message;
        self.record_delivery(part, &message);
        if let Some(decision) = &locked.copy {
            self.fire(part, &message, decision);
        }
        let mut ending = None;
        match fault {
            None => {}
            // It has happened once the second copy is handed out.
            Some((DeliveryFault::Redeliver, decision)) => {
                state.store(part).owe_copy(number, decision);
            }
            Some((fault, decision)) => {
                self.fire(part, &message, &decision);
                ending = self.spoil(state, part, consumer, token, fault);
            }
        }
        Some(Delivery { message, token, locked_until: Some(locked.until), ending })
    }

    /// What goes wrong right after a message was locked; returns how the connection is to end, if it
    /// is.
    fn spoil(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
        token: Uuid,
        fault: DeliveryFault,
    ) -> Option<Ending> {
        match fault {
            DeliveryFault::EndConnection(how) => return Some(how),
            DeliveryFault::ExpireLock => self.expire_lock(state, part, token),
            DeliveryFault::LoseSessionLock => self.expire_session(state, consumer),
            DeliveryFault::Redeliver | DeliveryFault::Delay(_) | DeliveryFault::PassOver => {}
        }
        None
    }

    fn deliver_deleted(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
        now: Timestamp,
    ) -> Option<Delivery> {
        // Without a lock there is nothing to expire and nothing to hand out twice.
        let possible = |fault| matches!(fault, DeliveryFault::EndConnection(_));
        let (number, fault) = self.choose(state, part, consumer, now, possible)?;
        let removed = state.store(part).remove(number)?;
        let message = self.removed(state, removed);
        self.record_delivery(part, &message);
        let token = self.context.tokens.next();
        let ending = fault.and_then(|(fault, decision)| {
            self.fire(part, &message, &decision);
            self.spoil(state, part, consumer, token, fault)
        });
        Some(Delivery { message, token, locked_until: None, ending })
    }

    /// Hands out deferred messages, all or none; on a queue with sessions those of one session, which
    /// must be locked.
    pub(crate) fn receive_deferred(
        &self,
        part: Part,
        session_id: Option<&str>,
        mode: ReceiveMode,
        numbers: &BTreeSet<i64>,
    ) -> Result<Vec<Delivery>, DeferredError> {
        let session_id = session_id.filter(|_| self.requires_sessions(part));
        let is_deferred = |state| state == MessageState::Deferred;
        let is_in_session = |message: &&Message| {
            session_id.is_none() || message.session_id.as_deref() == session_id
        };
        self.step(|state, now| {
            if self.requires_sessions(part) {
                self.check_locked(state, session_id)?;
            }
            for number in numbers {
                let message = state.store(part).unlocked(*number, is_deferred);
                message.filter(is_in_session).ok_or(MessageNotFound(*number))?;
            }
            let deliver = |number| self.deliver_deferred(state, part, mode, number, now);
            Ok(numbers.iter().copied().filter_map(deliver).collect())
        })
    }

    fn deliver_deferred(
        &self,
        state: &mut State,
        part: Part,
        mode: ReceiveMode,
        number: i64,
        now: Timestamp,
    ) -> Option<Delivery> {
        let token = self.context.tokens.next();
        let (message, locked_until) = match mode {
            ReceiveMode::PeekLock => {
                let until = now.plus(self.settings.lock_duration);
                let locked = state.store(part).lock(number, token, until)?;
                (locked.message, Some(locked.until))
            }
            ReceiveMode::ReceiveAndDelete => {
                let removed = state.store(part).remove(number)?;
                (self.removed(state, removed), None)
            }
        };
        self.record_delivery(part, &message);
        // It comes in a response: there is no second receiver, and no link to write it to.
        let possible = |fault| matches!(fault, DeliveryFault::ExpireLock) && locked_until.is_some();
        if let Some((_, decision)) = self.decide(part, &message, possible) {
            self.fire(part, &message, &decision);
            self.expire_lock(state, part, token);
        }
        Some(Delivery { message, token, locked_until, ending: None })
    }

    /// Deletes up to `max` messages that receivers could have, of those enqueued before a time; on a
    /// queue with sessions those of one session, which must be locked. Returns their number.
    pub(crate) fn delete_batch(
        &self,
        part: Part,
        session_id: Option<&str>,
        before: Option<Timestamp>,
        max: usize,
    ) -> Result<usize, SessionError> {
        let session_id = session_id.filter(|_| self.requires_sessions(part));
        self.step(|state, _| {
            if self.requires_sessions(part) {
                self.check_locked(state, session_id)?;
            }
            let is_old = |message: &Message| before.is_none_or(|time| message.enqueued_at < time);
            let numbers = state.store(part).ready(session_id, max, is_old);
            for number in &numbers {
                if let Some(removed) = state.store(part).remove(*number) {
                    let message = self.removed(state, removed);
                    self.record(part, &message, EventKind::Deleted);
                }
            }
            Ok(numbers.len())
        })
    }

    fn record_delivery(&self, part: Part, message: &Message) {
        let kind = EventKind::Delivered { delivery_count: message.delivery_count };
        self.record(part, message, kind);
    }

    /// The receiver is gone: a wake-up meant for it goes to another, and its session with it.
    pub(crate) fn forget(&self, part: Part, consumer: ConsumerId) {
        self.step(|state, now| {
            state.store(part).stop_waiting(consumer);
            self.release_session(state, part, consumer);
            // What comes back may have outlived its time meanwhile.
            self.catch_up(state, now);
        });
    }
}
