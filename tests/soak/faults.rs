//! What goes wrong on the wire: some of it at random and all the time, some of it at times of the
//! plan.

use std::time::Duration;

use idem_emulator::{Emulator, Fault, FaultHandle};

use crate::messages::QUEUES;

/// A fault that the plan makes happen at a moment, since it costs many messages a delivery at once:
/// those on a connection that breaks, and those whose renewals wait behind one that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Once {
    DropAtDelivery,
    CloseAtDelivery,
    DropAtSettlement,
    CloseAtSettlement,
    DropAfterSettlement,
    DropAtRenewal,
    LoseRenewal,
    DropAfterSend,
}

impl Once {
    pub(crate) const ALL: [Self; 8] = [
        Self::DropAtDelivery,
        Self::CloseAtDelivery,
        Self::DropAtSettlement,
        Self::CloseAtSettlement,
        Self::DropAfterSettlement,
        Self::DropAtRenewal,
        Self::LoseRenewal,
        Self::DropAfterSend,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::DropAtDelivery => "connections dropped at a delivery",
            Self::CloseAtDelivery => "connections closed at a delivery",
            Self::DropAtSettlement => "connections dropped at a settlement",
            Self::CloseAtSettlement => "connections closed at a settlement",
            Self::DropAfterSettlement => "connections dropped after a settlement",
            Self::DropAtRenewal => "connections dropped at a renewal",
            Self::LoseRenewal => "renewals lost",
            Self::DropAfterSend => "connections dropped after a send",
        }
    }

    fn fault(self) -> Fault {
        match self {
            Self::DropAtDelivery => Fault::drop_connection_at_delivery(),
            Self::CloseAtDelivery => Fault::close_connection_at_delivery(),
            Self::DropAtSettlement => Fault::drop_connection_at_settlement(),
            Self::CloseAtSettlement => Fault::close_connection_at_settlement(),
            Self::DropAfterSettlement => Fault::drop_connection_after_settlement(),
            Self::DropAtRenewal => Fault::drop_connection_at_request().operation("renew-lock"),
            Self::LoseRenewal => Fault::lose_request().operation("renew-lock"),
            Self::DropAfterSend => Fault::drop_connection_after_send(),
        }
    }
}

/// The faults of a run, and how often each has fired.
pub(crate) struct Faults {
    emulator: idem_emulator::Faults,
    armed: Vec<(&'static str, FaultHandle)>,
}

impl Faults {
    /// Arms what happens all the time, on each queue with decisions of its own.
    pub(crate) fn arm(emulator: &Emulator, seed: u64) -> Self {
        let faults = emulator.faults();
        let mut seeds = seed..;
        let mut armed = Vec::new();
        for queue in QUEUES {
            for ((name, fault), seed) in always().into_iter().zip(&mut seeds) {
                armed.push((name, faults.add(fault.on(queue).seed(seed))));
            }
        }
        Self { emulator: faults, armed }
    }

    /// Makes a fault happen the next time it can, on whichever queue that is.
    pub(crate) fn once(&mut self, once: Once) {
        self.armed.push((once.name(), self.emulator.add(once.fault().times(1))));
    }

    /// How often each kind has fired.
    pub(crate) fn fired(&self) -> Vec<(&'static str, u64)> {
        let mut counts: Vec<(&'static str, u64)> = Vec::new();
        for (name, handle) in &self.armed {
            match counts.iter_mut().find(|(known, _)| known == name) {
                Some((_, count)) => *count += handle.fired(),
                None => counts.push((name, handle.fired())),
            }
        }
        counts
    }
}

/// Each of them costs at most one delivery of one message.
fn always() -> [(&'static str, Fault); 9] {
    let renewal = |fault: Fault| fault.operation("renew-lock");
    [
        ("locks expired", Fault::expire_lock().probability(0.01)),
        ("settlements lost", Fault::lose_settlement().probability(0.01)),
        ("answers to settlements lost", Fault::lose_settlement_answer().probability(0.01)),
        ("completions forgotten", Fault::forget_completion().probability(0.01)),
        ("messages delivered twice at once", Fault::redeliver().probability(0.01)),
        ("deliveries out of order", Fault::reorder().probability(0.01)),
        ("deliveries delayed", Fault::delay_delivery(Duration::from_millis(500)).probability(0.01)),
        ("renewals refused", renewal(Fault::refuse_request()).probability(0.1)),
        ("renewals timed out", renewal(Fault::time_out_request()).probability(0.1)),
    ]
}
