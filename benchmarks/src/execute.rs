//! What the one path costs over the same work written by hand.
//!
//! Three variants insert one row a message under a level 1 claim:
//! - *plain*: `BEGIN`, a claim by `ON CONFLICT DO NOTHING`, the row, `COMMIT`;
//! - *protocol*: the same protocol as ours by hand, with the try-lock in the claim (PostgreSQL) and
//!   the guard before the commit, in one query with it (PostgreSQL);
//! - *idem*: `execute` with an annotated handler.
//!
//! A fourth gives `execute` a message that was handled before, in its second delivery.
//!
//! Batches of 100 are compared with plain claims too: a plain handler that is called for each message,
//! and a `batch` handler that writes one set.
//!
//! On PostgreSQL our path keeps its connection for the next message, which leaves less to be done in
//! the background. Message by message that is a gain of the other variants too, and what they leave
//! is a loss of ours; so there all variants share a pool that keeps nothing, as an application's does.
//! What keeping connections gives is measured in turns, each variant alone for a while, beside the
//! path that keeps none.

use std::sync::Arc;

use idem_runtime::store::{Mysql, Postgres, Sqlite, Store};
use idem_runtime::{
    Context, Delivery, Failure, Handler, Outcome, SourceId, Tx, execute, execute_batch, idempotent,
};
use idem_tests::database::{MARIADB_URL, MysqlDatabase, PostgresDatabase, SqliteFile};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Executor};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::paired::{Latencies, Turns};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) customer_id: i64,
    pub(crate) amount_cents: i64,
}

pub(crate) const TABLE: &str =
    "CREATE TABLE orders (customer_id bigint NOT NULL, amount_cents bigint NOT NULL)";
const INSERT: &str = "INSERT INTO orders (customer_id, amount_cents) VALUES ($1, $2)";

const PLAIN: usize = 0;
const PROTOCOL: usize = 1;
const IDEM: usize = 2;
const DUPLICATE: usize = 3;
const VARIANTS: usize = 4;

mod on_sqlite {
    use super::*;

    #[idempotent(level = 1)]
    pub(super) async fn place(tx: &mut Tx<Sqlite>, order: Order) -> Result<(), Failure> {
        sqlx::query(INSERT)
            .bind(order.customer_id)
            .bind(order.amount_cents)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Both hand-written variants; they differ in the guard, which is a savepoint that must still
    /// be there in the end.
    pub(super) async fn by_hand(store: &Sqlite, guarded: bool) -> anyhow::Result<()> {
        let digest = fastrand::u128(..).to_be_bytes();
        let begin = if guarded { "BEGIN IMMEDIATE; SAVEPOINT idem" } else { "BEGIN IMMEDIATE" };
        let mut transaction = store.pool().begin_with(begin).await?;
        let claim =
            "INSERT INTO idem_claim (digest, scope) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING";
        let claimed =
            sqlx::query(claim).bind(&digest[..]).bind("by_hand").execute(&mut *transaction).await?;
        anyhow::ensure!(claimed.rows_affected() == 1);
        sqlx::query(INSERT).bind(7i64).bind(100i64).execute(&mut *transaction).await?;
        if guarded {
            transaction.execute("RELEASE idem").await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

pub(crate) mod on_postgres {
    use super::*;

    #[idempotent(level = 1)]
    pub(crate) async fn place(tx: &mut Tx<Postgres>, order: Order) -> Result<(), Failure> {
        sqlx::query(INSERT)
            .bind(order.customer_id)
            .bind(order.amount_cents)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    // ANCHOR: batch
    #[idempotent(level = 1, batch)]
    pub(crate) async fn place_all(
        tx: &mut Tx<Postgres>,
        orders: Vec<Order>,
    ) -> Result<(), Failure> {
        let (customers, amounts): (Vec<_>, Vec<_>) =
            orders.iter().map(|order| (order.customer_id, order.amount_cents)).unzip();
        sqlx::query("INSERT INTO orders (customer_id, amount_cents) SELECT * FROM unnest($1, $2)")
            .bind(customers)
            .bind(amounts)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }
    // ANCHOR_END: batch

    pub(super) async fn plain(store: &Postgres) -> anyhow::Result<()> {
        let mut transaction = store.pool().begin().await?;
        let claim = "INSERT INTO idem_claim (digest, scope) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let claimed = sqlx::query(claim)
            .bind(Uuid::from_u128(fastrand::u128(..)))
            .bind("by_hand")
            .execute(&mut *transaction)
            .await?;
        anyhow::ensure!(claimed.rows_affected() == 1);
        sqlx::query(INSERT).bind(7i64).bind(100i64).execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(super) async fn protocol(store: &Postgres) -> anyhow::Result<()> {
        let order = Order { customer_id: 7, amount_cents: 100 };
        protocol_for(store, Uuid::from_u128(fastrand::u128(..)), order).await
    }

    pub(crate) async fn protocol_for(
        store: &Postgres,
        digest: Uuid,
        order: Order,
    ) -> anyhow::Result<()> {
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED; DECLARE idem CURSOR FOR SELECT 1";
        let mut transaction = store.pool().begin_with(begin).await?;
        let claim = "\
            INSERT INTO idem_claim (digest, scope) SELECT $1, $2 \
            WHERE pg_try_advisory_xact_lock($3) \
              AND set_config('lock_timeout', '500ms', true) IS NOT NULL \
            ON CONFLICT ON CONSTRAINT idem_claim_pk DO NOTHING \
            RETURNING pg_current_xact_id()::text, \
                set_config('lock_timeout', $4, true)";
        let (_, advisory_key) = digest.as_u64_pair();
        let (id, _): (String, String) = sqlx::query_as(claim)
            .bind(digest)
            .bind("by_hand")
            .bind(advisory_key.cast_signed())
            .bind("0")
            .fetch_one(&mut *transaction)
            .await?;
        sqlx::query(INSERT)
            .bind(order.customer_id)
            .bind(order.amount_cents)
            .execute(&mut *transaction)
            .await?;
        let _: u64 = id.parse()?;
        transaction.execute("CLOSE idem; COMMIT AND CHAIN").await?;
        Ok(())
    }
}

pub(crate) mod on_mariadb {
    use super::*;

    const INSERT: &str = "INSERT INTO orders (customer_id, amount_cents) VALUES (?, ?)";

    #[idempotent(level = 1)]
    pub(crate) async fn place(tx: &mut Tx<Mysql>, order: Order) -> Result<(), Failure> {
        sqlx::query(INSERT)
            .bind(order.customer_id)
            .bind(order.amount_cents)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    /// Both hand-written variants; they differ in the settings of the session, the busy key that is
    /// found at once, and the guard.
    pub(super) async fn by_hand(store: &Mysql, guarded: bool) -> anyhow::Result<()> {
        let (digest, holder) = (fastrand::u128(..).to_be_bytes(), fastrand::i64(0..i64::MAX));
        let mut transaction = match guarded {
            true => {
                let begin = "SET autocommit = 0; \
                     SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
                     START TRANSACTION READ WRITE; SAVEPOINT idem";
                store.pool().begin_with(begin).await?
            }
            false => store.pool().begin().await?,
        };
        let claim = match guarded {
            true => {
                "/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ \
                 INSERT INTO idem_claim (digest, scope, holder, same) VALUES (?, ?, ?, '') \
                 ON DUPLICATE KEY UPDATE holder = holder + 1"
            }
            false => {
                "INSERT INTO idem_claim (digest, scope, holder, same) VALUES (?, ?, ?, '') \
                 ON DUPLICATE KEY UPDATE holder = holder"
            }
        };
        let claimed = sqlx::query(claim)
            .bind(&digest[..])
            .bind("by_hand")
            .bind(holder)
            .execute(&mut *transaction)
            .await?;
        anyhow::ensure!(claimed.rows_affected() == 1);
        sqlx::query(INSERT).bind(7i64).bind(100i64).execute(&mut *transaction).await?;
        if guarded {
            let guard = format!("RELEASE SAVEPOINT idem; SELECT {holder}");
            sqlx::raw_sql(AssertSqlSafe(guard)).fetch_one(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(())
    }
}

/// One message through our path.
pub(crate) async fn through_idem<H: Handler<S>, S: Store>(store: &S) -> anyhow::Result<()> {
    let delivery = delivery()?.with_message_id(format!("{:032x}", fastrand::u128(..)));
    match execute::<H, S>(store, &Context::of(delivery)).await {
        Outcome::Done(_) => Ok(()),
        outcome => anyhow::bail!("not done: {outcome:?}"),
    }
}

/// A batch of new messages.
async fn batch_through_idem<H: Handler<S>, S: Store>(store: &S) -> anyhow::Result<()> {
    let context = |_| {
        let delivery = delivery()?.with_message_id(format!("{:032x}", fastrand::u128(..)));
        anyhow::Ok(Context::of(delivery))
    };
    let contexts: Vec<_> = (0..BATCH).map(context).collect::<Result<_, _>>()?;
    let outcomes = execute_batch::<H, S>(store, &contexts).await;
    let all_done = outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done(_)));
    anyhow::ensure!(all_done, "not done: {outcomes:?}");
    Ok(())
}

/// The message that is the same each time.
async fn again_through_idem<H: Handler<S>, S: Store>(store: &S) -> anyhow::Result<()> {
    let delivery = delivery()?.with_message_id("the same").with_delivery_count(2);
    match execute::<H, S>(store, &Context::of(delivery)).await {
        Outcome::Duplicate(_) => Ok(()),
        outcome => anyhow::bail!("not a duplicate: {outcome:?}"),
    }
}

/// Handles the message that is then the same each time.
async fn once_through_idem<H: Handler<S>, S: Store>(store: &S) -> anyhow::Result<()> {
    let delivery = delivery()?.with_message_id("the same");
    let outcome = execute::<H, S>(store, &Context::of(delivery)).await;
    anyhow::ensure!(matches!(outcome, Outcome::Done(_)), "not done: {outcome:?}");
    Ok(())
}

fn delivery() -> anyhow::Result<Delivery> {
    let body = serde_json::to_vec(&Order { customer_id: 7, amount_cents: 100 })?;
    Ok(Delivery::new(SourceId::new("bus.example.net", "orders"), body))
}

/// More than the workers need, with what each of them has just given back.
const CONNECTIONS: u32 = 72;

/// How many messages each worker handles with each variant.
const ROUNDS: u32 = 1500;

pub(crate) async fn run() -> anyhow::Result<()> {
    let file = SqliteFile::new().await;
    sqlx::query(TABLE).execute(file.store.pool()).await?;
    once_through_idem::<on_sqlite::PlaceHandler, _>(&file.store).await?;
    let latencies = Latencies::<VARIANTS>::measure(ROUNDS, async |variant| match variant {
        DUPLICATE => again_through_idem::<on_sqlite::PlaceHandler, _>(&file.store).await,
        IDEM => through_idem::<on_sqlite::PlaceHandler, _>(&file.store).await,
        variant => on_sqlite::by_hand(&file.store, variant == PROTOCOL).await,
    })
    .await?;
    print("sqlite", 1, &latencies);

    let Some(database) = PostgresDatabase::new().await else { return Ok(()) };
    let store = Postgres::connect_with(database.url.parse()?, CONNECTIONS).await?;
    let keeping_none = Postgres::from_pool(store.pool().clone());
    sqlx::query(TABLE).execute(store.pool()).await?;
    once_through_idem::<on_postgres::PlaceHandler, _>(&store).await?;
    for concurrency in [1, 4, 16] {
        let mut workers = JoinSet::new();
        for _ in 0..concurrency {
            let store = keeping_none.clone();
            workers.spawn(Latencies::measure(ROUNDS, async move |variant| match variant {
                DUPLICATE => again_through_idem::<on_postgres::PlaceHandler, _>(&store).await,
                PLAIN => on_postgres::plain(&store).await,
                PROTOCOL => on_postgres::protocol(&store).await,
                _ => through_idem::<on_postgres::PlaceHandler, _>(&store).await,
            }));
        }
        let measured = workers.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
        print("postgres", concurrency, &Latencies::join(measured));
    }
    for concurrency in [1, 4, 16] {
        run_in_turns(&store, &keeping_none, concurrency).await?;
    }
    for concurrency in [1, 4] {
        run_batches(&store, concurrency).await?;
    }
    store.pool().close().await;
    database.remove().await;
    run_on_mariadb().await
}

async fn run_on_mariadb() -> anyhow::Result<()> {
    let Some(database) = MysqlDatabase::new(MARIADB_URL).await else { return Ok(()) };
    sqlx::query(TABLE).execute(database.store.pool()).await?;
    once_through_idem::<on_mariadb::PlaceHandler, _>(&database.store).await?;
    for concurrency in [1, 4, 16] {
        let mut workers = JoinSet::new();
        for _ in 0..concurrency {
            let store = database.store.clone();
            workers.spawn(Latencies::measure(ROUNDS, async move |variant| match variant {
                DUPLICATE => again_through_idem::<on_mariadb::PlaceHandler, _>(&store).await,
                IDEM => through_idem::<on_mariadb::PlaceHandler, _>(&store).await,
                variant => on_mariadb::by_hand(&store, variant == PROTOCOL).await,
            }));
        }
        let measured = workers.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
        print("mariadb", concurrency, &Latencies::join(measured));
    }
    database.remove().await;
    Ok(())
}

async fn run_in_turns(
    store: &Postgres,
    keeping_none: &Postgres,
    concurrency: usize,
) -> anyhow::Result<()> {
    const KEEPING_NONE: usize = 3;
    let turns = Arc::new(Turns::of(concurrency));
    let mut workers = JoinSet::new();
    for _ in 0..concurrency {
        let (store, keeping_none) = (store.clone(), keeping_none.clone());
        let turns = Arc::clone(&turns);
        workers.spawn(Latencies::<4>::measure_in_turns(ROUNDS, turns, async move |variant| {
            match variant {
                PLAIN => on_postgres::plain(&store).await,
                PROTOCOL => on_postgres::protocol(&store).await,
                KEEPING_NONE => through_idem::<on_postgres::PlaceHandler, _>(&keeping_none).await,
                _ => through_idem::<on_postgres::PlaceHandler, _>(&store).await,
            }
        }));
    }
    let measured = workers.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
    let latencies = Latencies::join(measured);
    for (variant, name) in [(IDEM, "in_turns"), (KEEPING_NONE, "in_turns_keeping_none")] {
        let [same, plain] = [PROTOCOL, PLAIN].map(|baseline| latencies.ratio(variant, baseline));
        println!("execute_postgres_c{concurrency}_{name}_to_same_protocol: {same}");
        println!("execute_postgres_c{concurrency}_{name}_to_plain_claim: {plain}");
    }
    Ok(())
}

/// How many messages a batch has.
const BATCH: u32 = 100;

/// How many batches each worker handles with each variant.
const BATCH_ROUNDS: u32 = 200;

async fn run_batches(store: &Postgres, concurrency: u32) -> anyhow::Result<()> {
    const EACH: usize = 1;
    const SET: usize = 2;
    let mut workers = JoinSet::new();
    for _ in 0..concurrency {
        let store = store.clone();
        workers.spawn(Latencies::<3>::measure(BATCH_ROUNDS, async move |variant| match variant {
            PLAIN => on_postgres::plain(&store).await,
            EACH => batch_through_idem::<on_postgres::PlaceHandler, _>(&store).await,
            _ => batch_through_idem::<on_postgres::PlaceAllHandler, _>(&store).await,
        }));
    }
    let measured = workers.join_all().await.into_iter().collect::<anyhow::Result<_>>()?;
    let latencies = Latencies::join(measured);
    let [each, set] = [EACH, SET].map(|variant| latencies.ratio_of_batch(variant, PLAIN, BATCH));
    println!("execute_postgres_c{concurrency}_plain_handler_in_batches_to_plain_claim: {each}");
    println!("execute_postgres_c{concurrency}_batch_handler_to_plain_claim: {set}");
    Ok(())
}

/// Ratios above 1 mean that ours is faster.
fn print(engine: &str, concurrency: u32, latencies: &Latencies<VARIANTS>) {
    let same = latencies.ratio(IDEM, PROTOCOL);
    let plain = latencies.ratio(IDEM, PLAIN);
    println!("execute_{engine}_c{concurrency}_to_same_protocol: {same}");
    println!("execute_{engine}_c{concurrency}_to_plain_claim: {plain}");
    let new = latencies.ratio(DUPLICATE, IDEM);
    println!("execute_{engine}_c{concurrency}_duplicate_to_new: {new}");
}
