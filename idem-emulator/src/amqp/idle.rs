//! What the cloud does with connections and links that nobody uses.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::error::AmqpError;

/// How long after it opened a connection must have sent a token.
const TOKEN_TIME: Duration = Duration::from_secs(20);

/// How long after it opened a connection must have attached a link.
const FIRST_LINK_TIME: Duration = Duration::from_secs(60);

/// How long a connection may be without links after that.
const NO_LINK_TIME: Duration = Duration::from_secs(5 * 60);

/// How long a link may be attached without a frame.
const QUIET_LINK_TIME: Duration = Duration::from_secs(10 * 60);

/// A link, by its channel and handle.
type LinkName = (u16, u32);

/// Watches one connection, from when it is opened.
#[derive(Debug)]
pub(super) struct IdleWatch {
    opened_at: Instant,
    has_token: bool,
    /// When each link was used last.
    links: HashMap<LinkName, Instant>,
    /// When the last link went; absent before the first came.
    abandoned_at: Option<Instant>,
}

/// What has been idle for too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Idle {
    Connection(AmqpError),
    Link(LinkName, AmqpError),
}

impl IdleWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self { opened_at: now, has_token: false, links: HashMap::new(), abandoned_at: None }
    }

    pub(super) fn token_came(&mut self) {
        self.has_token = true;
    }

    /// A frame of a link came or went, or it was attached.
    pub(super) fn link_used(&mut self, link: LinkName, now: Instant) {
        self.links.insert(link, now);
    }

    pub(super) fn link_ended(&mut self, link: LinkName, now: Instant) {
        if self.links.remove(&link).is_some() && self.links.is_empty() {
            self.abandoned_at = Some(now);
        }
    }

    pub(super) fn session_ended(&mut self, channel: u16, now: Instant) {
        let ended = self.links.keys().copied().filter(|link| link.0 == channel);
        for link in ended.collect::<Vec<_>>() {
            self.link_ended(link, now);
        }
    }

    /// When something will have been idle for too long, as things are.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let token = (!self.has_token).then(|| self.opened_at + TOKEN_TIME);
        let links = self.links.values().map(|used| *used + QUIET_LINK_TIME);
        links.chain(token).chain(self.link_deadline()).min()
    }

    /// When a link must have come.
    fn link_deadline(&self) -> Option<Instant> {
        let without = self.links.is_empty();
        without.then(|| match self.abandoned_at {
            None => self.opened_at + FIRST_LINK_TIME,
            Some(at) => at + NO_LINK_TIME,
        })
    }

    /// What has been idle for too long by now: one thing at a time.
    pub(super) fn due(&self, now: Instant) -> Option<Idle> {
        let forced =
            |text: &'static str| Idle::Connection(AmqpError::new("amqp:connection:forced", text));
        if !self.has_token && now >= self.opened_at + TOKEN_TIME {
            return Some(forced("no token came within 20 seconds"));
        }
        if self.link_deadline().is_some_and(|at| now >= at) {
            return Some(forced("the connection had no links for too long"));
        }
        let quiet = self.links.iter().find(|(_, used)| now >= **used + QUIET_LINK_TIME);
        quiet.map(|(link, _)| {
            let text = "the link was not used for 10 minutes";
            Idle::Link(*link, AmqpError::new("amqp:link:detach-forced", text))
        })
    }
}
