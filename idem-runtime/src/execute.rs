//! The one path of a delivery, live or redriven:
//!
//! ```text
//! decode → key → begin → claim ─ taken before ────────────────────→ Duplicate
//!                          └ ours → handler → guard → commit ─────→ Done
//! ```
//!
//! The claim is inserted in the handler's own transaction, so at any moment of a crash either both
//! are committed or neither is, and the next delivery of the same key finds out which.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;

use crate::backoff::Backoff;
use crate::delivery::Delivery;
use crate::handler::{Context, Handler, Level};
use crate::key::{Digest, KeyEncoder};
use crate::outcome::{Outcome, Rejection, RetryReason};
use crate::store::{Claim, Claimed, Fault, Proof, Store, StoreError, Work};

/// How often a delivery is attempted when a passing fault of the database ends its transaction.
const ATTEMPTS_MAX: u32 = 3;

/// The pauses between these attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(200));

/// Handles one delivery and says what it came to.
///
/// Nothing is committed unless the outcome is [`Outcome::Done`], or [`Outcome::Unknown`], where it
/// may be. Dropping the future rolls back, except that a commit that has begun runs to its end.
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
    let delivery = context.delivery();
    let message: H::Message = delivery.decode()?;
    let claim = claim::<H, S>(delivery, &message)?;

    let mut work = H::Work::begin(store).await?;
    let handled = match take(&mut work, claim).await {
        Ok(()) => call::<H, S>(&mut work, message, context).await,
        Err(outcome) => Err(outcome),
    };
    match handled {
        Ok(()) => Ok(work.commit(store).await?),
        Err(outcome) => {
            work.rollback().await;
            Err(outcome)
        }
    }
}

/// The claim that the handler's level asks for.
fn claim<H: Handler<S>, S: Store>(
    delivery: &Delivery,
    message: &H::Message,
) -> Result<Option<Claim>, Rejection> {
    let scope = H::SPEC.scope;
    let digest = match H::SPEC.level {
        Level::Zero => return Ok(None),
        Level::One => {
            let message_id = delivery.message_id().ok_or_else(|| {
                let problem = "the message has no MessageId, which level 1 deduplicates by; \
                               let the sender set one, or use level 2 with a key";
                Rejection::new("MissingMessageId", problem)
            })?;
            Digest::of_message_id(scope, delivery.source(), message_id)
        }
        Level::Two => {
            let mut key = KeyEncoder::default();
            H::key(message, &mut key);
            Digest::of_fields(scope, &key)
                .ok_or_else(|| Rejection::new("MissingKey", "the handler's key has no parts"))?
        }
    };
    Ok(Some(Claim { scope, digest }))
}

async fn take<S: Store>(work: &mut impl Work<S>, claim: Option<Claim>) -> Result<(), Outcome> {
    let Some(claim) = claim else { return Ok(()) };
    match work.claim(claim).await? {
        Claimed::Ours => Ok(()),
        Claimed::Before(proof) => Err(Outcome::Duplicate(proof)),
        Claimed::Busy => Err(Outcome::Busy),
    }
}

/// Calls the handler; a panic in it is one failed attempt, not the end of the process.
async fn call<H: Handler<S>, S: Store>(
    work: &mut H::Work,
    message: H::Message,
    context: &Context,
) -> Result<(), Outcome> {
    // The transaction is rolled back after a panic, so nobody sees what it left half done.
    let handled = AssertUnwindSafe(async { H::call(work, message, context).await });
    match handled.catch_unwind().await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(failure.into_outcome()),
        Err(panic) => Err(Outcome::Retry(RetryReason::Panic(panic_message(panic.as_ref())))),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a payload that is no text").to_owned()
}

/// Whether a new transaction may well succeed where this one failed.
fn is_passing<S: Store>(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retry(reason)
        if matches!(reason.fault::<S>(), Some(Fault::Contention | Fault::Unavailable)))
}

impl From<Rejection> for Outcome {
    fn from(rejection: Rejection) -> Self {
        Self::Reject(rejection)
    }
}

impl From<StoreError> for Outcome {
    fn from(error: StoreError) -> Self {
        match error.fault() {
            Fault::Contention | Fault::Unavailable | Fault::Refused => {
                Self::Retry(RetryReason::Store(error))
            }
            Fault::InDoubt => Self::Unknown(error),
            Fault::Broken => Self::Reject(Rejection::new("TransactionBroken", error.to_string())),
        }
    }
}
