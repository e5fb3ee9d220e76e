//! How long a message that was handled may still come again, and how long claims are kept for it.

use std::fmt;
use std::time::Duration;

/// What decides how late a message may come again that only people can know.
///
/// Neither has a default: dead letters never expire by themselves, and nothing in a queue says how
/// long its senders repeat themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// The longest time after which somebody may still send a dead letter again.
    pub dead_letter_age_max: Duration,
    /// The longest time after which a sender may send the same again: its own retries, an outbox
    /// that catches up, messages scheduled for later.
    pub resend_window: Duration,
}

/// The longest that a broker may be told to keep a message locked.
const LOCK_MAX: Duration = Duration::from_secs(5 * 60);

/// How long claims are kept, and the least that is safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The time within which a message that was handled may come again. Claims are never pruned
    /// earlier.
    pub horizon: Duration,
    /// How long claims are kept.
    pub kept: Duration,
}

/// No claim is pruned earlier, whatever is declared: clocks may differ.
const HORIZON_MIN: Duration = Duration::from_secs(60 * 60);

impl Horizon {
    /// The longest time after which a message that was handled may still come again: all its
    /// deliveries, each held for as long as its lock is renewed, and then its time among the dead
    /// letters, for the last of the copies that its sender sends.
    pub(crate) fn total(self, delivery_max: Duration, delivery_count_max: u32) -> Duration {
        let deliveries = delivery_max.saturating_add(LOCK_MAX).saturating_mul(delivery_count_max);
        let late = self.dead_letter_age_max.saturating_add(self.resend_window);
        deliveries.saturating_add(late).max(HORIZON_MIN)
    }
}

/// A duration for people, to the second: `14 d 2 h`.
pub(crate) struct Readable(pub(crate) Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts =
            [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min")];
        let mut space = "";
        for (count, unit) in parts.into_iter().chain([(seconds % 60, "s")]) {
            if count > 0 {
                write!(f, "{space}{count} {unit}")?;
                space = " ";
            }
        }
        if space.is_empty() { f.write_str("0 s") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn the_horizon_is_the_sum_of_all_that_can_delay_a_message() {
        let horizon = Horizon { dead_letter_age_max: 24 * HOUR, resend_window: 2 * HOUR };
        // Ten deliveries of 7 + 5 minutes.
        assert_eq!(horizon.total(Duration::from_secs(7 * 60), 10), 28 * HOUR);
        assert_eq!(horizon.total(Duration::MAX, 10), Duration::MAX);
        let none = Horizon { dead_letter_age_max: Duration::ZERO, resend_window: Duration::ZERO };
        assert_eq!(none.total(Duration::ZERO, 1), HOUR);
    }

    #[test]
    fn durations_are_readable() {
        for (seconds, text) in [(0, "0 s"), (61, "1 min 1 s"), (14 * 86_400 + 7200, "14 d 2 h")] {
            assert_eq!(Readable(Duration::from_secs(seconds)).to_string(), text);
        }
    }
}
