//! From one entity to the next: topics to their subscriptions, and forwarding.

use std::sync::{Arc, PoisonError};

use super::{Kind, Part, Queue, SendError, State};
use crate::broker::limits::PROPERTIES_MAX;
use crate::broker::message::{Message, Submission};
use crate::broker::{
    FORWARDS_MAX, HEADER_SIZE_EXCEEDED, SESSION_ID_IS_NULL, TARGET_FULL, TARGET_NOT_FOUND,
    TOO_MANY_FORWARDS,
};
use crate::clock::Timestamp;
use crate::codec::message::{View, properties_size, rewritten};
use crate::events::EventKind;
use crate::rules::{Rule, RuleError};

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Outbound {
    exit: Exit,
    message: Message,
}

#[derive(Debug)]
enum Exit {
    Messages,
    DeadLetters,
    /// To the entity that the sender named.
    Destination(Arc<str>),
}

/// Why a message is not forwarded.
#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("The message was forwarded {FORWARDS_MAX} times already.")]
    TooManyForwards,
    #[error("There is no entity `{0}` to forward the message to.")]
    NotFound(Arc<str>),
    #[error("The entity `{0}` that the message is to be forwarded to is full.")]
    Full(Arc<str>),
}

impl TransferError {
    /// The dead-letter reason.
    fn reason(&self) -> &'static str {
        match self {
            Self::TooManyForwards => TOO_MANY_FORWARDS,
            Self::NotFound(_) => TARGET_NOT_FOUND,
            Self::Full(_) => TARGET_FULL,
        }
    }
}

impl Queue {
    /// A topic has one more subscription.
    pub(crate) fn subscribe(&self, subscription: Arc<Self>) {
        self.subscriptions.write().unwrap_or_else(PoisonError::into_inner).push(subscription);
    }

    /// A topic has lost a subscription.
    pub(crate) fn unsubscribe(&self, subscription: &Arc<Self>) {
        let mut subscriptions = self.subscriptions.write().unwrap_or_else(PoisonError::into_inner);
        subscriptions.retain(|known| !Arc::ptr_eq(known, subscription));
    }

    /// A copy: what is done with the subscriptions must not keep others from changing them.
    pub(crate) fn subscriptions(&self) -> Vec<Arc<Self>> {
        self.subscriptions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn subscription_count(&self) -> usize {
        self.subscriptions.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether messages stay here to be received.
    pub(crate) fn keeps_messages(&self) -> bool {
        self.kind != Kind::Topic && self.settings.forward_to.is_none()
    }

    /// A message is enqueued: it stays, or it goes on.
    pub(super) fn place(&self, state: &mut State, mut message: Message) {
        if let Some(destination) = message.destination.take() {
            state.outbound.push(Outbound { exit: Exit::Destination(destination), message });
        } else if self.keeps_messages() {
            state.charge += message.charge();
            state.main.insert(message);
        } else {
            state.outbound.push(Outbound { exit: Exit::Messages, message });
        }
    }

    pub(super) fn place_dead_letter(&self, state: &mut State, message: Message) {
        if self.settings.forward_dead_lettered_messages_to.is_some() {
            state.outbound.push(Outbound { exit: Exit::DeadLetters, message });
        } else {
            self.keep_dead_letter(state, message);
        }
    }

    fn keep_dead_letter(&self, state: &mut State, message: Message) {
        state.charge += message.charge();
        state.dead_letter.insert(message);
    }

    /// Whether the subscriptions that would get these messages have room. Others may fill them
    /// meanwhile: what is on its way is let in.
    pub(super) fn check_targets<'a>(
        &self,
        submissions: impl Iterator<Item = &'a Submission> + Clone,
    ) -> Result<(), SendError> {
        let subscriptions = self.subscriptions();
        subscriptions.iter().try_for_each(|queue| queue.check_room_for(submissions.clone()))
    }

    /// Nothing is locked here. The number of forwards bounds the depth.
    pub(super) fn hand_over(&self, outbound: Vec<Outbound>) {
        for Outbound { exit, message } in outbound {
            let target = match &exit {
                Exit::Messages => self.settings.forward_to.as_deref(),
                Exit::DeadLetters => self.settings.forward_dead_lettered_messages_to.as_deref(),
                Exit::Destination(destination) => Some(&**destination),
            };
            match target {
                Some(target) => self.forward(target, message),
                None => self.publish(message),
            }
        }
    }

    /// A message of a topic goes to its subscriptions.
    fn publish(&self, mut message: Message) {
        let limits = [message.time_to_live, self.settings.default_time_to_live];
        message.time_to_live = limits.into_iter().flatten().min();
        let view = View::of(&message.content);
        for subscription in self.subscriptions() {
            subscription.take_copies(&message, &view);
        }
    }

    fn forward(&self, target: &str, mut message: Message) {
        let Some(target) = self.context.entity(target) else {
            return self.keep_failed_transfer(message, &TransferError::NotFound(target.into()));
        };
        if message.forwards >= FORWARDS_MAX {
            return self.keep_failed_transfer(message, &TransferError::TooManyForwards);
        }
        message.forwards += 1;
        if let Err(error) = target.take_in(self, &message) {
            self.keep_failed_transfer(message, &error);
        }
    }

    fn keep_failed_transfer(&self, message: Message, error: &TransferError) {
        self.step(|state, _| {
            if state.deleted {
                return;
            }
            let reason = Some(error.reason().into());
            let message = self.as_dead_letter(message, reason, Some(error.to_string().into()));
            state.charge += message.charge();
            state.transfer.insert(message);
        });
    }

    /// Takes a message from another entity.
    fn take_in(&self, from: &Self, message: &Message) -> Result<(), TransferError> {
        self.step(|state, now| {
            if state.deleted {
                return Err(TransferError::NotFound(Arc::clone(&self.name)));
            }
            if !self.has_room(state, message.charge()) {
                return Err(TransferError::Full(Arc::clone(&self.name)));
            }
            from.record(Part::Main, message, EventKind::Forwarded { to: Arc::clone(&self.name) });
            if !self.is_duplicate(state, message.id.as_ref(), now) {
                let mut message = message.clone();
                message.original_number.get_or_insert(message.sequence_number);
                self.arrive(state, message, now);
            }
            Ok(())
        })
    }

    /// Takes what its rules want of a message of its topic.
    fn take_copies(&self, message: &Message, view: &View<'_>) {
        self.step(|state, now| {
            let copies = if state.deleted { Vec::new() } else { state.rules.copies(view) };
            for changes in copies {
                let mut copy = message.clone();
                if !changes.is_empty() {
                    let content = rewritten(&copy.content, &changes);
                    if properties_size(&content) > PROPERTIES_MAX {
                        let description = "An action made the properties of the message too large.";
                        self.bury(state, copy, HEADER_SIZE_EXCEEDED, description);
                        continue;
                    }
                    copy.content = content;
                    let view = View::of(&copy.content);
                    copy.id = view.message_id().map(Arc::from);
                    copy.session_id = view.session_id().map(Arc::from);
                }
                self.arrive(state, copy, now);
            }
        });
    }

    /// A message that no client sent here is enqueued.
    fn arrive(&self, state: &mut State, mut message: Message, now: Timestamp) {
        if self.settings.requires_session && message.session_id.is_none() {
            let description = "The entity requires sessions, and the message has no session id.";
            return self.bury(state, message, SESSION_ID_IS_NULL, description);
        }
        message.sequence_number = state.take_sequence_number();
        message.delivery_count = 0;
        self.enqueue(state, message, now);
    }

    /// A message that no client sent here can only be a dead letter.
    fn bury(&self, state: &mut State, mut message: Message, reason: &str, description: &str) {
        message.sequence_number = state.take_sequence_number();
        message.delivery_count = 0;
        self.dead_letter(state, message, Some(reason.into()), Some(description.into()));
    }

    pub(crate) fn add_rule(&self, rule: Rule) -> Result<(), RuleError> {
        self.step(|state, _| state.rules.add(rule))
    }

    /// `false` if there is no such rule.
    pub(crate) fn remove_rule(&self, name: &str) -> bool {
        self.step(|state, _| state.rules.remove(name))
    }

    pub(crate) fn rules(&self, skip: usize, top: usize) -> Vec<Rule> {
        self.lock().rules.iter().skip(skip).take(top).cloned().collect()
    }
}
