//! The seam to the database: begin, claim, guard, commit, and what an error means.
//!
//! A store keeps the *ledger*: one row for each claim, inserted in the same transaction as the
//! handler's own rows, so that both are there or neither is.

mod calls;
#[cfg(feature = "postgres")]
mod connections;
mod doubt;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod driver;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
mod ledger;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod methods;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
mod migration;
#[cfg(feature = "mysql")]
mod mysql;
mod names;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlserver")]
mod sqlserver;
mod step;
#[cfg(test)]
mod tests;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod transaction;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use names::Names;

#[cfg(feature = "mysql")]
pub use mysql::{Mysql, MysqlTransaction};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresTransaction};
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteTransaction};
#[cfg(feature = "sqlserver")]
pub use sqlserver::{SqlServer, SqlServerTransaction};

use time::OffsetDateTime;

use crate::horizon::Retention;
use crate::key::{Digest, Fingerprint, KeyValue};
use crate::outcome::{Chain, Reply};
use calls::in_time;
pub(crate) use calls::{
    agreement, constraint, find, keep_alive, oldest_claim_age, prune, register, try_claim,
};
use step::Step;

/// A database that keeps claims beside the handlers' own rows.
pub trait Store: Clone + Send + Sync + 'static {
    /// The engine's own connection, which [`Tx`] dereferences to.
    type Connection: Send;

    /// An open transaction; dropping it rolls back.
    type Transaction: DerefMut<Target = Self::Connection> + Send + 'static;

    /// The SQL that makes the ledger's tables, a file a version, in order.
    const MIGRATIONS: &'static [&'static str];

    /// Gives the ledger's tables other names.
    ///
    /// # Errors
    ///
    /// Where the engine has no schemas.
    fn with_names(self, names: Names) -> Result<Self, StoreError>;

    /// How many transactions can be open at once, where that is bounded by connections.
    fn transactions_max(&self) -> Option<u32> {
        None
    }

    /// Opens a transaction at read committed, or what the engine has in its place.
    fn begin(&self) -> impl Future<Output = Result<Self::Transaction, StoreError>> + Send;

    /// Inserts the claim unless its digest is there; the unique constraint decides.
    fn claim(
        transaction: &mut Self::Transaction,
        claim: &Claim,
    ) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Inserts claims of different digests in one statement, in the order of their digests, so that
    /// batches cannot deadlock. The answers come in the order of the claims.
    ///
    /// A key that another open transaction holds is an error of kind [`Fault::Contention`], after a
    /// short wait: for one busy key, none of the batch is claimed.
    fn claim_many(
        transaction: &mut Self::Transaction,
        claims: &[&Claim],
    ) -> impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send;

    /// Writes replies beside the transaction's claims.
    fn keep(
        transaction: &mut Self::Transaction,
        replies: &[(Digest, &Reply)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Proves that the transaction is still healthy and still the one that was begun, and commits
    /// it. An error whose kind is [`Fault::InDoubt`] leaves open whether it did; after any other it
    /// is rolled back.
    fn commit(
        transaction: Self::Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What the server calls the transaction, where it can be [asked](Self::fate) later what became
    /// of it.
    fn id(_: &Self::Transaction) -> Option<TransactionId> {
        None
    }

    /// Asks the server, on another connection, what became of a transaction with an id, and with a
    /// claim of this digest, if it had one. [`Fate::Committed`] is believed only where the claims are
    /// there.
    fn fate(
        &self,
        _: TransactionId,
        _: Option<Digest>,
    ) -> impl Future<Output = Result<Fate, StoreError>> + Send {
        async { Ok(Fate::Unknown) }
    }

    /// Has the server name the transaction, where nothing is claimed in it.
    fn mark(
        transaction: &mut Self::Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Finds a unique constraint in the catalogue, and refuses one that proves nothing: it has to be
    /// there once, and be unique, valid, immediate and for all rows, on columns that are never null.
    fn constraint(
        &self,
        name: &'static str,
    ) -> impl Future<Output = Result<Constraint, StoreError>> + Send;

    /// Whether an error that a handler returned is the violation of exactly this constraint.
    fn violates(error: &(dyn Error + 'static), constraint: &Constraint) -> bool;

    /// Reads the committed row with this key of a constraint, and tells of each of these columns
    /// whether it agrees; `None` if there is no such row.
    fn agreement(
        &self,
        constraint: &Constraint,
        key: &[KeyValue],
        same: &[(&'static str, &KeyValue)],
    ) -> impl Future<Output = Result<Option<Vec<bool>>, StoreError>> + Send;

    /// Whether the handler, which has failed, ended the transaction before: what it wrote may be
    /// committed in part, and its claim with it.
    fn was_ended(transaction: &mut Self::Transaction) -> impl Future<Output = bool> + Send;

    /// Rolls back and waits until it is done. Errors are of no interest: a connection that cannot
    /// roll back is closed, and the server then does it.
    fn rollback(transaction: Self::Transaction) -> impl Future<Output = ()> + Send;

    /// The committed claim with this digest, read outside any transaction.
    fn find(
        &self,
        digest: Digest,
    ) -> impl Future<Output = Result<Option<Earlier>, StoreError>> + Send;

    /// What an error that a handler returned means; `None` when it is not the database's.
    fn fault_of(error: &(dyn Error + 'static)) -> Option<Fault>;

    /// Writes down what the keys of a scope are made of, unless that is there, and reads what is.
    fn register(
        &self,
        scope: &ScopeKeys,
    ) -> impl Future<Output = Result<ScopeKeys, StoreError>> + Send;

    /// Writes down that a consumer of the scope is running, and raises how long claims are kept to
    /// what it declares. A time in which none was running is added to the downtime, until one has
    /// been running for as long as claims are kept.
    fn keep_alive(
        &self,
        scope: &str,
        retention: Retention,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The scopes whose claims are not kept for ever.
    fn scopes(&self) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// Deletes at most so many of a scope's claims that have outlived their retention, the oldest
    /// first, and says how many; `None` if somebody else is pruning this ledger. The statement
    /// itself keeps what the scope's row says is to be kept.
    fn prune(
        &self,
        scope: &str,
        rows_max: u32,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send;

    /// How old the oldest claim of a scope is by the database's clock, in seconds; `None` if there is
    /// none.
    fn oldest_claim_age(
        &self,
        scope: &str,
    ) -> impl Future<Output = Result<Option<i64>, StoreError>> + Send;

    /// Up to when the claims of a scope have been pruned, in seconds since 1970; 0 if never.
    fn pruned_before(
        transaction: &mut Self::Transaction,
        scope: &str,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send;

    /// Creates or updates the ledger's tables. Safe to run by several processes at once, and again.
    fn migrate(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Checks that the database can be reached and its ledger has the version that this crate uses.
    fn check(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A handler's transaction. It dereferences to the engine's own connection, so handlers write
/// plain sqlx: `query.execute(&mut **tx)`.
///
/// The claim and the handler's rows commit together after the handler returned `Ok`, and roll back
/// together otherwise. For a part that may fail by itself, begin a nested transaction, which is a
/// savepoint, and end it before you return. On SQL Server, handlers write for its own driver, and
/// no part can fail by itself.
///
/// Do not send `COMMIT`, `ROLLBACK` or statements that commit implicitly: this is found out when
/// the handler returns, with whatever result, and the message is dead-lettered as
/// `TransactionBroken`. It is not found out when the handler's future is dropped, and at level 0,
/// where there is no claim to tell by, PostgreSQL shows only a transaction that is doomed by a
/// failed statement.
///
/// Settings of the session must be `LOCAL`: a `search_path` left behind on the pooled connection
/// would hide the ledger from the next message, unless it has a [schema](Names::schema) of its own.
pub struct Tx<S: Store> {
    transaction: S::Transaction,
    /// The claims that are there if the transaction is committed.
    claimed: Vec<Digest>,
}

impl<S: Store> Deref for Tx<S> {
    type Target = S::Connection;

    fn deref(&self) -> &S::Connection {
        &self.transaction
    }
}

impl<S: Store> DerefMut for Tx<S> {
    fn deref_mut(&mut self) -> &mut S::Connection {
        &mut self.transaction
    }
}

impl<S: Store> fmt::Debug for Tx<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").field("claimed", &self.claimed).finish_non_exhaustive()
    }
}

/// What a handler runs in, whatever its store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a transaction",
    label = "expected `Tx<_>`",
    note = "a handler takes `&mut Tx<S>` first, where `S` is the store: `Tx<Postgres>`, `Tx<Sqlite>`"
)]
pub trait AnyWork: Send {}

impl<S: Store> AnyWork for Tx<S> {}

impl AnyWork for NoTransaction {}

/// What a handler runs in: a transaction, or at level 0 nothing at all.
///
/// `begin` and `commit` run to their end even when the caller's future is dropped: a cancelled
/// `BEGIN` would hand the pool a connection inside an open transaction, and a cancelled `COMMIT`
/// would leave us not knowing.
pub trait Work<S: Store>: Sized + Send {
    /// Starts the unit of work.
    fn begin(store: &S) -> impl Future<Output = Result<Self, StoreError>> + Send;

    /// Claims a key for it.
    fn claim(&mut self, claim: &Claim) -> impl Future<Output = Result<Claimed, StoreError>> + Send;

    /// Has the server name it, where nothing is claimed.
    fn mark(&mut self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether a claim that was made at this time may have been pruned.
    fn may_be_forgotten(
        &mut self,
        scope: &'static str,
        at: OffsetDateTime,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Claims many different keys for it; what is busy is an error.
    fn claim_many(
        &mut self,
        claims: &[&Claim],
    ) -> impl Future<Output = Result<Vec<Claimed>, StoreError>> + Send;

    /// Keeps replies with the claims of these keys, for duplicates.
    fn keep(
        &mut self,
        replies: &[(Digest, &Reply)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Makes its effects permanent, or says that this did not or may not have happened.
    fn commit(self, store: &S) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Undoes its effects after the handler has failed.
    ///
    /// # Errors
    ///
    /// When there is nothing left to undo, since the handler has ended the transaction itself.
    fn rollback(self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

impl<S: Store> Work<S> for Tx<S> {
    async fn begin(store: &S) -> Result<Self, StoreError> {
        let store = store.clone();
        let begun = Step::new(async move { store.begin().await });
        let transaction = in_time("begin", Fault::Unavailable, begun).await?;
        Ok(Self { transaction, claimed: Vec::new() })
    }

    async fn claim(&mut self, claim: &Claim) -> Result<Claimed, StoreError> {
        let claimed = S::claim(&mut self.transaction, claim);
        let claimed = in_time("claim", Fault::Unavailable, claimed).await?;
        self.claimed = vec![claim.digest];
        Ok(claimed)
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        in_time("begin", Fault::Unavailable, S::mark(&mut self.transaction)).await
    }

    async fn may_be_forgotten(
        &mut self,
        scope: &'static str,
        at: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let pruned_before = S::pruned_before(&mut self.transaction, scope);
        let pruned_before =
            in_time("read what was pruned", Fault::Unavailable, pruned_before).await?;
        Ok((at - CLOCKS_DIFFER_MAX).unix_timestamp() < pruned_before)
    }

    async fn claim_many(&mut self, claims: &[&Claim]) -> Result<Vec<Claimed>, StoreError> {
        let claimed = S::claim_many(&mut self.transaction, claims);
        let claimed = in_time("claim", Fault::Unavailable, claimed).await?;
        let ours = claims.iter().zip(&claimed).filter(|(_, how)| matches!(how, Claimed::Ours));
        self.claimed = ours.map(|(claim, _)| claim.digest).collect();
        Ok(claimed)
    }

    async fn keep(&mut self, replies: &[(Digest, &Reply)]) -> Result<(), StoreError> {
        let kept = S::keep(&mut self.transaction, replies);
        in_time("keep the reply", Fault::Unavailable, kept).await
    }

    async fn commit(self, store: &S) -> Result<(), StoreError> {
        let Self { transaction, claimed } = self;
        let id = S::id(&transaction);
        let committed = Step::new(S::commit(transaction));
        match in_time("commit", Fault::InDoubt, committed).await {
            Err(error) if error.fault == Fault::InDoubt => {
                doubt::settle(store, &claimed, id, error).await
            }
            Err(error) if error.fault == Fault::Unavailable => {
                Err(StoreError::new(ROLLED_BACK, Fault::Unavailable, error))
            }
            committed => committed,
        }
    }

    async fn rollback(self) -> Result<(), StoreError> {
        let rolled_back = Step::new(rollback::<S>(self.transaction));
        match in_time("rollback", Fault::Unavailable, rolled_back).await {
            // Without an answer, the server rolls back when it finds that the connection is gone.
            Err(error) if error.fault == Fault::Unavailable => Ok(()),
            rolled_back => rolled_back,
        }
    }
}

/// Rolls back a transaction that the guard has refused, and says why it is not committed.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
async fn give_up<S: Store>(transaction: S::Transaction, refused: StoreError) -> StoreError {
    rollback::<S>(transaction).await.err().unwrap_or(refused)
}

async fn rollback<S: Store>(mut transaction: S::Transaction) -> Result<(), StoreError> {
    let was_ended = S::was_ended(&mut transaction).await;
    S::rollback(transaction).await;
    if was_ended { Err(StoreError::found(BROKEN_TRANSACTION, Fault::Broken)) } else { Ok(()) }
}

/// How far the broker's clock, which says when a message was sent, may be ahead of the database's.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(30 * 60);

/// The unit of work of a level 0 handler that takes no transaction.
#[derive(Debug)]
pub struct NoTransaction;

impl<S: Store> Work<S> for NoTransaction {
    async fn begin(_: &S) -> Result<Self, StoreError> {
        Ok(Self)
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        Err(StoreError::found(NOTHING_TO_CLAIM_IN, Fault::Refused))
    }

    async fn may_be_forgotten(
        &mut self,
        _: &'static str,
        _: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn keep(&mut self, _: &[(Digest, &Reply)]) -> Result<(), StoreError> {
        Err(StoreError::found(NOTHING_TO_CLAIM_IN, Fault::Refused))
    }

    async fn claim_many(&mut self, _: &[&Claim]) -> Result<Vec<Claimed>, StoreError> {
        Err(StoreError::found(NOTHING_TO_CLAIM_IN, Fault::Refused))
    }

    async fn claim(&mut self, _: &Claim) -> Result<Claimed, StoreError> {
        Err(StoreError::found(NOTHING_TO_CLAIM_IN, Fault::Refused))
    }

    /// A level 0 handler vouches for its own effects.
    async fn commit(self, _: &S) -> Result<(), StoreError> {
        Ok(())
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// What is claimed: the digest of the key within its scope.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The scope, stored beside the digest for people.
    pub scope: &'static str,
    /// The digest, which the unique constraint is on.
    pub digest: Digest,
    /// What must agree among messages of this key.
    pub same: Fingerprint,
}

/// What the keys of a scope are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopeKeys {
    /// The scope.
    pub scope: String,
    /// The handler's level.
    pub level: i16,
    /// The fields of its key in their order, separated by commas; empty at level 1.
    pub key: String,
}

/// A unique constraint as the catalogue shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Its name, which is its index's.
    pub name: String,
    /// The schema of its table, on engines whose errors name it.
    pub schema: Option<String>,
    /// Its table, as the engine's errors name it.
    pub table: String,
    /// Its columns in its order, as the engine's errors name them.
    pub columns: Vec<String>,
    /// All columns of its table.
    pub table_columns: Vec<String>,
}

/// A committed claim, as a later one finds it.
#[derive(Clone)]
pub struct Earlier {
    /// When it was made, by the database's clock.
    pub claimed_at: OffsetDateTime,
    /// What had to agree then; empty if nothing had to.
    pub same: Vec<u8>,
    /// What the handler returned, if that was kept.
    pub reply: Option<Vec<u8>>,
}

impl fmt::Debug for Earlier {
    /// Replies may be confidential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Earlier").field("claimed_at", &self.claimed_at).finish_non_exhaustive()
    }
}

/// How a claim ended.
#[derive(Debug)]
pub enum Claimed {
    /// The row is ours, if we commit.
    Ours,
    /// A committed row was there before.
    Before(Earlier),
    /// Another transaction holds the key and has not ended.
    Busy,
}

/// What a server calls a transaction. Where the server crashes before it has committed, another
/// transaction may be called the same afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionId(pub u64);

/// What became of a transaction whose commit had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The server has committed it.
    Committed,
    /// The server has rolled it back, for good.
    RolledBack,
    /// The server has not ended it yet, or cannot tell.
    Unknown,
}

/// What an error of the database means for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A lost race against other transactions: worth another transaction right away.
    Contention,
    /// The database cannot be reached, or the connection broke, before the commit.
    Unavailable,
    /// The connection broke during the commit: it may have happened.
    InDoubt,
    /// The handler ended or replaced its transaction; what it wrote may be committed in part.
    Broken,
    /// The database can never take a value of the statement, such as a text that is longer than its
    /// column: the same message would fail for ever.
    Unstorable,
    /// The database refused the statement for another reason, which may pass: the row that a foreign
    /// key asks for may come with a later message, and a privilege may be granted.
    Refused,
}

/// A failed operation on the store.
#[derive(Debug, thiserror::Error)]
#[error("{operation}")]
pub struct StoreError {
    operation: String,
    fault: Fault,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    pub(crate) fn new(
        operation: impl Into<String>,
        fault: Fault,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { operation: operation.into(), fault, source: Some(source.into()) }
    }

    /// An error that we found, rather than the driver.
    pub(crate) fn found(operation: impl Into<String>, fault: Fault) -> Self {
        Self { operation: operation.into(), fault, source: None }
    }

    /// The same once more, for another delivery of the same transaction.
    pub(crate) fn again(&self) -> Self {
        Self::found(Chain(self).to_string(), self.fault)
    }

    /// What the error means for the message.
    pub fn fault(&self) -> Fault {
        self.fault
    }
}

const NOTHING_TO_CLAIM_IN: &str =
    "without a transaction there is nothing to claim in; use level 0, or `Tx<_>`";

const ROLLED_BACK: &str = "the connection was lost before the commit, and the transaction was \
     rolled back; where this happens to the same handler again and again, look whether it waits for \
     something else inside its transaction: servers end sessions that idle for too long";

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
const NESTED_TRANSACTION: &str = "the handler left a transaction open inside its own; commit it or \
     roll it back before you return";

const BROKEN_TRANSACTION: &str = "the handler ended its transaction; handlers must not send \
     `COMMIT`, `ROLLBACK` or statements that commit implicitly";
