//! What entities are like, and the checks on it.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::rules::Rule;

const NAME_LENGTH_MAX: usize = 260;
const SUBSCRIPTION_NAME_LENGTH_MAX: usize = 50;
pub(crate) const LOCK_DURATION: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(5 * 60);
pub(crate) const MAX_DELIVERY_COUNT: RangeInclusive<u32> = 1..=2000;
pub(crate) const TIME_TO_LIVE_MIN: Duration = Duration::from_millis(1);
pub(crate) const DUPLICATE_WINDOW: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 60 * 60);
const SIZE_MIN: u64 = 1024;

/// Writes the setters of an entity's options: the kinds of entity share most, and each names those
/// that it has.
macro_rules! setters {
    ($($setting:ident)*) => { $(setter!($setting);)* };
}

macro_rules! setter {
    (lock_duration) => {
        /// How long a receiver may hold a message before it comes again: 1 ms to 5 min, by default
        /// 1 min. The cloud allows nothing below 5 s; shorter locks are for tests.
        pub fn lock_duration(mut self, duration: Duration) -> Self {
            self.settings.lock_duration = duration;
            self
        }
    };
    (max_delivery_count) => {
        /// How many deliveries may fail, 1 to 2000, by default 10. At that count a message is
        /// dead-lettered with the reason `MaxDeliveryCountExceeded`.
        pub fn max_delivery_count(mut self, count: u32) -> Self {
            self.settings.max_delivery_count = count;
            self
        }
    };
    (requires_session) => {
        /// Hands messages out by session only: each message must have a session id, and a receiver
        /// must hold a session. Off by default.
        pub fn requires_session(mut self, requires: bool) -> Self {
            self.settings.requires_session = requires;
            self
        }
    };
    (default_time_to_live) => {
        /// How long a message lives that nobody receives: at least 1 ms, by default without end. A
        /// message that asks for less lives less.
        pub fn default_time_to_live(mut self, duration: Duration) -> Self {
            self.settings.default_time_to_live = Some(duration);
            self
        }
    };
    (dead_letter_expired) => {
        /// Moves a message that has outlived its time to the dead-letter queue, with the reason
        /// `TTLExpiredException`; by default it is dropped.
        pub fn dead_letter_expired(mut self, dead_letter: bool) -> Self {
            self.settings.dead_letter_expired = dead_letter;
            self
        }
    };
    (duplicate_detection) => {
        /// Drops a message whose id was accepted within this window before it: 1 ms to 7 days, off
        /// by default. The cloud allows nothing below 20 s. Messages without an id are never dropped.
        pub fn duplicate_detection(mut self, window: Duration) -> Self {
            self.settings.duplicate_detection = Some(window);
            self
        }
    };
    (size_max) => {
        /// How much it holds, in bytes, by default 1 GiB, at least 1 KiB. Each message is charged
        /// its encoded size and 256 bytes, each state of a session the same, each remembered message id
        /// its length and 96 bytes. A
        /// send that would go beyond is refused with `amqp:resource-limit-exceeded`. A topic holds
        /// only scheduled messages and message ids.
        pub fn size_max(mut self, bytes: u64) -> Self {
            self.settings.size_max = bytes;
            self
        }
    };
    (forward_to) => {
        /// Sends every message on to this queue or topic; then nothing can be received here. Not
        /// with [`requires_session`](Self::requires_session).
        pub fn forward_to(mut self, entity: impl Into<String>) -> Self {
            self.settings.forward_to = Some(entity.into());
            self
        }
    };
    (forward_dead_lettered_messages_to) => {
        /// Sends every dead-lettered message on to this queue or topic.
        pub fn forward_dead_lettered_messages_to(mut self, entity: impl Into<String>) -> Self {
            self.settings.forward_dead_lettered_messages_to = Some(entity.into());
            self
        }
    };
    (assign_message_ids) => {
        /// Gives a random message id to messages that are sent without one; off by default.
        ///
        /// The broker in the cloud leaves the id to the sender, so a receiver may see a message
        /// without one, and its code has to be tested for that. Turn it on where a client needs an
        /// id: the JavaScript client cannot settle a message that has none.
        pub fn assign_message_ids(mut self, assign: bool) -> Self {
            self.settings.assign_message_ids = assign;
            self
        }
    };
}

/// A queue to create, with its dead-letter queue. Checked by
/// [`EmulatorBuilder::start`](crate::EmulatorBuilder::start).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "options do nothing until they are given to an emulator"]
pub struct QueueOptions {
    pub(crate) name: String,
    pub(crate) settings: Settings,
}

impl QueueOptions {
    /// A queue with the defaults of the cloud. The name has 1 to 260 letters, digits, `.`, `-`,
    /// `_` or `/`; its case does not matter to clients.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), settings: Settings::default() }
    }

    setters! {
        lock_duration
        max_delivery_count
        requires_session
        default_time_to_live
        dead_letter_expired
        duplicate_detection
        size_max
        forward_to
        forward_dead_lettered_messages_to
        assign_message_ids
    }
}

/// A topic to create: what is sent to it goes to its subscriptions.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "options do nothing until they are given to an emulator"]
pub struct TopicOptions {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) subscriptions: Vec<SubscriptionOptions>,
}

impl TopicOptions {
    /// A topic without subscriptions. Names are as those of queues.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), settings: Settings::default(), subscriptions: Vec::new() }
    }

    /// Adds a subscription.
    pub fn subscription(mut self, subscription: SubscriptionOptions) -> Self {
        self.subscriptions.push(subscription);
        self
    }

    setters! {
        default_time_to_live
        duplicate_detection
        size_max
        assign_message_ids
    }
}

/// A subscription of a topic, with its dead-letter queue: it receives a copy of every message that
/// matches one of its rules.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "options do nothing until they are given to a topic"]
pub struct SubscriptionOptions {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    pub(crate) rules: Vec<Rule>,
}

impl SubscriptionOptions {
    /// A subscription with the defaults of the cloud. Without rules it has the rule `$Default`, which
    /// takes every message. The name has 1 to 50 letters, digits, `.`, `-` or `_`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), settings: Settings::default(), rules: Vec::new() }
    }

    /// Adds a rule; the first one takes the place of `$Default`.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    setters! {
        lock_duration
        max_delivery_count
        requires_session
        default_time_to_live
        dead_letter_expired
        size_max
        forward_to
        forward_dead_lettered_messages_to
    }
}

/// What an entity is like. Not every kind of entity can be given every setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) lock_duration: Duration,
    pub(crate) max_delivery_count: u32,
    pub(crate) requires_session: bool,
    pub(crate) default_time_to_live: Option<Duration>,
    pub(crate) dead_letter_expired: bool,
    pub(crate) duplicate_detection: Option<Duration>,
    pub(crate) size_max: u64,
    pub(crate) forward_to: Option<String>,
    pub(crate) forward_dead_lettered_messages_to: Option<String>,
    pub(crate) assign_message_ids: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lock_duration: Duration::from_secs(60),
            max_delivery_count: 10,
            requires_session: false,
            default_time_to_live: None,
            dead_letter_expired: false,
            duplicate_detection: None,
            size_max: 1 << 30,
            forward_to: None,
            forward_dead_lettered_messages_to: None,
            assign_message_ids: false,
        }
    }
}

impl Settings {
    /// What is wrong with the settings, if anything.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Self { lock_duration, max_delivery_count, size_max, .. } = self;
        if !LOCK_DURATION.contains(lock_duration) {
            return Err(format!("`lock_duration` must be 1 ms to 5 min, found {lock_duration:?}"));
        }
        if !MAX_DELIVERY_COUNT.contains(max_delivery_count) {
            return Err(format!(
                "`max_delivery_count` must be 1 to 2000, found {max_delivery_count}"
            ));
        }
        if let Some(duration) = self.default_time_to_live.filter(|it| *it < TIME_TO_LIVE_MIN) {
            return Err(format!(
                "`default_time_to_live` must be at least 1 ms, found {duration:?}"
            ));
        }
        if let Some(window) = self.duplicate_detection.filter(|it| !DUPLICATE_WINDOW.contains(it)) {
            return Err(format!("`duplicate_detection` must be 1 ms to 7 days, found {window:?}"));
        }
        if *size_max < SIZE_MIN {
            return Err(format!("`size_max` must be at least {SIZE_MIN} bytes, found {size_max}"));
        }
        if self.requires_session && self.forward_to.is_some() {
            return Err("an entity that requires sessions cannot forward its messages".to_owned());
        }
        Ok(())
    }
}

/// What is wrong with the name of a queue or topic, if anything.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
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

/// What is wrong with the name of a subscription, if anything.
pub(crate) fn check_subscription_name(name: &str) -> Result<(), String> {
    check_name(name)?;
    if name.len() > SUBSCRIPTION_NAME_LENGTH_MAX || name.contains('/') {
        return Err(format!(
            "the name of a subscription must have 1 to {SUBSCRIPTION_NAME_LENGTH_MAX} characters other than `/`, found `{name}`"
        ));
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
            (queue().lock_duration(Duration::ZERO), "lock_duration"),
            (queue().lock_duration(Duration::from_secs(301)), "lock_duration"),
            (queue().max_delivery_count(0), "max_delivery_count"),
            (queue().default_time_to_live(Duration::ZERO), "default_time_to_live"),
            (queue().duplicate_detection(Duration::ZERO), "duplicate_detection"),
            (queue().size_max(1), "size_max"),
            (queue().requires_session(true).forward_to("other"), "requires sessions"),
        ];
        for (options, expected) in wrong {
            let problem = options.settings.check().expect_err(expected);
            assert!(problem.contains(expected), "{problem}");
        }
        assert_eq!(queue().lock_duration(Duration::from_millis(50)).settings.check(), Ok(()));
    }

    #[test]
    fn names_have_their_own_rules() {
        for (name, expected) in [("", "1 to 260"), ("a$b", "`$`"), ("/a", "`/`")] {
            let problem = check_name(name).expect_err(name);
            assert!(problem.contains(expected), "{problem}");
        }
        for name in ["a/b", &"x".repeat(51)] {
            assert!(check_subscription_name(name).is_err(), "{name}");
        }
        assert_eq!(check_name("a/b-c_d.e"), Ok(()));
    }
}
