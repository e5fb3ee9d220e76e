//! Renewing locks, and settling by lock token.

use std::sync::Arc;

use uuid::Uuid;

use super::Reply;
use super::entity::{Problem, text, values};
use crate::broker::{Acknowledgement, Node, Settlement};
use crate::codec::message::properties;
use crate::codec::{Raw, encode};

/// How many lock tokens one request may name.
const TOKENS_MAX: usize = 5000;

pub(super) fn renew(node: &Node, body: &Raw<'_>) -> Result<Reply, Problem> {
    let ends = node.queue.renew(node.part, &lock_tokens(body)?)?;
    let ends: Vec<_> = ends.iter().map(|end| end.milliseconds()).collect();
    Ok(Reply::ok(|out| {
        encode::map(out, 1, |out| {
            encode::string(out, "expirations");
            encode::timestamps(out, &ends);
        });
    }))
}

/// Applies the settlement to every lock that is still there; one that is gone fails the request.
pub(super) fn update_disposition(
    node: &Node,
    body: &Raw<'_>,
) -> Result<(Reply, Acknowledgement), Problem> {
    let tokens = lock_tokens(body)?;
    let settlement = settlement(body)?;
    let mut failure = None;
    let mut acknowledgement = Acknowledgement::Now;
    for token in tokens {
        match node.queue.settle(node.part, token, settlement.clone()) {
            Ok(Acknowledgement::Now) => {}
            Ok(other) => acknowledgement = other,
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok((Reply::empty(200, "OK"), acknowledgement)),
    }
}

fn settlement(body: &Raw<'_>) -> Result<Settlement, Problem> {
    let properties =
        body.get("properties-to-modify").map(|map| properties(&map)).unwrap_or_default();
    match text(body, "disposition-status") {
        Some("completed") => Ok(Settlement::Complete),
        Some("abandoned") => Ok(Settlement::Abandon { properties }),
        // The first spelling is the one that clients send.
        Some("defered" | "deferred") => Ok(Settlement::Defer { properties }),
        Some("suspended") => Ok(Settlement::DeadLetter {
            reason: text(body, "deadletter-reason").map(Arc::from),
            description: text(body, "deadletter-description").map(Arc::from),
            properties,
        }),
        Some(_) | None => Err(Problem::Argument(
            "`disposition-status` must be `completed`, `abandoned`, `defered` or `suspended`.",
        )),
    }
}

fn lock_tokens(body: &Raw<'_>) -> Result<Vec<Uuid>, Problem> {
    let problem = "`lock-tokens` must be an array of 1 to 5000 UUIDs.";
    values(body, "lock-tokens", TOKENS_MAX, problem, Raw::as_uuid)
}
