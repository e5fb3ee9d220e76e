//! What happens because time passes.

use uuid::Uuid;

use super::{Part, Queue, State};
use crate::clock::Timestamp;
use crate::events::EventKind;

impl Queue {
    /// Expires the locks that have ended; returns when the next one will.
    pub(crate) fn sweep(&self, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.lock();
        self.expire(&mut state, now);
        next_deadline(&state)
    }

    pub(super) fn expire(&self, state: &mut State, now: Timestamp) {
        for part in [Part::Main, Part::DeadLetter] {
            while let Some(token) = state.store(part).next_expired(now) {
                self.expire_lock(state, part, token);
            }
        }
    }

    pub(super) fn expire_lock(&self, state: &mut State, part: Part, token: Uuid) {
        self.fail(state, part, token, |delivery_count| EventKind::LockExpired { delivery_count });
    }

    pub(super) fn arm(&self, state: &State) {
        if let Some(deadline) = next_deadline(state) {
            self.context.alarm.arm(deadline);
        }
    }
}

fn next_deadline(state: &State) -> Option<Timestamp> {
    let deadlines = [state.main.next_deadline(), state.dead_letter.next_deadline()];
    deadlines.into_iter().flatten().min()
}
