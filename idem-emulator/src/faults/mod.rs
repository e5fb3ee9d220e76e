//! Faults on purpose: rules that decide, at each delivery and each settlement, what goes wrong.

mod effect;
mod rules;

use effect::Effect;
pub(crate) use effect::{DeliveryFault, Ending, FaultPoint, SettlementFault};
pub(crate) use rules::{Decision, Occasion};
pub use rules::{FaultHandle, Faults};

/// What a fault does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// See [`Fault::redeliver`].
    Redeliver,
    /// See [`Fault::expire_lock`].
    ExpireLock,
    /// See [`Fault::lose_settlement`].
    LoseSettlement,
    /// See [`Fault::drop_connection_at_delivery`].
    DropConnectionAtDelivery,
    /// See [`Fault::drop_connection_at_settlement`].
    DropConnectionAtSettlement,
}

/// A rule: which fault, and at which deliveries or settlements it fires.
///
/// Without conditions it fires every time. Conditions add up: a rule looks only at events of its
/// entity and message, counts those, and then applies [`nth`](Self::nth) or
/// [`probability`](Self::probability), and [`times`](Self::times). When several rules could fire
/// at one event, the one that was added first does, and later rules do not see the event.
///
/// ```
/// # use idem_emulator::Fault;
/// let once = Fault::lose_settlement().on("orders").message("m-1").times(1);
/// let sometimes = Fault::redeliver().on("orders").probability(0.05).seed(42);
/// ```
#[derive(Debug, Clone)]
#[must_use = "a fault does nothing until it is added to an emulator's faults"]
pub struct Fault {
    effect: Effect,
    entity: Option<String>,
    message: Option<String>,
    nth: Option<u64>,
    probability: Option<f64>,
    seed: u64,
    times: Option<u64>,
}

impl Fault {
    fn new(effect: Effect) -> Self {
        Self {
            effect,
            entity: None,
            message: None,
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
        Self::new(Effect::Delivery(DeliveryFault::Redeliver))
    }

    /// At a delivery: the lock expires at once, after the message has been handed out.
    ///
    /// The message goes back with its count raised by one, and a later settlement of this delivery
    /// is refused with `com.microsoft:message-lock-lost`.
    pub fn expire_lock() -> Self {
        Self::new(Effect::Delivery(DeliveryFault::ExpireLock))
    }

    /// At a settlement: it is neither applied nor answered.
    ///
    /// The lock runs on, so the message comes again after it expires, with its count raised.
    pub fn lose_settlement() -> Self {
        Self::new(Effect::Settlement(SettlementFault::Lose))
    }

    /// At a delivery: the message is locked and written to the connection, which is then cut
    /// without an AMQP close.
    ///
    /// The receiver may or may not see the message. Its lock lives on until it expires.
    pub fn drop_connection_at_delivery() -> Self {
        Self::new(Effect::Delivery(DeliveryFault::EndConnection(Ending::Cut)))
    }

    /// At a settlement: it is not applied, and the connection is cut without an AMQP close.
    pub fn drop_connection_at_settlement() -> Self {
        Self::new(Effect::Settlement(SettlementFault::EndConnection(Ending::Cut)))
    }

    /// Only on this queue, or on `queue/$DeadLetterQueue`. Case does not matter.
    pub fn on(mut self, entity: impl Into<String>) -> Self {
        self.entity = Some(entity.into());
        self
    }

    /// Only for messages with this id.
    pub fn message(mut self, id: impl Into<String>) -> Self {
        self.message = Some(id.into());
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
