//! What the ledgers of all engines have in common.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use time::OffsetDateTime;

use super::{Claim, Claimed, Earlier, Fault, StoreError};
use crate::key::Digest;

/// A claim's row as every engine reads it: when it was made in microseconds since 1970, what had to
/// agree, and the reply.
pub(super) type Row = (i64, Vec<u8>, Option<Vec<u8>>);

pub(super) fn earlier((micros, same, reply): Row) -> Earlier {
    let claimed_at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000);
    Earlier { claimed_at: claimed_at.unwrap_or(OffsetDateTime::UNIX_EPOCH), same, reply }
}

/// What the claim met. Its row is read by a statement of its own, since the statement that met it
/// need not see it; in between it may have been pruned.
pub(super) fn met(found: Option<Row>) -> Result<Claimed, StoreError> {
    match found {
        Some(row) => Ok(Claimed::Before(earlier(row))),
        None => Err(StoreError::found("the claim that was there has just gone", Fault::Contention)),
    }
}

pub(super) fn no_constraint(name: &str) -> StoreError {
    let problem = format!(
        "there is no unique constraint `{name}` in this database; create it, or name it as the \
         catalogue does"
    );
    StoreError::found(problem, Fault::Refused)
}

/// Refuses a constraint that lacks something.
pub(super) fn proves(name: &str, conditions: &[(bool, &str)]) -> Result<(), StoreError> {
    let lacking: Vec<&str> =
        conditions.iter().filter(|(holds, _)| !holds).map(|(_, problem)| *problem).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let problem = format!(
        "constraint `{name}` does not prove that a message was handled: it {}",
        lacking.join(", and it ")
    );
    Err(StoreError::found(problem, Fault::Refused))
}

/// An integer that every engine has.
pub(super) fn integer(value: i128) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| {
        StoreError::found("a key of a constraint has an integer beyond 64 bits", Fault::Unstorable)
    })
}

/// Whole seconds as the ledger has them.
pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// What became of each of many claims: ours where it was inserted, and a committed row otherwise.
pub(super) fn claimed(
    claims: &[&Claim],
    inserted: &HashSet<Digest>,
    mut found: HashMap<Digest, Row>,
) -> Result<Vec<Claimed>, StoreError> {
    let claimed = |claim: &&Claim| match inserted.contains(&claim.digest) {
        true => Ok(Claimed::Ours),
        false => met(found.remove(&claim.digest)),
    };
    claims.iter().map(claimed).collect()
}

/// One of the claims that were inserted.
#[cfg(any(feature = "mysql", feature = "sqlite", feature = "sqlserver"))]
pub(super) fn first(claims: &[&Claim], inserted: &HashSet<Digest>) -> Option<Digest> {
    claims.iter().map(|claim| claim.digest).find(|digest| inserted.contains(digest))
}

/// The digests of what was not inserted.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) fn others(claims: &[&Claim], inserted: &HashSet<Digest>) -> Vec<Digest> {
    let digests = claims.iter().map(|claim| claim.digest);
    digests.filter(|digest| !inserted.contains(digest)).collect()
}

/// Claims in the order in which all batches claim.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) fn in_order<'a>(claims: &[&'a Claim]) -> Vec<&'a Claim> {
    let mut sorted = claims.to_vec();
    sorted.sort_unstable_by_key(|claim| claim.digest);
    sorted
}

/// Refuses a schema on an engine that has none of its own.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn without_schema(
    names: super::Names,
    engine: &str,
) -> Result<super::Names, StoreError> {
    if names.schema_name().is_none() {
        return Ok(names);
    }
    let problem = format!("{engine} has no schemas within a database; use a prefix in its place");
    Err(StoreError::found(problem, Fault::Refused))
}

/// A reply is written to our own claim or to none.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) fn kept(rows: u64, replies: usize) -> Result<(), StoreError> {
    match usize::try_from(rows) {
        Ok(rows) if rows == replies => Ok(()),
        _ => Err(StoreError::found(super::BROKEN_TRANSACTION, Fault::Broken)),
    }
}
