//! Time as the broker sees it: the system's, or stepped by a test.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock that decides when locks of messages and sessions end, when scheduled messages are
/// enqueued, when messages have lived long enough and when duplicate-detection windows end.
///
/// Clones share the same time. Network time-outs always follow the system's clock.
#[derive(Clone)]
pub struct Clock {
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// Wall time taken once, then carried on by the monotonic clock, so that it never jumps.
    System {
        origin: Timestamp,
        started: Instant,
    },
    Manual(Arc<Manual>),
}

struct Manual {
    now: Mutex<Timestamp>,
    listeners: Mutex<Vec<Weak<dyn OnAdvance>>>,
}

/// Told after a manual clock has moved.
pub(crate) trait OnAdvance: Send + Sync {
    fn advanced(&self);
}

impl Clock {
    /// Follows the system's time.
    #[must_use]
    pub fn system() -> Self {
        Self { source: Source::System { origin: Timestamp::of_system(), started: Instant::now() } }
    }

    /// Stands still until [`advance`](Self::advance) moves it; starts at the system's time.
    #[must_use]
    pub fn manual() -> Self {
        let manual =
            Manual { now: Mutex::new(Timestamp::of_system()), listeners: Mutex::default() };
        Self { source: Source::Manual(Arc::new(manual)) }
    }

    /// Moves a manual clock forward, in whole milliseconds.
    ///
    /// When this returns, all that was due in between has happened, within each entity in the order
    /// of time: the counts, the event log and the waiting receivers of each emulator on this clock
    /// know it. Returns `false`, and does nothing, on a system clock.
    pub fn advance(&self, by: Duration) -> bool {
        match &self.source {
            Source::System { .. } => false,
            Source::Manual(manual) => {
                manual.advance(by);
                true
            }
        }
    }

    #[cfg(feature = "control")]
    pub(crate) fn is_manual(&self) -> bool {
        matches!(self.source, Source::Manual(_))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match &self.source {
            Source::System { origin, started } => origin.plus(started.elapsed()),
            Source::Manual(manual) => *manual.now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Asks to be told of each advance. Returns `false` on a system clock, which needs a timer instead.
    pub(crate) fn listen(&self, listener: Weak<dyn OnAdvance>) -> bool {
        match &self.source {
            Source::System { .. } => false,
            Source::Manual(manual) => {
                let mut listeners = manual.listeners.lock().unwrap_or_else(PoisonError::into_inner);
                listeners.retain(|known| known.strong_count() > 0);
                listeners.push(listener);
                true
            }
        }
    }
}

impl Manual {
    fn advance(&self, by: Duration) {
        {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            *now = now.plus(by);
        }
        // Listeners take their own locks and read this clock, so none of ours is held here.
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.advanced();
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.source {
            Source::System { .. } => "system",
            Source::Manual(_) => "manual",
        };
        formatter.debug_struct("Clock").field("kind", &kind).field("now", &self.now()).finish()
    }
}

/// A point in time: milliseconds since the Unix epoch, the resolution of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timestamp(i64);

impl Timestamp {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's time")]
    fn of_system() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(milliseconds(since_epoch.unwrap_or_default()))
    }

    /// The time in milliseconds since the Unix epoch.
    pub(crate) fn milliseconds(self) -> i64 {
        self.0
    }

    pub(crate) fn from_milliseconds(milliseconds: i64) -> Self {
        Self(milliseconds)
    }

    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(milliseconds(duration)))
    }

    /// How long until this point; zero once it has passed.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    pub(crate) fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0).unwrap_or(0))
    }
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual();
        let before = clock.now();
        assert_eq!(clock.now(), before);
        assert!(clock.clone().advance(Duration::from_secs(2)));
        assert_eq!(clock.now().since(before), Duration::from_secs(2));
    }

    #[test]
    fn a_system_clock_cannot_be_advanced() {
        assert!(!Clock::system().advance(Duration::from_secs(1)));
    }
}
