//! What the runtime asks of a store outside a handler's transaction, in bounded time.

use std::time::Duration;

use tokio::time::timeout;

use super::step::Step;
use super::{Claim, Constraint, Earlier, Fault, ScopeKeys, Store, StoreError, Tx, Work};
use crate::horizon::Retention;
use crate::key::{Digest, Fingerprint, KeyValue};

/// How long we wait for an answer to one of our own steps. Where the server has fallen silent, the
/// step goes on by itself, and the message is held, or left, without taking its place for ever.
/// Longer than any wait that the engines bound themselves.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);

pub(super) async fn in_time<T>(
    step: &'static str,
    fault: Fault,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match timeout(ANSWER_MAX, answer).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(StoreError::new(format!("no answer to `{step}`"), fault, elapsed)),
    }
}

/// The committed claim with this digest.
pub(crate) async fn find<S: Store>(
    store: &S,
    digest: Digest,
) -> Result<Option<Earlier>, StoreError> {
    in_time("read the claim", Fault::Unavailable, store.find(digest)).await
}

/// Finds the constraint that stands in place of a handler's claims, and refuses one that has other
/// columns than the handler's key has fields, or whose table lacks a column that must agree.
pub(crate) async fn constraint<S: Store>(
    store: &S,
    name: &'static str,
    key: &[&str],
    same: &[&str],
) -> Result<Constraint, StoreError> {
    let constraint = store.constraint(name);
    let constraint = in_time("read the catalogue", Fault::Unavailable, constraint).await?;
    let there = |field: &&str| constraint.table_columns.iter().any(|column| column == field);
    if let Some(missing) = same.iter().find(|field| !there(field)) {
        let problem = format!(
            "`same` names `{missing}`, which is no column of `{}`, the table of constraint `{name}`; \
             fields that must agree are named as their columns are",
            constraint.table
        );
        return Err(StoreError::found(problem, Fault::Refused));
    }
    if constraint.columns.len() == key.len() {
        return Ok(constraint);
    }
    let problem = format!(
        "constraint `{name}` has the columns `{}`, and the handler's key the fields `{}`; name a \
         field for each column, in the order of the constraint",
        constraint.columns.join("`, `"),
        key.join("`, `"),
    );
    Err(StoreError::found(problem, Fault::Refused))
}

/// What became of an earlier message with this key, by the row that it has left.
pub(crate) async fn agreement<S: Store>(
    store: &S,
    constraint: &Constraint,
    key: &[KeyValue],
    same: &[(&'static str, &KeyValue)],
) -> Result<Option<Vec<bool>>, StoreError> {
    let agreement = store.agreement(constraint, key, same);
    in_time("read the row of an earlier message", Fault::Unavailable, agreement).await
}

/// Refuses a handler whose scope has keys of another kind in the ledger: what was done under those
/// would be done again.
pub(crate) async fn register<S: Store>(store: &S, scope: &ScopeKeys) -> Result<(), StoreError> {
    let registered = in_time("register the scope", Fault::Unavailable, store.register(scope));
    let there = registered.await?;
    if there == *scope {
        return Ok(());
    }
    let problem = format!(
        "scope `{}` has level {} and key `{}` in this ledger, and the handler has level {} and key \
         `{}`; give the handler another `scope`, under which what was done before counts as not \
         done",
        scope.scope, there.level, there.key, scope.level, scope.key
    );
    Err(StoreError::found(problem, Fault::Refused))
}

/// Claims a key that no message has, and takes it back: what would keep every message from being
/// claimed shows at start.
pub(crate) async fn try_claim<S: Store>(store: &S, scope: &'static str) -> Result<(), StoreError> {
    let digest = Digest::random();
    let mut transaction = Tx::begin(store).await?;
    let claimed = transaction.claim(&Claim { scope, digest, same: Fingerprint::default() }).await;
    Work::<S>::rollback(transaction).await?;
    claimed.map(|_| ())
}

/// Prunes in a step of its own, which ends by itself.
pub(crate) async fn prune<S: Store>(
    store: &S,
    scope: &str,
    rows_max: u32,
) -> Result<Option<u64>, StoreError> {
    let (store, scope) = (store.clone(), scope.to_owned());
    let pruned = Step::new(async move { store.prune(&scope, rows_max).await });
    in_time("prune", Fault::Unavailable, pruned).await
}

pub(crate) async fn oldest_claim_age<S: Store>(
    store: &S,
    scope: &str,
) -> Result<Option<Duration>, StoreError> {
    let age = store.oldest_claim_age(scope);
    let age = in_time("read the oldest claim", Fault::Unavailable, age).await?;
    // Less than nothing after the clock was set back.
    Ok(age.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0))))
}

pub(crate) async fn keep_alive<S: Store>(
    store: &S,
    scope: &'static str,
    retention: Retention,
) -> Result<(), StoreError> {
    in_time("keep alive", Fault::Unavailable, store.keep_alive(scope, retention)).await
}
