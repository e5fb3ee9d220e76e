//! Peeking, scheduling, and receiving by sequence number.

use bytes::BytesMut;

use super::Reply;
use super::arguments::Arguments;
use super::entity::Problem;
use crate::broker::{Kind, Node, Part, ReceiveMode};
use crate::clock::Timestamp;
use crate::codec::message::{Sections, render, render_without_body, submission};
use crate::codec::{Raw, encode};

/// How many messages one peek returns, and one receive by sequence number.
const MESSAGES_MAX: usize = 250;

/// How many encoded bytes of messages one peek returns; at least one message is returned.
const PEEK_BYTES_MAX: usize = 256 * 1024;

/// How many messages one request may schedule, or take back.
const SCHEDULED_MAX: usize = 5000;

/// How many messages one request deletes.
const DELETED_MAX: usize = 4000;

const MESSAGE_COUNT: &str = "message-count";

pub(super) fn peek(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let session_id = body.text("session-id")?;
    let session_id = session_id.filter(|_| node.queue.requires_sessions(node.part));
    if session_id.is_none() && node.queue.requires_sessions(node.part) {
        return Err(Problem::NotAllowed("The queue requires sessions: name one in `session-id`."));
    }
    let from = body.optional("from-sequence-number", "a number", Raw::as_i64)?.unwrap_or(0);
    let count = message_count(body)?.unwrap_or(1).min(MESSAGES_MAX);
    let omits_body = body.optional("omit-message-body", "a boolean", Raw::as_bool)?;
    let mut encoded: Vec<BytesMut> = Vec::new();
    let mut size = 0;
    for (message, _) in node.queue.peek(node.part, session_id, from, count) {
        let mut out = BytesMut::new();
        if omits_body == Some(true) {
            render_without_body(&mut out, &message);
        } else {
            render(&mut out, &message, None);
        }
        size += out.len();
        if size > PEEK_BYTES_MAX && !encoded.is_empty() {
            break;
        }
        encoded.push(out);
    }
    if encoded.is_empty() {
        return Ok(Reply::empty(204, "No Content"));
    }
    Ok(message_list(&encoded, 1, |out, message| {
        encode::string(out, "message");
        encode::binary(out, message);
    }))
}

/// Answers with the sequence numbers, by which the messages can be taken back.
pub(super) fn schedule(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    if node.part != Part::Main || node.queue.kind() == Kind::Subscription {
        return Err(Problem::NotAllowed("Messages can be sent only to queues and topics."));
    }
    let assigns_ids = node.queue.assigns_message_ids();
    let expected = "a list of 1 to 5000 maps with a binary `message`";
    let encoded = body.values("messages", SCHEDULED_MAX, expected, |entry| {
        entry.get("message")?.as_binary().map(<[u8]>::to_vec)
    })?;
    let submissions: Result<Vec<_>, Problem> = encoded
        .iter()
        .map(|message| Ok(submission(&Sections::split(message)?, assigns_ids)))
        .collect();
    let numbers = node.queue.send(submissions?)?;
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "sequence-numbers");
            encode::longs(out, &numbers);
        });
    }))
}

pub(super) fn cancel(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let expected = "an array of 1 to 5000 numbers";
    let numbers = body.values("sequence-numbers", SCHEDULED_MAX, expected, Raw::as_i64)?;
    node.queue.cancel(&numbers)?;
    Ok(Reply::empty(200, "OK"))
}

pub(super) fn receive_by_number(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let expected = "an array of 1 to 250 numbers";
    let numbers = body.values("sequence-numbers", MESSAGES_MAX, expected, Raw::as_i64)?;
    let read_mode = |value: &Raw<'_>| match value.as_u32() {
        Some(0) => Some(ReceiveMode::ReceiveAndDelete),
        Some(1) => Some(ReceiveMode::PeekLock),
        Some(_) | None => None,
    };
    let mode = body.optional("receiver-settle-mode", "0 or 1", read_mode)?;
    let mode = mode.unwrap_or(ReceiveMode::PeekLock);
    let session_id = body.text("session-id")?;
    let numbers = numbers.into_iter().collect();
    let deliveries = node.queue.receive_deferred(node.part, session_id, mode, &numbers)?;
    Ok(message_list(&deliveries, 2, |out, delivery| {
        let mut message = BytesMut::new();
        render(&mut message, &delivery.message, delivery.lock());
        encode::string(out, "lock-token");
        encode::uuid(out, delivery.token);
        encode::string(out, "message");
        encode::binary(out, &message);
    }))
}

/// Deletes messages that receivers could have, oldest first; on a queue with sessions those of one
/// session, which must be locked. Answers with their number.
pub(super) fn delete(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
    let expected = "a number from 1";
    let max = message_count(body)?.ok_or(Problem::Argument { name: MESSAGE_COUNT, expected })?;
    let before = body.optional("enqueued-time-utc", "a timestamp", Raw::as_i64)?;
    let before = before.map(Timestamp::from_milliseconds);
    let session_id = body.text("session-id")?;
    let deleted = node.queue.delete_batch(node.part, session_id, before, max.min(DELETED_MAX))?;
    if deleted == 0 {
        return Ok(Reply::empty(204, "No Content"));
    }
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, MESSAGE_COUNT);
            encode::int(out, i32::try_from(deleted).unwrap_or(i32::MAX));
        });
    }))
}

fn message_count(body: &Arguments<'_>) -> Result<Option<usize>, Problem> {
    let read = |value: &Raw<'_>| usize::try_from(value.as_u64()?).ok().filter(|count| *count > 0);
    body.optional(MESSAGE_COUNT, "a number from 1", read)
}

/// A reply with a list of maps of `pairs` entries each, which `write` adds.
fn message_list<T>(messages: &[T], pairs: u32, write: impl Fn(&mut BytesMut, &T)) -> Reply {
    Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "messages");
            encode::list(out, encode::length(messages.len()), |out| {
                for message in messages {
                    encode::map(out, pairs, |out| write(out, message));
                }
            });
        });
    })
}
