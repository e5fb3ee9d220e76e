//! What a queue is like, and the checks on it.

use std::ops::RangeInclusive;
use std::time::Duration;

const NAME_LENGTH_MAX: usize = 260;
const LOCK_DURATION: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(5 * 60);
const MAX_DELIVERY_COUNT: RangeInclusive<u32> = 1..=2000;
const TIME_TO_LIVE_MIN: Duration = Duration::from_millis(1);
const DUPLICATE_WINDOW: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 60 * 60);
const SIZE_MIN: u64 = 1024;

/// A queue to create, with its dead-letter queue. Checked by
/// [`EmulatorBuilder::start`](crate::EmulatorBuilder::start).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to an emulator"]
pub struct QueueOptions {
    name: String,
    lock_duration: Duration,
    max_delivery_count: u32,
    requires_session: bool,
    default_time_to_live: Option<Duration>,
    dead_letter_expired: bool,
    duplicate_detection: Option<Duration>,
    size_max: u64,
    assign_message_ids: bool,
}

impl QueueOptions {
    /// A queue with the defaults of the cloud. The name has 1 to 260 letters, digits, `.`, `-`,
    /// `_` or `/`; its case does not matter to clients.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            lock_duration: Duration::from_secs(60),
            max_delivery_count: 10,
            requires_session: false,
            default_time_to_live: None,
            dead_letter_expired: false,
            duplicate_detection: None,
            size_max: 1 << 30,
            assign_message_ids: false,
        }
    }

    /// How long a receiver may hold a message before it comes again: 1 ms to 5 min, by default
    /// 1 min. The cloud allows nothing below 5 s; shorter locks are for tests.
    pub fn lock_duration(mut self, duration: Duration) -> Self {
        self.lock_duration = duration;
        self
    }

    /// How many deliveries may fail, 1 to 2000, by default 10. At that count a message is
    /// dead-lettered with the reason `MaxDeliveryCountExceeded`.
    pub fn max_delivery_count(mut self, count: u32) -> Self {
        self.max_delivery_count = count;
        self
    }

    /// Hands messages out by session only: each message must have a session id, and a receiver must
    /// hold a session. Off by default.
    pub fn requires_session(mut self, requires: bool) -> Self {
        self.requires_session = requires;
        self
    }

    /// How long a message lives that nobody receives: at least 1 ms, by default without end. A
    /// message that asks for less lives less.
    pub fn default_time_to_live(mut self, duration: Duration) -> Self {
        self.default_time_to_live = Some(duration);
        self
    }

    /// Moves a message that has outlived its time to the dead-letter queue, with the reason
    /// `TTLExpiredException`; by default it is dropped.
    pub fn dead_letter_expired(mut self, dead_letter: bool) -> Self {
        self.dead_letter_expired = dead_letter;
        self
    }

    /// Drops a message whose id was accepted within this window before it: 1 ms to 7 days, off by
    /// default. The cloud allows nothing below 20 s. Messages without an id are never dropped.
    pub fn duplicate_detection(mut self, window: Duration) -> Self {
        self.duplicate_detection = Some(window);
        self
    }

    /// How much the queue holds, in bytes, by default 1 GiB, at least 1 KiB. Each message is charged
    /// its encoded size and 256 bytes, each remembered message id its length and 96 bytes. A send
    /// that would go beyond is refused with `amqp:resource-limit-exceeded`.
    pub fn size_max(mut self, bytes: u64) -> Self {
        self.size_max = bytes;
        self
    }

    /// Gives a random message id to messages that are sent without one; off by default.
    ///
    /// The broker in the cloud leaves the id to the sender, so a receiver may see a message without
    /// one, and its code has to be tested for that. Turn it on where a client needs an id: the
    /// JavaScript client cannot settle a message that has none.
    pub fn assign_message_ids(mut self, assign: bool) -> Self {
        self.assign_message_ids = assign;
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn lock_time(&self) -> Duration {
        self.lock_duration
    }

    pub(crate) fn delivery_count_limit(&self) -> u32 {
        self.max_delivery_count
    }

    pub(crate) fn requires_sessions(&self) -> bool {
        self.requires_session
    }

    pub(crate) fn time_to_live(&self) -> Option<Duration> {
        self.default_time_to_live
    }

    pub(crate) fn dead_letters_expired(&self) -> bool {
        self.dead_letter_expired
    }

    pub(crate) fn duplicate_window(&self) -> Option<Duration> {
        self.duplicate_detection
    }

    pub(crate) fn size_limit(&self) -> u64 {
        self.size_max
    }

    pub(crate) fn assigns_message_ids(&self) -> bool {
        self.assign_message_ids
    }

    /// What is wrong with the options, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if !LOCK_DURATION.contains(&self.lock_duration) {
            return Err(format!(
                "`lock_duration` must be 1 ms to 5 min, found {:?}",
                self.lock_duration
            ));
        }
        if !MAX_DELIVERY_COUNT.contains(&self.max_delivery_count) {
            return Err(format!(
                "`max_delivery_count` must be 1 to 2000, found {}",
                self.max_delivery_count
            ));
        }
        if self.default_time_to_live.is_some_and(|duration| duration < TIME_TO_LIVE_MIN) {
            return Err(format!(
                "`default_time_to_live` must be at least 1 ms, found {:?}",
                self.default_time_to_live.unwrap_or_default()
            ));
        }
        match self.duplicate_detection {
            Some(window) if !DUPLICATE_WINDOW.contains(&window) => {
                return Err(format!(
                    "`duplicate_detection` must be 1 ms to 7 days, found {window:?}"
                ));
            }
            Some(_) | None => {}
        }
        if self.size_max < SIZE_MIN {
            return Err(format!(
                "`size_max` must be at least {SIZE_MIN} bytes, found {}",
                self.size_max
            ));
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME_LENGTH_MAX {
        return Err(format!(
            "the name must have 1 to {NAME_LENGTH_MAX} characters, found {}",
            name.len()
        ));
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/');
    if let Some(wrong) = name.chars().find(|c| !allowed(*c)) {
        return Err(format!(
            "the name may contain letters, digits, `.`, `-`, `_` and `/`, found `{wrong}`"
        ));
    }
    if name.starts_with('/') || name.ends_with('/') {
        return Err("the name must not start or end with `/`".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_outside_their_range_are_named() {
        let queue = || QueueOptions::new("orders");
        let wrong = [
            (QueueOptions::new(""), "name"),
            (QueueOptions::new("a$b"), "`$`"),
            (QueueOptions::new("/a"), "`/`"),
            (queue().lock_duration(Duration::ZERO), "lock_duration"),
            (queue().lock_duration(Duration::from_secs(301)), "lock_duration"),
            (queue().max_delivery_count(0), "max_delivery_count"),
            (queue().default_time_to_live(Duration::ZERO), "default_time_to_live"),
            (queue().duplicate_detection(Duration::ZERO), "duplicate_detection"),
            (queue().size_max(1), "size_max"),
        ];
        for (options, expected) in wrong {
            let problem = options.check().expect_err(expected);
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(queue().lock_duration(Duration::from_millis(50)).check(), Ok(()));
    }
}
