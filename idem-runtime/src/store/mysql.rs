//! The ledger in MariaDB and MySQL, through sqlx.
//!
//! What is particular about these engines: DDL commits the open transaction without a word, a
//! deadlock rolls back the whole transaction, and the connection then goes on without one. A
//! savepoint that is set when the transaction begins finds out all three, since it ends with it.

use std::collections::HashMap;
use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use sqlx::error::DatabaseError;
use sqlx::mysql::{
    MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlPool, MySqlPoolOptions,
};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection, Database, Executor, MySql, QueryBuilder, Row, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use tokio::time::timeout;

use super::methods::{Statements, sqlx_methods};
use super::{
    Claim, Claimed, Constraint, Earlier, Fault, Names, ScopeKeys, Store, StoreError, driver,
    ledger, migration,
};
use crate::horizon::Retention;
use crate::key::{Digest, KeyValue};
use crate::outcome::Reply;

/// Claims in MariaDB 10.6 or later, or MySQL 8.
///
/// The tables that handlers write must be InnoDB's, as they are by default: others ignore
/// transactions. Transactions of handlers have a pool of connections of their own, which do not
/// commit by themselves: what a handler writes after the server has rolled its transaction back,
/// as at a deadlock, would otherwise stay.
///
/// MySQL has no lock wait below a second. There, a key in progress is found busy after a second,
/// and handlers' own statements wait for locks as long and no longer.
#[derive(Clone, Debug)]
pub struct Mysql {
    /// The application's.
    pool: MySqlPool,
    /// The handlers' transactions'.
    transactions: MySqlPool,
    names: Names,
}

/// How many connections [`Mysql::connect`] allows itself in each pool.
const CONNECTIONS_MAX: u32 = 24;

/// How long a handler waits for a connection before its message is tried again later.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the guard and the rollback wait for a server that has nothing to wait for. A connection
/// that has lost step may never answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

impl Mysql {
    /// Connects to the database of a URL, `mysql://user:password@host:port/database`.
    ///
    /// Handlers' transactions have at most 24 connections, which should be more than the consumer
    /// has messages in flight, and [`pool`](Self::pool) has as many; use
    /// [`from_pool`](Self::from_pool) for another size.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read or the database cannot be reached now. The error names host and
    /// database, never the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options: MySqlConnectOptions =
            driver::options(url, &["mysql", "mariadb"], URL_EXAMPLE)?;
        connect_once(&options).await?;
        let pool = MySqlPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A ping before each transaction costs a round trip; a dead connection shows itself
            // when the transaction begins, where another attempt is free of doubt.
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(Self::from_pool(pool))
    }

    /// Uses the database of a pool that the application has already.
    ///
    /// Handlers' transactions get a second pool with the same options and size, so that the
    /// settings they need do not reach the application's own statements.
    pub fn from_pool(pool: MySqlPool) -> Self {
        let options = MySqlConnectOptions::clone(&pool.connect_options());
        let transactions = pool.options().clone().min_connections(0).connect_lazy_with(options);
        Self { pool, transactions, names: Names::default() }
    }

    /// The pool, for the application's own queries outside handlers.
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }
}

const URL_EXAMPLE: &str = "write `mysql://user:password@host:port/database`";

/// The pool would keep trying a database that is down; at start its error is wanted at once.
async fn connect_once(options: &MySqlConnectOptions) -> Result<(), StoreError> {
    let (host, port) = (options.get_host(), options.get_port());
    let Some(database) = options.get_database() else {
        let advice = format!("the database URL names no database; {URL_EXAMPLE}");
        return Err(StoreError::found(advice, Fault::Refused));
    };
    let connection =
        driver::connect(MySqlConnection::connect_with(options)).await.map_err(|error| {
            let advice = format!(
                "cannot connect to MariaDB or MySQL database `{database}` at {host}:{port}; \
             check that it runs, and the URL's user and password"
            );
            StoreError::new(advice, fault(&error), error)
        })?;
    connection.close().await.ok();
    Ok(())
}

/// Counts a connection's transactions, so that a handler's `begin` sets a savepoint.
type Manager = <MySql as Database>::TransactionManager;

/// A transaction, and the claim that it holds.
///
/// The connection of one that is dropped before its end is closed: a statement that was dropped
/// while it ran leaves the driver unsure which answer belongs to which statement.
#[derive(Debug)]
pub struct MysqlTransaction {
    connection: PoolConnection<MySql>,
    /// A random number that tells this transaction's claim from those of others.
    holder: i64,
    claimed: Option<Digest>,
    has_ended: bool,
    /// An answer was not what we had asked for, or none came: there is no use in asking again.
    is_out_of_step: bool,
    names: Names,
}

impl Drop for MysqlTransaction {
    fn drop(&mut self) {
        if !self.has_ended {
            self.connection.close_on_drop();
        }
    }
}

impl Deref for MysqlTransaction {
    type Target = MySqlConnection;

    fn deref(&self) -> &MySqlConnection {
        &self.connection
    }
}

impl DerefMut for MysqlTransaction {
    fn deref_mut(&mut self) -> &mut MySqlConnection {
        &mut self.connection
    }
}

/// The times are the database's, in whole seconds.
const STATEMENTS: Statements = Statements {
    // A repeated insert changes nothing.
    register: "\
        INSERT INTO idem_scope (scope, level, key_fields, seen_at, running_since) \
        VALUES (?, ?, ?, unix_timestamp(), unix_timestamp()) \
        ON DUPLICATE KEY UPDATE level = level",
    keys: "SELECT level, key_fields FROM idem_scope WHERE scope = ?",
    // Assignments happen in this order, and see what those before them have assigned.
    keep_alive: "\
        UPDATE idem_scope SET \
            downtime = CASE \
                WHEN unix_timestamp() - seen_at > 90 THEN downtime + (unix_timestamp() - seen_at) \
                WHEN unix_timestamp() - running_since > greatest(horizon, retention) + downtime THEN 0 \
                ELSE downtime END, \
            running_since = CASE \
                WHEN unix_timestamp() - seen_at > 90 THEN unix_timestamp() ELSE running_since END, \
            seen_at = greatest(seen_at, unix_timestamp()), \
            horizon = greatest(coalesce(horizon, 0), ?), \
            retention = greatest(coalesce(retention, 0), ?) \
        WHERE scope = ?",
    scopes: "SELECT scope FROM idem_scope WHERE retention IS NOT NULL ORDER BY scope",
    pruned_before: "SELECT pruned_before FROM idem_scope WHERE scope = ?",
    oldest_claim_age: "SELECT CAST(unix_timestamp() - unix_timestamp(min(claimed_at)) AS SIGNED) \
        FROM idem_claim WHERE scope = ?",
    is_same: " <=> ",
};

impl Store for Mysql {
    type Connection = MySqlConnection;
    type Transaction = MysqlTransaction;

    const MIGRATIONS: &'static [&'static str] = &[
        include_str!("migrations/mysql/0001_claims.sql"),
        include_str!("migrations/mysql/0002_replies.sql"),
        include_str!("migrations/mysql/0003_scopes.sql"),
    ];

    fn with_names(self, names: Names) -> Result<Self, StoreError> {
        let names = ledger::without_schema(names, "this engine")?;
        Ok(Self { names, ..self })
    }

    fn transactions_max(&self) -> Option<u32> {
        Some(self.transactions.options().get_max_connections())
    }

    async fn begin(&self) -> Result<MysqlTransaction, StoreError> {
        // One round trip. MySQL alone reads the comment: see `CLAIM`. Read write is said aloud, so
        // that a read-only replica refuses here.
        const BEGIN: &str = "SET autocommit = 0 /*!80000 , innodb_lock_wait_timeout = 1 */; \
             SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
             START TRANSACTION READ WRITE; SAVEPOINT idem";
        let mut connection = self.transactions.acquire().await.map_err(failed("begin"))?;
        if let Err(error) = Manager::begin(&mut connection, Some(BEGIN.into_sql_str())).await {
            connection.close_on_drop();
            return Err(failed("begin")(error));
        }
        let holder = fastrand::i64(0..i64::MAX);
        Ok(MysqlTransaction {
            connection,
            holder,
            claimed: None,
            has_ended: false,
            is_out_of_step: false,
            names: self.names.clone(),
        })
    }

    async fn claim(
        transaction: &mut MysqlTransaction,
        claim: &Claim,
    ) -> Result<Claimed, StoreError> {
        // MariaDB alone reads the comment: a key that is locked is then found busy at once.
        // A plain insert takes a shared lock on the row that it meets, and two that waited for the
        // same holder deadlock when that one rolls back. This one takes an exclusive lock, given
        // that the update changes something.
        const CLAIM: &str = "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ \
             INSERT INTO idem_claim (digest, scope, holder, same) VALUES (?, ?, ?, ?) \
             ON DUPLICATE KEY UPDATE holder = holder + 1";
        let (sql, names) = (transaction.names.sql(CLAIM), transaction.names.clone());
        let affected = sqlx::query(sql)
            .bind(&claim.digest.as_bytes()[..])
            .bind(claim.scope)
            .bind(transaction.holder)
            .bind(claim.same.as_bytes())
            .execute(&mut **transaction)
            .await;
        match affected.map(|done| done.rows_affected()) {
            Ok(1) => {
                transaction.claimed = Some(claim.digest);
                Ok(Claimed::Ours)
            }
            Ok(2) => {
                let found = find(&mut **transaction, &names, claim.digest).await;
                ledger::met(found.map_err(failed("read the claim"))?)
            }
            Ok(_) => Err(StoreError::found(UNCLEAR_CLAIM, Fault::Refused)),
            Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => Ok(Claimed::Busy),
            Err(error) => Err(failed("claim")(error)),
        }
    }

    /// The rows that were there before tell themselves by their holder, which is then put back.
    async fn claim_many(
        transaction: &mut MysqlTransaction,
        claims: &[&Claim],
    ) -> Result<Vec<Claimed>, StoreError> {
        let (holder, failed) = (transaction.holder, failed("claim"));
        let sorted = ledger::in_order(claims);
        let names = transaction.names.clone();
        let mut query = QueryBuilder::new(names.apply(
            "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ \
             INSERT INTO idem_claim (digest, scope, holder, same) ",
        ));
        query.push_values(&sorted, |mut row, claim| {
            row.push_bind(&claim.digest.as_bytes()[..]).push_bind(claim.scope);
            row.push_bind(holder).push_bind(claim.same.as_bytes());
        });
        query.push(" ON DUPLICATE KEY UPDATE holder = holder + 1");
        query.build().execute(&mut **transaction).await.map_err(&failed)?;

        let mut query =
            QueryBuilder::new(names.apply("SELECT digest FROM idem_claim WHERE holder = "));
        query.push_bind(holder).push(" AND digest IN ");
        push_digests(&mut query, sorted.iter().map(|claim| claim.digest));
        let inserted: Vec<Vec<u8>> =
            query.build_query_scalar().fetch_all(&mut **transaction).await.map_err(&failed)?;
        let inserted = inserted.iter().filter_map(|digest| Digest::from_stored(digest)).collect();
        transaction.claimed = ledger::first(claims, &inserted);

        let others = ledger::others(claims, &inserted);
        let mut found = HashMap::new();
        if !others.is_empty() {
            let mut query = QueryBuilder::new(
                names.apply("UPDATE idem_claim SET holder = holder - 1 WHERE digest IN "),
            );
            push_digests(&mut query, others.iter().copied());
            query.build().execute(&mut **transaction).await.map_err(&failed)?;
        }
        for digest in others {
            let row = find(&mut **transaction, &names, digest).await.map_err(&failed)?;
            found.extend(row.map(|row| (digest, row)));
        }
        ledger::claimed(claims, &inserted, found)
    }

    async fn keep(
        transaction: &mut MysqlTransaction,
        replies: &[(Digest, &Reply)],
    ) -> Result<(), StoreError> {
        const KEEP: &str = "UPDATE idem_claim SET reply = ? WHERE digest = ? AND holder = ?";
        let holder = transaction.holder;
        for (digest, reply) in replies {
            let kept = sqlx::query(transaction.names.sql(KEEP))
                .bind(reply.as_bytes())
                .bind(&digest.as_bytes()[..])
                .bind(holder)
                .execute(&mut **transaction)
                .await
                .map_err(failed("keep the reply"))?;
            ledger::kept(kept.rows_affected(), 1)?;
        }
        Ok(())
    }

    /// The guard knows the transaction by its savepoint.
    async fn mark(_: &mut MysqlTransaction) -> Result<(), StoreError> {
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        type Part = (String, i64, Option<String>, i64, i64);
        const FIND: &str = "\
            SELECT CAST(table_name AS CHAR), CAST(non_unique AS SIGNED), CAST(column_name AS CHAR), \
                   CAST(sub_part IS NOT NULL AS SIGNED), CAST(nullable = 'YES' AS SIGNED) \
            FROM information_schema.statistics \
            WHERE table_schema = database() AND index_name = ? ORDER BY table_name, seq_in_index";
        const COLUMNS: &str = "\
            SELECT CAST(column_name AS CHAR) FROM information_schema.columns \
            WHERE table_schema = database() AND table_name = ?";
        let failed = failed("read the catalogue");
        let parts: Vec<Part> =
            sqlx::query_as(FIND).bind(name).fetch_all(&self.pool).await.map_err(&failed)?;
        let Some((table, ..)) = parts.first() else {
            return Err(ledger::no_constraint(name));
        };
        ledger::proves(
            name,
            &[
                (
                    parts.iter().all(|(other, ..)| other == table),
                    "is there for several tables, of which errors do not tell which",
                ),
                (parts.iter().all(|(_, non_unique, ..)| *non_unique == 0), "is not unique"),
                (parts.iter().all(|(_, _, column, ..)| column.is_some()), "is on an expression"),
                (parts.iter().all(|(.., prefix, _)| *prefix == 0), "is on a prefix of a column"),
                (
                    parts.iter().all(|(.., nullable)| *nullable == 0),
                    "has a column that may be null, and nulls are never equal",
                ),
            ],
        )?;
        let table_columns =
            sqlx::query_scalar(COLUMNS).bind(table).fetch_all(&self.pool).await.map_err(&failed)?;
        let table = table.clone();
        let columns = parts.into_iter().filter_map(|(_, _, column, ..)| column).collect();
        let name = name.to_owned();
        Ok(Constraint { name, schema: None, table, columns, table_columns })
    }

    /// Only the message names the key: MySQL with its table, MariaDB without.
    fn violates(error: &(dyn Error + 'static), constraint: &Constraint) -> bool {
        let Constraint { name, table, .. } = constraint;
        let endings = [format!(" '{name}'"), format!(" '{table}.{name}'")];
        driver::server_error(error).is_some_and(|error| {
            let names = |ending: &String| error.message().ends_with(ending.as_str());
            number_of(error) == Some(DUPLICATE_ENTRY) && endings.iter().any(names)
        })
    }

    async fn was_ended(transaction: &mut MysqlTransaction) -> bool {
        if transaction.claimed.is_none() {
            return false;
        }
        let guarded = transaction.guard().await;
        guarded.is_err_and(|error| error.fault() == Fault::Broken)
    }

    async fn commit(mut transaction: MysqlTransaction) -> Result<(), StoreError> {
        if let Err(error) = transaction.guard().await {
            return Err(super::give_up::<Self>(transaction, error).await);
        }
        Manager::commit(&mut transaction).await.map_err(|error| {
            let fault = match fault(&error) {
                Fault::Contention => Fault::Contention,
                // No constraint is deferred here. What else goes wrong, such as an interruption
                // or a full disk, leaves open how far the commit came.
                Fault::Unavailable
                | Fault::Refused
                | Fault::Unstorable
                | Fault::InDoubt
                | Fault::Broken => Fault::InDoubt,
            };
            StoreError::new("commit", fault, error)
        })?;
        transaction.has_ended = true;
        Ok(())
    }

    async fn rollback(mut transaction: MysqlTransaction) {
        let rolled_back = transaction.run("ROLLBACK").await.is_ok();
        let is_nested = driver::refuse_nested::<MySql>(&transaction).is_err();
        if rolled_back && !is_nested {
            // Sends another, and waits for nothing: it is the driver that has to know.
            Manager::start_rollback(&mut transaction);
            transaction.has_ended = true;
        }
    }

    sqlx_methods!(STATEMENTS);

    async fn prune(&self, scope: &str, rows_max: u32) -> Result<Option<u64>, StoreError> {
        let mut connection = self.pool.acquire().await.map_err(failed("prune"))?;
        let pruned = prune_alone(&mut connection, &self.names, scope, rows_max).await;
        // Closing gives the lock back, whatever happened.
        connection.close().await.ok();
        pruned.map_err(failed("prune"))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.pool.acquire().await.map_err(failed("migrate"))?;
        let migrated = migrate_alone(&mut connection, &self.names).await;
        // Closing gives the lock back, whatever happened.
        connection.close().await.ok();
        migrated
    }

    async fn check(&self) -> Result<(), StoreError> {
        let found = match version(&self.pool, &self.names).await {
            Err(error) if number(&error) == Some(NO_SUCH_TABLE) => 0,
            found => found.map_err(failed("read the ledger's version"))?,
        };
        migration::check(Self::MIGRATIONS, found)
    }
}

impl MysqlTransaction {
    /// The savepoint that was set when the transaction began ends with it.
    async fn guard(&mut self) -> Result<(), StoreError> {
        driver::refuse_nested::<MySql>(self)?;
        match self.run("RELEASE SAVEPOINT idem").await {
            Ok(()) => Ok(()),
            Err(error) if number(&error) == Some(NO_SUCH_SAVEPOINT) => Err(self.lost().await),
            Err(error) => Err(failed("guard")(error)),
        }
    }

    /// Runs statements of ours, and proves by a number that the answer is theirs.
    async fn run(&mut self, statements: &'static str) -> Result<(), sqlx::Error> {
        if self.is_out_of_step {
            return Err(out_of_step());
        }
        let sql = format!("{statements}; SELECT {}", self.holder);
        let answer = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(&mut *self.connection);
        // The driver panics at some answers that it does not expect.
        let answer = timeout(ANSWER_TIMEOUT, AssertUnwindSafe(answer).catch_unwind()).await;
        let result = match answer {
            Ok(Ok(Ok(row))) if row.try_get(0).is_ok_and(|number: i64| number == self.holder) => {
                Ok(())
            }
            Ok(Ok(Err(error))) if !matches!(error, sqlx::Error::RowNotFound) => Err(error),
            _ => Err(out_of_step()),
        };
        self.is_out_of_step = result.as_ref().is_err_and(|error| number(error).is_none());
        result
    }

    /// What a lost savepoint means: everything since is in a transaction that is rolled back now,
    /// so nothing is committed unless the claim is. Without a claim there is no telling.
    async fn lost(&mut self) -> StoreError {
        let was_committed = match self.claimed {
            Some(digest) => self.was_committed(digest).await,
            None => Ok(true),
        };
        match was_committed {
            Ok(true) => StoreError::found(super::BROKEN_TRANSACTION, Fault::Broken),
            Ok(false) => StoreError::found(ROLLED_BACK, Fault::Refused),
            Err(error) => failed("guard")(error),
        }
    }

    /// Rolls back, and says whether this very claim was committed behind our back.
    async fn was_committed(&mut self, digest: Digest) -> Result<bool, sqlx::Error> {
        const COMMITTED: &str =
            "SELECT EXISTS (SELECT 1 FROM idem_claim WHERE digest = ? AND holder = ?)";
        self.run("ROLLBACK").await?;
        let sql = self.names.sql(COMMITTED);
        let was_committed = sqlx::query_scalar(sql)
            .bind(&digest.as_bytes()[..])
            .bind(self.holder)
            .fetch_one(&mut *self.connection)
            .await?;
        // Reading has begun another transaction, which would keep the table's definition locked.
        self.run("ROLLBACK").await?;
        Ok(was_committed)
    }
}

const UNCLEAR_CLAIM: &str = "claim: the server has neither inserted nor updated one row; check that \
     `idem_claim` has no triggers, and that nothing between here and the server changes statements";

const ROLLED_BACK: &str = "the transaction was rolled back, by the database after an error such \
     as a deadlock, or by the handler; return the errors of statements, and do not send `ROLLBACK`";

fn out_of_step() -> sqlx::Error {
    let problem = "the connection has lost step, as it does when a handler drops a statement that \
         runs; let statements run to their end";
    sqlx::Error::Protocol(problem.to_owned())
}

/// Applies what is missing, while migrations of the same database elsewhere wait.
///
/// DDL cannot be rolled back here. Each version is one statement, which is applied as a whole or not
/// at all, and its number is written after it: an interrupted migration is taken up where it
/// stopped.
async fn migrate_alone(connection: &mut MySqlConnection, names: &Names) -> Result<(), StoreError> {
    // Names of locks are the server's, not the database's, and have at most 64 characters.
    const LOCK: &str = "SELECT coalesce(get_lock(concat('idem:', sha1(database())), 60), 0)";
    connection.execute("SET autocommit = 1").await.map_err(failed("migrate"))?;
    let locked: i64 =
        sqlx::query_scalar(LOCK).fetch_one(&mut *connection).await.map_err(failed("migrate"))?;
    if locked == 0 {
        let waited = "migrate: another migration of this database has not ended in a minute";
        return Err(StoreError::found(waited, Fault::Contention));
    }
    let create = "CREATE TABLE IF NOT EXISTS idem_migration (version INT PRIMARY KEY, \
                  applied_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) ENGINE = InnoDB";
    connection.execute(names.sql(create)).await.map_err(failed("migrate"))?;
    let version = version(&mut *connection, names).await.map_err(failed("migrate"))?;
    for (version, sql) in migration::pending(Mysql::MIGRATIONS, version)? {
        match connection.execute(names.sql(sql)).await {
            Err(error) if !is_there(&error) => return Err(failed("migrate")(error)),
            Err(_) | Ok(_) => {}
        }
        sqlx::query(names.sql("INSERT INTO idem_migration (version) VALUES (?)"))
            .bind(version)
            .execute(&mut *connection)
            .await
            .map_err(failed("migrate"))?;
    }
    Ok(())
}

/// Deletes claims, unless somebody else does.
async fn prune_alone(
    connection: &mut MySqlConnection,
    names: &Names,
    scope: &str,
    rows_max: u32,
) -> Result<Option<u64>, sqlx::Error> {
    const LOCK: &str = "SELECT coalesce(get_lock(concat('idemp:', sha1(database())), 0), 0)";
    const PRUNED: &str = "\
        UPDATE idem_scope SET pruned_before = \
            greatest(pruned_before, seen_at - greatest(horizon, retention) - downtime) \
        WHERE scope = ? AND retention IS NOT NULL";
    const PRUNE: &str = "\
        DELETE FROM idem_claim WHERE scope = ? AND claimed_at < \
            (SELECT from_unixtime(seen_at - greatest(horizon, retention) - downtime) \
             FROM idem_scope WHERE scope = ?) \
        ORDER BY claimed_at LIMIT ?";
    // In zones with summer time an hour comes twice a year. At a higher level of isolation the gaps
    // between the rows would be locked, and new claims that belong there found busy.
    const SETTINGS: &str = "SET time_zone = '+00:00', autocommit = 1; \
         SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
    connection.execute(SETTINGS).await?;
    let locked: i64 = sqlx::query_scalar(LOCK).fetch_one(&mut *connection).await?;
    if locked == 0 {
        return Ok(None);
    }
    let mut transaction = connection.begin().await?;
    sqlx::query(names.sql(PRUNED)).bind(scope).execute(&mut *transaction).await?;
    let deleted = sqlx::query(names.sql(PRUNE))
        .bind(scope)
        .bind(scope)
        .bind(rows_max)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    // The server notices only later that the connection was closed, and the next batch would find
    // this one at work.
    connection.execute("DO release_lock(concat('idemp:', sha1(database())))").await?;
    Ok(Some(deleted.rows_affected()))
}

/// Whether a migration's statement failed since it was applied before.
fn is_there(error: &sqlx::Error) -> bool {
    // The table, the column, the index.
    matches!(number(error), Some(1050 | 1060 | 1061))
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Adds a value as it is compared with a column.
fn bind(query: &mut QueryBuilder<MySql>, value: &KeyValue) -> Result<(), StoreError> {
    /// The Julian day of the day that `from_days` counts as 0.
    const DAY_ZERO: i32 = 1_721_060;
    match value {
        KeyValue::Integer(value) => query.push_bind(ledger::integer(*value)?),
        KeyValue::Bool(value) => query.push_bind(*value),
        KeyValue::Text(value) => query.push_bind(value.clone()),
        KeyValue::Bytes(value) => query.push_bind(value.clone()),
        KeyValue::Uuid(value) => query.push_bind(value.as_bytes().to_vec()),
        KeyValue::Instant(value) => {
            let micros = ledger::integer(value.unix_timestamp_nanos().div_euclid(1000))?;
            query.push("from_unixtime(").push_bind(micros).push(" / 1000000)")
        }
        KeyValue::Date(value) => {
            query.push("from_days(").push_bind(value.to_julian_day() - DAY_ZERO).push(")")
        }
        KeyValue::Decimal(value) => {
            query.push("CAST(").push_bind(value.clone()).push(" AS DECIMAL(65, 28))")
        }
    };
    Ok(())
}

fn push_digests(query: &mut QueryBuilder<MySql>, digests: impl Iterator<Item = Digest>) {
    query.push("(");
    let mut list = query.separated(", ");
    for digest in digests {
        list.push_bind(digest.as_bytes().to_vec());
    }
    query.push(")");
}

async fn find(
    connection: impl sqlx::MySqlExecutor<'_>,
    names: &Names,
    digest: Digest,
) -> Result<Option<ledger::Row>, sqlx::Error> {
    const FIND: &str = "SELECT CAST(unix_timestamp(claimed_at) * 1000000 AS SIGNED), same, reply \
                        FROM idem_claim WHERE digest = ?";
    sqlx::query_as(names.sql(FIND)).bind(&digest.as_bytes()[..]).fetch_optional(connection).await
}

async fn version(
    connection: impl sqlx::MySqlExecutor<'_>,
    names: &Names,
) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar(names.sql("SELECT coalesce(max(version), 0) FROM idem_migration"))
        .fetch_one(connection)
        .await
}

fn failed(operation: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let operation = driver::with_advice(operation, advice(&error));
        StoreError::new(operation, fault(&error), error)
    }
}

fn advice(error: &sqlx::Error) -> Option<&'static str> {
    match number(error)? {
        // For the database, the table, the column.
        1044 | 1142 | 1143 => Some(driver::GRANT),
        NO_SUCH_TABLE | 1054 => Some(driver::MIGRATE),
        1290 | 1792 | 1836 => Some(driver::READ_ONLY),
        _ => None,
    }
}

const DUPLICATE_ENTRY: u16 = 1062;
const NO_SUCH_TABLE: u16 = 1146;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const NO_SUCH_SAVEPOINT: u16 = 1305;

fn number(error: &sqlx::Error) -> Option<u16> {
    number_of(error.as_database_error()?)
}

fn number_of(error: &dyn DatabaseError) -> Option<u16> {
    Some(error.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

fn fault(error: &sqlx::Error) -> Fault {
    driver::fault(error, server_fault)
}

/// What an error of the server before the commit means. Numbers: the "Server Error Message
/// Reference" of MySQL and "MariaDB Error Codes"; the SQLSTATE is too coarse to go by.
fn server_fault(error: &dyn DatabaseError) -> Fault {
    match number_of(error).unwrap_or_default() {
        // Record changed since it was read, lock wait, deadlock, failed certification in a group,
        // lock not to be had without waiting.
        1020 | LOCK_WAIT_TIMEOUT | 1213 | 3101 | 3572 => Fault::Contention,
        // Too many connections, of all, of the user, in the hour; no thread; no memory; disk full.
        1040 | 1203 | 1226 | 1135 | 1037 | 1041 | 1021 | 1114 => Fault::Unavailable,
        // Wrong user or password, for the server or the database; host not allowed or blocked.
        1044 | 1045 | 1698 | 1129 | 1130 => Fault::Unavailable,
        // Shutdown, node of a cluster not ready, connection killed, connection idle for too long.
        1053 | 1047 | 1927 | 4031 => Fault::Unavailable,
        // A text that is too long, malformed for its column or not in its encoding. A number that is
        // out of range may be the sum with another row's.
        1292 | 1300 | 1366 | 1406 => Fault::Unstorable,
        // A read-only replica, as during a fail-over.
        1290 | 1792 | 1836 => Fault::Unavailable,
        _ => Fault::Refused,
    }
}
