//! How a consumer is, for readiness probes and for people.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::horizon::Readable;

/// How a consumer is at one moment.
///
/// Its text is a sentence for people, as in `the database is away for 12 s: …`. Of several things it
/// names the one that keeps the consumer from its work: a lost broker goes before a lost database.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It has not yet connected to the database and the broker, or was not yet told to run.
    Starting,
    /// It receives messages and handles them.
    Consuming,
    /// It has been told to pause: it receives no more, and what is in flight finishes.
    Pausing,
    /// Nothing is in flight, and the link is closed until the consumer is resumed.
    Paused,
    /// The link to the broker broke, and could not be opened again so far.
    Reconnecting(Outage),
    /// The database is away or refuses a handler's claims. The messages that this has met are held
    /// under their locks, and tried again until it is back.
    DatabaseAway(Outage),
    /// It has been told to stop: it receives no more, and what is in flight finishes.
    Stopping,
    /// It has ended, or could not start, or its future was dropped.
    Stopped,
}

impl Health {
    /// Whether messages are received and can be handled.
    ///
    /// A consumer that was paused on purpose is not ready either. Where that must not take a service
    /// out of rotation, let its probe ask for [`Paused`](Self::Paused) first.
    pub fn is_ready(&self) -> bool {
        match self {
            Self::Consuming => true,
            Self::Starting
            | Self::Pausing
            | Self::Paused
            | Self::Reconnecting(_)
            | Self::DatabaseAway(_)
            | Self::Stopping
            | Self::Stopped => false,
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Consuming => f.write_str("consuming"),
            Self::Pausing => f.write_str("pausing: what is in flight finishes"),
            Self::Paused => f.write_str("paused"),
            Self::Reconnecting(outage) => write!(f, "reconnecting to the broker {outage}"),
            Self::DatabaseAway(outage) => write!(f, "the database is away {outage}"),
            Self::Stopping => f.write_str("stopping: what is in flight finishes"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Something is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    since: Instant,
    problem: Arc<str>,
}

impl Outage {
    /// One that begins now, or the one that goes on.
    fn met(earlier: Option<&Self>, problem: &impl fmt::Display) -> Self {
        let since = earlier.map_or_else(Instant::now, |earlier| earlier.since);
        Self { since, problem: problem.to_string().into() }
    }

    /// How long this has been so: since the first attempt that failed.
    pub fn duration(&self) -> Duration {
        self.since.elapsed()
    }

    /// The error of the last attempt. It may name hosts and users.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {}: {}", Readable(self.duration()), self.problem)
    }
}

/// All that is known of a consumer's health.
#[derive(Debug)]
pub(super) struct Condition {
    /// What its loop does; never that the database is away, which the loop does not see.
    doing: Health,
    /// The handlers whose last attempt found no database, by their scopes.
    without_database: BTreeMap<&'static str, Outage>,
}

impl Condition {
    pub(super) fn new() -> Self {
        Self { doing: Health::Starting, without_database: BTreeMap::new() }
    }

    pub(super) fn health(&self) -> Health {
        let earliest = self.without_database.values().min_by_key(|outage| outage.since);
        match (&self.doing, earliest) {
            (Health::Consuming, Some(outage)) => Health::DatabaseAway(outage.clone()),
            (doing, _) => doing.clone(),
        }
    }

    pub(super) fn set(&mut self, doing: Health) {
        self.doing = doing;
    }

    pub(super) fn reconnecting(&mut self, problem: &impl fmt::Display) {
        let earlier = match &self.doing {
            Health::Reconnecting(outage) => Some(outage),
            Health::Starting
            | Health::Consuming
            | Health::Pausing
            | Health::Paused
            | Health::DatabaseAway(_)
            | Health::Stopping
            | Health::Stopped => None,
        };
        self.doing = Health::Reconnecting(Outage::met(earlier, problem));
    }

    /// Whether this is news.
    pub(super) fn database_failed(
        &mut self,
        scope: &'static str,
        problem: &impl fmt::Display,
    ) -> bool {
        let outage = Outage::met(self.without_database.get(scope), problem);
        self.without_database.insert(scope, outage).is_none()
    }

    /// The outage that this has ended.
    pub(super) fn database_answered(&mut self, scope: &str) -> Option<Outage> {
        self.without_database.remove(scope)
    }

    pub(super) fn has_database(&self, scope: &str) -> bool {
        !self.without_database.contains_key(scope)
    }

    pub(super) fn has_database_for_all(&self) -> bool {
        self.without_database.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn health_names_what_keeps_the_consumer_from_its_work() {
        let mut condition = Condition::new();
        assert!(condition.database_failed("a", &"no route to db"));
        assert!(!condition.database_failed("a", &"no route to db"), "no news");
        assert_eq!(condition.health(), Health::Starting);
        condition.set(Health::Consuming);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(condition.database_failed("b", &"pool timed out"));
        let health = condition.health();
        assert_eq!(health.to_string(), "the database is away for 1 min 1 s: no route to db");
        assert!(!health.is_ready());

        assert_eq!(condition.database_answered("a").expect("away").problem(), "no route to db");
        assert_eq!(condition.health().to_string(), "the database is away for 0 s: pool timed out");
        condition.reconnecting(&"no route to bus");
        tokio::time::advance(Duration::from_secs(2)).await;
        condition.reconnecting(&"no such queue");
        let text = "reconnecting to the broker for 2 s: no such queue";
        assert_eq!(condition.health().to_string(), text, "the last error since the first");
        condition.set(Health::Consuming);
        assert!(condition.database_answered("b").is_some());
        assert!(condition.health().is_ready(), "{}", condition.health());
        assert_eq!(condition.database_answered("b"), None);
    }
}
