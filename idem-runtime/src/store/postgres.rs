//! The ledger in PostgreSQL, through sqlx.

use std::collections::HashMap;
use std::error::Error;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, QueryBuilder, Row};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use uuid::Uuid;

use super::connections::{Begun, Connections};
use super::methods::{Statements, sqlx_methods};
use super::{
    Claim, Claimed, Constraint, Earlier, Fate, Fault, Names, ScopeKeys, Store, StoreError,
    TransactionId, driver, ledger, migration,
};
use crate::horizon::Retention;
use crate::key::{Digest, KeyValue};
use crate::outcome::Reply;

/// Claims in PostgreSQL 14 or later.
#[derive(Clone, Debug)]
pub struct Postgres {
    connections: Connections,
    names: Names,
    /// How long statements of the pool's sessions wait for locks.
    lock_timeout: Arc<OnceCell<Arc<str>>>,
}

/// How many connections [`Postgres::connect`] allows itself.
const CONNECTIONS_MAX: u32 = 24;

/// How long a handler waits for a connection before its message is tried again later.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Migrations that start together wait for each other on this advisory lock: `idem` in ASCII.
const MIGRATION_LOCK: i64 = 0x6964_656d;

/// Whoever prunes holds this advisory lock: `idep` in ASCII.
const PRUNE_LOCK: i64 = 0x6964_6570;

const SWALLOWED_ERROR: &str = "the handler ignored an error of a statement in its transaction, \
     which can only be rolled back; return the error, or use a savepoint";

impl Postgres {
    /// Connects to the database of a URL, `postgres://user:password@host:port/database`, with at most
    /// 24 connections.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read or the database cannot be reached now. The error names host and
    /// database, never the password.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let advice = "write `postgres://user:password@host:port/database`";
        let options: PgConnectOptions = driver::options(url, &["postgres", "postgresql"], advice)?;
        Self::connect_with(options, CONNECTIONS_MAX).await
    }

    /// Connects with these options and at most so many connections; there should be more of them than
    /// the consumer has messages in flight.
    ///
    /// A connection whose transaction is committed is kept out of the pool for the next message: for
    /// 10 ms at most if none comes, and for a second in all. That saves one round trip in five. No more
    /// are kept than the pool has left to give.
    ///
    /// # Errors
    ///
    /// When the database cannot be reached now. The error names host and database, never the password.
    pub async fn connect_with(
        options: PgConnectOptions,
        connections_max: u32,
    ) -> Result<Self, StoreError> {
        connect_once(&options).await?;
        let pool = PgPoolOptions::new()
            .max_connections(connections_max)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A ping before each transaction costs a round trip; a dead connection shows itself
            // in `BEGIN`, where another attempt is free of doubt.
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(Self::new(Connections::of_ours(pool)))
    }

    /// Uses a pool that the application has already.
    ///
    /// Each transaction takes its connection from the pool and gives it back, so that what the
    /// application has the pool do then is done. [`connect_with`](Self::connect_with) is faster.
    pub fn from_pool(pool: PgPool) -> Self {
        Self::new(Connections::of_application(pool))
    }

    fn new(connections: Connections) -> Self {
        Self { connections, names: Names::default(), lock_timeout: Arc::default() }
    }

    /// The pool, for the application's own queries outside handlers.
    pub fn pool(&self) -> &PgPool {
        self.connections.pool()
    }

    /// Asked once: a claim changes it for itself, and would have to keep and restore it otherwise,
    /// which costs more than the lock that it takes.
    async fn lock_timeout(&self) -> sqlx::Result<Arc<str>> {
        let ask = || async {
            let setting: String = sqlx::query_scalar("SELECT current_setting('lock_timeout')")
                .fetch_one(self.pool())
                .await?;
            Ok(setting.into())
        };
        self.lock_timeout.get_or_try_init(ask).await.cloned()
    }
}

/// The pool would keep trying a database that is down; at start its error is wanted at once.
async fn connect_once(options: &PgConnectOptions) -> Result<(), StoreError> {
    let connection =
        driver::connect(PgConnection::connect_with(options)).await.map_err(|error| {
            let advice = format!(
                "cannot connect to PostgreSQL database `{}` at {}:{}; \
             check that it runs, and the URL's user and password",
                options.get_database().unwrap_or(options.get_username()),
                options.get_host(),
                options.get_port(),
            );
            StoreError::new(advice, fault(&error), error)
        })?;
    connection.close().await.ok();
    Ok(())
}

/// A transaction and the id that the server gave it with the claim.
#[derive(Debug)]
pub struct PostgresTransaction {
    begun: Begun,
    connections: Connections,
    id: Option<TransactionId>,
    names: Names,
    lock_timeout: Arc<str>,
}

impl Deref for PostgresTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.begun.transaction
    }
}

impl DerefMut for PostgresTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.begun.transaction
    }
}

impl PostgresTransaction {
    /// Proves that this is still the transaction that began with [`BEGIN`], and commits it, in one
    /// round trip: of the statements of one query, those after a failed one do not run. In a doomed
    /// transaction the first one fails by itself.
    ///
    /// A connection that is not kept needs an empty transaction, since the driver still counts itself
    /// inside one and rolls it back: outside of any, that would be a warning in the server's log.
    async fn guard_and_commit(&mut self, keeps: bool) -> Result<(), sqlx::Error> {
        let query = if keeps { "CLOSE idem; COMMIT" } else { "CLOSE idem; COMMIT AND CHAIN" };
        self.execute(query).await.map(|_| ())
    }

    /// Whether the transaction that claimed is committed. It is rolled back otherwise, and another
    /// one is open afterwards, since in an aborted one there is no asking.
    async fn was_committed(&mut self) -> Result<bool, sqlx::Error> {
        let Some(id) = self.id else { return Ok(false) };
        if driver::refuse_nested::<sqlx::Postgres>(self).is_err() {
            return Ok(false);
        }
        self.execute("ROLLBACK; BEGIN").await?;
        Ok(fate(&mut **self, id).await? == Fate::Committed)
    }
}

const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The transaction is aborted.
const ABORTED: &str = "25P02";

/// There is no such cursor.
const NO_CURSOR: &str = "34000";

/// A cursor ends with its transaction, so that it tells this one from any other that the handler
/// may have begun. Among the marks that do so it is the cheapest to check: a savepoint would take
/// a second transaction id for each message, and to compare ids the server would have to plan a query.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; DECLARE idem CURSOR FOR SELECT 1";

async fn fate(
    connection: impl sqlx::PgExecutor<'_>,
    id: TransactionId,
) -> Result<Fate, sqlx::Error> {
    let status: Option<String> = sqlx::query_scalar("SELECT pg_xact_status($1::text::xid8)")
        .bind(id.0.to_string())
        .fetch_one(connection)
        .await?;
    Ok(match status.as_deref() {
        Some("committed") => Fate::Committed,
        Some("aborted") => Fate::RolledBack,
        // In progress, or so old that the server has forgotten.
        _ => Fate::Unknown,
    })
}

/// The times are the database's, in whole seconds.
const STATEMENTS: Statements = Statements {
    register: "\
        INSERT INTO idem_scope (scope, level, key_fields, seen_at, running_since) \
        SELECT $1, $2, $3, now, now FROM (SELECT extract(epoch FROM now())::bigint) AS clock (now) \
        ON CONFLICT (scope) DO NOTHING",
    keys: "SELECT level, key_fields FROM idem_scope WHERE scope = $1",
    keep_alive: "\
        UPDATE idem_scope SET \
            downtime = CASE WHEN now - seen_at > 90 THEN downtime + (now - seen_at) \
                            WHEN now - running_since > greatest(horizon, retention) + downtime THEN 0 \
                            ELSE downtime END, \
            running_since = CASE WHEN now - seen_at > 90 THEN now ELSE running_since END, \
            seen_at = greatest(seen_at, now), \
            horizon = greatest(horizon, $1), \
            retention = greatest(retention, $2) \
        FROM (SELECT extract(epoch FROM now())::bigint) AS clock (now) WHERE scope = $3",
    scopes: "SELECT scope FROM idem_scope WHERE retention IS NOT NULL ORDER BY scope",
    pruned_before: "SELECT pruned_before FROM idem_scope WHERE scope = $1",
    oldest_claim_age: "SELECT extract(epoch FROM now() - min(claimed_at))::bigint \
        FROM idem_claim WHERE scope = $1",
    is_same: " IS NOT DISTINCT FROM ",
};

impl Store for Postgres {
    type Connection = PgConnection;
    type Transaction = PostgresTransaction;

    const MIGRATIONS: &'static [&'static str] = &[
        include_str!("migrations/postgres/0001_claims.sql"),
        include_str!("migrations/postgres/0002_replies.sql"),
        include_str!("migrations/postgres/0003_scopes.sql"),
    ];

    fn with_names(self, names: Names) -> Result<Self, StoreError> {
        Ok(Self { names, ..self })
    }

    fn transactions_max(&self) -> Option<u32> {
        Some(self.pool().options().get_max_connections())
    }

    async fn begin(&self) -> Result<PostgresTransaction, StoreError> {
        let failed = failed("begin");
        let lock_timeout = self.lock_timeout().await.map_err(&failed)?;
        Ok(PostgresTransaction {
            begun: self.connections.begin(BEGIN).await.map_err(&failed)?,
            connections: self.connections.clone(),
            id: None,
            names: self.names.clone(),
            lock_timeout,
        })
    }

    /// The advisory lock answers at once when another delivery holds the key, where the insert alone
    /// would wait for its transaction, and take a connection with it. A batch, which has too many
    /// keys for such locks, is waited for, but not for long: the wait is bounded for this statement
    /// alone, and the handler's own statements wait for locks as the pool's sessions do. Where nothing is
    /// inserted there will be none, and a committed row tells whether the key is taken or busy.
    async fn claim(
        transaction: &mut PostgresTransaction,
        claim: &Claim,
    ) -> Result<Claimed, StoreError> {
        const CLAIM: &str = "\
            INSERT INTO idem_claim (digest, scope, same) SELECT $1, $2, $3 \
            WHERE pg_try_advisory_xact_lock($4) \
              AND set_config('lock_timeout', '500ms', true) IS NOT NULL \
            ON CONFLICT ON CONSTRAINT idem_claim_pk DO NOTHING \
            RETURNING pg_current_xact_id()::text, set_config('lock_timeout', $5, true)";
        let (names, lock_timeout) =
            (transaction.names.clone(), Arc::clone(&transaction.lock_timeout));
        let claimed: Result<Option<(String, String)>, _> = sqlx::query_as(names.sql(CLAIM))
            .bind(claim.digest.as_uuid())
            .bind(claim.scope)
            .bind(claim.same.as_bytes())
            .bind(advisory_key(claim.digest))
            .bind(lock_timeout.as_ref())
            .fetch_optional(&mut **transaction)
            .await;
        match claimed {
            Ok(Some((id, _))) => {
                transaction.id = Some(parse_id(&id)?);
                Ok(Claimed::Ours)
            }
            Ok(None) => {
                let found = find(&mut **transaction, &names, claim.digest).await;
                let found = found.map_err(failed("read the claim"))?;
                Ok(found.map_or(Claimed::Busy, |row| Claimed::Before(ledger::earlier(row))))
            }
            Err(error) if code(&error).as_deref() == Some(LOCK_NOT_AVAILABLE) => Ok(Claimed::Busy),
            Err(error) => Err(failed("claim")(error)),
        }
    }

    async fn claim_many(
        transaction: &mut PostgresTransaction,
        claims: &[&Claim],
    ) -> Result<Vec<Claimed>, StoreError> {
        const CLAIM: &str = "\
            WITH bound AS MATERIALIZED (SELECT set_config('lock_timeout', '500ms', true)), \
            claim AS ( \
                INSERT INTO idem_claim (digest, scope, same) \
                SELECT digest, $2, same FROM bound, unnest($1, $3) AS batch (digest, same) \
                ORDER BY digest \
                ON CONFLICT ON CONSTRAINT idem_claim_pk DO NOTHING RETURNING digest) \
            SELECT coalesce(array_agg(digest), '{}'), \
                   CASE WHEN count(*) > 0 THEN pg_current_xact_id()::text END, \
                   set_config('lock_timeout', $4, true) \
            FROM claim";
        let failed = failed("claim");
        let sorted = ledger::in_order(claims);
        let digests: Vec<_> = sorted.iter().map(|claim| claim.digest.as_uuid()).collect();
        let same: Vec<_> = sorted.iter().map(|claim| claim.same.as_bytes()).collect();
        let (names, lock_timeout) =
            (transaction.names.clone(), Arc::clone(&transaction.lock_timeout));
        let (inserted, id, _): (Vec<Uuid>, Option<String>, String) =
            sqlx::query_as(names.sql(CLAIM))
                .bind(digests)
                .bind(sorted.first().map_or("", |claim| claim.scope))
                .bind(same)
                .bind(lock_timeout.as_ref())
                .fetch_one(&mut **transaction)
                .await
                .map_err(&failed)?;
        transaction.id = id.as_deref().map(parse_id).transpose()?;
        let inserted = inserted.into_iter().filter_map(of_uuid).collect();
        let others = ledger::others(claims, &inserted);
        let found = find_many(&mut **transaction, &names, &others).await.map_err(&failed)?;
        ledger::claimed(claims, &inserted, found)
    }

    async fn keep(
        transaction: &mut PostgresTransaction,
        replies: &[(Digest, &Reply)],
    ) -> Result<(), StoreError> {
        const KEEP: &str = "UPDATE idem_claim SET reply = batch.reply \
             FROM unnest($1, $2) AS batch (digest, reply) WHERE idem_claim.digest = batch.digest";
        let digests: Vec<_> = replies.iter().map(|(digest, _)| digest.as_uuid()).collect();
        let texts: Vec<_> = replies.iter().map(|(_, reply)| reply.as_bytes()).collect();
        let sql = transaction.names.sql(KEEP);
        let kept = sqlx::query(sql)
            .bind(digests)
            .bind(texts)
            .execute(&mut **transaction)
            .await
            .map_err(not_kept)?;
        ledger::kept(kept.rows_affected(), replies.len())
    }

    async fn mark(transaction: &mut PostgresTransaction) -> Result<(), StoreError> {
        let id: String = sqlx::query_scalar("SELECT pg_current_xact_id()::text")
            .fetch_one(&mut **transaction)
            .await
            .map_err(failed("begin"))?;
        transaction.id = Some(parse_id(&id)?);
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        type Found = (String, String, bool, bool, bool, bool, bool, Vec<String>, Vec<String>);
        const FIND: &str = "\
            SELECT nspname::text, tables.relname::text, indisunique, indisvalid, indimmediate, \
                   indpred IS NULL AND indexprs IS NULL, coalesce(bool_and(columns.attnotnull), false), \
                   array_agg(coalesce(columns.attname::text, '') ORDER BY place), \
                   ARRAY(SELECT attname::text FROM pg_attribute \
                         WHERE attrelid = indrelid AND attnum > 0 AND NOT attisdropped) \
            FROM pg_index \
            JOIN pg_class indexes ON indexes.oid = indexrelid \
            JOIN pg_class tables ON tables.oid = indrelid \
            JOIN pg_namespace ON pg_namespace.oid = tables.relnamespace \
            CROSS JOIN LATERAL unnest(indkey) WITH ORDINALITY AS key (number, place) \
            LEFT JOIN pg_attribute columns ON attrelid = indrelid AND attnum = number \
            WHERE indexes.relname = $1 AND pg_table_is_visible(indexes.oid) AND place <= indnkeyatts \
            GROUP BY nspname, tables.relname, pg_index.indexrelid";
        let found: Option<Found> = sqlx::query_as(FIND)
            .bind(name)
            .fetch_optional(self.pool())
            .await
            .map_err(failed("read the catalogue"))?;
        let Some((
            schema,
            table,
            unique,
            valid,
            immediate,
            whole,
            never_null,
            columns,
            table_columns,
        )) = found
        else {
            return Err(ledger::no_constraint(name));
        };
        ledger::proves(
            name,
            &[
                (unique, "is not unique"),
                (valid, "is not valid: its index was not built to the end"),
                (immediate, "is deferrable, so that it may speak only at the commit"),
                (whole, "is for a part of the rows, or on an expression"),
                (never_null, "has a column that may be null, and nulls are never equal"),
            ],
        )?;
        let (name, schema) = (name.to_owned(), Some(schema));
        Ok(Constraint { name, schema, table, columns, table_columns })
    }

    fn violates(error: &(dyn Error + 'static), constraint: &Constraint) -> bool {
        let error = driver::server_error(error);
        let error = error.and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        error.is_some_and(|error| {
            error.code() == "23505"
                && error.constraint() == Some(&constraint.name)
                && error.table() == Some(&constraint.table)
                && error.schema() == constraint.schema.as_deref()
        })
    }

    async fn was_ended(transaction: &mut PostgresTransaction) -> bool {
        transaction.was_committed().await.unwrap_or(false)
    }

    async fn commit(mut transaction: PostgresTransaction) -> Result<(), StoreError> {
        if let Err(nested) = driver::refuse_nested::<sqlx::Postgres>(&transaction) {
            return Err(super::give_up::<Self>(transaction, nested).await);
        }
        let keeps = transaction.connections.may_keep(&transaction.begun);
        let Err(error) = transaction.guard_and_commit(keeps).await else {
            if keeps {
                let PostgresTransaction { begun, connections, .. } = transaction;
                connections.keep(begun);
            }
            return Ok(());
        };
        let error = not_committed(error);
        match error.fault {
            Fault::InDoubt => Err(error),
            Fault::Contention
            | Fault::Unavailable
            | Fault::Broken
            | Fault::Unstorable
            | Fault::Refused => Err(super::give_up::<Self>(transaction, error).await),
        }
    }

    fn id(transaction: &PostgresTransaction) -> Option<TransactionId> {
        transaction.id
    }

    async fn fate(&self, id: TransactionId, _: Option<Digest>) -> Result<Fate, StoreError> {
        fate(self.pool(), id).await.map_err(failed("ask for the fate"))
    }

    async fn rollback(transaction: PostgresTransaction) {
        transaction.begun.transaction.roll_back().await;
    }

    sqlx_methods!(STATEMENTS);

    async fn prune(&self, scope: &str, rows_max: u32) -> Result<Option<u64>, StoreError> {
        const ALONE: &str = "SELECT pg_try_advisory_xact_lock($1)";
        const PRUNE: &str = "\
            DELETE FROM idem_claim WHERE ctid = ANY (ARRAY( \
                SELECT ctid FROM idem_claim WHERE scope = $1 AND claimed_at < \
                    (SELECT to_timestamp(seen_at - greatest(horizon, retention) - downtime) \
                     FROM idem_scope WHERE scope = $1) \
                ORDER BY claimed_at LIMIT $2))";
        const PRUNED: &str = "\
            UPDATE idem_scope SET pruned_before = \
                greatest(pruned_before, seen_at - greatest(horizon, retention) - downtime) \
            WHERE scope = $1";
        let failed = failed("prune");
        let mut transaction = self.pool().begin().await.map_err(&failed)?;
        let is_alone: bool = sqlx::query_scalar(ALONE)
            .bind(PRUNE_LOCK)
            .fetch_one(&mut *transaction)
            .await
            .map_err(&failed)?;
        if !is_alone {
            return Ok(None);
        }
        // First, so that the row is locked: the consumers' signs of life wait, and both statements
        // see the same.
        let pruned = sqlx::query(self.names.sql(PRUNED)).bind(scope).execute(&mut *transaction);
        pruned.await.map_err(&failed)?;
        let deleted = sqlx::query(self.names.sql(PRUNE))
            .bind(scope)
            .bind(i64::from(rows_max))
            .execute(&mut *transaction)
            .await
            .map_err(&failed)?;
        transaction.commit().await.map_err(&failed)?;
        Ok(Some(deleted.rows_affected()))
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        let mut transaction = self.pool().begin().await.map_err(failed("migrate"))?;
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(MIGRATION_LOCK)
            .execute(&mut *transaction)
            .await
            .map_err(failed("migrate"))?;
        const MIGRATED: &str = "INSERT INTO idem_migration (version) VALUES ($1)";
        let create = "CREATE TABLE IF NOT EXISTS idem_migration (version integer PRIMARY KEY, \
                      applied_at timestamptz NOT NULL DEFAULT now())";
        if let Some(schema) = self.names.schema_name() {
            let create = format!("CREATE SCHEMA IF NOT EXISTS {}", quoted(schema));
            transaction.execute(AssertSqlSafe(create)).await.map_err(failed("migrate"))?;
        }
        transaction.execute(self.names.sql(create)).await.map_err(failed("migrate"))?;
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
        let found = match version(self.pool(), &self.names).await {
            // 42P01: there is no such table.
            Err(error) if code(&error).as_deref() == Some("42P01") => 0,
            found => found.map_err(failed("read the ledger's version"))?,
        };
        migration::check(Self::MIGRATIONS, found)?;
        self.check_statements().await
    }
}

impl Postgres {
    /// Whether a statement that was prepared is there again in the connection's next transaction. A
    /// pooler in transaction mode gives that another session of the server, while a second connection
    /// holds the one that it has just given back. Others may come in between, so this is done often.
    async fn check_statements(&self) -> Result<(), StoreError> {
        if self.pool().options().get_max_connections() < 2 {
            return Ok(());
        }
        let failed = failed("prepare a statement");
        let mut one = self.pool().acquire().await.map_err(&failed)?;
        // A pool that is busy is no reason to refuse it.
        let Ok(mut other) = self.pool().acquire().await else { return Ok(()) };
        let found = async {
            for _ in 0..STATEMENT_ROUNDS {
                find_statement(&mut one).await?;
                other.execute("BEGIN").await?;
                find_statement(&mut one).await?;
                other.execute("ROLLBACK").await?;
            }
            Ok(())
        };
        let found = timeout(STATEMENT_TIMEOUT, found).await;
        // The one may be waiting for a session that the other has.
        one.close_on_drop();
        other.close_on_drop();
        // Without an answer there is no telling.
        found.unwrap_or(Ok(())).map_err(failed)
    }
}

/// Runs a statement that is prepared once, and refuses the answer of another one of its name.
async fn find_statement(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let answer: String = sqlx::query_scalar("SELECT 'this is the statement of idem'")
        .fetch_one(connection)
        .await
        .map_err(|error| match error {
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::RowNotFound => another_statement(),
            error => error,
        })?;
    if answer == "this is the statement of idem" { Ok(()) } else { Err(another_statement()) }
}

fn another_statement() -> sqlx::Error {
    sqlx::Error::Protocol(LOSES_STATEMENTS.to_owned())
}

const STATEMENT_ROUNDS: u32 = 10;
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(5);

const LOSES_STATEMENTS: &str = "a pooler between here and PostgreSQL loses prepared statements; let \
     it keep them, as PgBouncer 1.21 and later do with `max_prepared_statements`, or pool by session";

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Adds a value as it is compared with a column. The server keeps microseconds.
fn bind(query: &mut QueryBuilder<sqlx::Postgres>, value: &KeyValue) -> Result<(), StoreError> {
    match value {
        KeyValue::Integer(value) => query.push_bind(ledger::integer(*value)?),
        KeyValue::Bool(value) => query.push_bind(*value),
        KeyValue::Text(value) => query.push_bind(value.clone()),
        KeyValue::Bytes(value) => query.push_bind(value.clone()),
        KeyValue::Uuid(value) => query.push_bind(*value),
        KeyValue::Instant(value) => query
            .push("('epoch'::timestamptz + interval '1 microsecond' * ")
            .push_bind(ledger::integer(value.unix_timestamp_nanos().div_euclid(1000))?)
            .push(")"),
        KeyValue::Date(value) => {
            query.push("(DATE '4714-11-24 BC' + ").push_bind(value.to_julian_day()).push(")")
        }
        KeyValue::Decimal(value) => {
            query.push("CAST(").push_bind(value.clone()).push(" AS numeric)")
        }
    };
    Ok(())
}

fn parse_id(id: &str) -> Result<TransactionId, StoreError> {
    let id = id.parse();
    id.map(TransactionId)
        .map_err(|error| StoreError::new("read the transaction's id", Fault::Refused, error))
}

fn of_uuid(digest: Uuid) -> Option<Digest> {
    Digest::from_stored(digest.as_bytes())
}

async fn find_many(
    connection: impl sqlx::PgExecutor<'_>,
    names: &Names,
    digests: &[Digest],
) -> Result<HashMap<Digest, ledger::Row>, sqlx::Error> {
    type Found = (Uuid, i64, Vec<u8>, Option<Vec<u8>>);
    const FIND: &str = "\
        SELECT digest, (extract(epoch FROM claimed_at) * 1000000)::bigint, same, reply \
        FROM idem_claim WHERE digest = ANY ($1)";
    if digests.is_empty() {
        return Ok(HashMap::new());
    }
    let digests: Vec<_> = digests.iter().map(|digest| digest.as_uuid()).collect();
    let rows: Vec<Found> =
        sqlx::query_as(names.sql(FIND)).bind(digests).fetch_all(connection).await?;
    let row = |(digest, at, same, reply)| Some((of_uuid(digest)?, (at, same, reply)));
    Ok(rows.into_iter().filter_map(row).collect())
}

async fn find(
    connection: impl sqlx::PgExecutor<'_>,
    names: &Names,
    digest: Digest,
) -> Result<Option<ledger::Row>, sqlx::Error> {
    const FIND: &str = "SELECT (extract(epoch FROM claimed_at) * 1000000)::bigint, same, reply \
                        FROM idem_claim WHERE digest = $1";
    sqlx::query_as(names.sql(FIND)).bind(digest.as_uuid()).fetch_optional(connection).await
}

async fn version(connection: impl sqlx::PgExecutor<'_>, names: &Names) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar(names.sql("SELECT coalesce(max(version), 0) FROM idem_migration"))
        .fetch_one(connection)
        .await
}

fn advisory_key(digest: Digest) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

fn failed(operation: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        let operation = driver::with_advice(operation, advice(&error));
        StoreError::new(operation, fault(&error), error)
    }
}

fn advice(error: &sqlx::Error) -> Option<&'static str> {
    match code(error)?.as_str() {
        "42501" => Some(driver::GRANT),
        "42P01" | "42703" => Some(driver::MIGRATE),
        "25006" => Some(driver::READ_ONLY),
        // It is not there, it is there already, or another one has its name.
        "26000" | "42P05" | "08P01" => Some(LOSES_STATEMENTS),
        _ => None,
    }
}

/// What an error of the first statement after the handler's means.
fn not_kept(error: sqlx::Error) -> StoreError {
    match code(&error).as_deref() {
        Some(ABORTED) => StoreError::new(SWALLOWED_ERROR, Fault::Refused, error),
        _ => failed("keep the reply")(error),
    }
}

/// What an error of the guard or of the commit means.
fn not_committed(error: sqlx::Error) -> StoreError {
    match (fault(&error), code(&error).as_deref()) {
        (_, Some(ABORTED)) => StoreError::new(SWALLOWED_ERROR, Fault::Refused, error),
        (_, Some(NO_CURSOR)) if error.to_string().contains("idem") => {
            StoreError::new(super::BROKEN_TRANSACTION, Fault::Broken, error)
        }
        // What is not the server's answer says nothing. 40003: the server does not know.
        (_, None | Some("40003")) | (Fault::Unavailable, _) => {
            StoreError::new("commit", Fault::InDoubt, error)
        }
        (fault, Some(_)) => StoreError::new("commit", fault, error),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    Some(error.as_database_error()?.code()?.into_owned())
}

fn fault(error: &sqlx::Error) -> Fault {
    driver::fault(error, server_fault)
}

/// What an error of the server before the commit means. Codes: PostgreSQL documentation,
/// appendix A.
fn server_fault(error: &dyn DatabaseError) -> Fault {
    match error.code().unwrap_or_default().as_ref() {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | LOCK_NOT_AVAILABLE => Fault::Contention,
        // Shutdown, crash, starting up, dropped database; idle transaction ended by the server.
        "57P01" | "57P02" | "57P03" | "57P04" | "25P03" => Fault::Unavailable,
        // A read-only replica, as during a fail-over.
        "25006" => Fault::Unavailable,
        // A text or a date that is too long, malformed or not in the encoding, such as one with NUL.
        // Other data exceptions, such as a division by zero, may be about other rows' values too.
        "22001" | "22007" | "22008" | "22021" | "22P02" | "22P05" => Fault::Unstorable,
        // A prepared statement that is not there, or is there already, behind a pooler.
        "26000" | "42P05" => Fault::Unavailable,
        // Connection exceptions, insufficient resources, wrong role or password.
        code if ["08", "53", "28"].iter().any(|class| code.starts_with(class)) => {
            Fault::Unavailable
        }
        _ => Fault::Refused,
    }
}
