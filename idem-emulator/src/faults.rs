//! Faults on purpose: rules that decide, at each delivery and each settlement, what goes wrong.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    /// See [`Fault::lose_settlement`].
    LoseSettlement,
    /// See [`Fault::drop_connection_at_delivery`].
    DropConnectionAtDelivery,
    /// See [`Fault::drop_connection_at_settlement`].
    DropConnectionAtSettlement,
}

/// When rules are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultPoint {
    Delivery,
    Settlement,
}

impl FaultKind {
    fn point(self) -> FaultPoint {
        match self {
            Self::Redeliver | Self::ExpireLock | Self::DropConnectionAtDelivery => {
                FaultPoint::Delivery
            }
            Self::LoseSettlement | Self::DropConnectionAtSettlement => FaultPoint::Settlement,
        }
    }
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
    pub(crate) kind: FaultKind,
    pub(crate) entity: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) nth: Option<u64>,
    pub(crate) probability: Option<f64>,
    pub(crate) seed: u64,
    pub(crate) times: Option<u64>,
}

impl Fault {
    fn new(kind: FaultKind) -> Self {
        Self {
            kind,
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
        Self::new(FaultKind::Redeliver)
    }

    /// At a delivery: the lock expires at once, after the message has been handed out.
    ///
    /// The message goes back with its count raised by one, and a later settlement of this delivery
    /// is refused with `com.microsoft:message-lock-lost`.
    pub fn expire_lock() -> Self {
        Self::new(FaultKind::ExpireLock)
    }

    /// At a settlement: it is neither applied nor answered.
    ///
    /// The lock runs on, so the message comes again after it expires, with its count raised.
    pub fn lose_settlement() -> Self {
        Self::new(FaultKind::LoseSettlement)
    }

    /// At a delivery: the message is locked and written to the connection, which is then cut
    /// without an AMQP close.
    ///
    /// The receiver may or may not see the message. Its lock lives on until it expires.
    pub fn drop_connection_at_delivery() -> Self {
        Self::new(FaultKind::DropConnectionAtDelivery)
    }

    /// At a settlement: it is not applied, and the connection is cut without an AMQP close.
    pub fn drop_connection_at_settlement() -> Self {
        Self::new(FaultKind::DropConnectionAtSettlement)
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

    /// Asks the rules about an event; the caller confirms or withdraws what they decide.
    pub(crate) fn decide(
        &self,
        point: FaultPoint,
        entity: &str,
        message: Option<&str>,
        possible: impl Fn(FaultKind) -> bool,
    ) -> Option<Decision> {
        if !self.shared.any.load(Ordering::Acquire) {
            return None;
        }
        let mut rules = self.rules();
        let applicable = rules
            .active
            .iter_mut()
            .filter(|rule| rule.matches(point, entity, message) && possible(rule.fault.kind));
        for rule in applicable {
            if rule.decide() {
                rule.pending += 1;
                return Some(Decision { rule: rule.id, kind: rule.fault.kind });
            }
        }
        None
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
    fn matches(&self, point: FaultPoint, entity: &str, message: Option<&str>) -> bool {
        self.fault.kind.point() == point
            && self.fault.entity.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(entity))
            && self.fault.message.as_deref().is_none_or(|wanted| Some(wanted) == message)
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

    fn fires(faults: &Faults, point: FaultPoint, entity: &str, message: Option<&str>) -> bool {
        let decision = faults.decide(point, entity, message, |_| true);
        decision.inspect(|decision| faults.confirm(decision)).is_some()
    }

    fn firings(fault: Fault, events: usize) -> Vec<bool> {
        let faults = Faults::default();
        faults.add(fault);
        (0..events).map(|_| fires(&faults, FaultPoint::Delivery, "orders", Some("m"))).collect()
    }

    #[test]
    fn conditions_narrow_a_rule() {
        let faults = Faults::default();
        let handle = faults.add(Fault::lose_settlement().on("Orders").message("m-1"));
        assert!(!fires(&faults, FaultPoint::Delivery, "orders", Some("m-1")));
        assert!(!fires(&faults, FaultPoint::Settlement, "other", Some("m-1")));
        assert!(!fires(&faults, FaultPoint::Settlement, "orders", Some("m-2")));
        assert!(!fires(&faults, FaultPoint::Settlement, "orders", None));
        assert!(fires(&faults, FaultPoint::Settlement, "orders", Some("m-1")));
        assert_eq!(handle.fired(), 1);
        handle.remove();
        assert!(!fires(&faults, FaultPoint::Settlement, "orders", Some("m-1")));
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
        let decide = || faults.decide(FaultPoint::Delivery, "orders", None, |_| true);
        let decision = decide().expect("the rule decides");
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
