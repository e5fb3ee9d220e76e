//! The locks and states of sessions.

use bytes::Bytes;

use super::Reply;
use super::arguments::Arguments;
use super::entity::Problem;
use crate::broker::Node;
use crate::clock::Timestamp;
use crate::codec::{Raw, encode};

/// The largest state of a session, in bytes.
const STATE_MAX: usize = 256 * 1024;

/// How many session ids one request returns.
const IDS_MAX: usize = 1000;

/// Clients that want the sessions with messages ask for states set after the year 9999.
const END_OF_TIME_MILLISECONDS: i64 = 253_402_300_799_000;

pub(super) fn renew(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let until = node.queue.renew_session(session_id(node, body)?)?;
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "expiration");
            encode::timestamp(out, until.milliseconds());
        });
    }))
}

pub(super) fn state(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let state = node.queue.session_state(session_id(node, body)?)?;
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "session-state");
            encode::optional(out, state, |out, state| encode::binary(out, &state));
        });
    }))
}

pub(super) fn set_state(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let read = |value: &Raw<'_>| {
        let state = value.as_binary().filter(|state| state.len() <= STATE_MAX)?;
        Some(Bytes::copy_from_slice(state))
    };
    let expected = "binary of at most 256 KiB, or null";
    let value = body.optional("session-state", expected, read)?;
    node.queue.set_session_state(session_id(node, body)?, value)?;
    Ok(Reply::empty(200, "OK"))
}

pub(super) fn list(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    require_sessions(node)?;
    let skip = body.count("skip")?.unwrap_or(0);
    let top = body.count("top")?.unwrap_or(IDS_MAX).min(IDS_MAX);
    let since = body
        .optional("last-updated-time", "a timestamp", Raw::as_i64)?
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

fn session_id<'a>(node: &Node, body: &Arguments<'a>) -> Result<&'a str, Problem> {
    require_sessions(node)?;
    body.required_text("session-id")
}

fn require_sessions(node: &Node) -> Result<(), Problem> {
    if node.queue.requires_sessions(node.part) {
        return Ok(());
    }
    Err(Problem::NotAllowed("The entity does not require sessions."))
}
