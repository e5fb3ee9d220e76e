//! The armed rules, and what they decide.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::effect::FaultPoint;
use super::{Fault, FaultKind};

/// The fault rules of an emulator. Clones share the rules.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Lets the usual case, no rules, pass without the lock.
    any: AtomicBool,
    rules: Mutex<Rules>,
}

#[derive(Debug, Default)]
struct Rules {
    next_id: u64,
    active: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    fault: Fault,
    decisions: SplitMix,
    /// Matching events so far.
    seen: u64,
    /// Decided, and neither fired nor withdrawn yet.
    pending: u64,
    fired: Arc<AtomicU64>,
}

/// A rule has decided that its fault happens. It counts as fired only once confirmed.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    rule: u64,
    pub(crate) kind: FaultKind,
}

/// An event, as rules see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Occasion<'a> {
    pub(crate) entity: &'a str,
    /// The ids of the messages that it is about.
    pub(crate) messages: &'a [&'a str],
    /// What a request asks for.
    pub(crate) operation: Option<&'a str>,
}

impl Faults {
    /// Arms a rule. It stays armed, whether or not the handle is kept, until it is removed through
    /// the handle, the emulator is reset or the emulator ends.
    pub fn add(&self, fault: Fault) -> FaultHandle {
        let mut rules = self.rules();
        let id = rules.next_id;
        rules.next_id += 1;
        let fired = Arc::new(AtomicU64::new(0));
        let decisions = SplitMix(fault.seed);
        rules.active.push(Rule {
            id,
            fault,
            decisions,
            seen: 0,
            pending: 0,
            fired: Arc::clone(&fired),
        });
        self.shared.any.store(true, Ordering::Release);
        FaultHandle { faults: self.clone(), id, fired }
    }

    /// Every armed rule with its id, and how often it has fired.
    #[cfg(feature = "control")]
    pub(crate) fn armed(&self) -> Vec<(u64, Fault, u64)> {
        let rules = self.rules();
        let fired = |rule: &Rule| rule.fired.load(Ordering::Relaxed);
        rules.active.iter().map(|rule| (rule.id, rule.fault.clone(), fired(rule))).collect()
    }

    /// Disarms a rule; `false` if there is none of this id.
    pub(crate) fn remove(&self, id: u64) -> bool {
        let mut rules = self.rules();
        let before = rules.active.len();
        rules.active.retain(|rule| rule.id != id);
        self.shared.any.store(!rules.active.is_empty(), Ordering::Release);
        rules.active.len() < before
    }

    /// Disarms every rule.
    pub fn clear(&self) {
        let mut rules = self.rules();
        rules.active.clear();
        self.shared.any.store(false, Ordering::Release);
    }

    /// Whether there are rules at all.
    pub(crate) fn is_armed(&self) -> bool {
        self.shared.any.load(Ordering::Acquire)
    }

    /// Asks the rules about an event; the caller confirms or withdraws what they decide.
    pub(crate) fn decide<F: FaultPoint>(
        &self,
        occasion: Occasion<'_>,
        possible: impl Fn(F) -> bool,
    ) -> Option<(F, Decision)> {
        if !self.is_armed() {
            return None;
        }
        self.rules().active.iter_mut().find_map(|rule| {
            let fault = F::of(rule.fault.effect()).filter(|fault| possible(*fault))?;
            let decides = rule.matches(occasion) && rule.decide();
            decides.then(|| (fault, rule.decision()))
        })
    }

    /// The fault has happened.
    pub(crate) fn confirm(&self, decision: &Decision) {
        if let Some(rule) = self.rules().find(decision) {
            rule.pending = rule.pending.saturating_sub(1);
            rule.fired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The fault could not happen after all.
    pub(crate) fn withdraw(&self, decision: &Decision) {
        if let Some(rule) = self.rules().find(decision) {
            rule.pending = rule.pending.saturating_sub(1);
        }
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.shared.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rules {
    fn find(&mut self, decision: &Decision) -> Option<&mut Rule> {
        self.active.iter_mut().find(|rule| rule.id == decision.rule)
    }
}

impl Rule {
    fn matches(&self, occasion: Occasion<'_>) -> bool {
        let Fault { entity, message, operation, .. } = &self.fault;
        entity.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(occasion.entity))
            && message.as_deref().is_none_or(|wanted| occasion.messages.contains(&wanted))
            && operation.as_deref().is_none_or(|wanted| occasion.operation == Some(wanted))
    }

    fn decision(&mut self) -> Decision {
        self.pending += 1;
        Decision { rule: self.id, kind: self.fault.kind }
    }

    fn decide(&mut self) -> bool {
        self.seen += 1;
        // Drawn for every matching event, so that decisions depend on the order of events alone.
        let drawn = self.decisions.next_unit();
        let used = self.fired.load(Ordering::Relaxed) + self.pending;
        self.fault.nth.is_none_or(|nth| nth == self.seen)
            && self.fault.probability.is_none_or(|probability| drawn < probability)
            && self.fault.times.is_none_or(|times| used < times)
    }
}

/// Reads how often a rule has fired, and can remove it. Dropping it changes nothing.
#[derive(Clone)]
pub struct FaultHandle {
    faults: Faults,
    id: u64,
    fired: Arc<AtomicU64>,
}

impl FaultHandle {
    #[cfg(feature = "control")]
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// How many times the rule has fired. Every firing is also in the event log.
    #[must_use]
    pub fn fired(&self) -> u64 {
        self.fired.load(Ordering::Relaxed)
    }

    /// Disarms the rule.
    pub fn remove(&self) {
        self.faults.remove(self.id);
    }
}

impl fmt::Debug for FaultHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FaultHandle")
            .field("id", &self.id)
            .field("fired", &self.fired())
            .finish()
    }
}

/// The splitmix64 generator, written out so that a seed means the same in every version.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0.0..1.0`.
    fn next_unit(&mut self) -> f64 {
        // The top 32 bits are exact in an f64, and finer than any probability worth asking for.
        let high = u32::try_from(self.next() >> 32).unwrap_or(u32::MAX);
        f64::from(high) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::{DeliveryFault, SettlementFault};

    fn fires<F: FaultPoint>(faults: &Faults, entity: &str, messages: &[&str]) -> bool {
        let decided = faults.decide(Occasion { entity, messages, operation: None }, |_: F| true);
        decided.inspect(|(_, decision)| faults.confirm(decision)).is_some()
    }

    fn firings(fault: Fault, events: usize) -> Vec<bool> {
        let faults = Faults::default();
        faults.add(fault);
        (0..events).map(|_| fires::<DeliveryFault>(&faults, "orders", &["m"])).collect()
    }

    #[test]
    fn conditions_narrow_a_rule() {
        let faults = Faults::default();
        let handle = faults.add(Fault::lose_settlement().on("Orders").message("m-1"));
        assert!(!fires::<DeliveryFault>(&faults, "orders", &["m-1"]));
        assert!(!fires::<SettlementFault>(&faults, "other", &["m-1"]));
        assert!(!fires::<SettlementFault>(&faults, "orders", &["m-2"]));
        assert!(!fires::<SettlementFault>(&faults, "orders", &[]));
        assert!(fires::<SettlementFault>(&faults, "orders", &["m-1"]));
        assert_eq!(handle.fired(), 1);
        handle.remove();
        assert!(!fires::<SettlementFault>(&faults, "orders", &["m-1"]));
    }

    #[test]
    fn times_and_nth_bound_the_firings() {
        assert_eq!(firings(Fault::expire_lock().times(2), 4), [true, true, false, false]);
        assert_eq!(firings(Fault::expire_lock().nth(3), 4), [false, false, true, false]);
    }

    #[test]
    fn a_withdrawn_decision_stays_available() {
        let faults = Faults::default();
        let handle = faults.add(Fault::redeliver().times(1));
        let occasion = Occasion { entity: "orders", messages: &[], operation: None };
        let decide = || faults.decide(occasion, |_: DeliveryFault| true);
        let (_, decision) = decide().expect("the rule decides");
        assert!(decide().is_none(), "a pending decision counts against the bound");
        faults.withdraw(&decision);
        assert_eq!(handle.fired(), 0);
        assert!(decide().is_some());
    }

    #[test]
    fn the_same_seed_decides_alike() {
        let rule = |seed| Fault::redeliver().probability(0.3).seed(seed);
        assert_eq!(firings(rule(42), 200), firings(rule(42), 200));
        assert_ne!(firings(rule(42), 200), firings(rule(43), 200));
        let fired = firings(rule(7), 1000).into_iter().filter(|fired| *fired).count();
        assert!((200..400).contains(&fired), "{fired}");
    }
}
