//! What can go wrong at each kind of event.

use super::FaultKind;

/// How a connection ends on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The socket is closed without a word.
    Cut,
}

/// What a rule does, by the kind of event that it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Delivery(DeliveryFault),
    Settlement(SettlementFault),
}

/// A message is handed to a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryFault {
    /// It is handed out a second time while the first delivery is held.
    Redeliver,
    /// Its lock ends at once.
    ExpireLock,
    /// The connection ends once the message is written to it.
    EndConnection(Ending),
}

/// A receiver decides about a message that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettlementFault {
    /// It is neither applied nor answered.
    Lose,
    /// The same, and the connection ends.
    EndConnection(Ending),
}

/// A kind of event with the faults that can happen at it.
pub(crate) trait FaultPoint: Copy {
    /// The fault, if it is one of this kind of event.
    fn of(effect: Effect) -> Option<Self>;
}

impl FaultPoint for DeliveryFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Delivery(fault) => Some(fault),
            Effect::Settlement(_) => None,
        }
    }
}

impl FaultPoint for SettlementFault {
    fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Settlement(fault) => Some(fault),
            Effect::Delivery(_) => None,
        }
    }
}

impl Effect {
    pub(super) fn kind(self) -> FaultKind {
        match self {
            Self::Delivery(fault) => match fault {
                DeliveryFault::Redeliver => FaultKind::Redeliver,
                DeliveryFault::ExpireLock => FaultKind::ExpireLock,
                DeliveryFault::EndConnection(Ending::Cut) => FaultKind::DropConnectionAtDelivery,
            },
            Self::Settlement(fault) => match fault {
                SettlementFault::Lose => FaultKind::LoseSettlement,
                SettlementFault::EndConnection(Ending::Cut) => {
                    FaultKind::DropConnectionAtSettlement
                }
            },
        }
    }
}
