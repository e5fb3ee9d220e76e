//! How long a lock holds, when the broker tells the time by a clock of its own.
//!
//! A lock comes with the instant of the broker's clock at which it ends, and nobody tells what that
//! clock shows now. But it shows no less than when a message was enqueued, a lock does not hold for
//! more than [`LOCK_MAX`], and a lock that was renewed this moment has not ended. Where our clock
//! contradicts that, the difference is taken to be as large as the contradiction shows. A smaller
//! difference stays hidden, and locks are renewed too often or too late by as much; a lock lost that
//! way costs a second delivery, never a second effect.

use std::time::Duration;

use time::OffsetDateTime;
use tracing::warn;

use super::message::{self, RawMessage};

/// The longest lock that Service Bus knows.
const LOCK_MAX: Duration = Duration::from_secs(5 * 60);

/// What we count on where nothing tells how long a lock holds: the shortest lock that a queue can
/// have. To renew too often is better than too late.
const LOCK_DEFAULT: Duration = Duration::from_secs(5);

/// A lock that holds for less is as good as ended, and so is not a new one.
const LOCK_MIN: Duration = Duration::from_millis(50);

/// A smaller difference of the clocks is not worth a warning.
const DIFFERENCE_TOLD: Duration = Duration::from_secs(1);

/// The broker's clock, as far as messages tell it.
#[derive(Default)]
pub(super) struct BrokerClock {
    /// How far it is ahead of ours.
    ahead: time::Duration,
    is_told: bool,
}

impl BrokerClock {
    /// How long the lock holds from now, for all we know. `None` when it has ended or is about to:
    /// renewing tells for certain.
    pub(super) fn lock_remaining(&mut self, message: &RawMessage) -> Option<Duration> {
        let remaining = self.remaining(message, now());
        Some(remaining).filter(|remaining| *remaining >= LOCK_MIN)
    }

    /// How long a lock holds that the broker has renewed this moment.
    pub(super) fn renewed_lock_remaining(&mut self, message: &RawMessage) -> Duration {
        self.remaining_of_new(message, now())
    }

    /// How long a lock holds that the broker has given or renewed this moment, until this instant.
    pub(super) fn new_lock_remaining(&mut self, locked_until: OffsetDateTime) -> Duration {
        self.until_of_new(locked_until, now())
    }

    fn remaining_of_new(&mut self, message: &RawMessage, ours: OffsetDateTime) -> Duration {
        self.learn(message, ours);
        if let Some(locked_until) = message::locked_until(message) {
            self.until_of_new(locked_until, ours);
        }
        // By what the lock has told, the message may have been enqueued in the future.
        self.remaining(message, ours)
    }

    fn remaining(&mut self, message: &RawMessage, ours: OffsetDateTime) -> Duration {
        self.learn(message, ours);
        let locked_until = message::locked_until(message);
        locked_until.map_or(LOCK_DEFAULT, |locked_until| self.until(locked_until, ours))
    }

    /// A message was not enqueued in the future.
    fn learn(&mut self, message: &RawMessage, ours: OffsetDateTime) {
        if let Some(enqueued_at) = message::enqueued_at(message)
            && enqueued_at - ours > self.ahead
        {
            self.differ(enqueued_at - ours);
        }
    }

    fn until_of_new(&mut self, locked_until: OffsetDateTime, ours: OffsetDateTime) -> Duration {
        let remaining = self.until(locked_until, ours);
        if remaining < LOCK_MIN {
            self.differ((locked_until - ours) - LOCK_DEFAULT);
            return self.until(locked_until, ours);
        }
        remaining
    }

    fn until(&mut self, locked_until: OffsetDateTime, ours: OffsetDateTime) -> Duration {
        let locked_for = locked_until - ours;
        if locked_for - self.ahead > LOCK_MAX {
            self.differ(locked_for - LOCK_DEFAULT);
        }
        (locked_for - self.ahead).try_into().unwrap_or(Duration::ZERO)
    }

    fn differ(&mut self, ahead: time::Duration) {
        self.ahead = ahead;
        if !self.is_told && ahead.unsigned_abs() > DIFFERENCE_TOLD {
            self.is_told = true;
            warn!(
                seconds = ahead.whole_seconds(),
                "the broker's clock is ahead of this machine's, or behind if negative, at least \
                 by so much; set this machine's clock right, or locks are renewed at wrong times"
            );
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is compared with an instant of the broker's clock, which no test can move"
)]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::super::message::tests::{enqueued_and_locked, raw_without_anything};
    use super::*;

    const NOON: OffsetDateTime = datetime!(2026-01-01 12:00 UTC);
    const LOCK: Duration = Duration::from_secs(60);

    /// A message under a lock of a minute that was given at `given_at` of the broker's clock, to a
    /// message enqueued some time before.
    fn locked(given_at: OffsetDateTime, before: Duration) -> RawMessage {
        enqueued_and_locked(given_at - before, given_at + LOCK)
    }

    #[test]
    fn clocks_that_agree_tell_how_long_a_lock_holds() {
        let mut clock = BrokerClock::default();
        let message = locked(NOON, Duration::from_secs(3600));
        assert_eq!(clock.remaining_of_new(&message, NOON), LOCK);
        for (passed, remaining) in [(0, 60), (20, 40), (60, 0), (3600, 0)] {
            let ours = NOON + Duration::from_secs(passed);
            assert_eq!(clock.remaining(&message, ours), Duration::from_secs(remaining));
        }
        assert!(!clock.is_told);
    }

    #[test]
    fn without_an_end_a_lock_holds_as_long_as_the_shortest() {
        let mut clock = BrokerClock::default();
        assert_eq!(clock.remaining(&raw_without_anything(), NOON), LOCK_DEFAULT);
        assert_eq!(clock.remaining_of_new(&raw_without_anything(), NOON), LOCK_DEFAULT);
    }

    #[test]
    fn a_new_lock_that_has_ended_by_our_clock_sets_it_right() {
        let mut clock = BrokerClock::default();
        let ours = NOON + Duration::from_secs(600);
        let message = locked(NOON, Duration::from_secs(3600));
        assert_eq!(clock.remaining(&message, ours), Duration::ZERO);
        assert_eq!(clock.remaining_of_new(&message, ours), LOCK_DEFAULT);
        assert!(clock.is_told);

        // From now on old locks and new ones are told apart, without renewing them.
        let later = Duration::from_secs(100);
        assert_eq!(clock.remaining(&message, ours + later), Duration::ZERO);
        let message = locked(NOON + later, Duration::from_secs(3600));
        assert_eq!(clock.remaining(&message, ours + later), LOCK_DEFAULT);
    }

    #[test]
    fn a_message_that_is_enqueued_in_our_future_sets_our_clock_right() {
        let mut clock = BrokerClock::default();
        let ours = NOON - Duration::from_secs(200);
        let message = locked(NOON, Duration::from_secs(1));
        assert_eq!(clock.remaining(&message, ours), LOCK + Duration::from_secs(1));
        assert!(clock.is_told);
        let old = locked(NOON, Duration::from_secs(3600));
        assert_eq!(clock.remaining(&old, ours), LOCK + Duration::from_secs(1));
    }

    #[test]
    fn a_lock_longer_than_any_sets_our_clock_right() {
        let mut clock = BrokerClock::default();
        let ours = NOON - Duration::from_secs(600);
        let message = locked(NOON, Duration::from_secs(3600));
        assert_eq!(clock.remaining(&message, ours), LOCK_DEFAULT);
        assert!(clock.is_told);
    }

    #[test]
    fn absurd_instants_are_survived() {
        let first = datetime!(-9999-01-01 0:00 UTC);
        let last = datetime!(9999-12-31 23:59 UTC);
        for ours in [first, NOON, last] {
            for (enqueued_at, locked_until) in [(first, last), (last, first), (last, last)] {
                let mut clock = BrokerClock::default();
                let message = enqueued_and_locked(enqueued_at, locked_until);
                for _ in 0..2 {
                    assert!(clock.remaining(&message, ours) <= LOCK_MAX);
                    assert!(clock.remaining_of_new(&message, ours) <= LOCK_MAX);
                }
            }
        }
    }
}
