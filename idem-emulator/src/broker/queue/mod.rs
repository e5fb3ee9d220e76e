//! A queue with its dead-letter queue: the state machine of messages and locks.

mod commit;
mod due;
mod receive;
mod route;
mod send;
mod sessions;
mod settle;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use super::Context;
use super::duplicates::DuplicateWindow;
use super::message::Message;
#[cfg(any(test, fuzzing))]
use super::sessions::Sessions;
use super::store::{Removed, Store, Tally};
use crate::clock::Timestamp;
use crate::events::EventKind;
use crate::faults::{Decision, FaultPoint, Occasion, RequestFault};
use crate::options::Settings;
use crate::rules::Rules;
pub(crate) use receive::{DeferredError, Delivery, ReceiveMode};
use route::Outbound;
pub(crate) use send::{MessageNotFound, SendError};
pub(crate) use sessions::{SessionError, SessionGrant, SessionWish};
pub(crate) use settle::{SettleError, Settlement};

/// The nodes of a queue that can be received from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    DeadLetter,
    /// What could not be forwarded.
    Transfer,
}

impl Part {
    pub(super) const ALL: [Self; 3] = [Self::Main, Self::DeadLetter, Self::Transfer];

    /// Which part of which entity a lower-case path names.
    pub(super) fn of(path: &str) -> (&str, Self) {
        if let Some(name) = path.strip_suffix("/$transfer/$deadletterqueue") {
            (name, Self::Transfer)
        } else if let Some(name) = path.strip_suffix("/$deadletterqueue") {
            (name, Self::DeadLetter)
        } else {
            (path, Self::Main)
        }
    }
}

/// How many messages a queue holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "control", derive(serde::Serialize))]
pub struct Counts {
    /// Messages that receivers can have now.
    pub active: usize,
    /// Messages in the queue that are locked by a receiver. A message counts once, however many
    /// deliveries of it are held.
    pub locked: usize,
    /// Messages that receivers have set aside, and that none holds.
    pub deferred: usize,
    /// Messages that are not enqueued yet.
    pub scheduled: usize,
    /// Messages in the dead-letter queue, locked or not.
    pub dead_lettered: usize,
    /// Messages that could not be forwarded, locked or not.
    pub transfer_dead_lettered: usize,
}

#[derive(Debug)]
pub(crate) struct Queue {
    kind: Kind,
    settings: Settings,
    name: Arc<str>,
    dead_letter_name: Arc<str>,
    transfer_name: Arc<str>,
    context: Arc<Context>,
    /// Of a topic.
    subscriptions: RwLock<Vec<Arc<Self>>>,
    initial_rules: Rules,
    state: Mutex<State>,
}

/// What an entity is to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "control", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Kind {
    /// It is sent to, and received from.
    Queue,
    /// It is sent to. It keeps only messages that are scheduled.
    Topic,
    /// It is received from, and gets what is sent to its topic.
    Subscription,
}

/// Guarded together, so that moving a message between the two nodes is one step.
#[derive(Debug)]
struct State {
    main: Store,
    dead_letter: Store,
    transfer: Store,
    next_sequence_number: i64,
    duplicates: Option<DuplicateWindow>,
    /// The bytes charged for all messages and the states of sessions.
    charge: u64,
    /// Of a subscription.
    rules: Rules,
    /// Messages that have left for other entities, and are handed over once nothing is locked.
    outbound: Vec<Outbound>,
    /// Links may know the queue for a while after it is gone; it takes nothing in any more.
    deleted: bool,
}

impl State {
    fn take_sequence_number(&mut self) -> i64 {
        let number = self.next_sequence_number;
        self.next_sequence_number += 1;
        number
    }

    fn store(&mut self, part: Part) -> &mut Store {
        match part {
            Part::Main => &mut self.main,
            Part::DeadLetter => &mut self.dead_letter,
            Part::Transfer => &mut self.transfer,
        }
    }
}

impl Queue {
    pub(super) fn new(
        kind: Kind,
        name: &str,
        settings: Settings,
        rules: Rules,
        context: Arc<Context>,
    ) -> Self {
        let main =
            if settings.requires_session { Store::with_sessions() } else { Store::default() };
        let state = State {
            main,
            dead_letter: Store::default(),
            transfer: Store::default(),
            next_sequence_number: 1,
            duplicates: settings.duplicate_detection.map(DuplicateWindow::new),
            charge: 0,
            rules: rules.clone(),
            outbound: Vec::new(),
            deleted: false,
        };
        Self {
            kind,
            settings,
            name: Arc::from(name),
            dead_letter_name: Arc::from(format!("{name}/$DeadLetterQueue")),
            transfer_name: Arc::from(format!("{name}/$Transfer/$DeadLetterQueue")),
            context,
            subscriptions: RwLock::default(),
            initial_rules: rules,
            state: Mutex::new(state),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether messages of this part are received through sessions.
    pub(crate) fn requires_sessions(&self, part: Part) -> bool {
        part == Part::Main && self.settings.requires_session
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn path(&self) -> &str {
        &self.name
    }

    pub(crate) fn assigns_message_ids(&self) -> bool {
        self.settings.assign_message_ids
    }

    pub(crate) fn name(&self, part: Part) -> &Arc<str> {
        match part {
            Part::Main => &self.name,
            Part::DeadLetter => &self.dead_letter_name,
            Part::Transfer => &self.transfer_name,
        }
    }

    /// Messages from a sequence number on, in order, of one session or of all, and whether each is
    /// locked.
    pub(crate) fn peek(
        &self,
        part: Part,
        session_id: Option<&str>,
        from: i64,
        max: usize,
    ) -> Vec<(Message, bool)> {
        let copied = |(message, locked): (&Message, bool)| (message.clone(), locked);
        let mut state = self.lock();
        let store = state.store(part);
        match session_id {
            None => store.from(from).take(max).map(copied).collect(),
            Some(id) => store.session_from(id, from).take(max).map(copied).collect(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let state = self.lock();
        let Tally { locked, deferred, scheduled } = state.main.tally();
        let active = state.main.len() - locked - deferred - scheduled;
        Counts {
            active,
            locked,
            deferred,
            scheduled,
            dead_lettered: state.dead_letter.len(),
            transfer_dead_lettered: state.transfer.len(),
        }
    }

    /// Removes every message and lock, dead-lettered ones too. Remembered message ids stay.
    pub(crate) fn purge(&self) {
        self.empty(&mut self.lock());
    }

    /// The entity is gone, and its messages with it.
    pub(crate) fn delete(&self) {
        let mut state = self.lock();
        self.empty(&mut state);
        state.deleted = true;
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.lock().deleted
    }

    fn empty(&self, state: &mut State) {
        for part in Part::ALL {
            for decision in &state.store(part).clear() {
                self.context.faults.withdraw(decision);
            }
        }
        state.charge = 0;
    }

    /// Goes back to the start: [purges](Self::purge) the queue, forgets the message ids of the
    /// duplicate-detection window, and restores the rules.
    pub(crate) fn reset(&self) {
        self.purge();
        let mut state = self.lock();
        state.rules = self.initial_rules.clone();
        if let Some(duplicates) = &mut state.duplicates {
            duplicates.clear();
        }
    }

    /// Settles the accounts of a message that has left its store.
    fn removed(&self, state: &mut State, removed: Removed) -> Message {
        if let Some(owed) = &removed.owed {
            self.context.faults.withdraw(owed);
        }
        state.charge = state.charge.saturating_sub(removed.message.charge());
        removed.message
    }

    fn decide<F: FaultPoint>(
        &self,
        part: Part,
        message: &Message,
        possible: impl Fn(F) -> bool,
    ) -> Option<(F, Decision)> {
        let messages = message.id.as_deref();
        let occasion =
            Occasion { entity: self.name(part), messages: messages.as_slice(), operation: None };
        self.context.faults.decide(occasion, possible)
    }

    /// Whether a request to the management node of a part goes wrong, and how.
    pub(crate) fn request_fault(&self, part: Part, operation: &str) -> Option<RequestFault> {
        let occasion =
            Occasion { entity: self.name(part), messages: &[], operation: Some(operation) };
        let (fault, decision) = self.context.faults.decide(occasion, |_| true)?;
        self.context.faults.confirm(&decision);
        let kind = EventKind::FaultFired { fault: decision.kind };
        self.context.events.record_message(self.name(part), None, None, kind);
        Some(fault)
    }

    fn fire(&self, part: Part, message: &Message, decision: &Decision) {
        self.context.faults.confirm(decision);
        self.record(part, message, EventKind::FaultFired { fault: decision.kind });
    }

    fn record(&self, part: Part, message: &Message, kind: EventKind) {
        let number = Some(message.sequence_number);
        self.context.events.record_message(self.name(part), message.id.as_ref(), number, kind);
    }

    /// One step: first what is due by now, then `act`. What leaves for other entities is handed over
    /// after the step, with nothing locked.
    fn step<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        self.unarmed_step(|state, now| {
            let result = act(state, now);
            self.arm(state);
            result
        })
    }

    /// A step that does not tell the alarm what is due next.
    fn unarmed_step<T>(&self, act: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let now = self.context.clock.now();
        let mut state = self.lock();
        self.catch_up(&mut state, now);
        let result = act(&mut state, now);
        let outbound = std::mem::take(&mut state.outbound);
        drop(state);
        self.hand_over(outbound);
        result
    }

    /// Looks whether the books are right; for fuzzing.
    ///
    /// # Panics
    ///
    /// If they are not.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn audit(&self) {
        let state = self.lock();
        let messages = state.main.audit() + state.dead_letter.audit() + state.transfer.audit();
        let states = state.main.sessions.iter().flat_map(Sessions::states);
        let states: u64 = states.map(|value| sessions::charge_of_state(Some(value))).sum();
        assert_eq!(state.charge, messages + states, "what is charged is what is there");
        assert!(state.outbound.is_empty(), "everything has been handed over");
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
