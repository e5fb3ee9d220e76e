//! What happened, in order: a bounded log with totals that never lose anything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::sync::Notify;

use crate::clock::{Clock, Timestamp};
use crate::faults::FaultKind;

/// One thing that happened in the emulator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Counts events from 1, without gaps, over the life of the emulator.
    pub sequence: u64,
    /// When it happened, by the emulator's clock, in whole milliseconds.
    pub time: SystemTime,
    /// The queue, the topic or `topic/Subscriptions/subscription`, with `/$DeadLetterQueue` after it
    /// for its dead letters; absent for events of a connection.
    pub entity: Option<Arc<str>>,
    /// The id of the message, if the event is about one and its sender gave it an id.
    pub message_id: Option<Arc<str>>,
    /// The sequence number of the message, if the event is about a stored one.
    pub sequence_number: Option<i64>,
    /// What happened.
    pub kind: EventKind,
}

/// What an [`Event`] reports.
///
/// Delivery counts are as on the wire: the number of failed deliveries so far, 0 at the first delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(serde::Serialize))]
#[cfg_attr(feature = "control", serde(tag = "kind", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum EventKind {
    /// A message was stored where receivers can have it.
    Enqueued,
    /// A message was stored, to be enqueued later.
    Scheduled,
    /// A sender took a scheduled message back.
    ScheduleCancelled,
    /// A message was accepted from its sender and dropped: its id was seen within the window.
    DuplicateDropped,
    /// A message left the entity for another.
    Forwarded {
        /// The other entity.
        to: Arc<str>,
    },
    /// A message was refused to its sender.
    SendRejected {
        /// The AMQP error condition that the sender got.
        condition: &'static str,
    },
    /// A message was locked and handed to a receiver. In receive-and-delete mode it is gone.
    Delivered {
        /// The delivery count that the receiver saw.
        delivery_count: u32,
    },
    /// A receiver completed the message; it is gone.
    Completed,
    /// A receiver abandoned the message.
    Abandoned {
        /// The count after it was raised.
        delivery_count: u32,
    },
    /// A receiver gave the message back without raising its count.
    Released,
    /// A receiver set the message aside.
    Deferred,
    /// A client deleted the message without receiving it.
    Deleted,
    /// The message was not received within its time to live and was dropped.
    Expired,
    /// The message moved to the dead-letter queue.
    DeadLettered {
        /// Why: the application's words, `MaxDeliveryCountExceeded` or `TTLExpiredException`.
        reason: Option<Arc<str>>,
    },
    /// A lock ended before its delivery was settled.
    LockExpired {
        /// The count after it was raised.
        delivery_count: u32,
    },
    /// A lock was renewed.
    LockRenewed,
    /// A settlement or renewal was refused.
    SettlementRejected {
        /// The AMQP error condition that the receiver got.
        condition: &'static str,
    },
    /// A receiver holds a session from now on.
    SessionAccepted {
        /// The session.
        session_id: Arc<str>,
    },
    /// The lock of a session was renewed.
    SessionLockRenewed {
        /// The session.
        session_id: Arc<str>,
    },
    /// The lock of a session ended before its holder gave it up.
    SessionLockLost {
        /// The session.
        session_id: Arc<str>,
    },
    /// The holder of a session gave it up, or is gone.
    SessionReleased {
        /// The session.
        session_id: Arc<str>,
    },
    /// A fault rule fired.
    FaultFired {
        /// What the rule does.
        fault: FaultKind,
    },
    /// A client began a transaction.
    TransactionDeclared,
    /// All that belongs to a transaction was done.
    TransactionCommitted,
    /// Nothing that belonged to a transaction was done.
    TransactionRolledBack,
    /// A client connected.
    ConnectionOpened,
    /// A connection ended, for whatever reason.
    ConnectionClosed,
}

/// How many events of each kind there were since the start or the last reset.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(serde::Serialize))]
#[non_exhaustive]
#[allow(missing_docs, reason = "each field counts the event kind of the same name")]
pub struct EventTotals {
    pub enqueued: u64,
    pub scheduled: u64,
    pub schedule_cancelled: u64,
    pub duplicate_dropped: u64,
    pub forwarded: u64,
    pub send_rejected: u64,
    pub delivered: u64,
    pub completed: u64,
    pub abandoned: u64,
    pub released: u64,
    pub deferred: u64,
    pub deleted: u64,
    pub expired: u64,
    pub dead_lettered: u64,
    pub lock_expired: u64,
    pub lock_renewed: u64,
    pub settlement_rejected: u64,
    pub session_accepted: u64,
    pub session_lock_renewed: u64,
    pub session_lock_lost: u64,
    pub session_released: u64,
    pub fault_fired: u64,
    pub transaction_declared: u64,
    pub transaction_committed: u64,
    pub transaction_rolled_back: u64,
    pub connection_opened: u64,
    pub connection_closed: u64,
}

impl EventTotals {
    fn count(&mut self, kind: &EventKind) {
        let total = match kind {
            EventKind::Enqueued => &mut self.enqueued,
            EventKind::Scheduled => &mut self.scheduled,
            EventKind::ScheduleCancelled => &mut self.schedule_cancelled,
            EventKind::DuplicateDropped => &mut self.duplicate_dropped,
            EventKind::Forwarded { .. } => &mut self.forwarded,
            EventKind::SendRejected { .. } => &mut self.send_rejected,
            EventKind::Delivered { .. } => &mut self.delivered,
            EventKind::Completed => &mut self.completed,
            EventKind::Abandoned { .. } => &mut self.abandoned,
            EventKind::Released => &mut self.released,
            EventKind::Deferred => &mut self.deferred,
            EventKind::Deleted => &mut self.deleted,
            EventKind::Expired => &mut self.expired,
            EventKind::DeadLettered { .. } => &mut self.dead_lettered,
            EventKind::LockExpired { .. } => &mut self.lock_expired,
            EventKind::LockRenewed => &mut self.lock_renewed,
            EventKind::SettlementRejected { .. } => &mut self.settlement_rejected,
            EventKind::SessionAccepted { .. } => &mut self.session_accepted,
            EventKind::SessionLockRenewed { .. } => &mut self.session_lock_renewed,
            EventKind::SessionLockLost { .. } => &mut self.session_lock_lost,
            EventKind::SessionReleased { .. } => &mut self.session_released,
            EventKind::FaultFired { .. } => &mut self.fault_fired,
            EventKind::TransactionDeclared => &mut self.transaction_declared,
            EventKind::TransactionCommitted => &mut self.transaction_committed,
            EventKind::TransactionRolledBack => &mut self.transaction_rolled_back,
            EventKind::ConnectionOpened => &mut self.connection_opened,
            EventKind::ConnectionClosed => &mut self.connection_closed,
        };
        *total += 1;
    }
}

/// The emulator's event log. Clones read the same log.
///
/// It keeps the newest events, up to the capacity given to the builder, and totals over all of
/// them. It lives in memory and ends with the emulator.
#[derive(Debug, Clone)]
pub struct Events {
    log: Arc<Log>,
}

#[derive(Debug)]
struct Log {
    clock: Clock,
    capacity: usize,
    recorded: Mutex<Recorded>,
    added: Notify,
}

#[derive(Debug)]
struct Recorded {
    next_sequence: u64,
    kept: VecDeque<Stored>,
    totals: EventTotals,
}

/// An event as it is kept: the public form is made only for who asks.
#[derive(Debug)]
struct Stored {
    time: Timestamp,
    entity: Option<Arc<str>>,
    message_id: Option<Arc<str>>,
    sequence_number: Option<i64>,
    kind: EventKind,
}

impl Events {
    pub(crate) fn new(clock: Clock, capacity: usize) -> Self {
        let recorded =
            Recorded { next_sequence: 1, kept: VecDeque::new(), totals: EventTotals::default() };
        Self {
            log: Arc::new(Log {
                clock,
                capacity,
                recorded: Mutex::new(recorded),
                added: Notify::new(),
            }),
        }
    }

    /// The totals of each kind, including events that are no longer kept.
    #[must_use]
    pub fn totals(&self) -> EventTotals {
        self.recorded().totals
    }

    /// The sequence of the newest event; 0 before the first.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.recorded().next_sequence - 1
    }

    /// The events that are still kept, oldest first.
    #[must_use]
    pub fn snapshot(&self) -> Vec<Event> {
        self.recorded().after(0).collect()
    }

    /// The oldest kept events with a sequence above `after`, at most `limit`.
    #[cfg(feature = "control")]
    pub(crate) fn page(&self, after: u64, limit: usize) -> Vec<Event> {
        self.recorded().after(after).take(limit).collect()
    }

    /// The oldest kept event that `matches`, waiting for it if there is none yet.
    ///
    /// Waits without end, so give it a deadline, such as `tokio::time::timeout`. To skip what has
    /// happened before, compare [`Event::sequence`] with an earlier
    /// [`last_sequence`](Self::last_sequence). More events at once than the log keeps can push one
    /// out before it is seen: to await a number of events, compare [`totals`](Self::totals) instead.
    pub async fn wait_for(&self, matches: impl Fn(&Event) -> bool) -> Event {
        let mut seen = 0;
        loop {
            let mut added = std::pin::pin!(self.log.added.notified());
            // Listen before looking, so that an event in between is not missed.
            added.as_mut().enable();
            let events: Vec<_> = self.recorded().after(seen).collect();
            seen = events.last().map_or(seen, |event| event.sequence);
            if let Some(found) = events.into_iter().find(|event| matches(event)) {
                return found;
            }
            added.await;
        }
    }

    /// Forgets the kept events and the totals. Sequences go on counting.
    pub(crate) fn clear(&self) {
        let mut recorded = self.recorded();
        recorded.kept.clear();
        recorded.totals = EventTotals::default();
    }

    /// Adds an event about a connection.
    pub(crate) fn record(&self, kind: EventKind) {
        self.add(None, None, None, kind);
    }

    /// Adds an event about a message.
    pub(crate) fn record_message(
        &self,
        entity: &Arc<str>,
        message_id: Option<&Arc<str>>,
        sequence_number: Option<i64>,
        kind: EventKind,
    ) {
        self.add(Some(Arc::clone(entity)), message_id.cloned(), sequence_number, kind);
    }

    fn add(
        &self,
        entity: Option<Arc<str>>,
        message_id: Option<Arc<str>>,
        sequence_number: Option<i64>,
        kind: EventKind,
    ) {
        let time = self.log.clock.now();
        {
            let mut recorded = self.recorded();
            recorded.totals.count(&kind);
            recorded.next_sequence += 1;
            if recorded.kept.len() >= self.log.capacity {
                recorded.kept.pop_front();
            }
            recorded.kept.push_back(Stored { time, entity, message_id, sequence_number, kind });
        }
        self.log.added.notify_waiters();
    }

    fn recorded(&self) -> MutexGuard<'_, Recorded> {
        self.log.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorded {
    /// The kept events with a sequence above `seen`.
    fn after(&self, seen: u64) -> impl Iterator<Item = Event> {
        let kept = u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        let first = self.next_sequence.saturating_sub(kept);
        let skip = usize::try_from(seen.saturating_add(1).saturating_sub(first));
        let numbered = (first..).zip(&self.kept).skip(skip.unwrap_or(usize::MAX));
        numbered.map(|(sequence, stored)| stored.to_event(sequence))
    }
}

impl Stored {
    fn to_event(&self, sequence: u64) -> Event {
        Event {
            sequence,
            time: self.time.to_system_time(),
            entity: self.entity.clone(),
            message_id: self.message_id.clone(),
            sequence_number: self.sequence_number,
            kind: self.kind.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(capacity: usize) -> Events {
        Events::new(Clock::manual(), capacity)
    }

    #[test]
    fn totals_outlive_the_ring() {
        let events = log(2);
        for _ in 0..5 {
            events.record(EventKind::ConnectionOpened);
        }
        let kept: Vec<_> = events.snapshot().iter().map(|event| event.sequence).collect();
        assert_eq!(kept, [4, 5]);
        assert_eq!(events.totals().connection_opened, 5);
        assert_eq!(events.last_sequence(), 5);
    }

    #[tokio::test]
    async fn waiting_finds_past_and_future_events() {
        let events = log(10);
        events.record(EventKind::ConnectionOpened);
        let past = events.wait_for(|event| event.kind == EventKind::ConnectionOpened).await;
        assert_eq!(past.sequence, 1);

        let third = events.wait_for(|event| event.sequence == 3);
        let later = async {
            events.record(EventKind::ConnectionOpened);
            tokio::task::yield_now().await;
            events.record(EventKind::ConnectionClosed);
        };
        let (found, ()) = tokio::join!(third, later);
        assert_eq!(found.kind, EventKind::ConnectionClosed);
    }
}
