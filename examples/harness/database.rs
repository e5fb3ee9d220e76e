//! The database of a run: the orders table, and what a naive handler remembers.

use std::collections::HashMap;

use anyhow::bail;
use idem_runtime::store::{Postgres, Sqlite, Store};

use crate::PlaceOrder;

/// SQLite or PostgreSQL, with the tables of the job in it.
#[derive(Clone, Debug)]
pub enum Database {
    /// An SQLite file.
    Sqlite(Sqlite),
    /// A PostgreSQL database.
    Postgres(Postgres),
}

/// Neither table has a unique constraint: only the handler keeps effects from doubling.
const TABLES: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS orders \
     (customer_id bigint NOT NULL, external_ref text NOT NULL, amount_cents bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS remembered \
     (customer_id bigint NOT NULL, external_ref text NOT NULL)",
];

/// Runs a statement on whichever database it is; both understand `$1`.
macro_rules! on_either {
    ($database:expr, |$pool:ident| $body:expr) => {
        match $database {
            Database::Sqlite(store) => {
                let $pool = store.pool();
                $body
            }
            Database::Postgres(store) => {
                let $pool = store.pool();
                $body
            }
        }
    };
}

impl Database {
    /// Opens the database and creates the tables.
    ///
    /// # Errors
    ///
    /// When the URL is of neither kind, or the database cannot be used.
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let database = if url.starts_with("sqlite:") {
            Self::Sqlite(Sqlite::connect(url).await?)
        } else if url.starts_with("postgres") {
            Self::Postgres(Postgres::connect(url).await?)
        } else {
            bail!("the database URL must start with `postgres://` or `sqlite://`");
        };
        match &database {
            Self::Sqlite(store) => store.migrate().await?,
            Self::Postgres(store) => store.migrate().await?,
        }
        for table in TABLES {
            on_either!(&database, |pool| sqlx::query(table).execute(pool).await.map(drop))?;
        }
        Ok(database)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Sqlite(_) => "SQLite",
            Self::Postgres(_) => "PostgreSQL",
        }
    }

    /// How many rows each order of a run has.
    ///
    /// # Errors
    ///
    /// When the database fails, as with the functions below.
    pub async fn count_orders(&self, run: &str) -> sqlx::Result<HashMap<String, u64>> {
        const COUNT: &str = "SELECT external_ref, count(*) FROM orders \
                             WHERE external_ref LIKE $1 GROUP BY external_ref";
        let pattern = format!("{run}/%");
        let rows: Vec<(String, i64)> = on_either!(self, |pool| {
            sqlx::query_as(COUNT).bind(&pattern).fetch_all(pool).await
        })?;
        Ok(rows.into_iter().map(|(name, rows)| (name, rows.unsigned_abs())).collect())
    }

    /// Whether a naive handler has remembered this order.
    pub async fn is_remembered(&self, order: &PlaceOrder) -> sqlx::Result<bool> {
        const FIND: &str =
            "SELECT count(*) FROM remembered WHERE customer_id = $1 AND external_ref = $2";
        let found: i64 = on_either!(self, |pool| {
            sqlx::query_scalar(FIND)
                .bind(order.customer_id)
                .bind(&order.external_ref)
                .fetch_one(pool)
                .await
        })?;
        Ok(found > 0)
    }

    /// Remembers this order for [`is_remembered`](Self::is_remembered).
    pub async fn remember(&self, order: &PlaceOrder) -> sqlx::Result<()> {
        const REMEMBER: &str = "INSERT INTO remembered (customer_id, external_ref) VALUES ($1, $2)";
        on_either!(self, |pool| {
            sqlx::query(REMEMBER)
                .bind(order.customer_id)
                .bind(&order.external_ref)
                .execute(pool)
                .await
                .map(drop)
        })
    }

    /// Inserts this order, in a transaction of its own.
    pub async fn insert_order(&self, order: &PlaceOrder) -> sqlx::Result<()> {
        const INSERT: &str =
            "INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)";
        on_either!(self, |pool| {
            sqlx::query(INSERT)
                .bind(order.customer_id)
                .bind(&order.external_ref)
                .bind(order.amount_cents)
                .execute(pool)
                .await
                .map(drop)
        })
    }
}
