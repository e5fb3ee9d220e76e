//! The ledger in SQLite, through sqlx: the embedded default.

use std::collections::HashMap;
use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Executor, QueryBuilder, Row, SqliteConnection};

use super::methods::{Statements, sqlx_methods};
use super::transaction::Transaction;
use super::{
    Claim, Claimed, Constraint, Earlier, Fault, Names, ScopeKeys, Store, StoreError, driver,
    ledger, migration,
};
use crate::horizon::Retention;
use crate::key::{Digest, KeyValue};
use crate::outcome::Reply;

/// Claims in an SQLite file.
///
/// SQLite has one writer at a time, so transactions run one after another; no key is ever busy
/// within a process.
#[derive(Clone, Debug)]
pub struct Sqlite {
    pool: SqlitePool,
    names: Names,
}

/// How long a transaction waits for another process to finish writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a handler waits for the one connection before its message is tried again later.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

impl Sqlite {
    /// Opens the database of a URL such as `sqlite://orders.db`, and creates the file when it is
    /// missing.
    ///
    /// The file is kept in WAL mode with full synchronisation: what is committed survives a crash
    /// of the machine. There is one connection, since writers that queue in the process are faster
    /// and fairer than writers that wait for each other's file locks.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read or the file cannot be opened.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let advice = "write `sqlite://path/to/file.db`";
        let options: SqliteConnectOptions = driver::options(url, &["sqlite"], advice)?;
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(BUSY_TIMEOUT);
        let file = options.get_filename().display().to_string();
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options)
            .await
            .map_err(|error| {
                let advice = format!(
                    "cannot open the SQLite database `{file}`; \
                     check that its folder exists and is writable"
                );
                StoreError::new(advice, fault(&error), error)
            })?;
        Ok(Self::from_pool(pool))
    }

    /// Uses a pool that the application has already.
    pub fn from_pool(pool: SqlitePool) -> Self {
        Self { pool, names: Names::default() }
    }

    /// The pool, for the application's own queries outside handlers.
    ///
    /// A handler that asks the pool of [`connect`](Self::connect) for a connection waits for its
    /// own: use the transaction instead.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }
}

/// A transaction and what it claimed.
#[derive(Debug)]
pub struct SqliteTransaction {
    transaction: Transaction<sqlx::Sqlite>,
    claimed: Option<Digest>,
    names: Names,
}

impl Deref for SqliteTransaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.transaction
    }
}

impl DerefMut for SqliteTransaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }
}

impl SqliteTransaction {
    /// The savepoint that was set when the transaction began ends with it.
    async fn guard(&mut self) -> Result<(), StoreError> {
        driver::refuse_nested::<sqlx::Sqlite>(self)?;
        match self.execute("RELEASE idem").await {
            Ok(_) => Ok(()),
            Err(error) if is_without_savepoint(&error) => {
                Err(StoreError::new(super::BROKEN_TRANSACTION, Fault::Broken, error))
            }
            Err(error) => Err(failed("guard")(error)),
        }
    }
}

/// The times are the database's, in whole seconds.
const STATEMENTS: Statements = Statements {
    register: "\
        INSERT INTO idem_scope (scope, level, key_fields, seen_at, running_since) \
        VALUES (?, ?, ?, unixepoch(), unixepoch()) ON CONFLICT (scope) DO NOTHING",
    keys: "SELECT level, key_fields FROM idem_scope WHERE scope = ?",
    keep_alive: "\
        UPDATE idem_scope SET \
            downtime = CASE WHEN unixepoch() - seen_at > 90 THEN downtime + (unixepoch() - seen_at) \
                            WHEN unixepoch() - running_since > max(horizon, retention) + downtime THEN 0 \
                            ELSE downtime END, \
            running_since = CASE WHEN unixepoch() - seen_at > 90 THEN unixepoch() ELSE running_since END, \
            seen_at = max(seen_at, unixepoch()), \
            horizon = max(coalesce(horizon, 0), $1), \
            retention = max(coalesce(retention, 0), $2) \
        WHERE scope = $3",
    scopes: "SELECT scope FROM idem_scope WHERE retention IS NOT NULL ORDER BY scope",
    pruned_before: "SELECT pruned_before FROM idem_scope WHERE scope = ?",
    oldest_claim_age: "SELECT unixepoch() - min(claimed_at) FROM idem_claim WHERE scope = ?",
    is_same: " IS ",
};

impl Store for Sqlite {
    type Connection = SqliteConnection;
    type Transaction = SqliteTransaction;

    const MIGRATIONS: &'static [&'static str] = &[
        include_str!("migrations/sqlite/0001_claims.sql"),
        include_str!("migrations/sqlite/0002_replies.sql"),
        include_str!("migrations/sqlite/0003_scopes.sql"),
    ];

    fn with_names(self, names: Names) -> Result<Self, StoreError> {
        Ok(Self { names: ledger::without_schema(names, "SQLite")?, ..self })
    }

    async fn begin(&self) -> Result<SqliteTransaction, StoreError> {
        // The write lock is taken now: a transaction that reads first and writes later is refused
        // at once when another has written in between, whatever the busy time-out.
        let transaction = Transaction::begin(&self.pool, "BEGIN IMMEDIATE; SAVEPOINT idem")
            .await
            .map_err(failed("begin"))?;
        Ok(SqliteTransaction { transaction, claimed: None, names: self.names.clone() })
    }

    async fn claim(
        transaction: &mut SqliteTransaction,
        claim: &Claim,
    ) -> Result<Claimed, StoreError> {
        const CLAIM: &str = "INSERT INTO idem_claim (digest, scope, same) VALUES (?, ?, ?) \
                             ON CONFLICT (digest) DO NOTHING";
        let (sql, names) = (transaction.names.sql(CLAIM), transaction.names.clone());
        let inserted = sqlx::query(sql)
            .bind(&claim.digest.as_bytes()[..])
            .bind(claim.scope)
            .bind(claim.same.as_bytes())
            .execute(&mut **transaction)
            .await
            .map_err(failed("claim"))?
            .rows_affected();
        if inserted == 0 {
            let found = find(&mut **transaction, &names, claim.digest).await;
            return ledger::met(found.map_err(failed("read the claim"))?);
        }
        transaction.claimed = Some(claim.digest);
        Ok(Claimed::Ours)
    }

    async fn claim_many(
        transaction: &mut SqliteTransaction,
        claims: &[&Claim],
    ) -> Result<Vec<Claimed>, StoreError> {
        let names = transaction.names.clone();
        let mut query =
            QueryBuilder::new(names.apply("INSERT INTO idem_claim (digest, scope, same) "));
        query.push_values(ledger::in_order(claims), |mut row, claim| {
            row.push_bind(&claim.digest.as_bytes()[..]);
            row.push_bind(claim.scope).push_bind(claim.same.as_bytes());
        });
        query.push(" ON CONFLICT (digest) DO NOTHING RETURNING digest");
        let failed = failed("claim");
        let inserted: Vec<Vec<u8>> =
            query.build_query_scalar().fetch_all(&mut **transaction).await.map_err(&failed)?;
        let inserted = inserted.iter().filter_map(|digest| Digest::from_stored(digest)).collect();
        transaction.claimed = ledger::first(claims, &inserted);
        let mut found = HashMap::new();
        for digest in ledger::others(claims, &inserted) {
            let row = find(&mut **transaction, &names, digest).await.map_err(&failed)?;
            found.extend(row.map(|row| (digest, row)));
        }
        ledger::claimed(claims, &inserted, found)
    }

    async fn keep(
        transaction: &mut SqliteTransaction,
        replies: &[(Digest, &Reply)],
    ) -> Result<(), StoreError> {
        const KEEP: &str = "UPDATE idem_claim SET reply = ? WHERE digest = ?";
        for (digest, reply) in replies {
            let kept = sqlx::query(transaction.names.sql(KEEP))
                .bind(reply.as_bytes())
                .bind(&digest.as_bytes()[..])
                .execute(&mut **transaction)
                .await
                .map_err(failed("keep the reply"))?;
            ledger::kept(kept.rows_affected(), 1)?;
        }
        Ok(())
    }

    /// The guard knows the transaction by its savepoint.
    async fn mark(_: &mut SqliteTransaction) -> Result<(), StoreError> {
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        const TABLE: &str = "\
            SELECT tbl_name, list.\"unique\", NOT list.partial FROM sqlite_schema \
            JOIN pragma_index_list(tbl_name) AS list ON list.name = sqlite_schema.name \
            WHERE type = 'index' AND sqlite_schema.name = ?";
        const COLUMNS: &str = "\
            SELECT parts.name, coalesce(columns.\"notnull\", 0) FROM pragma_index_info(?) AS parts \
            LEFT JOIN pragma_table_info(?) AS columns ON columns.name = parts.name ORDER BY seqno";
        let failed = failed("read the catalogue");
        let found: Option<(String, bool, bool)> =
            sqlx::query_as(TABLE).bind(name).fetch_optional(&self.pool).await.map_err(&failed)?;
        let Some((table, unique, whole)) = found else {
            return Err(ledger::no_constraint(name));
        };
        let columns: Vec<(Option<String>, bool)> = sqlx::query_as(COLUMNS)
            .bind(name)
            .bind(&table)
            .fetch_all(&self.pool)
            .await
            .map_err(&failed)?;
        ledger::proves(
            name,
            &[
                (unique, "is not unique"),
                (whole, "is for a part of the rows"),
                (columns.iter().all(|(name, _)| name.is_some()), "is on an expression"),
                (
                    columns.iter().all(|(_, never_null)| *never_null),
                    "has a column that may be null, and nulls are never equal",
                ),
            ],
        )?;
        let columns = columns.into_iter().filter_map(|(name, _)| name).collect();
        let table_columns = sqlx::query_scalar("SELECT name FROM pragma_table_info(?)")
            .bind(&table)
            .fetch_all(&self.pool)
            .await
            .map_err(&failed)?;
        let name = name.to_owned();
        Ok(Constraint { name, schema: None, table, columns, table_columns })
    }

    /// SQLite names the columns, and never the constraint.
    fn violates(error: &(dyn Error + 'static), constraint: &Constraint) -> bool {
        let columns = constraint.columns.iter();
        let columns: Vec<_> =
            columns.map(|column| format!("{}.{column}", constraint.table)).collect();
        let message = format!("UNIQUE constraint failed: {}", columns.join(", "));
        driver::server_error(error).is_some_and(|error| error.message() == message)
    }

    /// Without its savepoint the transaction has ended, by the handler, or by SQLite itself after
    /// an error; the claim tells which.
    async fn was_ended(transaction: &mut SqliteTransaction) -> bool {
        let Some(digest) = transaction.claimed else { return false };
        let guarded = transaction.guard().await;
        if !guarded.is_err_and(|error| error.fault() == Fault::Broken) {
            return false;
        }
        // An error where the handler has begun no other.
        transaction.execute("ROLLBACK").await.ok();
        let names = transaction.names.clone();
        !matches!(find(&mut **transaction, &names, digest).await, Ok(None))
    }

    async fn commit(mut transaction: SqliteTransaction) -> Result<(), StoreError> {
        if let Err(error) = transaction.guard().await {
            return Err(super::give_up::<Self>(transaction, error).await);
        }
        transaction.transaction.commit().await.map_err(|error| match fault(&error) {
            Fault::Unavailable => StoreError::new("commit", Fault::InDoubt, error),
            _ if error.as_database_error().is_none() => {
                StoreError::new("commit", Fault::InDoubt, error)
            }
            fault => StoreError::new("commit", fault, error),
        })
    }

    async fn rollback(transaction: SqliteTransaction) {
        transaction.transaction.roll_back().await;
    }

    sqlx_methods!(STATEMENTS);

    /// The write lock of the database keeps others from pruning at the same time.
    async fn prune(&self, scope: &str, rows_max: u32) -> Result<Option<u64>, StoreError> {
        const PRUNED: &str = "\
            UPDATE idem_scope SET pruned_before = \
                max(pruned_before, seen_at - max(horizon, retention) - downtime) \
            WHERE scope = ? AND retention IS NOT NULL";
        const PRUNE: &str = "\
            DELETE FROM idem_claim WHERE digest IN ( \
                SELECT digest FROM idem_claim WHERE scope = $1 AND claimed_at < \
                    (SELECT seen_at - max(horizon, retention) - downtime \
                     FROM idem_scope WHERE scope = $1) \
                ORDER BY claimed_at LIMIT $2)";
        let failed = failed("prune");
        let mut transaction = self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(&failed)?;
        let pruned = sqlx::query(self.names.sql(PRUNED)).bind(scope).execute(&mut *transaction);
        pruned.await.map_err(&failed)?;
        let deleted = sqlx::query(self.names.sql(PRUNE))
            .bind(scope)
            .bind(rows_max)
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)?;
        Ok(Some(deleted.rows_affected()))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let mut transaction =
            self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed("migrate"))?;
        const MIGRATED: &str = "INSERT INTO idem_migration (version) VALUES (?)";
        let create = "CREATE TABLE IF NOT EXISTS idem_migration (version INTEGER PRIMARY KEY, \
                      applied_at INTEGER NOT NULL DEFAULT (unixepoch())) STRICT";
        sqlx::raw_sql(self.names.sql(create))
            .execute(&mut *transaction)
            .await
            .map_err(failed("migrate"))?;
        let version = version(&mut *transaction, &self.names).await.map_err(failed("migrate"))?;
        for (version, sql) in migration::pending(Self::MIGRATIONS, version)? {
            sqlx::raw_sql(self.names.sql(sql))
                .execute(&mut *transaction)
                .await
                .map_err(failed("migrate"))?;
            sqlx::query(self.names.sql(MIGRATED))
                .bind(version)
                .execute(&mut *transaction)
                .await
                .map_err(failed("migrate"))?;
        }
        transaction.commit().await.map_err(failed("migrate"))
    }

    async fn check(&self) -> Result<(), StoreError> {
        let there = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'idem_migration')";
        let read = failed("read the ledger's version");
        let found = match sqlx::query_scalar(self.names.sql(there))
            .fetch_one(&self.pool)
            .await
            .map_err(&read)?
        {
            true => version(&self.pool, &self.names).await.map_err(&read)?,
            false => 0,
        };
        migration::check(Self::MIGRATIONS, found)
    }
}

async fn version(
    connection: impl sqlx::SqliteExecutor<'_>,
    names: &Names,
) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar(names.sql("SELECT coalesce(max(version), 0) FROM idem_migration"))
        .fetch_one(connection)
        .await
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Adds a value as it is compared with a column.
fn bind(query: &mut QueryBuilder<sqlx::Sqlite>, value: &KeyValue) -> Result<(), StoreError> {
    match value {
        KeyValue::Integer(value) => query.push_bind(ledger::integer(*value)?),
        KeyValue::Bool(value) => query.push_bind(*value),
        KeyValue::Text(value) => query.push_bind(value.clone()),
        KeyValue::Bytes(value) => query.push_bind(value.clone()),
        KeyValue::Uuid(value) => query.push_bind(value.as_bytes().to_vec()),
        KeyValue::Instant(_) | KeyValue::Date(_) | KeyValue::Decimal(_) => {
            let problem = "SQLite has no type for instants, dates and decimals, so that they cannot \
                be compared with a column; let the field be text or an integer, or leave \
                `constraint` out";
            return Err(StoreError::found(problem, Fault::Refused));
        }
    };
    Ok(())
}

async fn find(
    connection: impl sqlx::SqliteExecutor<'_>,
    names: &Names,
    digest: Digest,
) -> Result<Option<ledger::Row>, sqlx::Error> {
    const FIND: &str = "SELECT claimed_at * 1000000, same, reply FROM idem_claim WHERE digest = ?";
    sqlx::query_as(names.sql(FIND)).bind(&digest.as_bytes()[..]).fetch_optional(connection).await
}

fn failed(operation: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let operation = driver::with_advice(operation, advice(&error));
        StoreError::new(operation, fault(&error), error)
    }
}

fn advice(error: &sqlx::Error) -> Option<&'static str> {
    let error = error.as_database_error()?;
    match primary(error) {
        // SQLITE_READONLY.
        8 => Some(driver::READ_ONLY),
        // SQLITE_ERROR has no narrower codes; these texts are of its parser.
        1 if ["no such table", "no such column", "has no column"]
            .iter()
            .any(|text| error.message().contains(text)) =>
        {
            Some(driver::MIGRATE)
        }
        _ => None,
    }
}

/// `SQLITE_ERROR` has no narrower code for this; the text has been the same since 2009.
fn is_without_savepoint(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|e| e.message().contains("no such savepoint"))
}

fn fault(error: &sqlx::Error) -> Fault {
    driver::fault(error, server_fault)
}

/// The code, extended where it is.
fn extended(error: &dyn DatabaseError) -> u32 {
    error.code().and_then(|code| code.parse().ok()).unwrap_or_default()
}

/// The low byte of the extended code.
fn primary(error: &dyn DatabaseError) -> u32 {
    extended(error) & 0xff
}

/// What an error of SQLite before the commit means. Codes: its "Result and Error Codes".
fn server_fault(error: &dyn DatabaseError) -> Fault {
    // SQLITE_CONSTRAINT_DATATYPE: a value of another type than its column's in a strict table.
    if extended(error) == 3091 {
        return Fault::Unstorable;
    }
    match primary(error) {
        // SQLITE_BUSY, SQLITE_LOCKED.
        5 | 6 => Fault::Contention,
        // SQLITE_NOMEM, SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL, SQLITE_CANTOPEN.
        7 | 8 | 10 | 13 | 14 => Fault::Unavailable,
        // SQLITE_TOOBIG, SQLITE_MISMATCH.
        18 | 20 => Fault::Unstorable,
        _ => Fault::Refused,
    }
}
