//! Sending: what goes into a queue.

use std::sync::Arc;

use super::{Part, Queue, State};
use crate::broker::duplicates::DuplicateWindow;
use crate::broker::message::{Message, MessageState, OVERHEAD_BYTES, Submission, bytes};
use crate::broker::{Acknowledgement, LimitError};
use crate::clock::Timestamp;
use crate::events::EventKind;
use crate::faults::{Decision, Ending, Occasion, SendFault};

/// Why a queue does not take what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendError {
    #[error(
        "The queue `{name}` has reached its size of {size_max} bytes; receive messages, or raise `size_max`."
    )]
    Full { name: Arc<str>, size_max: u64 },
    #[error("The queue `{name}` requires sessions: set the session id of each message.")]
    SessionIdMissing { name: Arc<str> },
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("The messaging entity '{name}' could not be found.")]
    Deleted { name: Arc<str> },
    #[error("The partition key of a message with a session id must be the session id.")]
    PartitionKeyDiffers,
    #[error("The server is busy; a fault rule says so. Try again later.")]
    Busy,
}

impl SendError {
    /// The AMQP error condition.
    pub(crate) fn condition(&self) -> &'static str {
        match self {
            Self::Full { .. } => "amqp:resource-limit-exceeded",
            Self::Deleted { .. } => "amqp:not-found",
            Self::SessionIdMissing { .. } => "amqp:not-allowed",
            Self::Limit(error) => error.condition(),
            Self::PartitionKeyDiffers => "com.microsoft:argument-error",
            Self::Busy => "com.microsoft:server-busy",
        }
    }
}

/// A sequence number names no message in the state that the request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("The queue has no such message with sequence number {0}; it may be gone already.")]
pub(crate) struct MessageNotFound(pub(crate) i64);

impl Queue {
    /// Stores all of the messages, or none; returns their sequence numbers. Those whose id is known
    /// are dropped instead, which the sender cannot tell.
    pub(crate) fn send(&self, submissions: Vec<Submission>) -> Result<Vec<i64>, SendError> {
        submissions.iter().try_for_each(|submission| self.check(submission))?;
        self.check_targets(submissions.iter())?;
        self.step(|state, now| {
            self.check_sends(state, submissions.iter(), now)?;
            let accept = |submission| self.accept(state, submission, now);
            Ok(submissions.into_iter().map(accept).collect())
        })
    }

    /// Whether all of these can be stored now.
    pub(super) fn check_sends<'a>(
        &self,
        state: &mut State,
        submissions: impl Iterator<Item = &'a Submission>,
        now: Timestamp,
    ) -> Result<(), SendError> {
        if state.deleted {
            return Err(SendError::Deleted { name: Arc::clone(&self.name) });
        }
        if let Some(duplicates) = &mut state.duplicates {
            duplicates.prune(now);
        }
        self.check_room(state, submissions)
    }

    /// Stores what a client sends over a link, all or nothing, unless a fault comes in between.
    pub(crate) fn take(&self, submissions: Vec<Submission>) -> Result<Acknowledgement, SendError> {
        let Some((fault, decision)) = self.decide_send(&submissions) else {
            self.send(submissions)?;
            return Ok(Acknowledgement::Now);
        };
        let id = submissions.first().and_then(|submission| submission.id.clone());
        if fault == SendFault::LoseAnswer
            && let Err(error) = self.send(submissions)
        {
            self.context.faults.withdraw(&decision);
            return Err(error);
        }
        self.context.faults.confirm(&decision);
        let kind = EventKind::FaultFired { fault: decision.kind };
        self.context.events.record_message(&self.name, id.as_ref(), None, kind);
        match fault {
            SendFault::Lose | SendFault::LoseAnswer => {
                Ok(Acknowledgement::ConnectionEnds(Ending::Cut))
            }
            SendFault::Refuse => Err(SendError::Busy),
            SendFault::Detach => Ok(Acknowledgement::LinkEnds),
        }
    }

    fn decide_send(&self, submissions: &[Submission]) -> Option<(SendFault, Decision)> {
        if !self.context.faults.is_armed() {
            return None;
        }
        let messages: Vec<_> = submissions.iter().filter_map(|it| it.id.as_deref()).collect();
        let occasion = Occasion { entity: &self.name, messages: &messages, operation: None };
        self.context.faults.decide(occasion, |_| true)
    }

    /// Takes scheduled messages back before they are enqueued, all or none. Their ids stay known.
    pub(crate) fn cancel(&self, numbers: &[i64]) -> Result<(), MessageNotFound> {
        let is_scheduled = |state| matches!(state, MessageState::Scheduled { .. });
        self.step(|state, _| {
            for number in numbers {
                state.main.unlocked(*number, is_scheduled).ok_or(MessageNotFound(*number))?;
            }
            for number in numbers {
                if let Some(removed) = state.main.remove(*number) {
                    let message = self.removed(state, removed);
                    self.record(Part::Main, &message, EventKind::ScheduleCancelled);
                }
            }
            Ok(())
        })
    }

    /// A sender was told that its message cannot be stored.
    pub(crate) fn note_rejected_send(&self, condition: &'static str) {
        self.context.events.record_message(
            &self.name,
            None,
            None,
            EventKind::SendRejected { condition },
        );
    }

    /// What can be said about a message without looking at the others.
    pub(in crate::broker) fn check(&self, submission: &Submission) -> Result<(), SendError> {
        submission.check_limits()?;
        match (&submission.session_id, &submission.partition_key) {
            (None, _) if self.settings.requires_session && submission.destination.is_none() => {
                Err(SendError::SessionIdMissing { name: Arc::clone(&self.name) })
            }
            (Some(session_id), Some(key)) if key != session_id => {
                Err(SendError::PartitionKeyDiffers)
            }
            (Some(_) | None, _) => Ok(()),
        }
    }

    fn check_room<'a>(
        &self,
        state: &State,
        submissions: impl Iterator<Item = &'a Submission>,
    ) -> Result<(), SendError> {
        let known = state.duplicates.as_ref();
        let id_charge = |submission: &Submission| match (known, &submission.id) {
            (Some(known), Some(id)) if !known.knows(id) => DuplicateWindow::charge_of(id),
            (Some(_) | None, _) => 0,
        };
        let content_charge = |submission: &Submission| {
            // What goes on at once takes no room here.
            let passes = !self.keeps_messages() || submission.destination.is_some();
            let stays = !passes || submission.scheduled_for.is_some();
            if stays { bytes(submission.content.len()) + OVERHEAD_BYTES } else { 0 }
        };
        let needed = submissions.map(|it| content_charge(it) + id_charge(it)).sum();
        if self.has_room(state, needed) { Ok(()) } else { Err(self.full()) }
    }

    /// For messages that another entity would send on to this one.
    pub(super) fn check_room_for<'a>(
        &self,
        submissions: impl Iterator<Item = &'a Submission>,
    ) -> Result<(), SendError> {
        self.check_room(&self.lock(), submissions)
    }

    pub(super) fn has_room(&self, state: &State, needed: u64) -> bool {
        let known = state.duplicates.as_ref();
        let used = state.charge + known.map_or(0, DuplicateWindow::charge);
        used.saturating_add(needed) <= self.settings.size_max
    }

    pub(super) fn full(&self) -> SendError {
        SendError::Full { name: Arc::clone(&self.name), size_max: self.settings.size_max }
    }

    /// Returns the sequence number, which a duplicate uses up too.
    pub(super) fn accept(&self, state: &mut State, submission: Submission, now: Timestamp) -> i64 {
        let sequence_number = state.take_sequence_number();
        if self.is_duplicate(state, submission.id.as_ref(), now) {
            return sequence_number;
        }
        let message = Message {
            id: submission.id,
            session_id: submission.session_id,
            destination: submission.destination,
            time_to_live: submission.time_to_live,
            content: submission.content,
            sequence_number,
            state: MessageState::Active,
            enqueued_at: now,
            expires_at: None,
            delivery_count: 0,
            amendments: None,
            original_number: None,
            forwards: 0,
        };
        match submission.scheduled_for.filter(|due| *due > now) {
            Some(due) => self.schedule(state, message, due),
            None => self.enqueue(state, message, now),
        }
        sequence_number
    }

    /// Remembers an id; `true` if it was known and the message is to be dropped.
    pub(super) fn is_duplicate(
        &self,
        state: &mut State,
        id: Option<&Arc<str>>,
        now: Timestamp,
    ) -> bool {
        let (Some(duplicates), Some(id)) = (&mut state.duplicates, id) else {
            return false;
        };
        duplicates.prune(now);
        let duplicate = !duplicates.remember(id, now);
        if duplicate {
            let kind = EventKind::DuplicateDropped;
            self.context.events.record_message(&self.name, Some(id), None, kind);
        }
        duplicate
    }

    fn schedule(&self, state: &mut State, mut message: Message, due: Timestamp) {
        message.state = MessageState::Scheduled { due };
        state.charge += message.charge();
        self.record(Part::Main, &message, EventKind::Scheduled);
        state.main.insert(message);
    }

    /// The time of a scheduled message has come: it goes to the end of the queue, under a new number.
    pub(super) fn activate(&self, state: &mut State, sequence_number: i64, due: Timestamp) {
        if let Some(removed) = state.main.remove(sequence_number) {
            let mut message = self.removed(state, removed);
            message.sequence_number = state.take_sequence_number();
            self.enqueue(state, message, due);
        }
    }

    pub(super) fn enqueue(&self, state: &mut State, mut message: Message, now: Timestamp) {
        message.state = MessageState::Active;
        message.enqueued_at = now;
        message.expires_at = self.expiry(&message, now);
        self.record(Part::Main, &message, EventKind::Enqueued);
        self.place(state, message);
    }

    fn expiry(&self, message: &Message, now: Timestamp) -> Option<Timestamp> {
        let limits = [message.time_to_live, self.settings.default_time_to_live];
        limits.into_iter().flatten().min().map(|time_to_live| now.plus(time_to_live))
    }
}
