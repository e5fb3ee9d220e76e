//! What the engines of sqlx have in common: their transactions, and what their errors mean.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

use sqlx::QueryBuilder;
use sqlx::error::DatabaseError;
use sqlx_core::transaction::TransactionManager;
use time::OffsetDateTime;

use super::{BROKEN_TRANSACTION, Claim, Claimed, Earlier, Fault, StoreError};
use crate::key::{Digest, KeyValue};

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

/// The statement that reads the row of a constraint and compares columns of it.
pub(super) struct Agreement<'a> {
    /// Table and columns, quoted.
    pub(super) table: String,
    pub(super) columns: Vec<String>,
    pub(super) key: &'a [KeyValue],
    pub(super) same: Vec<(String, &'a KeyValue)>,
    /// What compares, whatever is null.
    pub(super) is_same: &'static str,
}

impl Agreement<'_> {
    /// `bind` adds a value as the engine compares it with a column.
    pub(super) fn query<DB: sqlx::Database>(
        &self,
        bind: fn(&mut QueryBuilder<DB>, &KeyValue) -> Result<(), StoreError>,
    ) -> Result<QueryBuilder<DB>, StoreError> {
        let mut query = QueryBuilder::new("SELECT ");
        for (column, value) in &self.same {
            query.push(column).push(self.is_same);
            bind(&mut query, value)?;
            query.push(", ");
        }
        query.push("1 FROM ").push(&self.table);
        for (number, (column, value)) in self.columns.iter().zip(self.key).enumerate() {
            query.push(if number == 0 { " WHERE " } else { " AND " }).push(column).push(" = ");
            bind(&mut query, value)?;
        }
        Ok(query)
    }
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

/// Reads a URL, and refuses one for another engine, which the driver does not.
pub(super) fn options<O>(url: &str, schemes: &[&str], advice: &str) -> Result<O, StoreError>
where
    O: FromStr<Err = sqlx::Error>,
{
    let advice = || format!("the database URL cannot be read; {advice}");
    if url.split_once("://").is_some_and(|(scheme, _)| !schemes.contains(&scheme)) {
        return Err(StoreError::found(advice(), Fault::Refused));
    }
    url.parse().map_err(|error: sqlx::Error| StoreError::new(advice(), Fault::Refused, error))
}

/// Connects once, and waits only so long for a server that says nothing, such as one of another kind.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) async fn connect<C>(
    connection: impl Future<Output = sqlx::Result<C>>,
) -> sqlx::Result<C> {
    const SILENCE_MAX: Duration = Duration::from_secs(30);
    match tokio::time::timeout(SILENCE_MAX, connection).await {
        Ok(connected) => connected,
        Err(elapsed) => Err(sqlx::Error::Io(elapsed.into())),
    }
}

/// What was being done, and what to do about what the database said, where that is known.
pub(super) fn with_advice(operation: &str, advice: Option<&str>) -> String {
    match advice {
        Some(advice) => format!("{operation}: {advice}"),
        None => operation.to_owned(),
    }
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) const GRANT: &str = "the database's user lacks a privilege; grant it SELECT, INSERT, \
     UPDATE and DELETE on the ledger's tables, and what the handlers need";

pub(super) const MIGRATE: &str = "a table or a column of the ledger is missing; run `idem migrate`, \
     and where that finds nothing to do, restore the table";

pub(super) const READ_ONLY: &str = "this database can only be read, as a replica can; connect to the \
     primary, or to one that can be written";

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
pub(super) fn fault_in(
    error: &(dyn Error + 'static),
    of_server: fn(&dyn DatabaseError) -> Fault,
) -> Option<Fault> {
    Some(match part_of_database(error)? {
        Part::Driver(error) => fault(error, of_server),
        Part::Server(error) => of_server(error),
    })
}

/// The server's error in a handler's.
pub(super) fn server_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a dyn DatabaseError> {
    match part_of_database(error)? {
        Part::Driver(error) => error.as_database_error(),
        Part::Server(error) => Some(error),
    }
}

enum Part<'a> {
    Driver(&'a sqlx::Error),
    Server(&'a dyn DatabaseError),
}

/// `anyhow` hides the driver's error, but not what that error has for its source: the server's.
fn part_of_database<'a>(error: &'a (dyn Error + 'static)) -> Option<Part<'a>> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return Some(Part::Driver(error));
        }
        if let Some(error) = error.downcast_ref::<Box<dyn DatabaseError>>() {
            return Some(Part::Server(error.as_ref()));
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
