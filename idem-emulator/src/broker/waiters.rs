//! Receivers that wait for a message, in the order in which they began to wait.

use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

/// Names one receiver of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ConsumerId(pub(crate) u64);

/// The waiting receivers. Waking one takes it off the list: it must then try to receive, or be
/// forgotten, so that no wake-up is lost.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    next_ticket: u64,
    queue: BTreeMap<u64, (ConsumerId, Waker)>,
    tickets: HashMap<ConsumerId, u64>,
}

impl Waiters {
    /// Puts a receiver at the end of the list, unless it waits already.
    pub(super) fn wait(&mut self, consumer: ConsumerId, waker: &Waker) {
        if self.tickets.contains_key(&consumer) {
            return;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.tickets.insert(consumer, ticket);
        self.queue.insert(ticket, (consumer, waker.clone()));
    }

    pub(super) fn forget(&mut self, consumer: ConsumerId) {
        if let Some(ticket) = self.tickets.remove(&consumer) {
            self.queue.remove(&ticket);
        }
    }

    /// Wakes the receiver that has waited longest; `false` if nobody waits.
    pub(super) fn wake_next(&mut self) -> bool {
        let Some((_, (consumer, waker))) = self.queue.pop_first() else {
            return false;
        };
        self.tickets.remove(&consumer);
        waker.wake();
        true
    }
}
