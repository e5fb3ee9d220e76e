//! How the client lets the broker send.
//!
//! A link begins with credit for `max` messages, and the client grants as many anew when it has
//! settled half as many. A message that it cannot decode uses up credit and is never settled: with
//! too many of them, nothing is left to be settled, and no more is granted.

/// What is known of a link's credit.
pub(super) struct Credit {
    max: u32,
    /// How many messages were settled since credit was granted.
    settled: u32,
    /// How many messages have used up credit since then.
    used: u32,
    /// How many of these will not be settled one day.
    lost: u32,
}

impl Credit {
    pub(super) fn new(max: u32) -> Self {
        Self { max, settled: 0, used: 0, lost: 0 }
    }

    pub(super) fn settle_one(&mut self) {
        self.settled += 1;
        if self.settled >= self.max / 2 {
            *self = Self::new(self.max);
        }
    }

    pub(super) fn use_one(&mut self) {
        self.used = self.used.saturating_add(1);
    }

    pub(super) fn lose_one(&mut self) {
        self.use_one();
        self.lost = self.lost.saturating_add(1);
    }

    /// Whether no message comes before others are settled.
    pub(super) fn is_used_up(&self) -> bool {
        self.used >= self.max
    }

    /// Whether half of the credit has been lost since it was granted. What remains may be less than
    /// what must be settled before more is granted.
    pub(super) fn is_lost(&self) -> bool {
        self.lost >= (self.max / 2).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_lost_when_half_of_it_is() {
        for (max, bearable) in [(1, 0), (2, 0), (3, 0), (4, 1), (16, 7), (17, 7)] {
            let mut credit = Credit::new(max);
            for lost in 0..=bearable {
                assert!(!credit.is_lost(), "{lost} of {max}");
                credit.lose_one();
            }
            assert!(credit.is_lost(), "{bearable} and one of {max}");
        }
    }

    #[test]
    fn what_is_granted_makes_good_what_was_lost() {
        let mut credit = Credit::new(8);
        for _ in 0..5 {
            for _ in 0..2 {
                credit.lose_one();
                assert!(!credit.is_lost());
                credit.settle_one();
                credit.settle_one();
            }
        }
        assert_eq!((credit.settled, credit.used, credit.lost), (0, 0, 0));
    }

    #[test]
    fn credit_is_used_up_by_what_comes_and_granted_for_what_is_settled() {
        let mut credit = Credit::new(4);
        for _ in 0..3 {
            credit.use_one();
        }
        assert!(!credit.is_used_up());
        credit.lose_one();
        assert!(credit.is_used_up());
        credit.settle_one();
        assert!(credit.is_used_up());
        credit.settle_one();
        assert!(!credit.is_used_up());
    }
}
