//! Settling: what receivers decide about the messages that they hold.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Part, Queue, State};
use crate::broker::limits::PROPERTIES_MAX;
use crate::broker::message::{Amendments, DeadLetter, Message, MessageState, Property};
use crate::broker::{Acknowledgement, MAX_DELIVERY_COUNT_EXCEEDED};
use crate::clock::Timestamp;
use crate::codec::message::properties_size;
use crate::events::EventKind;
use crate::faults::{Ending, SettlementFault};

/// What a receiver decides about a locked message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    Complete,
    Abandon {
        properties: Vec<Property>,
    },
    Release,
    Defer {
        properties: Vec<Property>,
    },
    DeadLetter {
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
        properties: Vec<Property>,
    },
}

/// Why a settlement or a renewal was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettleError {
    #[error(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
    )]
    LockLost,
    #[error("The session lock has expired, or was given up. Accept the session again.")]
    SessionLockLost,
    #[error("Messages of a session are locked with it: renew the lock of the session.")]
    LockedBySession,
    #[error(
        "A message in a dead-letter queue cannot be dead-lettered again; complete or abandon it."
    )]
    AlreadyDeadLettered,
    #[error(
        "The properties set on the message would exceed {PROPERTIES_MAX} bytes with the others."
    )]
    PropertiesTooLarge,
    #[error("The message is part of a transaction that has not ended yet.")]
    InTransaction,
}

impl SettleError {
    /// The AMQP error condition.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Self::LockLost => "com.microsoft:message-lock-lost",
            Self::SessionLockLost => "com.microsoft:session-lock-lost",
            Self::AlreadyDeadLettered | Self::LockedBySession | Self::InTransaction => {
                "amqp:not-allowed"
            }
            Self::PropertiesTooLarge => "com.microsoft:argument-out-of-range",
        }
    }
}

impl Queue {
    /// Applies what a receiver decided about the message under `token`.
    pub(crate) fn settle(
        &self,
        part: Part,
        token: Uuid,
        settlement: Settlement,
    ) -> Result<Acknowledgement, SettleError> {
        self.step(|state, now| {
            let result = self.settle_locked(state, part, token, settlement, now);
            if let Err(error) = result {
                let message = state.store(part).locked(token);
                let id = message.and_then(|message| message.id.as_ref());
                let number = message.map(|message| message.sequence_number);
                let kind = EventKind::SettlementRejected { condition: error.condition() };
                self.context.events.record_message(self.name(part), id, number, kind);
            }
            // What was given back may have outlived its time meanwhile.
            self.catch_up(state, now);
            result
        })
    }

    fn settle_locked(
        &self,
        state: &mut State,
        part: Part,
        token: Uuid,
        settlement: Settlement,
        now: Timestamp,
    ) -> Result<Acknowledgement, SettleError> {
        let message = self.check_settlement(state, part, token, &settlement, now)?;
        let completes = settlement == Settlement::Complete;
        let possible = |fault| completes || !matches!(fault, SettlementFault::Forget);
        let Some((fault, decision)) = self.decide(part, message, possible) else {
            self.apply(state, part, token, settlement);
            return Ok(Acknowledgement::Now);
        };
        let message = message.clone();
        let acknowledgement = self.settle_faultily(state, part, token, settlement, fault);
        self.fire(part, &message, &decision);
        Ok(acknowledgement)
    }

    fn settle_faultily(
        &self,
        state: &mut State,
        part: Part,
        token: Uuid,
        settlement: Settlement,
        fault: SettlementFault,
    ) -> Acknowledgement {
        match fault {
            SettlementFault::Lose(None) => Acknowledgement::Never,
            SettlementFault::Lose(Some(how)) => Acknowledgement::ConnectionEnds(how),
            SettlementFault::LoseAnswer { cut } => {
                self.apply(state, part, token, settlement);
                if cut {
                    Acknowledgement::ConnectionEnds(Ending::Cut)
                } else {
                    Acknowledgement::Never
                }
            }
            SettlementFault::DelayAnswer(by) => {
                self.apply(state, part, token, settlement);
                Acknowledgement::At(self.context.clock.now().plus(by))
            }
            SettlementFault::Forget => {
                if let Some(message) = state.store(part).locked(token) {
                    self.record(part, message, EventKind::Completed);
                }
                self.unlock(state, part, token);
                Acknowledgement::Now
            }
        }
    }

    /// The message under `token`, if this can be done with it.
    pub(super) fn check_settlement<'a>(
        &self,
        state: &'a mut State,
        part: Part,
        token: Uuid,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Result<&'a Message, SettleError> {
        let store = state.store(part);
        let message = store.locked(token).ok_or(self.lock_lost(part))?;
        if store.is_reserved(token, now) {
            return Err(SettleError::InTransaction);
        }
        let properties = match settlement {
            Settlement::Complete | Settlement::Release => return Ok(message),
            Settlement::DeadLetter { .. } if part != Part::Main => {
                return Err(SettleError::AlreadyDeadLettered);
            }
            Settlement::Abandon { properties }
            | Settlement::Defer { properties }
            | Settlement::DeadLetter { properties, .. } => properties,
        };
        if properties.is_empty() {
            return Ok(message);
        }
        let size = amended(message, properties.clone()).size();
        let fits = properties_size(&message.content) + size <= PROPERTIES_MAX;
        fits.then_some(message).ok_or(SettleError::PropertiesTooLarge)
    }

    /// Does what has been checked.
    pub(super) fn apply(&self, state: &mut State, part: Part, token: Uuid, settlement: Settlement) {
        match settlement {
            Settlement::Complete => {
                if let Some(removed) = state.store(part).remove_locked(token) {
                    let message = self.removed(state, removed);
                    self.record(part, &message, EventKind::Completed);
                }
            }
            Settlement::Release => {
                if let Some(message) = state.store(part).locked(token) {
                    self.record(part, message, EventKind::Released);
                }
                self.unlock(state, part, token);
            }
            Settlement::Abandon { properties } => {
                amend(state, part, token, properties);
                self.fail(state, part, token, |delivery_count| EventKind::Abandoned {
                    delivery_count,
                });
            }
            Settlement::Defer { properties } => {
                amend(state, part, token, properties);
                self.defer(state, part, token);
            }
            Settlement::DeadLetter { reason, description, properties } => {
                amend(state, part, token, properties);
                self.dead_letter_locked(state, token, reason, description);
            }
        }
    }

    pub(super) fn lock_lost(&self, part: Part) -> SettleError {
        if self.requires_sessions(part) {
            SettleError::SessionLockLost
        } else {
            SettleError::LockLost
        }
    }

    /// Extends the locks by the lock duration from now, all or none; returns their new ends.
    pub(crate) fn renew(&self, part: Part, tokens: &[Uuid]) -> Result<Vec<Timestamp>, SettleError> {
        if self.requires_sessions(part) {
            return Err(SettleError::LockedBySession);
        }
        self.step(|state, now| {
            let store = state.store(part);
            if !tokens.iter().all(|token| store.locked(*token).is_some()) {
                let kind =
                    EventKind::SettlementRejected { condition: SettleError::LockLost.condition() };
                self.context.events.record_message(self.name(part), None, None, kind);
                return Err(SettleError::LockLost);
            }
            let mut ends = Vec::with_capacity(tokens.len());
            for token in tokens {
                // Clients take it for granted that a renewed lock ends later than before, which it
                // would not within one millisecond.
                let end = store.lock_end(*token).map(|end| end.plus(Duration::from_millis(1)));
                let until = now.plus(self.settings.lock_duration);
                let until = end.map_or(until, |end| until.max(end));
                store.renew(*token, until);
                ends.push(until);
                if let Some(message) = store.locked(*token) {
                    self.record(part, message, EventKind::LockRenewed);
                }
            }
            Ok(ends)
        })
    }

    /// A delivery has failed: its count goes up, its lock is given up, and the message comes again
    /// or is dead-lettered.
    pub(super) fn fail(
        &self,
        state: &mut State,
        part: Part,
        token: Uuid,
        event: impl FnOnce(u32) -> EventKind,
    ) {
        let Some(message) = state.store(part).locked_mut(token) else {
            return;
        };
        message.delivery_count = message.delivery_count.saturating_add(1);
        let count = message.delivery_count;
        self.record(part, message, event(count));
        if part == Part::Main && count >= self.settings.max_delivery_count {
            let description = format!(
                "Message could not be consumed after {} delivery attempts.",
                self.settings.max_delivery_count
            );
            self.dead_letter_locked(
                state,
                token,
                Some(MAX_DELIVERY_COUNT_EXCEEDED.into()),
                Some(description.into()),
            );
        } else {
            self.unlock(state, part, token);
        }
    }

    pub(super) fn unlock(&self, state: &mut State, part: Part, token: Uuid) {
        if let Some(owed) = state.store(part).unlock(token) {
            self.context.faults.withdraw(&owed);
        }
    }

    fn defer(&self, state: &mut State, part: Part, token: Uuid) {
        let store = state.store(part);
        if let Some(message) = store.locked(token) {
            self.record(part, message, EventKind::Deferred);
        }
        if let Some(owed) = store.defer(token) {
            self.context.faults.withdraw(&owed);
        }
    }

    fn dead_letter_locked(
        &self,
        state: &mut State,
        token: Uuid,
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
    ) {
        if let Some(removed) = state.main.remove_locked(token) {
            let message = self.removed(state, removed);
            self.dead_letter(state, message, reason, description);
        }
    }

    /// Moves a message that has just left the queue.
    pub(super) fn dead_letter(
        &self,
        state: &mut State,
        message: Message,
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
    ) {
        let message = self.as_dead_letter(message, reason, description);
        self.place_dead_letter(state, message);
    }

    /// Nothing expires among the dead letters.
    pub(super) fn as_dead_letter(
        &self,
        mut message: Message,
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
    ) -> Message {
        self.record(Part::Main, &message, EventKind::DeadLettered { reason: reason.clone() });
        let mut amendments =
            message.amendments.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        amendments.dead_letter =
            Some(DeadLetter { reason, description, source: Arc::clone(&self.name) });
        message.amendments = Some(Arc::new(amendments));
        message.state = MessageState::Active;
        message.expires_at = None;
        message
    }
}

/// Sets application properties on a locked message.
fn amend(state: &mut State, part: Part, token: Uuid, properties: Vec<Property>) {
    let Some(message) = state.store(part).locked_mut(token).filter(|_| !properties.is_empty())
    else {
        return;
    };
    let before = message.charge();
    message.amendments = Some(Arc::new(amended(message, properties)));
    let after = message.charge();
    state.charge = state.charge.saturating_sub(before).saturating_add(after);
}

fn amended(message: &Message, properties: Vec<Property>) -> Amendments {
    let mut amendments: Amendments = message.amendments.as_deref().cloned().unwrap_or_default();
    amendments.merge(properties);
    amendments
}
