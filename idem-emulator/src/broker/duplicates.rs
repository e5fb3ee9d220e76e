//! The message ids that a queue has accepted within its duplicate-detection window.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::message::bytes;
use crate::clock::Timestamp;

/// What each remembered id is charged beside its text.
const ENTRY_BYTES: u64 = 96;

/// An id counts from when its first copy was accepted; later copies do not extend it, and
/// settling the message does not free it.
#[derive(Debug)]
pub(super) struct DuplicateWindow {
    window: Duration,
    known: HashSet<Arc<str>>,
    by_age: VecDeque<(Timestamp, Arc<str>)>,
    charge: u64,
}

impl DuplicateWindow {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, known: HashSet::new(), by_age: VecDeque::new(), charge: 0 }
    }

    /// Forgets the ids whose window has ended.
    pub(super) fn prune(&mut self, now: Timestamp) {
        while let Some((accepted, _)) = self.by_age.front() {
            if accepted.plus(self.window) > now {
                break;
            }
            if let Some((_, id)) = self.by_age.pop_front() {
                self.charge = self.charge.saturating_sub(Self::charge_of(&id));
                self.known.remove(&id);
            }
        }
    }

    /// Remembers an id; `false` if it is known already.
    pub(super) fn remember(&mut self, id: &Arc<str>, now: Timestamp) -> bool {
        let new = self.known.insert(Arc::clone(id));
        if new {
            self.charge += Self::charge_of(id);
            self.by_age.push_back((now, Arc::clone(id)));
        }
        new
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.known.contains(id)
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.by_age.clear();
        self.charge = 0;
    }

    /// The bytes that the remembered ids are charged for.
    pub(super) fn charge(&self) -> u64 {
        self.charge
    }

    pub(super) fn charge_of(id: &str) -> u64 {
        bytes(id.len()) + ENTRY_BYTES
    }
}
