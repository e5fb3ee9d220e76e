//! Peeking, scheduling, and receiving by sequence number.

use bytes::BytesMut;

use super::Reply;
use super::entity::{Problem, text, values};
use crate::broker::{Kind, Node, Part, ReceiveMode};
use crate::codec::message::{Sections, render, submission};
use crate::codec::{Raw, encode};

/// How many messages one peek returns, and one receive by sequence number.
const MESSAGES_MAX: usize = 250;

/// How many encoded bytes of messages one peek returns; at least one message is returned.
const PEEK_BYTES_MAX: usize = 256 * 1024;

/// How many messages one request may schedule, or take back.
const SCHEDULED_MAX: usize = 5000;

pub(super) fn peek(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let session_id = text(body, "session-id");
    let session_id = session_id.filter(|_| node.queue.requires_sessions(node.part));
    if session_id.is_none() && node.queue.requires_sessions(node.part) {
        return Err(Problem::NotAllowed("The queue requires sessions: name one in `session-id`."));
    }
    let from = body.get("from-sequence-number").and_then(|value| value.as_i64()).unwrap_or(0);
    let count = body.get("message-count").and_then(|value| value.as_u32()).unwrap_or(1);
    let count = usize::try_from(count).unwrap_or(MESSAGES_MAX).min(MESSAGES_MAX);
    let mut encoded: Vec<BytesMut> = Vec::new();
    let mut size = 0;
    for (message, _) in node.queue.peek(node.part, session_id, from, count) {
        let mut out = BytesMut::new();
        render(&mut out, &message, None);
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
pub(super) fn schedule(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    if node.part != Part::Main || node.queue.kind() == Kind::Subscription {
        return Err(Problem::NotAllowed("Messages can be sent only to queues and topics."));
    }
    let assigns_ids = node.queue.assigns_message_ids();
    let problem = "`messages` must be a list of 1 to 5000 maps with a binary `message`.";
    let encoded = values(body, "messages", SCHEDULED_MAX, problem, |entry| {
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

pub(super) fn cancel(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let problem = "`sequence-numbers` must be an array of 1 to 5000 numbers.";
    let numbers = values(body, "sequence-numbers", SCHEDULED_MAX, problem, Raw::as_i64)?;
    node.queue.cancel(&numbers)?;
    Ok(Reply::empty(200, "OK"))
}

pub(super) fn receive_by_number(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let problem = "`sequence-numbers` must be an array of 1 to 250 numbers.";
    let numbers = values(body, "sequence-numbers", MESSAGES_MAX, problem, Raw::as_i64)?;
    let settles_first = body
        .get("receiver-settle-mode")
        .and_then(|mode| mode.as_u32())
        .is_some_and(|mode| mode == 0);
    let mode = if settles_first { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock };
    let session_id = text(body, "session-id");
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
