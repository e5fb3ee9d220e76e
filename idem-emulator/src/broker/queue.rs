//! A queue with its dead-letter queue: the state machine of messages and locks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use uuid::Uuid;

use super::duplicates::DuplicateWindow;
use super::message::{
    Amendments, DeadLetter, Message, OVERHEAD_BYTES, Property, Submission, bytes,
};
use super::store::{Removed, Store};
use super::waiters::ConsumerId;
use super::{Context, MAX_DELIVERY_COUNT_EXCEEDED};
use crate::clock::Timestamp;
use crate::events::EventKind;
use crate::faults::{Decision, FaultKind, FaultPoint};
use crate::options::QueueOptions;

/// Application properties that receivers may add to one message while settling it, in bytes.
const AMENDMENTS_MAX: usize = 64 * 1024;

/// The two nodes of a queue that can be received from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    DeadLetter,
}

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
    /// A fault wants the connection cut once this is written.
    pub(crate) cut_connection: bool,
}

/// What a receiver decides about a locked message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settlement {
    Complete,
    Abandon {
        properties: Vec<Property>,
    },
    Release,
    DeadLetter {
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
        properties: Vec<Property>,
    },
}

/// What became of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Applied,
    /// A fault lost it: it must not be answered.
    Lost,
    /// A fault lost it and wants the connection cut.
    CutConnection,
}

/// Why a settlement or a renewal was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SettleError {
    #[error(
        "The lock supplied is invalid. Either the lock expired, or the message has already been removed from the queue."
    )]
    LockLost,
    #[error(
        "A message in a dead-letter queue cannot be dead-lettered again; complete or abandon it."
    )]
    AlreadyDeadLettered,
    #[error("The properties set on the message exceed {AMENDMENTS_MAX} bytes.")]
    PropertiesTooLarge,
}

impl SettleError {
    /// The AMQP error condition.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Self::LockLost => "com.microsoft:message-lock-lost",
            Self::AlreadyDeadLettered => "amqp:not-allowed",
            Self::PropertiesTooLarge => "com.microsoft:argument-out-of-range",
        }
    }
}

/// The queue has no room for what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "The queue `{name}` has reached its size of {size_max} bytes; receive messages, or raise `size_max`."
)]
pub(crate) struct QueueFull {
    name: Arc<str>,
    size_max: u64,
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Messages in the queue that no receiver holds.
    pub active: usize,
    /// Messages in the queue that are locked by a receiver. A message counts once, however many
    /// deliveries of it are held.
    pub locked: usize,
    /// Messages in the dead-letter queue, locked or not.
    pub dead_lettered: usize,
}

#[derive(Debug)]
pub(crate) struct Queue {
    options: QueueOptions,
    name: Arc<str>,
    dead_letter_name: Arc<str>,
    context: Arc<Context>,
    state: Mutex<State>,
}

/// Guarded together, so that moving a message between the two nodes is one step.
#[derive(Debug)]
struct State {
    main: Store,
    dead_letter: Store,
    next_sequence_number: i64,
    duplicates: Option<DuplicateWindow>,
    /// The bytes charged for all messages.
    charge: u64,
}

impl State {
    fn store(&mut self, part: Part) -> &mut Store {
        match part {
            Part::Main => &mut self.main,
            Part::DeadLetter => &mut self.dead_letter,
        }
    }
}

impl Queue {
    pub(super) fn new(options: QueueOptions, context: Arc<Context>) -> Self {
        let name: Arc<str> = Arc::from(options.name());
        let state = State {
            main: Store::default(),
            dead_letter: Store::default(),
            next_sequence_number: 1,
            duplicates: options.duplicate_window().map(DuplicateWindow::new),
            charge: 0,
        };
        let dead_letter_name = Arc::from(format!("{name}/$DeadLetterQueue"));
        Self { options, name, dead_letter_name, context, state: Mutex::new(state) }
    }

    pub(crate) fn options(&self) -> &QueueOptions {
        &self.options
    }

    pub(crate) fn name(&self, part: Part) -> &Arc<str> {
        match part {
            Part::Main => &self.name,
            Part::DeadLetter => &self.dead_letter_name,
        }
    }

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
    ) {
        let now = self.context.clock.now();
        let mut state = self.lock();
        self.expire(&mut state, now);
        let wanted = deliveries.len() + max;
        while deliveries.len() < wanted {
            let next = match mode {
                ReceiveMode::PeekLock => self.deliver_locked(&mut state, part, now),
                ReceiveMode::ReceiveAndDelete => self.deliver_deleted(&mut state, part),
            };
            let Some(delivery) = next else {
                state.store(part).waiters.wait(consumer, waker);
                break;
            };
            let cut = delivery.cut_connection;
            deliveries.push(delivery);
            if cut {
                break;
            }
        }
        pass_on(state.store(part));
        self.arm(&state);
    }

    fn deliver_locked(&self, state: &mut State, part: Part, now: Timestamp) -> Option<Delivery> {
        let token = self.context.tokens.next();
        let until = now.plus(self.options.lock_time());
        let locked = state.store(part).lock_next(token, until)?;
        let message = locked.message;
        self.record(
            part,
            &message,
            EventKind::Delivered { delivery_count: message.delivery_count },
        );
        let mut cut_connection = false;
        if let Some(decision) = &locked.copy {
            self.fire(part, &message, decision);
        } else if let Some(decision) = self.decide(FaultPoint::Delivery, part, &message, true) {
            match decision.kind {
                FaultKind::Redeliver => {
                    let store = state.store(part);
                    store.owe_copy(message.sequence_number, decision);
                    store.waiters.wake_next();
                }
                FaultKind::ExpireLock => {
                    self.fire(part, &message, &decision);
                    self.expire_lock(state, part, token);
                }
                FaultKind::DropConnectionAtDelivery => {
                    self.fire(part, &message, &decision);
                    cut_connection = true;
                }
                FaultKind::LoseSettlement | FaultKind::DropConnectionAtSettlement => {}
            }
        }
        Some(Delivery { message, token, locked_until: Some(until), cut_connection })
    }

    fn deliver_deleted(&self, state: &mut State, part: Part) -> Option<Delivery> {
        let removed = state.store(part).take_next()?;
        let message = self.removed(state, removed);
        self.record(
            part,
            &message,
            EventKind::Delivered { delivery_count: message.delivery_count },
        );
        let decision = self.decide(FaultPoint::Delivery, part, &message, false);
        if let Some(decision) = &decision {
            self.fire(part, &message, decision);
        }
        Some(Delivery {
            message,
            token: self.context.tokens.next(),
            locked_until: None,
            cut_connection: decision.is_some(),
        })
    }

    /// The receiver is gone: a wake-up meant for it goes to another.
    pub(crate) fn forget(&self, part: Part, consumer: ConsumerId) {
        let mut state = self.lock();
        let store = state.store(part);
        store.waiters.forget(consumer);
        pass_on(store);
    }

    /// Applies what a receiver decided about the message under `token`.
    pub(crate) fn settle(
        &self,
        part: Part,
        token: Uuid,
        settlement: Settlement,
    ) -> Result<Settled, SettleError> {
        let now = self.context.clock.now();
        let mut state = self.lock();
        self.expire(&mut state, now);
        let result = self.settle_locked(&mut state, part, token, settlement);
        if let Err(error) = result {
            let message = state.store(part).locked(token);
            let id = message.and_then(|message| message.id.as_ref());
            let number = message.map(|message| message.sequence_number);
            let kind = EventKind::SettlementRejected { condition: error.condition() };
            self.context.events.record_message(self.name(part), id, number, kind);
        }
        result
    }

    fn settle_locked(
        &self,
        state: &mut State,
        part: Part,
        token: Uuid,
        settlement: Settlement,
    ) -> Result<Settled, SettleError> {
        let message = state.store(part).locked(token).ok_or(SettleError::LockLost)?;
        if let Some(decision) = self.decide(FaultPoint::Settlement, part, message, true) {
            self.fire(part, message, &decision);
            return Ok(match decision.kind {
                FaultKind::DropConnectionAtSettlement => Settled::CutConnection,
                FaultKind::LoseSettlement
                | FaultKind::Redeliver
                | FaultKind::ExpireLock
                | FaultKind::DropConnectionAtDelivery => Settled::Lost,
            });
        }
        match settlement {
            Settlement::Complete => {
                let removed =
                    state.store(part).remove_locked(token).ok_or(SettleError::LockLost)?;
                let message = self.removed(state, removed);
                self.record(part, &message, EventKind::Completed);
            }
            Settlement::Release => {
                self.record(part, message, EventKind::Released);
                self.unlock(state, part, token);
            }
            Settlement::Abandon { properties } => {
                amend(state, part, token, properties)?;
                self.fail(state, part, token, |delivery_count| EventKind::Abandoned {
                    delivery_count,
                });
            }
            Settlement::DeadLetter { reason, description, properties } => {
                if part == Part::DeadLetter {
                    return Err(SettleError::AlreadyDeadLettered);
                }
                amend(state, part, token, properties)?;
                self.dead_letter(state, token, reason, description);
            }
        }
        Ok(Settled::Applied)
    }

    /// Extends the locks by the lock duration from now, all or none; returns their new ends.
    pub(crate) fn renew(&self, part: Part, tokens: &[Uuid]) -> Result<Vec<Timestamp>, SettleError> {
        let now = self.context.clock.now();
        let mut state = self.lock();
        self.expire(&mut state, now);
        let store = state.store(part);
        if !tokens.iter().all(|token| store.locked(*token).is_some()) {
            let kind =
                EventKind::SettlementRejected { condition: SettleError::LockLost.condition() };
            self.context.events.record_message(self.name(part), None, None, kind);
            return Err(SettleError::LockLost);
        }
        let until = now.plus(self.options.lock_time());
        for token in tokens {
            store.renew(*token, until);
            if let Some(message) = store.locked(*token) {
                self.record(part, message, EventKind::LockRenewed);
            }
        }
        self.arm(&state);
        Ok(vec![until; tokens.len()])
    }

    /// Messages from a sequence number on, in order, and whether each is locked.
    pub(crate) fn peek(&self, part: Part, from: i64, max: usize) -> Vec<(Message, bool)> {
        let mut state = self.lock();
        state
            .store(part)
            .from(from)
            .take(max)
            .map(|(message, locked)| (message.clone(), locked))
            .collect()
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let (active, locked) = state.main.counts();
        let (dead_active, dead_locked) = state.dead_letter.counts();
        Counts { active, locked, dead_lettered: dead_active + dead_locked }
    }

    /// Removes every message and lock, dead-lettered ones too. Remembered message ids stay.
    pub(crate) fn purge(&self) {
        let mut state = self.lock();
        let mut owed = state.main.clear();
        owed.append(&mut state.dead_letter.clear());
        for decision in &owed {
            self.context.faults.withdraw(decision);
        }
        state.charge = 0;
    }

    /// Forgets the message ids of the duplicate-detection window.
    pub(crate) fn forget_duplicates(&self) {
        if let Some(duplicates) = &mut self.lock().duplicates {
            duplicates.clear();
        }
    }

    /// Expires the locks that have ended; returns when the next one will.
    pub(crate) fn sweep(&self, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.lock();
        self.expire(&mut state, now);
        next_deadline(&state)
    }

    fn expire(&self, state: &mut State, now: Timestamp) {
        for part in [Part::Main, Part::DeadLetter] {
            while let Some(token) = state.store(part).next_expired(now) {
                self.expire_lock(state, part, token);
            }
        }
    }

    fn expire_lock(&self, state: &mut State, part: Part, token: Uuid) {
        self.fail(state, part, token, |delivery_count| EventKind::LockExpired { delivery_count });
    }

    /// A delivery has failed: its count goes up, its lock is given up, and the message comes again
    /// or is dead-lettered.
    fn fail(
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
        if part == Part::Main && count >= self.options.delivery_count_limit() {
            let description = format!(
                "Message could not be consumed after {} delivery attempts.",
                self.options.delivery_count_limit()
            );
            self.dead_letter(
                state,
                token,
                Some(MAX_DELIVERY_COUNT_EXCEEDED.into()),
                Some(description.into()),
            );
        } else {
            self.unlock(state, part, token);
        }
    }

    fn unlock(&self, state: &mut State, part: Part, token: Uuid) {
        let store = state.store(part);
        if let Some(owed) = store.unlock(token) {
            self.context.faults.withdraw(&owed);
        }
        pass_on(store);
    }

    fn dead_letter(
        &self,
        state: &mut State,
        token: Uuid,
        reason: Option<Arc<str>>,
        description: Option<Arc<str>>,
    ) {
        let Some(removed) = state.main.remove_locked(token) else {
            return;
        };
        let mut message = self.removed(state, removed);
        self.record(Part::Main, &message, EventKind::DeadLettered { reason: reason.clone() });
        let mut amendments =
            message.amendments.take().map(Arc::unwrap_or_clone).unwrap_or_default();
        amendments.dead_letter =
            Some(DeadLetter { reason, description, source: Arc::clone(&self.name) });
        message.amendments = Some(Arc::new(amendments));
        state.charge += message.charge();
        state.dead_letter.insert(message);
        state.dead_letter.waiters.wake_next();
    }

    /// Settles the accounts of a message that has left its store.
    fn removed(&self, state: &mut State, removed: Removed) -> Message {
        if let Some(owed) = &removed.owed {
            self.context.faults.withdraw(owed);
        }
        state.charge = state.charge.saturating_sub(removed.message.charge());
        removed.message
    }

    fn decide(
        &self,
        point: FaultPoint,
        part: Part,
        message: &Message,
        locked: bool,
    ) -> Option<Decision> {
        // Without a lock there is nothing to expire and nothing to hand out twice.
        let possible = |kind| locked || kind == FaultKind::DropConnectionAtDelivery;
        self.context.faults.decide(point, self.name(part), message.id.as_deref(), possible)
    }

    fn fire(&self, part: Part, message: &Message, decision: &Decision) {
        self.context.faults.confirm(decision);
        self.record(part, message, EventKind::FaultFired { fault: decision.kind });
    }

    fn record(&self, part: Part, message: &Message, kind: EventKind) {
        let number = Some(message.sequence_number);
        self.context.events.record_message(self.name(part), message.id.as_ref(), number, kind);
    }

    fn arm(&self, state: &State) {
        if let Some(deadline) = next_deadline(state) {
            self.context.alarm.arm(deadline);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the next waiting receiver have what is ready. Each receiver that leaves something behind
/// does this, so one wake-up per message is enough.
fn pass_on(store: &mut Store) {
    if store.is_ready() {
        store.waiters.wake_next();
    }
}

fn next_deadline(state: &State) -> Option<Timestamp> {
    let deadlines = [state.main.next_deadline(), state.dead_letter.next_deadline()];
    deadlines.into_iter().flatten().min()
}

/// Sets application properties on a locked message.
fn amend(
    state: &mut State,
    part: Part,
    token: Uuid,
    properties: Vec<Property>,
) -> Result<(), SettleError> {
    if properties.is_empty() {
        return Ok(());
    }
    let message = state.store(part).locked_mut(token).ok_or(SettleError::LockLost)?;
    let before = message.charge();
    let mut amendments: Amendments = message.amendments.as_deref().cloned().unwrap_or_default();
    amendments.merge(properties);
    if amendments.size() > AMENDMENTS_MAX {
        return Err(SettleError::PropertiesTooLarge);
    }
    message.amendments = Some(Arc::new(amendments));
    let after = message.charge();
    state.charge = state.charge.saturating_sub(before).saturating_add(after);
    Ok(())
}
