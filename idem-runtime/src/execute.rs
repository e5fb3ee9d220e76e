//! The one path of a delivery, live or redriven:
//!
//! ```text
//! decode → key → begin → claim ─ taken before ────────────────────→ Duplicate | Conflict
//!                          └ ours → handler → guard → commit ─────→ Done
//! ```
//!
//! A delivery that the broker has counted before, or whose key was busy, looks for its claim first,
//! without a transaction.
//!
//! The claim is inserted in the handler's own transaction, so at any moment of a crash either both
//! are committed or neither is, and the next delivery of the same key finds out which.

mod batch;
mod busy_keys;
mod guarded;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use time::OffsetDateTime;
use tokio::time::timeout;

pub use batch::execute_batch;
pub(crate) use busy_keys::{Asker, BusyKeys};
use guarded::Guarded;

use crate::backoff::Backoff;
use crate::delivery::{Decode, Delivery};
use crate::handler::{Context, Handler, HandlerSpec, Level};
use crate::key::{Digest, Fingerprint, KeyEncoder};
use crate::outcome::{Chain, Conflict, Failure, Outcome, Rejection, Reply, RetryReason};
use crate::store::{self, Claim, Claimed, Earlier, Fault, Store, StoreError, Work};

/// How often a delivery is attempted when a passing fault of the database ends its transaction.
const ATTEMPTS_MAX: u32 = 3;

/// The pauses between these attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));

/// Proof that the effects of a message are committed, and what is known of that commit. Only this
/// file makes one, where a commit succeeded and where a claim met a committed row.
#[derive(Debug)]
pub struct Proof {
    claimed_at: Option<OffsetDateTime>,
    reply: Option<Reply>,
}

impl Proof {
    /// When the claim was made that a duplicate met, by the database's clock.
    pub fn claimed_at(&self) -> Option<OffsetDateTime> {
        self.claimed_at
    }

    /// What the handler returned, this time or when the message was first handled, if it is
    /// declared with `replay` now and was then.
    pub fn reply(&self) -> Option<&Reply> {
        self.reply.as_ref()
    }

    fn ours(reply: Option<Reply>) -> Self {
        Self { claimed_at: None, reply }
    }

    fn earlier(claimed_at: Option<OffsetDateTime>, reply: Option<Reply>) -> Self {
        Self { claimed_at, reply }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self::ours(None)
    }
}

/// Handles one delivery and says what it came to.
///
/// Nothing is committed by us unless the outcome is [`Outcome::Done`], or [`Outcome::Unknown`],
/// where it may be. A handler that commits by itself is rejected as `TransactionBroken`. Dropping
/// the future rolls back, except that a commit that has begun runs to its end.
pub async fn execute<H: Handler<S>, S: Store>(store: &S, context: &Context) -> Outcome {
    let mut attempts = 1;
    loop {
        let outcome = match attempt::<H, S>(store, context).await {
            Ok(proof) => Outcome::Done(proof),
            Err(outcome) => outcome,
        };
        if attempts == ATTEMPTS_MAX || !is_passing::<S>(&outcome) {
            return outcome;
        }
        tokio::time::sleep(PAUSES.after(attempts)).await;
        attempts += 1;
    }
}

async fn attempt<H: Handler<S>, S: Store>(store: &S, context: &Context) -> Result<Proof, Outcome> {
    let (message, identity) = prepare::<H, S>(context.delivery())?;
    let was_probably_handled = context.delivery().delivery_count() > 1 || context.has_waited();
    if let Some(claim) = identity.own()
        && context.is_behind(claim.digest)
    {
        return Err(Outcome::Busy);
    }
    if was_probably_handled {
        look_for(store, &identity).await?;
    }
    let mut work = H::Work::begin(store).await.map_err(not_started)?;
    let handled = match take(&mut work, &identity, context).await {
        Ok(()) => call_and_keep::<H, S>(&mut work, message, context, &identity).await,
        Err(outcome) => Err(outcome),
    };
    match handled {
        Ok(reply) => work.commit(store).await.map(|()| Proof::ours(reply)).map_err(not_committed),
        Err(outcome) => match work.rollback().await {
            Ok(()) => Err(unstorable::<S>(guarded(store, &identity, outcome).await)),
            Err(error) => Err(not_committed(error)),
        },
    }
}

/// What makes a message the same as another, and what proves it.
enum Identity {
    /// Level 0.
    None,
    /// A row of the ledger under each scope of the handler, its own last.
    Claims(Vec<Claim>),
    /// A row of the handler's own table.
    Guarded(Guarded),
}

impl Identity {
    /// The claim under the handler's own scope.
    fn own(&self) -> Option<&Claim> {
        match self {
            Self::Claims(claims) => claims.last(),
            Self::None | Self::Guarded(_) => None,
        }
    }
}

/// Decodes the message and derives its key. Both run code of the user's.
fn prepare<H: Handler<S>, S: Store>(
    delivery: &Delivery,
) -> Result<(H::Message, Identity), Outcome> {
    let prepare = || {
        let message = H::Decode::decode(delivery)?;
        let identity = identity::<H, S>(delivery, &message)?;
        Ok((message, identity))
    };
    match catch_unwind(AssertUnwindSafe(prepare)) {
        Ok(prepared) => prepared.map_err(Outcome::Reject),
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}

/// The identity that the handler's level asks for.
fn identity<H: Handler<S>, S: Store>(
    delivery: &Delivery,
    message: &H::Message,
) -> Result<Identity, Rejection> {
    let mut same = Fingerprint::default();
    H::same(message, &mut same);
    match H::SPEC.level {
        Level::Zero => Ok(Identity::None),
        Level::One => {
            let message_id = delivery.message_id().ok_or_else(|| {
                let problem = "the message has no MessageId, which level 1 deduplicates by; \
                               let the sender set one, or use level 2 with a key";
                Rejection::new("MissingMessageId", problem)
            })?;
            let source = delivery.source();
            let digest = |scope| Some(Digest::of_message_id(scope, source, message_id));
            claims(&H::SPEC, &same, digest)
        }
        Level::Two => {
            let mut key = KeyEncoder::default();
            H::key(message, &mut key);
            if let Some(constraint) = H::SPEC.constraint {
                let (names, key) = (H::SPEC.key, key.values());
                return Ok(Identity::Guarded(Guarded { constraint, names, key, same }));
            }
            claims(&H::SPEC, &same, |scope| Digest::of_fields(scope, &key))
        }
    }
}

fn claims(
    spec: &HandlerSpec,
    same: &Fingerprint,
    digest: impl Fn(&'static str) -> Option<Digest>,
) -> Result<Identity, Rejection> {
    let claims = spec.scopes().map(|scope| {
        let digest = digest(scope)
            .ok_or_else(|| Rejection::new("MissingKey", "the handler's key has no parts"))?;
        Ok(Claim { scope, digest, same: same.clone() })
    });
    claims.collect::<Result<_, _>>().map(Identity::Claims)
}

/// Finds what a delivery has left that was probably handled before. This makes a duplicate twice as
/// fast, and a new message slower by a round trip, so it is not for first deliveries.
async fn look_for<S: Store>(store: &S, identity: &Identity) -> Result<(), Outcome> {
    match identity {
        Identity::None => Ok(()),
        Identity::Claims(claims) => {
            for claim in claims {
                let found = store::find(store, claim.digest).await.map_err(not_started)?;
                found.map_or(Ok(()), |earlier| Err(met(claim, earlier)))?;
            }
            Ok(())
        }
        Identity::Guarded(guarded) => {
            guarded.earlier(store).await.map_err(not_started)?.map_or(Ok(()), Err)
        }
    }
}

/// Takes what makes the message the same as another, for as long as the transaction lasts.
///
/// Under an earlier scope the key is not only looked for but claimed: a version of the service that
/// knows no other scope, and that may still run, has to meet what this one does.
async fn take<S: Store>(
    work: &mut impl Work<S>,
    identity: &Identity,
    context: &Context,
) -> Result<(), Outcome> {
    let claims = match identity {
        Identity::None => return Ok(()),
        Identity::Claims(claims) => claims,
        Identity::Guarded(_) => return work.mark().await.map_err(not_started),
    };
    for claim in claims {
        let claimed = work.claim(claim).await.map_err(not_started)?;
        if let (Claimed::Ours | Claimed::Busy, Some(own)) = (&claimed, identity.own()) {
            context.go_ahead(own.digest);
        }
        match claimed {
            Claimed::Ours => is_provable(work, claim, context.delivery()).await?,
            Claimed::Before(earlier) => return Err(met(claim, earlier)),
            Claimed::Busy => return Err(Outcome::Busy),
        }
    }
    Ok(())
}

/// What it means that the handler has failed: an earlier message, if its error is the violation of
/// its constraint, and the row that it met is committed. A handler may also have met its own row.
async fn guarded<S: Store>(store: &S, identity: &Identity, outcome: Outcome) -> Outcome {
    match (identity, &outcome) {
        (Identity::Guarded(guarded), Outcome::Retry(RetryReason::Handler(error))) => {
            match guarded.met(store, error.as_ref()).await {
                Ok(Some(earlier)) => earlier,
                Ok(None) => outcome,
                Err(error) => not_started(error),
            }
        }
        _ => outcome,
    }
}

/// Rejects a message whose handler failed since the database can never take a value of it. Violations
/// of constraints are tried again: the row that a foreign key asks for may come later, one that a
/// unique constraint or a check met may go.
fn unstorable<S: Store>(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Retry(reason @ RetryReason::Handler(_))
            if reason.fault::<S>() == Some(Fault::Unstorable) =>
        {
            Outcome::Reject(Rejection::new(UNSTORABLE, reason.to_string()))
        }
        outcome => outcome,
    }
}

/// The reason of such a rejection.
const UNSTORABLE: &str = "UnstorableValue";

/// Refuses a message that is so old that its claim may have been pruned since: that none was there
/// then proves nothing. Asked after the claim, so that no pruning comes in between.
async fn is_provable<S: Store>(
    work: &mut impl Work<S>,
    claim: &Claim,
    delivery: &Delivery,
) -> Result<(), Outcome> {
    let Some(enqueued_at) = delivery.enqueued_at().filter(is_old) else { return Ok(()) };
    if !work.may_be_forgotten(claim.scope, enqueued_at).await.map_err(not_started)? {
        return Ok(());
    }
    let problem = format!(
        "the message was sent at {enqueued_at}, and claims of that time have been pruned: whether \
         it was handled before cannot be told; look at what it is about, and send it as a new \
         message if it was not"
    );
    Err(Outcome::Reject(Rejection::new("Unprovable", problem)))
}

/// Younger messages are not asked about. No claim is pruned before it is an hour old, which leaves
/// the clocks room to differ.
const OLD: Duration = Duration::from_secs(10 * 60);

fn is_old(enqueued_at: &OffsetDateTime) -> bool {
    #[expect(clippy::disallowed_methods, reason = "it only decides whether to ask the database")]
    let now = OffsetDateTime::now_utc();
    now - *enqueued_at > OLD
}

/// What it means that a committed claim was there before.
fn met(claim: &Claim, earlier: Earlier) -> Outcome {
    let differing = claim.same.differing(&earlier.same);
    if !differing.is_empty() {
        return Outcome::Conflict(Conflict::new(differing));
    }
    let reply = earlier.reply.map(Reply::from_stored);
    Outcome::Duplicate(Proof::earlier(Some(earlier.claimed_at), reply))
}

/// Calls the handler, and keeps its reply with the claim.
async fn call_and_keep<H: Handler<S>, S: Store>(
    work: &mut H::Work,
    message: H::Message,
    context: &Context,
    identity: &Identity,
) -> Result<Option<Reply>, Outcome> {
    let reply = call::<H, S>(work, message, context).await?;
    if let (Some(reply), Identity::Claims(claims)) = (&reply, identity) {
        let replies: Vec<_> = claims.iter().map(|claim| (claim.digest, reply)).collect();
        work.keep(&replies).await.map_err(not_committed)?;
    }
    Ok(reply)
}

/// Calls the handler.
async fn call<H: Handler<S>, S: Store>(
    work: &mut H::Work,
    message: H::Message,
    context: &Context,
) -> Result<Option<Reply>, Outcome> {
    let called = async { H::call(work, message, context)?.await };
    contained(called, context.handler_timeout()).await
}

/// Runs a handler's own code; a panic in it is one failed attempt, not the end of the process, and so
/// is that it does not end in time. It is then dropped, which may panic too.
///
/// The transaction is rolled back after either, so nobody sees what was left half done.
async fn contained<T>(
    called: impl Future<Output = Result<T, Failure>>,
    limit: Option<Duration>,
) -> Result<T, Outcome> {
    let called = async {
        match limit {
            Some(limit) => timeout(limit, called)
                .await
                .map_err(|_| Outcome::Retry(RetryReason::TimedOut(limit)))?
                .map_err(Failure::into_outcome),
            None => called.await.map_err(Failure::into_outcome),
        }
    };
    match AssertUnwindSafe(called).catch_unwind().await {
        Ok(called) => called,
        Err(panic) => Err(panicked(panic.as_ref())),
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("a payload that is no text");
    Outcome::Retry(RetryReason::Panic(text.to_owned()))
}

/// Whether a new transaction may well succeed where this one failed.
fn is_passing<S: Store>(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry(reason)
        if matches!(reason.fault::<S>(), Some(Fault::Contention | Fault::Unavailable)))
}

fn not_started(error: StoreError) -> Outcome {
    match error.fault() {
        // The key of a constraint is compared with columns, which it need not fit.
        Fault::Unstorable => Outcome::Reject(Rejection::new(UNSTORABLE, Chain(&error).to_string())),
        Fault::Contention
        | Fault::Unavailable
        | Fault::InDoubt
        | Fault::Broken
        | Fault::Refused => Outcome::Retry(RetryReason::NotStarted(error)),
    }
}

fn not_committed(error: StoreError) -> Outcome {
    match error.fault() {
        Fault::Contention | Fault::Unavailable | Fault::Refused => {
            Outcome::Retry(RetryReason::NotCommitted(error))
        }
        Fault::Unstorable => Outcome::Reject(Rejection::new(UNSTORABLE, Chain(&error).to_string())),
        Fault::InDoubt => Outcome::Unknown(error),
        Fault::Broken => Outcome::Reject(Rejection::new("TransactionBroken", error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    /// C-08: also what a handler leaves behind when it is stopped may panic.
    #[tokio::test(start_paused = true)]
    async fn a_panic_while_a_handler_is_stopped_fails_its_message_and_no_other() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("in the destructor");
            }
        }
        let hangs = async {
            let _bomb = Bomb;
            pending::<Result<(), Failure>>().await
        };
        let stopped = contained(hangs, Some(Duration::from_secs(1))).await.unwrap_err();
        let Outcome::Retry(RetryReason::Panic(text)) = stopped else { panic!("{stopped:?}") };
        assert_eq!(text, "in the destructor");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_takes_too_long_is_stopped() {
        let takes = |seconds| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, Failure>(seconds)
        };
        let limit = Duration::from_secs(10);
        assert_eq!(contained(takes(9), Some(limit)).await.unwrap(), 9);
        assert_eq!(contained(takes(3600), None).await.unwrap(), 3600);
        let stopped = contained(takes(11), Some(limit)).await.unwrap_err();
        assert!(matches!(stopped, Outcome::Retry(RetryReason::TimedOut(found)) if found == limit));
    }
}
