//! Faults on purpose: rules that decide, at each send, delivery, settlement and request, what goes
//! wrong.

mod effect;
mod rules;

use std::time::Duration;

pub(crate) use effect::{
    DeliveryFault, Ending, FaultPoint, RequestFault, SendFault, SettlementFault,
};
pub(crate) use rules::{Decision, Occasion};
pub use rules::{FaultHandle, Faults};

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "control", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "control", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FaultKind {
    /// See [`Fault::redeliver`].
    Redeliver,
    /// See [`Fault::expire_lock`].
    ExpireLock,
    /// See [`Fault::lose_session_lock`].
    LoseSessionLock,
    /// See [`Fault::delay_delivery`].
    DelayDelivery,
    /// See [`Fault::reorder`].
    Reorder,
    /// See [`Fault::drop_connection_at_delivery`].
    DropConnectionAtDelivery,
    /// See [`Fault::close_connection_at_delivery`].
    CloseConnectionAtDelivery,
    /// See [`Fault::lose_settlement`].
    LoseSettlement,
    /// See [`Fault::drop_connection_at_settlement`].
    DropConnectionAtSettlement,
    /// See [`Fault::close_connection_at_settlement`].
    CloseConnectionAtSettlement,
    /// See [`Fault::lose_settlement_answer`].
    LoseSettlementAnswer,
    /// See [`Fault::drop_connection_after_settlement`].
    DropConnectionAfterSettlement,
    /// See [`Fault::delay_settlement_answer`].
    DelaySettlementAnswer,
    /// See [`Fault::forget_completion`].
    ForgetCompletion,
    /// See [`Fault::drop_connection_at_send`].
    DropConnectionAtSend,
    /// See [`Fault::drop_connection_after_send`].
    DropConnectionAfterSend,
    /// See [`Fault::refuse_send`].
    RefuseSend,
    /// See [`Fault::detach_at_send`].
    DetachAtSend,
    /// See [`Fault::lose_request`].
    LoseRequest,
    /// See [`Fault::drop_connection_at_request`].
    DropConnectionAtRequest,
    /// See [`Fault::refuse_request`].
    RefuseRequest,
    /// See [`Fault::time_out_request`].
    TimeOutRequest,
}

impl FaultKind {
    /// Whether it puts something off, by a time that has to be given.
    #[cfg(feature = "control")]
    pub(crate) fn is_delay(self) -> bool {
        matches!(self, Self::DelayDelivery | Self::DelaySettlementAnswer)
    }
}

/// A rule: which fault, and at which events it fires.
///
/// Each fault belongs to one kind of event. At a *send*, a client sends a message or a batch over a
/// link; at a *delivery*, a message is handed to a receiver; at a *settlement*, a receiver decides
/// about a message that it holds; at a *request*, a client asks the management node of an entity for
/// something. Work inside of transactions is no such event.
///
/// Without conditions a rule fires every time. Conditions add up: a rule looks only at events of its
/// entity, message and operation, counts those, and then applies [`nth`](Self::nth) or
/// [`probability`](Self::probability), and [`times`](Self::times). Where its fault cannot happen,
/// for instance the loss of a session's lock without sessions, it does not count. When several rules
/// could fire at one event, the one that was added first does, and later rules do not see the event.
///
/// ```
/// # use idem_emulator::Fault;
/// let once = Fault::lose_settlement().on("orders").message("m-1").times(1);
/// let sometimes = Fault::redeliver().on("orders").probability(0.05).seed(42);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a fault does nothing until it is added to an emulator's faults"]
pub struct Fault {
    pub(crate) kind: FaultKind,
    /// How long something is put off, for the kinds that do so.
    pub(crate) by: Duration,
    pub(crate) entity: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) operation: Option<String>,
    pub(crate) nth: Option<u64>,
    pub(crate) probability: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) times: Option<u64>,
}

impl Fault {
    fn new(kind: FaultKind) -> Self {
        Self {
            kind,
            by: Duration::ZERO,
            entity: None,
            message: None,
            operation: None,
            nth: None,
            probability: None,
            seed: 0,
            times: None,
        }
    }

    /// At a delivery: hands the same message out a second time, under a second lock token, while
    /// the first delivery is held.
    ///
    /// Both deliveries have the same message id, sequence number and delivery count, and each has
    /// its own lock. Completing or dead-lettering either removes the message; settling the other
    /// afterwards is refused with `com.microsoft:message-lock-lost`. Abandoning one, or letting
    /// its lock expire, raises the count and gives up that lock only: the message is available
    /// again once neither lock is left. The second copy goes to whichever receiver next has credit
    /// on the entity; the rule has fired when it is handed out. If the first delivery is settled
    /// before that, nothing happens and the firing stays available. A second copy is never copied.
    pub fn redeliver() -> Self {
        Self::new(FaultKind::Redeliver)
    }

    /// At a delivery: the lock expires at once, after the message has been handed out.
    ///
    /// The message goes back with its count raised by one, and a later settlement of this delivery
    /// is refused with `com.microsoft:message-lock-lost`.
    pub fn expire_lock() -> Self {
        Self::new(FaultKind::ExpireLock)
    }

    /// At a delivery from a session: the lock of the session ends at once, after the message has been
    /// handed out.
    ///
    /// The receiver is detached with `com.microsoft:session-lock-lost`. All the messages that it
    /// holds go back with their counts raised, and the session can be accepted again.
    pub fn lose_session_lock() -> Self {
        Self::new(FaultKind::LoseSessionLock)
    }

    /// At a delivery: it does not happen, and nobody is handed the message for this long, by the
    /// emulator's clock. Other messages go first, but for those behind it in its session. A message is
    /// not delayed twice.
    pub fn delay_delivery(by: Duration) -> Self {
        Self { by, ..Self::new(FaultKind::DelayDelivery) }
    }

    /// At a delivery: the message behind goes first, if there is one. Not in sessions, where order is
    /// promised.
    ///
    /// The message that is passed over is the one that the rule looks at.
    pub fn reorder() -> Self {
        Self::new(FaultKind::Reorder)
    }

    /// At a delivery: the message is locked and written to the connection, which is then cut
    /// without an AMQP close.
    ///
    /// The receiver may or may not see the message. Its lock lives on until it expires.
    pub fn drop_connection_at_delivery() -> Self {
        Self::new(FaultKind::DropConnectionAtDelivery)
    }

    /// At a delivery: the message is locked and written to the connection, which is then closed with
    /// `amqp:connection:forced`. Its lock lives on until it expires.
    pub fn close_connection_at_delivery() -> Self {
        Self::new(FaultKind::CloseConnectionAtDelivery)
    }

    /// At a settlement: it is neither applied nor answered.
    ///
    /// The lock runs on, so the message comes again after it expires, with its count raised.
    pub fn lose_settlement() -> Self {
        Self::new(FaultKind::LoseSettlement)
    }

    /// At a settlement: it is not applied, and the connection is cut without an AMQP close.
    pub fn drop_connection_at_settlement() -> Self {
        Self::new(FaultKind::DropConnectionAtSettlement)
    }

    /// At a settlement: it is not applied, and the connection is closed with
    /// `amqp:connection:forced`.
    pub fn close_connection_at_settlement() -> Self {
        Self::new(FaultKind::CloseConnectionAtSettlement)
    }

    /// At a settlement: it is applied, and never answered.
    ///
    /// A receiver that waits for the answer gives up in the end; what it tries then is refused with
    /// `com.microsoft:message-lock-lost`, since the lock is gone.
    pub fn lose_settlement_answer() -> Self {
        Self::new(FaultKind::LoseSettlementAnswer)
    }

    /// At a settlement: it is applied, and instead of an answer the connection is cut without an AMQP
    /// close.
    pub fn drop_connection_after_settlement() -> Self {
        Self::new(FaultKind::DropConnectionAfterSettlement)
    }

    /// At a settlement: it is applied at once, and answered after this long, by the emulator's clock,
    /// if the link is still there then.
    pub fn delay_settlement_answer(by: Duration) -> Self {
        Self { by, ..Self::new(FaultKind::DelaySettlementAnswer) }
    }

    /// At a completion: it is answered as if the message were gone, and the message stays. It comes
    /// again at once, with the same sequence number and count.
    pub fn forget_completion() -> Self {
        Self::new(FaultKind::ForgetCompletion)
    }

    /// At a send: nothing is stored, and the connection is cut without an AMQP close.
    pub fn drop_connection_at_send() -> Self {
        Self::new(FaultKind::DropConnectionAtSend)
    }

    /// At a send: it is stored, and instead of an answer the connection is cut without an AMQP close.
    ///
    /// A client that sends again makes a second message of it, unless the entity detects duplicates.
    pub fn drop_connection_after_send() -> Self {
        Self::new(FaultKind::DropConnectionAfterSend)
    }

    /// At a send: it is refused with `com.microsoft:server-busy`.
    pub fn refuse_send() -> Self {
        Self::new(FaultKind::RefuseSend)
    }

    /// At a send: nothing is stored, and the link is detached with `amqp:link:detach-forced`.
    pub fn detach_at_send() -> Self {
        Self::new(FaultKind::DetachAtSend)
    }

    /// At a request: it is neither done nor answered.
    pub fn lose_request() -> Self {
        Self::new(FaultKind::LoseRequest)
    }

    /// At a request: it is not done, and the connection is cut without an AMQP close.
    pub fn drop_connection_at_request() -> Self {
        Self::new(FaultKind::DropConnectionAtRequest)
    }

    /// At a request: it is not done, and answered with status 503, `com.microsoft:server-busy`.
    pub fn refuse_request() -> Self {
        Self::new(FaultKind::RefuseRequest)
    }

    /// At a request: it is not done, and answered with status 408, `com.microsoft:timeout`.
    pub fn time_out_request() -> Self {
        Self::new(FaultKind::TimeOutRequest)
    }

    /// Only on this entity: a queue, a topic or `topic/Subscriptions/subscription`, with
    /// `/$DeadLetterQueue` or `/$Transfer/$DeadLetterQueue` after it for its dead letters. Case does not
    /// matter.
    pub fn on(mut self, entity: impl Into<String>) -> Self {
        self.entity = Some(entity.into());
        self
    }

    /// Only for messages with this id; for a batch, if one of its messages has it. Requests are about
    /// no message.
    pub fn message(mut self, id: impl Into<String>) -> Self {
        self.message = Some(id.into());
        self
    }

    /// Only for requests of this operation, such as `renew-lock`, without its prefix
    /// `com.microsoft:`. Only requests have one.
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.operation = Some(name.into());
        self
    }

    /// Only at the `n`-th matching event, counted from 1 since the rule was added.
    pub fn nth(mut self, n: u64) -> Self {
        self.nth = Some(n);
        self
    }

    /// At each matching event with this probability, from 0 (never) to 1 (always).
    ///
    /// The same [`seed`](Self::seed) and the same order of events give the same decisions, on
    /// every platform and in every version.
    pub fn probability(mut self, probability: f64) -> Self {
        self.probability = Some(probability);
        self
    }

    /// Seeds the decisions of [`probability`](Self::probability); 0 if not given.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// At most this many times in all. Without it there is no bound.
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }
}
