//! The database of the run, as the soak looks at it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use idem_runtime::store::{Postgres, Store};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::time::timeout;

/// Nothing but the handlers' claims keeps effects from doubling.
const TABLE: &str = "\
    CREATE TABLE effects (queue text NOT NULL, name text NOT NULL, delivery_count bigint NOT NULL)";

/// How long the server may take to say since when it runs.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Database {
    url: String,
}

impl Database {
    /// Makes the tables of the ledger and of the handlers.
    pub(crate) async fn prepare(url: &str) -> anyhow::Result<Self> {
        let store = Postgres::connect(url).await?;
        store.migrate().await?;
        sqlx::query(TABLE).execute(store.pool()).await.context(
            "cannot make the table of the effects; the soak needs an empty database of its own",
        )?;
        store.pool().close().await;
        Ok(Self { url: url.to_owned() })
    }

    /// When the server began to take connections; `None` while it does not.
    pub(crate) async fn started_at(&self) -> Option<String> {
        let ask = async {
            let mut connection = PgConnection::connect(&self.url).await?;
            let started_at = sqlx::query_scalar("SELECT pg_postmaster_start_time()::text")
                .fetch_one(&mut connection)
                .await?;
            connection.close().await?;
            Ok::<String, sqlx::Error>(started_at)
        };
        timeout(PATIENCE, ask).await.ok()?.ok()
    }

    /// How many rows each intent has.
    pub(crate) async fn effects(&self, queue: &str) -> anyhow::Result<HashMap<String, i64>> {
        let count = "SELECT name, count(*) FROM effects WHERE queue = $1 GROUP BY name";
        let mut connection = PgConnection::connect(&self.url).await?;
        let rows: Vec<(String, i64)> =
            sqlx::query_as(count).bind(queue).fetch_all(&mut connection).await?;
        Ok(rows.into_iter().collect())
    }

    /// In which delivery those intents were done that needed the most.
    pub(crate) async fn delivery_count_max(&self) -> anyhow::Result<u64> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let count: i64 = sqlx::query_scalar("SELECT coalesce(max(delivery_count), 0) FROM effects")
            .fetch_one(&mut connection)
            .await?;
        Ok(count.unsigned_abs())
    }

    /// How many claims the handler of a queue has.
    pub(crate) async fn claims(&self, queue: &str) -> anyhow::Result<usize> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM idem_claim WHERE scope = $1")
            .bind(format!("soak.{queue}"))
            .fetch_one(&mut connection)
            .await?;
        Ok(usize::try_from(count)?)
    }
}
