//! Transactions: sends and settlements of one entity that happen together, or not at all.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::message::Submission;
use super::queue::{Part, Queue, SendError, SettleError, Settlement};
use super::{Broker, Context};
use crate::clock::Timestamp;
use crate::events::EventKind;

/// How long a transaction may last.
const LIFE: Duration = Duration::from_secs(2 * 60);

/// How many messages a transaction may send and settle.
const MESSAGES_MAX: usize = 100;

/// Why something cannot be part of a transaction, or a transaction cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TransactionError {
    #[error("The transaction has lasted longer than 2 minutes, and was rolled back.")]
    TimedOut,
    #[error("A transaction is about one queue, topic or subscription; this one is about `{0}`.")]
    OtherEntity(Arc<str>),
    #[error("A transaction has at most {MESSAGES_MAX} messages.")]
    TooManyMessages,
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error("The transaction was rolled back: {0}")]
    RolledBack(Box<Self>),
}

impl TransactionError {
    /// The AMQP error condition.
    pub(crate) fn condition(&self) -> &'static str {
        match self {
            Self::TimedOut => "amqp:transaction:timeout",
            Self::OtherEntity(_) => "amqp:not-allowed",
            Self::TooManyMessages => "amqp:resource-limit-exceeded",
            Self::Send(error) => error.condition(),
            Self::Settle(error) => error.condition(),
            Self::RolledBack(_) => "amqp:transaction:rollback",
        }
    }
}

/// One piece of work, which has been checked as far as that is possible before the commit.
#[derive(Debug)]
pub(super) enum Work {
    Send(Vec<Submission>),
    Settle { part: Part, token: Uuid, settlement: Settlement },
}

/// Work that waits for its commit. Dropping it rolls it back: nothing was sent, and what was to be
/// settled is held under its lock as before.
#[derive(Debug)]
pub(crate) struct Transaction {
    context: Arc<Context>,
    ends_at: Timestamp,
    /// What it is about, from its first piece of work on.
    queue: Option<Arc<Queue>>,
    work: Vec<Work>,
    messages: usize,
    is_committed: bool,
}

impl Transaction {
    pub(crate) fn declare(broker: &Broker) -> Self {
        let context = Arc::clone(&broker.context);
        context.events.record(EventKind::TransactionDeclared);
        let ends_at = context.clock.now().plus(LIFE);
        Self { context, ends_at, queue: None, work: Vec::new(), messages: 0, is_committed: false }
    }

    pub(crate) fn has_timed_out(&self) -> bool {
        self.context.clock.now() >= self.ends_at
    }

    /// Sends at the commit; only then is it known which messages are duplicates.
    pub(crate) fn send(
        &mut self,
        queue: &Arc<Queue>,
        submissions: Vec<Submission>,
    ) -> Result<(), TransactionError> {
        self.check(queue, submissions.len())?;
        submissions.iter().try_for_each(|submission| queue.check(submission))?;
        self.add(queue, submissions.len(), Work::Send(submissions));
        Ok(())
    }

    /// Settles at the commit. Until then the message is held, and can be settled in no other way.
    pub(crate) fn settle(
        &mut self,
        queue: &Arc<Queue>,
        part: Part,
        token: Uuid,
        settlement: Settlement,
    ) -> Result<(), TransactionError> {
        self.check(queue, 1)?;
        queue.reserve(part, token, &settlement, self.ends_at)?;
        self.add(queue, 1, Work::Settle { part, token, settlement });
        Ok(())
    }

    fn check(&self, queue: &Arc<Queue>, messages: usize) -> Result<(), TransactionError> {
        if self.has_timed_out() {
            return Err(TransactionError::TimedOut);
        }
        if let Some(known) = self.queue.as_ref().filter(|known| !Arc::ptr_eq(known, queue)) {
            return Err(TransactionError::OtherEntity(Arc::clone(known.name(Part::Main))));
        }
        if self.messages + messages > MESSAGES_MAX {
            return Err(TransactionError::TooManyMessages);
        }
        Ok(())
    }

    fn add(&mut self, queue: &Arc<Queue>, messages: usize, work: Work) {
        self.queue.get_or_insert_with(|| Arc::clone(queue));
        self.messages += messages;
        self.work.push(work);
    }

    /// Does all of the work as one, or none of it.
    pub(crate) fn commit(mut self) -> Result<(), TransactionError> {
        if self.has_timed_out() {
            return Err(TransactionError::TimedOut);
        }
        if let Some(queue) = &self.queue {
            let rolled_back = |error| TransactionError::RolledBack(Box::new(error));
            queue.commit(&mut self.work, self.ends_at).map_err(rolled_back)?;
        }
        self.is_committed = true;
        self.context.events.record(EventKind::TransactionCommitted);
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if self.is_committed {
            return;
        }
        if let Some(queue) = &self.queue {
            queue.roll_back(&self.work, self.ends_at);
        }
        self.context.events.record(EventKind::TransactionRolledBack);
    }
}
