//! What the engines of sqlx have in common: their transactions, and what their errors mean.

use std::error::Error;
use std::str::FromStr;

use sqlx::QueryBuilder;
use sqlx::error::DatabaseError;
use sqlx_core::transaction::TransactionManager;

use super::{Fault, NESTED_TRANSACTION, StoreError};
use crate::key::KeyValue;

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
    const SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(30);
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
