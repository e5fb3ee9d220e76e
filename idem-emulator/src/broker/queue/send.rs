//! Sending: what goes into a queue.

use std::sync::Arc;

use super::{Part, Queue, State};
use crate::broker::duplicates::DuplicateWindow;
use crate::broker::message::{Message, OVERHEAD_BYTES, Submission, bytes};
use crate::clock::Timestamp;
use crate::events::EventKind;

/// The queue has no room for what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "The queue `{name}` has reached its size of {size_max} bytes; receive messages, or raise `size_max`."
)]
pub(crate) struct QueueFull {
    name: Arc<str>,
    size_max: u64,
}

impl Queue {
    /// Stores all of the messages, or none. Those whose id is known are dropped instead, which the
    /// sender cannot tell.
    pub(crate) fn send(&self, submissions: Vec<Submission>) -> Result<(), QueueFull> {
        let now = self.context.clock.now();
        let mut state = self.lock();
        if let Some(duplicates) = &mut state.duplicates {
            duplicates.prune(now);
        }
        self.check_room(&state, &submissions)?;
        for submission in submissions {
            self.enqueue(&mut state, submission, now);
        }
        Ok(())
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

    fn check_room(&self, state: &State, submissions: &[Submission]) -> Result<(), QueueFull> {
        let known = state.duplicates.as_ref();
        let is_new = |id: &str| known.is_some_and(|known| !known.knows(id));
        let needed: u64 = submissions
            .iter()
            .map(|submission| {
                let id = submission
                    .id
                    .as_deref()
                    .filter(|id| is_new(id))
                    .map_or(0, DuplicateWindow::charge_of);
                bytes(submission.content.len()) + OVERHEAD_BYTES + id
            })
            .sum();
        let used = state.charge + known.map_or(0, DuplicateWindow::charge);
        if used.saturating_add(needed) <= self.options.size_limit() {
            return Ok(());
        }
        Err(QueueFull { name: Arc::clone(&self.name), size_max: self.options.size_limit() })
    }

    fn enqueue(&self, state: &mut State, submission: Submission, now: Timestamp) {
        if let (Some(duplicates), Some(id)) = (&mut state.duplicates, &submission.id)
            && !duplicates.remember(id, now)
        {
            self.context.events.record_message(
                &self.name,
                Some(id),
                None,
                EventKind::DuplicateDropped,
            );
            return;
        }
        let message = Message {
            id: submission.id,
            content: submission.content,
            sequence_number: state.next_sequence_number,
            enqueued_at: now,
            delivery_count: 0,
            amendments: None,
        };
        state.next_sequence_number += 1;
        state.charge += message.charge();
        self.record(Part::Main, &message, EventKind::Enqueued);
        state.main.insert(message);
        state.main.waiters.wake_next();
    }
}
