//! The locks and states of sessions.

use bytes::Bytes;

use super::Reply;
use super::entity::{Problem, text};
use crate::broker::Node;
use crate::clock::Timestamp;
use crate::codec::{Raw, encode};

/// The largest state of a session, in bytes.
const STATE_MAX: usize = 256 * 1024;

/// How many session ids one request returns.
const IDS_MAX: usize = 1000;

/// Clients that want the sessions with messages ask for states set after the year 9999.
const END_OF_TIME_MILLISECONDS: i64 = 253_402_300_799_000;

pub(super) fn renew(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let until = node.queue.renew_session(session_id(node, body)?)?;
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "expiration");
            encode::timestamp(out, until.milliseconds());
        });
    }))
}

pub(super) fn state(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let state = node.queue.session_state(session_id(node, body)?)?;
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "session-state");
            encode::optional(out, state, |out, state| encode::binary(out, &state));
        });
    }))
}

pub(super) fn set_state(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let problem = Problem::Argument("`session-state` must be binary of at most 256 KiB, or null.");
    let value = match body.get("session-state").filter(|value| !value.is_null()) {
        None => None,
        Some(value) => Some(value.as_binary().ok_or(problem)?),
    };
    if value.is_some_and(|value| value.len() > STATE_MAX) {
        return Err(Problem::Argument("`session-state` must have at most 256 KiB."));
    }
    node.queue.set_session_state(session_id(node, body)?, value.map(Bytes::copy_from_slice))?;
    Ok(Reply::empty(200, "OK"))
}

pub(super) fn list(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    require_sessions(node)?;
    let number =
        |name: &str| body.get(name).and_then(|value| usize::try_from(value.as_u64()?).ok());
    let skip = number("skip").unwrap_or(0);
    let top = number("top").unwrap_or(IDS_MAX).min(IDS_MAX);
    let since = body
        .get("last-updated-time")
        .and_then(|time| time.as_i64())
        .filter(|time| *time < END_OF_TIME_MILLISECONDS)
        .map(Timestamp::from_milliseconds);
    let ids = node.queue.session_ids(since, skip, top);
    if ids.is_empty() {
        let text = "There are no more sessions.";
        return Ok(Reply::error(204, "com.microsoft:session-not-found", text));
    }
    let next = encode::length(skip.saturating_add(ids.len()));
    Ok(Reply::ok(|out| {
        encode::map(out, 2, |out| {
            encode::string(out, "skip");
            encode::int(out, i32::try_from(next).unwrap_or(i32::MAX));
            encode::string(out, "sessions-ids");
            encode::list(out, encode::length(ids.len()), |out| {
                ids.iter().for_each(|id| encode::string(out, id));
            });
        });
    }))
}

fn session_id<'a>(node: &Node, body: &Raw<'a>) -> Result<&'a str, Problem> {
    require_sessions(node)?;
    let id = text(body, "session-id");
    id.ok_or(Problem::Argument("`session-id` must be a string."))
}

fn require_sessions(node: &Node) -> Result<(), Problem> {
    if node.queue.requires_sessions(node.part) {
        return Ok(());
    }
    Err(Problem::NotAllowed("The entity does not require sessions."))
}
