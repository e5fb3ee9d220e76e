//! What goes wrong, and how often: decided by the seed.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use idem_emulator::{Emulator, Fault, FaultHandle};

use crate::PlaceOrder;

/// Lets handlers fail after they have written.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// `None` where nothing goes wrong.
    seed: Option<u64>,
    crashed: Arc<Mutex<HashSet<String>>>,
}

/// One order in so many crashes, once.
const CRASHES_ONE_IN: u64 = 25;

impl Chaos {
    /// Failures that this seed decides.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed: Some(seed), crashed: Arc::default() }
    }

    /// Handlers never fail on purpose.
    pub fn quiet() -> Self {
        Self { seed: None, crashed: Arc::default() }
    }

    /// A point at which the process may die: for some orders, the first time they come here.
    ///
    /// # Errors
    ///
    /// When it dies. Whatever follows in the handler does not happen.
    pub fn may_crash(&self, order: &PlaceOrder) -> Result<(), &'static str> {
        let Some(seed) = self.seed else { return Ok(()) };
        let number = order.amount_cents.unsigned_abs();
        let decision = fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9)).u64(..);
        let mut crashed = self.crashed.lock().unwrap_or_else(PoisonError::into_inner);
        if decision.is_multiple_of(CRASHES_ONE_IN) && crashed.insert(order.external_ref.clone()) {
            return Err("crashed on purpose");
        }
        Ok(())
    }

    pub(crate) fn has_crashed(&self, external_ref: &str) -> bool {
        self.crashed.lock().unwrap_or_else(PoisonError::into_inner).contains(external_ref)
    }

    pub(crate) fn crashes(&self) -> u64 {
        let crashed = self.crashed.lock().unwrap_or_else(PoisonError::into_inner);
        u64::try_from(crashed.len()).unwrap_or(u64::MAX)
    }
}

/// The faults that the emulator injects on the wire.
pub(crate) struct WireFaults(Vec<(&'static str, FaultHandle)>);

impl WireFaults {
    /// Every kind of fault, each with decisions of its own.
    pub(crate) fn add(emulator: &Emulator, queue: &str, seed: u64) -> Self {
        let faults = [
            ("redeliveries", Fault::redeliver().probability(0.05)),
            ("expired locks", Fault::expire_lock().probability(0.03)),
            ("lost settlements", Fault::lose_settlement().probability(0.04)),
            ("connection drops at delivery", Fault::drop_connection_at_delivery().nth(200)),
            ("connection drops at settlement", Fault::drop_connection_at_settlement().nth(100)),
        ];
        let armed = faults
            .into_iter()
            .zip(seed..)
            .map(|((name, fault), seed)| (name, emulator.faults().add(fault.on(queue).seed(seed))));
        Self(armed.collect())
    }

    /// How often each kind has fired.
    pub(crate) fn fired(&self) -> Vec<(&'static str, u64)> {
        self.0.iter().map(|(name, handle)| (*name, handle.fired())).collect()
    }
}
