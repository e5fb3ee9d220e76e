//! `entity/$management`: operations beside the message links.

use std::sync::Arc;

use bytes::BytesMut;
use uuid::Uuid;

use super::{Reply, operation};
use crate::broker::{Node, SettleError, Settled, Settlement};
use crate::codec::message::{Sections, properties, render};
use crate::codec::{Raw, encode};

/// How many messages one peek returns.
const PEEK_MAX: usize = 250;

/// How many encoded bytes of messages one peek returns; at least one message is returned.
const PEEK_BYTES_MAX: usize = 256 * 1024;

/// How many lock tokens one request may name.
const TOKENS_MAX: usize = 5000;

#[derive(Debug)]
pub(super) enum Verdict {
    Reply(Reply),
    Lost,
    CutConnection,
}

pub(super) fn reply(node: &Node, request: &Sections<'_>) -> Verdict {
    let operation = operation(request);
    let Some(body) = request.body_value() else {
        return Verdict::Reply(
            Problem::Argument("The body of the request must be an AMQP value.").reply(),
        );
    };
    let reply = match operation.strip_prefix("com.microsoft:").unwrap_or(operation) {
        "renew-lock" => renew_lock(node, &body),
        "peek-message" => peek_message(node, &body),
        "update-disposition" => return update_disposition(node, &body),
        _ => Reply::error(
            501,
            "amqp:not-implemented",
            format!("The emulator does not implement `{operation}`."),
        ),
    };
    Verdict::Reply(reply)
}

fn renew_lock(node: &Node, body: &Raw<'_>) -> Reply {
    let tokens = match lock_tokens(body) {
        Ok(tokens) => tokens,
        Err(problem) => return problem.reply(),
    };
    match node.queue.renew(node.part, &tokens) {
        Ok(ends) => {
            let ends: Vec<_> = ends.iter().map(|end| end.milliseconds()).collect();
            Reply::ok(|out| {
                encode::map(out, 1, |out| {
                    encode::string(out, "expirations");
                    encode::timestamps(out, &ends);
                });
            })
        }
        Err(error) => settle_error(error),
    }
}

fn peek_message(node: &Node, body: &Raw<'_>) -> Reply {
    let from = body.get("from-sequence-number").and_then(|value| value.as_i64()).unwrap_or(0);
    let count = body.get("message-count").and_then(|value| value.as_u32()).unwrap_or(1);
    let count = usize::try_from(count).unwrap_or(PEEK_MAX).min(PEEK_MAX);
    let mut encoded: Vec<BytesMut> = Vec::new();
    let mut size = 0;
    for (message, _) in node.queue.peek(node.part, from, count) {
        let mut out = BytesMut::new();
        render(&mut out, &message, None);
        size += out.len();
        if size > PEEK_BYTES_MAX && !encoded.is_empty() {
            break;
        }
        encoded.push(out);
    }
    let status = if encoded.is_empty() { 204 } else { 200 };
    let reply = Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "messages");
            encode::list(out, encode::length(encoded.len()), |out| {
                for message in &encoded {
                    encode::map(out, 1, |out| {
                        encode::string(out, "message");
                        encode::binary(out, message);
                    });
                }
            });
        });
    });
    Reply { status, ..reply }
}

fn update_disposition(node: &Node, body: &Raw<'_>) -> Verdict {
    let (tokens, settlement) =
        match lock_tokens(body).and_then(|tokens| Ok((tokens, settlement(body)?))) {
            Ok(parsed) => parsed,
            Err(problem) => return Verdict::Reply(problem.reply()),
        };
    let mut failure = None;
    for token in tokens {
        match node.queue.settle(node.part, token, settlement.clone()) {
            Ok(Settled::Applied) => {}
            Ok(Settled::Lost) => return Verdict::Lost,
            Ok(Settled::CutConnection) => return Verdict::CutConnection,
            Err(error) => failure = Some(error),
        }
    }
    Verdict::Reply(failure.map_or_else(|| Reply::empty(200, "OK"), settle_error))
}

fn settlement(body: &Raw<'_>) -> Result<Settlement, Problem> {
    let text = |name: &str| body.get(name).and_then(|value| value.as_text());
    let properties =
        body.get("properties-to-modify").map(|map| properties(&map)).unwrap_or_default();
    match text("disposition-status") {
        Some("completed") => Ok(Settlement::Complete),
        Some("abandoned") => Ok(Settlement::Abandon { properties }),
        Some("suspended") => Ok(Settlement::DeadLetter {
            reason: text("deadletter-reason").map(Arc::from),
            description: text("deadletter-description").map(Arc::from),
            properties,
        }),
        Some("defered" | "deferred") => {
            Err(Problem::NotImplemented("The emulator does not implement deferred messages."))
        }
        Some(_) | None => Err(Problem::Argument(
            "`disposition-status` must be `completed`, `abandoned` or `suspended`.",
        )),
    }
}

fn lock_tokens(body: &Raw<'_>) -> Result<Vec<Uuid>, Problem> {
    let problem = Problem::Argument("`lock-tokens` must be an array of 1 to 5000 UUIDs.");
    let tokens = body.get("lock-tokens").ok_or(problem)?;
    let tokens: Option<Vec<_>> =
        tokens.items().take(TOKENS_MAX + 1).map(|token| token.as_uuid()).collect();
    tokens.filter(|tokens| (1..=TOKENS_MAX).contains(&tokens.len())).ok_or(problem)
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy)]
enum Problem {
    Argument(&'static str),
    NotImplemented(&'static str),
}

impl Problem {
    fn reply(self) -> Reply {
        match self {
            Self::Argument(text) => Reply::error(400, "com.microsoft:argument-error", text),
            Self::NotImplemented(text) => Reply::error(501, "amqp:not-implemented", text),
        }
    }
}

fn settle_error(error: SettleError) -> Reply {
    let status = match error {
        SettleError::LockLost => 410,
        SettleError::AlreadyDeadLettered | SettleError::PropertiesTooLarge => 400,
    };
    Reply::error(status, error.condition(), error.to_string())
}
