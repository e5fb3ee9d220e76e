//! What happens because time passes.

use uuid::Uuid;

use super::{Part, Queue, State};
use crate::broker::TTL_EXPIRED;
use crate::broker::store::{Due, Store};
use crate::clock::Timestamp;
use crate::events::EventKind;

impl Queue {
    /// Does what is due; returns when there will be more.
    pub(crate) fn sweep(&self) -> Option<Timestamp> {
        // Whoever sweeps is about to sleep until then: an alarm would only wake it at once.
        self.unarmed_step(|state, _| next_deadline(state))
    }

    /// Does what is due by `now`, in the order of time. Every step takes what it does off the list.
    pub(super) fn catch_up(&self, state: &mut State, now: Timestamp) {
        for part in Part::ALL {
            while let Some((at, due)) = state.store(part).next_due(now) {
                match due {
                    Due::Activation(number) => self.activate(state, number, at),
                    Due::LockEnd(token) => self.expire_lock(state, part, token),
                    Due::SessionEnd(consumer) => self.expire_session(state, consumer),
                    Due::Expiry(number) => self.expire_message(state, part, number),
                    Due::Appearance(number) => state.store(part).end_delay(number),
                }
            }
        }
    }

    fn expire_message(&self, state: &mut State, part: Part, sequence_number: i64) {
        let Some(removed) = state.store(part).remove(sequence_number) else {
            return;
        };
        let message = self.removed(state, removed);
        if self.settings.dead_letter_expired {
            let description = "The message was not received within its time to live.";
            self.dead_letter(state, message, Some(TTL_EXPIRED.into()), Some(description.into()));
        } else {
            self.record(part, &message, EventKind::Expired);
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
    let stores = [&state.main, &state.dead_letter, &state.transfer];
    stores.into_iter().filter_map(Store::next_deadline).min()
}
