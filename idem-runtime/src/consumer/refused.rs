//! The dead letters that were rejected again.
//!
//! There is no other place to move them to, so they stay where they are, and the broker hands them
//! out again whenever their lock has run out. They are known by their numbers here, and are not
//! handled again as long as the consumer runs.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::delivery::Delivery;

/// How many are known; of more, those that came first are handled again.
const KNOWN_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeSet<i64>>);

impl Refused {
    pub(super) fn contains(&self, delivery: &Delivery) -> bool {
        self.lock().contains(&delivery.sequence_number())
    }

    pub(super) fn insert(&self, delivery: &Delivery) {
        // Without a number from the broker it could be any of them.
        if delivery.sequence_number() <= 0 {
            return;
        }
        let mut known = self.lock();
        known.insert(delivery.sequence_number());
        if known.len() > KNOWN_MAX {
            known.pop_first();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::SourceId;

    fn numbered(number: i64) -> Delivery {
        Delivery::new(SourceId::new("h", "q"), "{}").with_sequence_number(number)
    }

    #[test]
    fn letters_are_known_by_their_numbers_up_to_a_bound() {
        let refused = Refused::default();
        let last = i64::try_from(KNOWN_MAX).unwrap() + 1;
        for number in 0..=last {
            refused.insert(&numbered(number));
        }
        assert!(!refused.contains(&numbered(0)), "no number");
        assert!(!refused.contains(&numbered(1)), "forgotten");
        assert!(refused.contains(&numbered(2)) && refused.contains(&numbered(last)));
        assert!(!refused.contains(&numbered(last + 1)));
    }
}
