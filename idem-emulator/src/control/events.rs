//! What has happened.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::exchange::{Answer, InQuery, answer};
use crate::broker::Broker;
use crate::events::{Event, EventKind, EventTotals};

/// How many events are shown at once, if the request does not say, and at most.
const LIMIT: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The sequence of the last event that is known.
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Page {
    last_sequence: u64,
    totals: EventTotals,
    events: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    sequence: u64,
    /// Since the Unix epoch.
    time_ms: u128,
    entity: Option<Arc<str>>,
    message_id: Option<Arc<str>>,
    sequence_number: Option<i64>,
    #[serde(flatten)]
    kind: EventKind,
}

impl From<Event> for Shown {
    fn from(event: Event) -> Self {
        let since_epoch = event.time.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            sequence: event.sequence,
            time_ms: since_epoch.as_millis(),
            entity: event.entity,
            message_id: event.message_id,
            sequence_number: event.sequence_number,
            kind: event.kind,
        }
    }
}

pub(super) async fn page(
    State(broker): State<Arc<Broker>>,
    InQuery(Wanted { after, limit }): InQuery<Wanted>,
) -> Answer {
    let events = &broker.context.events;
    let limit = limit.unwrap_or(LIMIT).min(LIMIT);
    let shown = events.page(after, limit).into_iter().map(Shown::from).collect();
    let page =
        Page { last_sequence: events.last_sequence(), totals: events.totals(), events: shown };
    answer(StatusCode::OK, &page)
}
