//! The ledger in SQL Server and Azure SQL Database, through tiberius.

mod constraint;
mod error;
mod pool;
mod sql;
#[cfg(test)]
mod tests;
mod url;

use std::error::Error as StdError;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde::Serialize;
use tiberius::error::{Error, IoErrorKind};
use tiberius::{Config, FromSql, Row, ToSql};
use tokio::time::timeout;

use super::{
    Claim, Claimed, Constraint, Earlier, Fate, Fault, NESTED_TRANSACTION, Names, ScopeKeys, Store,
    StoreError, TransactionId, ledger, migration,
};
use crate::horizon::Retention;
use crate::key::{Digest, KeyValue};
use crate::outcome::Reply;
use constraint::Agreement;
use error::failed;
use pool::{Client, Lease, Pool};
use sql::found;
use url::Place;

/// Claims in SQL Server 2016 or later, or Azure SQL Database, where the database has compatibility
/// level 130 or later. **It has not been run against a live server yet.**
///
/// Handlers use the driver's own connection. Depend on `tiberius` 0.13 without its defaults, which
/// would bring OpenSSL:
///
/// ```no_run
/// use idem_runtime::store::SqlServer;
/// use idem_runtime::{Failure, Tx, idempotent};
///
/// #[derive(serde::Deserialize)]
/// struct PlaceOrder {
///     customer_id: i64,
///     external_ref: String,
/// }
///
/// #[idempotent(key = "customer_id, external_ref")]
/// async fn place_order(tx: &mut Tx<SqlServer>, order: PlaceOrder) -> Result<(), Failure> {
///     let insert = "INSERT INTO orders (customer_id, external_ref) VALUES (@P1, @P2)";
///     tx.execute(insert, &[&order.customer_id, &order.external_ref]).await?;
///     Ok(())
/// }
/// # fn is_a_handler<H: idem_runtime::Handler<SqlServer>>(_: H) {}
/// # is_a_handler(PlaceOrderHandler);
/// ```
///
/// In their transactions `XACT_ABORT` is on: any error of a statement rolls the transaction back,
/// also one that the handler ignores, and the message is tried again. A nested `BEGIN TRANSACTION`
/// is no savepoint here: it ends with its own `COMMIT`, and a `ROLLBACK` rolls back everything.
///
/// Settings of the session and temporary tables that a handler leaves behind stay with the pooled
/// connection. A statement has 30 seconds, unless the [`Config`] says otherwise; after that, or when a handler
/// drops a statement before it was sent, the connection is closed and the transaction with it.
#[derive(Clone, Debug)]
pub struct SqlServer {
    pool: Pool,
    names: Names,
}

/// How many connections [`SqlServer::connect`] allows itself.
const CONNECTIONS_MAX: u32 = 24;

/// How long a rollback waits for a server that has nothing to wait for but itself.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// From which on a database knows `OPENJSON`.
const COMPATIBILITY_MIN: i32 = 130;

const ROLLED_BACK: &str = "the transaction was rolled back, since the handler ignored an error of \
     a statement or sent `ROLLBACK`; return the errors of statements, and leave the end to idem";

const ENDED: &str = "the transaction has ended before the handler: it ignored an error of a \
     statement, which rolls back, or sent `COMMIT` or `ROLLBACK`, and without a claim there is no \
     telling; return the errors of statements, and leave the end to idem";

impl SqlServer {
    /// Connects to the database of a URL, `sqlserver://user:password@host:port/database`, with a
    /// user of SQL Server's own.
    ///
    /// The connection is encrypted, and the server's certificate checked by the system's roots.
    /// `trustServerCertificate=true` leaves the check out, `encrypt=false` encrypts no more than the
    /// login, and `encrypt=strict` is for servers that ask for TDS 8.0.
    ///
    /// There are at most 24 connections, which should be more than the consumer has messages in
    /// flight; use [`from_config`](Self::from_config) for another number.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read or the database cannot be reached now. The error names host and
    /// database, never the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let Place { config, server, database } = Place::read(url)?;
        let store = Self::from_config(config, CONNECTIONS_MAX);
        let lease = store.pool.lease().await.map_err(|error| {
            let advice = format!(
                "cannot connect to SQL Server database `{database}` at {server}; \
                 check that it runs, and the URL's user and password"
            );
            StoreError::new(advice, error::fault(&error), error)
        })?;
        lease.give_back();
        Ok(store)
    }

    /// Reads a URL as [`connect`](Self::connect) does, for changes before
    /// [`from_config`](Self::from_config).
    ///
    /// # Errors
    ///
    /// When the URL cannot be read.
    pub fn read_url(url: &str) -> Result<Config, StoreError> {
        Place::read(url).map(|place| place.config)
    }

    /// Uses the database of a configuration of the driver, with so many connections at most. They
    /// are made when they are needed.
    pub fn from_config(config: Config, connections_max: u32) -> Self {
        Self { pool: Pool::new(config, connections_max), names: Names::default() }
    }

    /// Runs a statement on the ledger outside any handler's transaction.
    async fn run(
        &self,
        statement: &'static str,
        parameters: &[&dyn ToSql],
    ) -> Result<Answer, Error> {
        self.run_plain(&self.names.apply(statement), parameters).await
    }

    /// Runs a statement. Its connection is closed when it fails.
    async fn run_plain(&self, statement: &str, parameters: &[&dyn ToSql]) -> Result<Answer, Error> {
        let mut lease = self.pool.lease().await?;
        let answer = ask(&mut lease, statement, parameters).await;
        match &answer {
            Ok(_) => lease.give_back(),
            Err(error) => self.pool.heed(error),
        }
        answer
    }

    /// The columns of a constraint's table, and whether their text is in a code page.
    async fn columns(&self, constraint: &Constraint) -> Result<Vec<(String, bool)>, Error> {
        let table = constraint::quoted_table(constraint);
        let columns = self.run_plain(constraint::COLUMNS, &[&table]).await?;
        let column = |row| Ok((value_in::<&str>(row, 0)?.to_owned(), value_in(row, 1)?));
        columns.rows(0).iter().map(column).collect()
    }

    /// Applies what is missing. Dropping the connection rolls back what has not been committed.
    async fn migrate_alone(&self) -> Result<(), StoreError> {
        let failed = failed("migrate");
        let mut config = self.pool.config().clone();
        // An index over many claims takes its time.
        config.command_timeout(None);
        let mut client = pool::connect(&config).await.map_err(&failed)?;
        let names = &self.names;
        let lock = names.apply(sql::LOCK_MIGRATION);
        let locked = batch(&mut client, &lock).await.map_err(&failed)?;
        if locked.value::<i32>(0).map_err(&failed)? < 0 {
            let waited = "migrate: another migration of this database has not ended in a minute";
            return Err(StoreError::found(waited, Fault::Contention));
        }
        if let Some(schema) = names.schema_name() {
            batch(&mut client, &sql::make_schema(schema)).await.map_err(&failed)?;
        }
        let version = batch(&mut client, &names.apply(sql::MIGRATED)).await.map_err(&failed)?;
        let version = version.value(0).map_err(&failed)?;
        for (version, migration) in migration::pending(Self::MIGRATIONS, version)? {
            batch(&mut client, &names.apply(migration)).await.map_err(&failed)?;
            let write = names.apply(sql::WRITE_VERSION);
            ask(&mut client, &write, &[&version]).await.map_err(&failed)?;
        }
        batch(&mut client, sql::COMMIT_MIGRATION).await.map_err(&failed)?;
        Ok(())
    }
}

/// A transaction, and what it has claimed. Dropping it closes its connection, and the server rolls
/// it back.
#[derive(Debug)]
pub struct SqlServerTransaction {
    lease: Lease,
    /// What the server calls it, until it ends.
    id: i64,
    /// A random number that tells this transaction's claims from those of others, and its answers
    /// from those to the handler's statements.
    holder: i64,
    /// The database's number, which `USE` would change.
    database: i32,
    claimed: Option<Digest>,
    names: Names,
}

impl Deref for SqlServerTransaction {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.lease
    }
}

impl DerefMut for SqlServerTransaction {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.lease
    }
}

impl SqlServerTransaction {
    /// Runs a statement on the ledger.
    async fn ask(
        &mut self,
        statement: &'static str,
        parameters: &[&dyn ToSql],
    ) -> Result<Answer, Error> {
        ask(&mut self.lease, &self.names.apply(statement), parameters).await
    }

    /// Runs a batch of ours, and proves by a number that the answer is its.
    async fn end(&mut self, statements: String) -> Result<Ended, Error> {
        let answer = batch(&mut self.lease, &statements).await?;
        if answer.value::<i64>(0)? != self.holder {
            return Err(Error::Protocol("the server has answered something else".into()));
        }
        Ok(Ended { found: answer.value(1)?, is_at_home: answer.value::<i32>(2)? == self.database })
    }

    /// The driver first waits for the end of what the handler may have left running.
    async fn end_in_time(&mut self, statements: String) -> Result<Ended, Error> {
        match timeout(ANSWER_TIMEOUT, self.end(statements)).await {
            Ok(ended) => ended,
            Err(_) => Err(Error::Io {
                kind: IoErrorKind::TimedOut,
                message: "the server has not ended the transaction in time".to_owned(),
            }),
        }
    }

    /// What it means that the transaction is over, if its claim was not committed.
    fn lost(&self) -> StoreError {
        match self.claimed {
            Some(_) => StoreError::found(ROLLED_BACK, Fault::Refused),
            None => StoreError::found(ENDED, Fault::Broken),
        }
    }

    async fn was_committed(&mut self) -> Result<bool, Error> {
        let Some(digest) = self.claimed else { return Ok(false) };
        let statements = sql::was_committed(&self.names, self.id, self.holder, digest);
        Ok(self.end_in_time(statements).await?.found > 0)
    }

    /// A connection that a handler has left in another database is of no use.
    fn give_back(self, ended: &Ended) {
        if ended.is_at_home {
            self.lease.give_back();
        }
    }
}

/// What a batch that ends a transaction has answered.
struct Ended {
    found: i32,
    is_at_home: bool,
}

impl Store for SqlServer {
    type Connection = Client;
    type Transaction = SqlServerTransaction;

    const MIGRATIONS: &'static [&'static str] = &[
        include_str!("../migrations/sqlserver/0001_claims.sql"),
        include_str!("../migrations/sqlserver/0002_replies.sql"),
        include_str!("../migrations/sqlserver/0003_scopes.sql"),
    ];

    fn with_names(self, names: Names) -> Result<Self, StoreError> {
        Ok(Self { names, ..self })
    }

    fn transactions_max(&self) -> Option<u32> {
        Some(self.pool.connections_max())
    }

    async fn begin(&self) -> Result<SqlServerTransaction, StoreError> {
        let failed = failed("begin");
        let mut lease = self.pool.lease().await.map_err(&failed)?;
        let begun = batch(&mut lease, sql::BEGIN).await;
        let begun = begun.inspect_err(|error| self.pool.heed(error)).map_err(&failed)?;
        Ok(SqlServerTransaction {
            lease,
            id: begun.value(0).map_err(&failed)?,
            holder: fastrand::i64(0..i64::MAX),
            database: begun.value(1).map_err(&failed)?,
            claimed: None,
            names: self.names.clone(),
        })
    }

    async fn claim(
        transaction: &mut SqlServerTransaction,
        claim: &Claim,
    ) -> Result<Claimed, StoreError> {
        let failed = failed("claim");
        let (digest, same) = (&claim.digest.as_bytes()[..], claim.same.as_bytes());
        let holder = transaction.holder;
        let answer = transaction.ask(sql::CLAIM, &[&digest, &claim.scope, &holder, &same]).await;
        let answer = answer.map_err(&failed)?;
        match answer.value::<i32>(0).map_err(&failed)?.unsigned_abs() {
            0 => {
                transaction.claimed = Some(claim.digest);
                Ok(Claimed::Ours)
            }
            error::LOCK_TIMEOUT => Ok(Claimed::Busy),
            _ => {
                let row = answer.rows(1).first().map(|row| claim_in(row, 0));
                ledger::met(row.transpose().map_err(&failed)?)
            }
        }
    }

    async fn claim_many(
        transaction: &mut SqlServerTransaction,
        claims: &[&Claim],
    ) -> Result<Vec<Claimed>, StoreError> {
        let failed = failed("claim");
        let batch = json(claims.iter().map(|claim| Batched::claim(claim)))?;
        let scope = claims.first().map_or("", |claim| claim.scope);
        let holder = transaction.holder;
        let answer = transaction.ask(sql::CLAIM_MANY, &[&batch, &scope, &holder]).await;
        let answer = answer.map_err(error::claim_failed)?;
        let inserted = answer.rows(0).iter().map(digest_in);
        let inserted = inserted.collect::<Result<_, _>>().map_err(&failed)?;
        transaction.claimed = ledger::first(claims, &inserted);
        let found = answer.rows(1).iter().map(|row| Ok((digest_in(row)?, claim_in(row, 1)?)));
        let found = found.collect::<Result<_, _>>().map_err(&failed)?;
        ledger::claimed(claims, &inserted, found)
    }

    async fn keep(
        transaction: &mut SqlServerTransaction,
        replies: &[(Digest, &Reply)],
    ) -> Result<(), StoreError> {
        let failed = failed("keep the reply");
        let batch = json(replies.iter().map(|(digest, reply)| Batched::reply(*digest, reply)))?;
        let holder = transaction.holder;
        let kept = transaction.ask(sql::KEEP, &[&batch, &holder]).await.map_err(&failed)?;
        let kept: i32 = kept.value(0).map_err(&failed)?;
        if usize::try_from(kept).is_ok_and(|kept| kept == replies.len()) {
            return Ok(());
        }
        // Whether the claims are committed or gone is asked when the transaction is rolled back.
        Err(StoreError::found(ROLLED_BACK, Fault::Refused))
    }

    async fn mark(_: &mut SqlServerTransaction) -> Result<(), StoreError> {
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        let failed = failed("read the catalogue");
        let found = self.run_plain(constraint::INDEXES, &[&name]).await.map_err(&failed)?;
        let constraint = constraint::read(name, &found, &failed)?;
        let columns = self.columns(&constraint).await.map_err(&failed)?;
        let table_columns = columns.into_iter().map(|(column, _)| column).collect();
        Ok(Constraint { table_columns, ..constraint })
    }

    fn violates(error: &(dyn StdError + 'static), constraint: &Constraint) -> bool {
        error::taken_in(error).is_some_and(|message| constraint::is_named(&message, constraint))
    }

    async fn agreement(
        &self,
        constraint: &Constraint,
        key: &[KeyValue],
        same: &[(&'static str, &KeyValue)],
    ) -> Result<Option<Vec<bool>>, StoreError> {
        let failed = failed("read the row of an earlier message");
        let columns = self.columns(constraint).await.map_err(&failed)?;
        let in_code_page = columns.into_iter().filter(|(_, is)| *is).map(|(column, _)| column);
        let agreement = Agreement::new(constraint, &in_code_page.collect(), key, same)?;
        let parameters: Vec<_> = agreement.parameters.iter().map(AsRef::as_ref).collect();
        let answer = self.run_plain(&agreement.sql, &parameters).await.map_err(&failed)?;
        let Some(row) = answer.rows(0).first() else { return Ok(None) };
        let agrees = (0..same.len()).map(|column| value_in(row, column));
        agrees.collect::<Result<_, _>>().map(Some).map_err(&failed)
    }

    async fn was_ended(transaction: &mut SqlServerTransaction) -> bool {
        transaction.was_committed().await.unwrap_or(false)
    }

    async fn commit(mut transaction: SqlServerTransaction) -> Result<(), StoreError> {
        let statements = sql::guard_and_commit(transaction.id, transaction.holder);
        let refused = match transaction.end(statements).await {
            Ok(ended) => match ended.found {
                found::COMMITTED => {
                    transaction.give_back(&ended);
                    return Ok(());
                }
                found::NESTED => StoreError::found(NESTED_TRANSACTION, Fault::Refused),
                _ => transaction.lost(),
            },
            Err(error) => error::not_committed(error),
        };
        match refused.fault() {
            // Closes the connection: while it lives, the server may not know.
            Fault::InDoubt => Err(refused),
            Fault::Contention
            | Fault::Unavailable
            | Fault::Broken
            | Fault::Unstorable
            | Fault::Refused => Err(super::give_up::<Self>(transaction, refused).await),
        }
    }

    fn id(transaction: &SqlServerTransaction) -> Option<TransactionId> {
        transaction.claimed?;
        u64::try_from(transaction.holder).ok().map(TransactionId)
    }

    /// An open transaction holds a lock on its claim, and one that has ended does not: where the row
    /// can be read, its holder tells what became of the transaction, for good.
    async fn fate(&self, id: TransactionId, claimed: Option<Digest>) -> Result<Fate, StoreError> {
        let failed = failed("ask for the fate");
        let Some(digest) = claimed else { return Ok(Fate::Unknown) };
        let answer = match self.run(sql::HOLDER, &[&&digest.as_bytes()[..]]).await {
            Err(error) if error::is_locked(&error) => return Ok(Fate::Unknown),
            answer => answer.map_err(&failed)?,
        };
        let holder = answer.rows(0).first().map(|row| value_in::<i64>(row, 0));
        let holder = holder.transpose().map_err(&failed)?;
        let is_ours = holder.is_some_and(|holder| u64::try_from(holder).is_ok_and(|it| it == id.0));
        Ok(if is_ours { Fate::Committed } else { Fate::RolledBack })
    }

    async fn rollback(mut transaction: SqlServerTransaction) {
        let statements = sql::roll_back(transaction.holder);
        if let Ok(ended) = transaction.end_in_time(statements).await {
            transaction.give_back(&ended);
        }
    }

    async fn find(&self, digest: Digest) -> Result<Option<Earlier>, StoreError> {
        let failed = failed("read the claim");
        let found = self.run(sql::FIND, &[&&digest.as_bytes()[..]]).await.map_err(&failed)?;
        let found = found.rows(0).first().map(|row| claim_in(row, 0));
        Ok(found.transpose().map_err(&failed)?.map(ledger::earlier))
    }

    fn fault_of(error: &(dyn StdError + 'static)) -> Option<Fault> {
        error::fault_in(error)
    }

    async fn register(&self, scope: &ScopeKeys) -> Result<ScopeKeys, StoreError> {
        let failed = failed("register the scope");
        let there = self.run(sql::REGISTER, &[&scope.scope, &scope.level, &scope.key]).await;
        let there = there.map_err(&failed)?;
        let level = there.value(0).map_err(&failed)?;
        let key = there.value::<&str>(1).map_err(&failed)?.to_owned();
        Ok(ScopeKeys { scope: scope.scope.clone(), level, key })
    }

    async fn keep_alive(&self, scope: &str, retention: Retention) -> Result<(), StoreError> {
        let (horizon, kept) = (retention.horizon, retention.kept);
        let (horizon, kept) = (ledger::seconds(horizon), ledger::seconds(kept));
        let alive = self.run(sql::KEEP_ALIVE, &[&scope, &horizon, &kept]).await;
        alive.map_err(failed("keep alive")).map(|_| ())
    }

    async fn scopes(&self) -> Result<Vec<String>, StoreError> {
        let failed = failed("read the scopes");
        let scopes = self.run(sql::SCOPES, &[]).await.map_err(&failed)?;
        let scope = |row| value_in::<&str>(row, 0).map(str::to_owned);
        scopes.rows(0).iter().map(scope).collect::<Result<_, _>>().map_err(&failed)
    }

    async fn prune(&self, scope: &str, rows_max: u32) -> Result<Option<u64>, StoreError> {
        let failed = failed("prune");
        let deleted = self.run(sql::PRUNE, &[&scope, &i64::from(rows_max)]).await;
        let deleted = deleted.map_err(&failed)?.value::<i32>(0).map_err(&failed)?;
        Ok(u64::try_from(deleted).ok())
    }

    async fn oldest_claim_age(&self, scope: &str) -> Result<Option<i64>, StoreError> {
        let failed = failed("read the oldest claim");
        let answer = self.run(sql::OLDEST_CLAIM_AGE, &[&scope]).await.map_err(&failed)?;
        let age: i64 = answer.value(0).map_err(&failed)?;
        Ok(Some(age).filter(|age| *age >= 0))
    }

    async fn pruned_before(
        transaction: &mut SqlServerTransaction,
        scope: &str,
    ) -> Result<i64, StoreError> {
        let failed = failed("read what was pruned");
        let answer = transaction.ask(sql::PRUNED_BEFORE, &[&scope]).await.map_err(&failed)?;
        let pruned_before = answer.rows(0).first().map(|row| value_in(row, 0));
        Ok(pruned_before.transpose().map_err(&failed)?.unwrap_or(0))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        self.migrate_alone().await
    }

    async fn check(&self) -> Result<(), StoreError> {
        let failed = failed("read the ledger's version");
        let answer = match self.run(sql::VERSION, &[]).await {
            Err(error) if error::is_without_table(&error) => {
                return migration::check(Self::MIGRATIONS, 0);
            }
            answer => answer.map_err(&failed)?,
        };
        migration::check(Self::MIGRATIONS, answer.value(0).map_err(&failed)?)?;
        let compatibility: i32 = answer.value(1).map_err(&failed)?;
        if compatibility >= COMPATIBILITY_MIN {
            return Ok(());
        }
        let problem = format!(
            "the database has compatibility level {compatibility}, and {COMPATIBILITY_MIN} is \
             needed; set it with `ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL`"
        );
        Err(StoreError::found(problem, Fault::Refused))
    }
}

/// The rows that a batch or a statement has answered with, by result sets.
struct Answer(Vec<Vec<Row>>);

impl Answer {
    fn rows(&self, result: usize) -> &[Row] {
        self.0.get(result).map_or(&[], Vec::as_slice)
    }

    /// A value of the first row of the first result set.
    fn value<'a, T: FromSql<'a>>(&'a self, column: usize) -> Result<T, Error> {
        match self.rows(0).first() {
            Some(row) => value_in(row, column),
            None => Err(Error::Protocol("the server has answered without a row".into())),
        }
    }
}

/// Runs a statement with parameters.
async fn ask(
    client: &mut Client,
    statement: &str,
    parameters: &[&dyn ToSql],
) -> Result<Answer, Error> {
    client.query(statement, parameters).await?.into_results().await.map(Answer)
}

/// Runs a batch of statements. Only such may begin or end a transaction.
async fn batch(client: &mut Client, statements: &str) -> Result<Answer, Error> {
    client.simple_query(statements).await?.into_results().await.map(Answer)
}

fn value_in<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Error> {
    let value = row.try_get(column)?;
    value.ok_or_else(|| Error::Conversion("a value that is always there is not".into()))
}

/// The claim in the columns from this one on.
fn claim_in(row: &Row, column: usize) -> Result<ledger::Row, Error> {
    let same: &[u8] = value_in(row, column + 1)?;
    let reply: Option<&[u8]> = row.try_get(column + 2)?;
    Ok((value_in(row, column)?, same.to_vec(), reply.map(<[u8]>::to_vec)))
}

fn digest_in(row: &Row) -> Result<Digest, Error> {
    let digest = Digest::from_stored(value_in(row, 0)?);
    digest.ok_or_else(|| Error::Conversion("a digest has 16 bytes".into()))
}

/// A row of a batch, which goes to the server as one parameter: the text of the statement is then
/// the same however many there are, and so is its plan. Bytes are in hexadecimal.
#[derive(Serialize)]
struct Batched {
    digest: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    same: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reply: Option<String>,
}

impl Batched {
    fn claim(claim: &Claim) -> Self {
        let same = Some(sql::hex(claim.same.as_bytes()));
        Self { digest: sql::hex(claim.digest.as_bytes()), same, reply: None }
    }

    fn reply(digest: Digest, reply: &Reply) -> Self {
        let reply = Some(sql::hex(reply.as_bytes()));
        Self { digest: sql::hex(digest.as_bytes()), same: None, reply }
    }
}

fn json(rows: impl Iterator<Item = Batched>) -> Result<String, StoreError> {
    let rows: Vec<_> = rows.collect();
    serde_json::to_string(&rows).map_err(|e| StoreError::new("write a batch", Fault::Refused, e))
}
