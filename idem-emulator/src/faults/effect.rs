//! What can go wrong at each kind of event.

use std::time::Duration;

use super::{Fault, FaultKind};

/// How a connection ends on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The socket is closed without a word.
    Cut,
    /// It is closed with `amqp:connection:forced`.
    Close,
}

/// What a rule does, by the kind of event that it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Send(SendFault),
    Delivery(DeliveryFault),
    Settlement(SettlementFault),
    Request(RequestFault),
}

/// A client sends a message, or a batch of them, over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendFault {
    /// It is not stored, and the connection is cut.
    Lose,
    /// It is stored and not answered, and the connection is cut.
    LoseAnswer,
    /// It is refused, as by a busy server.
    Refuse,
    /// It is not stored, and the link is detached.
    Detach,
}

/// A message is to be handed to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryFault {
    /// It is handed out a second time while the first delivery is held.
    Redeliver,
    /// Its lock ends at once.
    ExpireLock,
    /// The lock of its session ends at once.
    LoseSessionLock,
    /// Nobody gets it for this long.
    Delay(Duration),
    /// The message behind it is handed out first.
    PassOver,
    /// The connection ends once the message is written to it.
    EndConnection(Ending),
}

/// A receiver decides about a message that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettlementFault {
    /// It is neither applied nor answered, and the connection may end.
    Lose(Option<Ending>),
    /// It is applied and not answered, and the connection may be cut.
    LoseAnswer { cut: bool },
    /// It is applied, and answered after this long.
    DelayAnswer(Duration),
    /// A completion is answered, and the message stays.
    Forget,
}

/// A client asks a management node for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFault {
    /// It is neither done nor answered.
    Lose,
    /// The same, and the connection is cut.
    LoseAndCut,
    /// It is refused, as by a busy server.
    Refuse,
    /// It is not done, and answered as if it had taken too long.
    TimeOut,
}

/// A kind of event with the faults that can happen at it.
pub(crate) trait FaultPoint: Copy {
    /// The fault, if it is one of this kind of event.
    fn of(effect: Effect) -> Option<Self>;
}

impl FaultPoint for SendFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Send(fault) => Some(fault),
            Effect::Delivery(_) | Effect::Settlement(_) | Effect::Request(_) => None,
        }
    }
}

impl FaultPoint for DeliveryFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Delivery(fault) => Some(fault),
            Effect::Send(_) | Effect::Settlement(_) | Effect::Request(_) => None,
        }
    }
}

impl FaultPoint for SettlementFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Settlement(fault) => Some(fault),
            Effect::Send(_) | Effect::Delivery(_) | Effect::Request(_) => None,
        }
    }
}

impl FaultPoint for RequestFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Request(fault) => Some(fault),
            Effect::Send(_) | Effect::Delivery(_) | Effect::Settlement(_) => None,
        }
    }
}

impl Fault {
    pub(super) fn effect(&self) -> Effect {
        match self.kind {
            FaultKind::Redeliver => Effect::Delivery(DeliveryFault::Redeliver),
            FaultKind::ExpireLock => Effect::Delivery(DeliveryFault::ExpireLock),
            FaultKind::LoseSessionLock => Effect::Delivery(DeliveryFault::LoseSessionLock),
            FaultKind::DelayDelivery => Effect::Delivery(DeliveryFault::Delay(self.by)),
            FaultKind::Reorder => Effect::Delivery(DeliveryFault::PassOver),
            FaultKind::DropConnectionAtDelivery => {
                Effect::Delivery(DeliveryFault::EndConnection(Ending::Cut))
            }
            FaultKind::CloseConnectionAtDelivery => {
                Effect::Delivery(DeliveryFault::EndConnection(Ending::Close))
            }
            FaultKind::LoseSettlement => Effect::Settlement(SettlementFault::Lose(None)),
            FaultKind::DropConnectionAtSettlement => {
                Effect::Settlement(SettlementFault::Lose(Some(Ending::Cut)))
            }
            FaultKind::CloseConnectionAtSettlement => {
                Effect::Settlement(SettlementFault::Lose(Some(Ending::Close)))
            }
            FaultKind::LoseSettlementAnswer => {
                Effect::Settlement(SettlementFault::LoseAnswer { cut: false })
            }
            FaultKind::DropConnectionAfterSettlement => {
                Effect::Settlement(SettlementFault::LoseAnswer { cut: true })
            }
            FaultKind::DelaySettlementAnswer => {
                Effect::Settlement(SettlementFault::DelayAnswer(self.by))
            }
            FaultKind::ForgetCompletion => Effect::Settlement(SettlementFault::Forget),
            FaultKind::DropConnectionAtSend => Effect::Send(SendFault::Lose),
            FaultKind::DropConnectionAfterSend => Effect::Send(SendFault::LoseAnswer),
            FaultKind::RefuseSend => Effect::Send(SendFault::Refuse),
            FaultKind::DetachAtSend => Effect::Send(SendFault::Detach),
            FaultKind::LoseRequest => Effect::Request(RequestFault::Lose),
            FaultKind::DropConnectionAtRequest => Effect::Request(RequestFault::LoseAndCut),
            FaultKind::RefuseRequest => Effect::Request(RequestFault::Refuse),
            FaultKind::TimeOutRequest => Effect::Request(RequestFault::TimeOut),
        }
    }
}
