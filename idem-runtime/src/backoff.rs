//! Pauses between attempts: they double, up to a limit, and vary so that those who failed together
//! do not come back together.

use std::time::Duration;

/// A sequence of growing pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after the `failures`-th failure: between half and all of its nominal length.
    pub(crate) fn after(self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let nominal = self.first.saturating_mul(1 << doublings).min(self.longest);
        nominal.mul_f64(0.5 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_stay_within_their_bounds() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for (failures, nominal) in [(1, 100), (2, 200), (3, 400), (5, 1000), (u32::MAX, 1000)] {
            let nominal = Duration::from_millis(nominal);
            for _ in 0..100 {
                let pause = backoff.after(failures);
                assert!(pause >= nominal / 2 && pause <= nominal, "{failures}: {pause:?}");
            }
        }
    }
}
