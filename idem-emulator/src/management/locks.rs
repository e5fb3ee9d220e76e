//! Renewing locks, and settling by lock token.

use std::sync::Arc;

use uuid::Uuid;

use super::Reply;
use super::arguments::Arguments;
use super::entity::Problem;
use crate::broker::{Acknowledgement, Node, Settlement};
use crate::codec::message::properties;
use crate::codec::{Raw, encode};

/// How many lock tokens one request may name.
const TOKENS_MAX: usize = 5000;

pub(super) fn renew(node: &Node, body: &Arguments<'_>) -> Result<Reply, Problem> {
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
    body: &Arguments<'_>,
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

fn settlement(body: &Arguments<'_>) -> Result<Settlement, Problem> {
    let read = |map: &Raw<'_>| map.is_map().then(|| properties(map));
    let properties = body.optional("properties-to-modify", "a map", read)?.unwrap_or_default();
    match body.text("disposition-status")? {
        Some("completed") => Ok(Settlement::Complete),
        Some("abandoned") => Ok(Settlement::Abandon { properties }),
        // The first spelling is the one that clients send.
        Some("defered" | "deferred") => Ok(Settlement::Defer { properties }),
        Some("suspended") => Ok(Settlement::DeadLetter {
            reason: body.text("deadletter-reason")?.map(Arc::from),
            description: body.text("deadletter-description")?.map(Arc::from),
            properties,
        }),
        Some(_) | None => Err(Problem::Argument {
            name: "disposition-status",
            expected: "`completed`, `abandoned`, `defered` or `suspended`",
        }),
    }
}

fn lock_tokens(body: &Arguments<'_>) -> Result<Vec<Uuid>, Problem> {
    body.values("lock-tokens", TOKENS_MAX, "an array of 1 to 5000 UUIDs", Raw::as_uuid)
}
