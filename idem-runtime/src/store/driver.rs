//! What the engines of sqlx have in common: their transactions, and what their errors mean.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx_core::transaction::TransactionManager;
use time::OffsetDateTime;

use super::{BROKEN_TRANSACTION, Claim, Claimed, Earlier, Fault, StoreError};
use crate::key::Digest;

const NESTED_TRANSACTION: &str = "the handler left a transaction open inside its own; commit it or \
     roll it back before you return";

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

/// Whole seconds as the ledger has them.
pub(super) fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4).min(i64::MAX / 4)
}

/// After how many seconds without a sign of life a consumer was not running.
pub(super) const GAP: i64 = 90;

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
#[cfg(any(feature = "mysql", feature = "sqlite"))]
pub(super) fn first(claims: &[&Claim], inserted: &HashSet<Digest>) -> Option<Digest> {
    claims.iter().map(|claim| claim.digest).find(|digest| inserted.contains(digest))
}

/// The digests of what was not inserted.
pub(super) fn others(claims: &[&Claim], inserted: &HashSet<Digest>) -> Vec<Digest> {
    let digests = claims.iter().map(|claim| claim.digest);
    digests.filter(|digest| !inserted.contains(digest)).collect()
}

/// Claims in the order in which all batches claim.
pub(super) fn in_order<'a>(claims: &[&'a Claim]) -> Vec<&'a Claim> {
    let mut sorted = claims.to_vec();
    sorted.sort_unstable_by_key(|claim| claim.digest);
    sorted
}

/// A reply is written to our own claim or to none.
pub(super) fn kept(rows: u64, replies: usize) -> Result<(), StoreError> {
    match usize::try_from(rows) {
        Ok(rows) if rows == replies => Ok(()),
        _ => Err(StoreError::found(BROKEN_TRANSACTION, Fault::Broken)),
    }
}

/// Begins a transaction on a connection of the pool.
///
/// A connection that still counts itself inside a transaction, since somebody ended that one by
/// hand, is closed rather than reused.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) async fn begin_on<DB: sqlx::Database>(
    pool: &sqlx::Pool<DB>,
    statement: &'static str,
) -> sqlx::Result<sqlx::Transaction<'static, DB>> {
    use sqlx::Connection;

    for _ in 0..pool.options().get_max_connections() {
        match pool.begin_with(statement).await {
            Err(sqlx::Error::InvalidSavePointStatement) => {}
            begun => return begun,
        }
        let connection = pool.acquire().await?;
        if connection.is_in_transaction() {
            connection.close().await.ok();
        }
    }
    pool.begin_with(statement).await
}

/// Refuses a transaction inside which the handler left another one open: the driver would then
/// release that one's savepoint where we mean to commit, and report success.
pub(super) fn refuse_nested<DB: sqlx::Database>(
    connection: &DB::Connection,
) -> Result<(), StoreError> {
    match DB::TransactionManager::get_transaction_depth(connection) {
        0 | 1 => Ok(()),
        _ => Err(StoreError::found(NESTED_TRANSACTION, Fault::Refused)),
    }
}

/// Rolls back a transaction and those that the handler left open inside it. Otherwise only the
/// innermost would be, and the connection would go back to the pool inside the others.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) async fn roll_back<DB: sqlx::Database>(mut transaction: sqlx::Transaction<'static, DB>) {
    while DB::TransactionManager::get_transaction_depth(&transaction) > 1 {
        if DB::TransactionManager::rollback(&mut transaction).await.is_err() {
            break;
        }
    }
    transaction.rollback().await.ok();
}

/// What the database's part in a handler's error means, also behind the handler's own types.
///
/// `anyhow` hides the driver's error, but not what that error has for its source: the server's.
pub(super) fn fault_in(
    error: &(dyn Error + 'static),
    of_server: fn(&dyn DatabaseError) -> Fault,
) -> Option<Fault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return Some(fault(error, of_server));
        }
        if let Some(error) = error.downcast_ref::<Box<dyn DatabaseError>>() {
            return Some(of_server(error.as_ref()));
        }
        next = error.source();
    }
    None
}

/// What an error before the commit means.
pub(super) fn fault(error: &sqlx::Error, of_server: fn(&dyn DatabaseError) -> Fault) -> Fault {
    error.as_database_error().map_or_else(|| driver_fault(error), of_server)
}

/// What an error that the database server did not send means, before the commit.
fn driver_fault(error: &sqlx::Error) -> Fault {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => Fault::Unavailable,
        _ => Fault::Refused,
    }
}
