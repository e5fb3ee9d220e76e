//! Receiving: what is handed out of a queue.

use std::collections::BTreeSet;
use std::task::Waker;

use uuid::Uuid;

use super::{MessageNotFound, Part, Queue, SessionError, State};
use crate::broker::message::{Message, MessageState};
use crate::broker::waiters::ConsumerId;
use crate::clock::Timestamp;
use crate::events::EventKind;
use crate::faults::{DeliveryFault, Ending};

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
    /// Adds up to `max` deliveries to `deliveries`. If it finds fewer, the receiver waits: it is
    /// woken once when there may be more, and must then receive again or be forgotten.
    pub(crate) fn receive(
        &self,
        part: Part,
        mode: ReceiveMode,
        max: usize,
        consumer: ConsumerId,
        waker: &Waker,
        deliveries: &mut Vec<Delivery>,
    ) -> Result<(), SessionError> {
        self.step(|state, now| {
            self.check_held(state, part, consumer)?;
            let wanted = deliveries.len() + max;
            while deliveries.len() < wanted {
                let next = match mode {
                    ReceiveMode::PeekLock => self.deliver_locked(state, part, consumer, now),
                    ReceiveMode::ReceiveAndDelete => self.deliver_deleted(state, part, consumer),
                };
                let Some(delivery) = next else {
                    state.store(part).wait(consumer, waker);
                    break;
                };
                let is_last = delivery.ending.is_some();
                deliveries.push(delivery);
                if is_last {
                    break;
                }
            }
            state.store(part).pass_on();
            Ok(())
        })
    }

    fn deliver_locked(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
        now: Timestamp,
    ) -> Option<Delivery> {
        let token = self.context.tokens.next();
        let until = now.plus(self.settings.lock_duration);
        let locked = state.store(part).lock_next(consumer, token, until)?;
        let message = locked.message;
        self.record_delivery(part, &message);
        let mut ending = None;
        if let Some(decision) = &locked.copy {
            self.fire(part, &message, decision);
        } else if let Some((fault, decision)) = self.decide(part, &message, |_| true) {
            match fault {
                DeliveryFault::Redeliver => {
                    state.store(part).owe_copy(message.sequence_number, decision);
                }
                DeliveryFault::ExpireLock => {
                    self.fire(part, &message, &decision);
                    self.expire_lock(state, part, token);
                }
                DeliveryFault::EndConnection(how) => {
                    self.fire(part, &message, &decision);
                    ending = Some(how);
                }
            }
        }
        Some(Delivery { message, token, locked_until: Some(locked.until), ending })
    }

    fn deliver_deleted(
        &self,
        state: &mut State,
        part: Part,
        consumer: ConsumerId,
    ) -> Option<Delivery> {
        let removed = state.store(part).take_next(consumer)?;
        let message = self.removed(state, removed);
        self.record_delivery(part, &message);
        // Without a lock there is nothing to expire and nothing to hand out twice.
        let possible = |fault| matches!(fault, DeliveryFault::EndConnection(_));
        let ending = match self.decide(part, &message, possible) {
            Some((DeliveryFault::EndConnection(how), decision)) => {
                self.fire(part, &message, &decision);
                Some(how)
            }
            Some((DeliveryFault::Redeliver | DeliveryFault::ExpireLock, _)) | None => None,
        };
        let token = self.context.tokens.next();
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
