//! The properties of entities, with the defaults of Microsoft's emulator and our wider ranges.

use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};

use super::Subscription;
use super::duration;
use super::rules::Rules;
use crate::options::{
    DUPLICATE_WINDOW, LOCK_DURATION, MAX_DELIVERY_COUNT, QueueOptions, Settings,
    SubscriptionOptions, TIME_TO_LIVE_MIN, TopicOptions, check_name, check_subscription_name,
};

pub(super) const FORWARD_TO: &str = "ForwardTo";

/// The name of a queue or topic.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        check_name(&name).map(|()| Self(name))
    }
}

/// The name of a subscription.
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct SubscriptionName(pub(super) String);

impl TryFrom<String> for SubscriptionName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        check_subscription_name(&name).map(|()| Self(name))
    }
}

/// What a queue is like.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(crate) struct QueueProperties {
    #[serde(deserialize_with = "lock_duration")]
    lock_duration: Duration,
    #[serde(deserialize_with = "max_delivery_count")]
    max_delivery_count: u32,
    #[serde(deserialize_with = "time_to_live")]
    default_message_time_to_live: Duration,
    dead_lettering_on_message_expiration: bool,
    pub(super) requires_session: bool,
    requires_duplicate_detection: bool,
    #[serde(deserialize_with = "duplicate_window")]
    duplicate_detection_history_time_window: Duration,
    forward_to: String,
    forward_dead_lettered_messages_to: String,
}

/// What a topic is like.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(crate) struct TopicProperties {
    #[serde(deserialize_with = "time_to_live")]
    default_message_time_to_live: Duration,
    requires_duplicate_detection: bool,
    #[serde(deserialize_with = "duplicate_window")]
    duplicate_detection_history_time_window: Duration,
}

/// What a subscription is like.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub(crate) struct SubscriptionProperties {
    #[serde(deserialize_with = "lock_duration")]
    lock_duration: Duration,
    #[serde(deserialize_with = "max_delivery_count")]
    max_delivery_count: u32,
    #[serde(deserialize_with = "time_to_live")]
    default_message_time_to_live: Duration,
    dead_lettering_on_message_expiration: bool,
    pub(super) requires_session: bool,
    forward_to: String,
    forward_dead_lettered_messages_to: String,
}

const DEFAULT_LOCK_DURATION: Duration = Duration::from_secs(60);
const DEFAULT_MAX_DELIVERY_COUNT: u32 = 3;
const DEFAULT_TIME_TO_LIVE: Duration = Duration::from_secs(60 * 60);
const DEFAULT_DUPLICATE_WINDOW: Duration = Duration::from_secs(20);

impl Default for QueueProperties {
    fn default() -> Self {
        Self {
            lock_duration: DEFAULT_LOCK_DURATION,
            max_delivery_count: DEFAULT_MAX_DELIVERY_COUNT,
            default_message_time_to_live: DEFAULT_TIME_TO_LIVE,
            dead_lettering_on_message_expiration: false,
            requires_session: false,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: DEFAULT_DUPLICATE_WINDOW,
            forward_to: String::new(),
            forward_dead_lettered_messages_to: String::new(),
        }
    }
}

impl Default for TopicProperties {
    fn default() -> Self {
        Self {
            default_message_time_to_live: DEFAULT_TIME_TO_LIVE,
            requires_duplicate_detection: false,
            duplicate_detection_history_time_window: DEFAULT_DUPLICATE_WINDOW,
        }
    }
}

impl Default for SubscriptionProperties {
    fn default() -> Self {
        Self {
            lock_duration: DEFAULT_LOCK_DURATION,
            max_delivery_count: DEFAULT_MAX_DELIVERY_COUNT,
            default_message_time_to_live: DEFAULT_TIME_TO_LIVE,
            dead_lettering_on_message_expiration: false,
            requires_session: false,
            forward_to: String::new(),
            forward_dead_lettered_messages_to: String::new(),
        }
    }
}

impl QueueProperties {
    /// The properties that name other entities.
    pub(super) fn forwards(&self) -> [(&'static str, &str); 2] {
        [
            (FORWARD_TO, &self.forward_to),
            ("ForwardDeadLetteredMessagesTo", &self.forward_dead_lettered_messages_to),
        ]
    }

    pub(crate) fn into_options(self, name: String) -> QueueOptions {
        let settings = Settings {
            lock_duration: self.lock_duration,
            max_delivery_count: self.max_delivery_count,
            requires_session: self.requires_session,
            default_time_to_live: Some(self.default_message_time_to_live),
            dead_letter_expired: self.dead_lettering_on_message_expiration,
            duplicate_detection: self
                .requires_duplicate_detection
                .then_some(self.duplicate_detection_history_time_window),
            forward_to: entity(self.forward_to),
            forward_dead_lettered_messages_to: entity(self.forward_dead_lettered_messages_to),
            ..common()
        };
        QueueOptions { name, settings }
    }
}

impl TopicProperties {
    pub(crate) fn into_options(
        self,
        name: String,
        subscriptions: Vec<Subscription>,
    ) -> TopicOptions {
        let settings = Settings {
            default_time_to_live: Some(self.default_message_time_to_live),
            duplicate_detection: self
                .requires_duplicate_detection
                .then_some(self.duplicate_detection_history_time_window),
            ..common()
        };
        let subscriptions = subscriptions.into_iter().map(Subscription::into_options).collect();
        TopicOptions { name, settings, subscriptions }
    }
}

impl SubscriptionProperties {
    /// The properties that name other entities.
    pub(super) fn forwards(&self) -> [(&'static str, &str); 2] {
        [
            (FORWARD_TO, &self.forward_to),
            ("ForwardDeadLetteredMessagesTo", &self.forward_dead_lettered_messages_to),
        ]
    }

    pub(crate) fn into_options(self, name: String, rules: Rules) -> SubscriptionOptions {
        let settings = Settings {
            lock_duration: self.lock_duration,
            max_delivery_count: self.max_delivery_count,
            requires_session: self.requires_session,
            default_time_to_live: Some(self.default_message_time_to_live),
            dead_letter_expired: self.dead_lettering_on_message_expiration,
            forward_to: entity(self.forward_to),
            forward_dead_lettered_messages_to: entity(self.forward_dead_lettered_messages_to),
            ..common()
        };
        SubscriptionOptions { name, settings, rules: rules.0 }
    }
}

/// Clients of any language come here, and not all of them can settle a message without an id.
fn common() -> Settings {
    Settings { assign_message_ids: true, ..Settings::default() }
}

/// An empty name stands for none.
fn entity(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

fn lock_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration::read_within(deserializer, &LOCK_DURATION, "1 ms to 5 min (`PT0.001S` to `PT5M`)")
}

fn time_to_live<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration::read_within(deserializer, &(TIME_TO_LIVE_MIN..), "at least 1 ms (`PT0.001S`)")
}

fn duplicate_window<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    duration::read_within(deserializer, &DUPLICATE_WINDOW, "1 ms to 7 days (`PT0.001S` to `P7D`)")
}

fn max_delivery_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let count = i64::deserialize(deserializer)?;
    let allowed = u32::try_from(count).ok().filter(|count| MAX_DELIVERY_COUNT.contains(count));
    allowed.ok_or_else(|| Error::custom(format_args!("must be 1 to 2000, found {count}")))
}
