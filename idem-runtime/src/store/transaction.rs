//! A transaction on a connection of a pool, for the drivers of sqlx.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Connection, Database, Error, Pool, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

/// A transaction that rolls back when it is dropped, whatever the handler left open inside it.
///
/// The driver's own rolls back only what was begun last, and gives up its connection at its end.
#[derive(Debug)]
pub(super) struct Transaction<DB: Database> {
    connection: PoolConnection<DB>,
}

impl<DB: Database> Transaction<DB> {
    /// Begins on a connection of the pool.
    ///
    /// A connection that still counts itself inside a transaction, since somebody ended that one by
    /// hand, is closed rather than reused.
    pub(super) async fn begin(pool: &Pool<DB>, statement: &'static str) -> Result<Self, Error> {
        for _ in 0..pool.options().get_max_connections() {
            let connection = pool.acquire().await?;
            if !connection.is_in_transaction() {
                return Self::begin_on(connection, statement).await;
            }
            connection.close().await.ok();
        }
        Self::begin_on(pool.acquire().await?, statement).await
    }

    async fn begin_on(
        connection: PoolConnection<DB>,
        statement: &'static str,
    ) -> Result<Self, Error> {
        let mut begun = Self { connection };
        DB::TransactionManager::begin(&mut begun.connection, Some(statement.into_sql_str()))
            .await?;
        Ok(begun)
    }

    /// Commits. What the handler left open inside must have been refused before.
    #[cfg(feature = "sqlite")]
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        DB::TransactionManager::commit(&mut self.connection).await
    }

    /// Rolls back, with what the handler left open inside. Otherwise only the innermost would be, and
    /// the connection would go back to the pool inside the others.
    pub(super) async fn roll_back(mut self) {
        for _ in 0..self.depth() {
            if DB::TransactionManager::rollback(&mut self.connection).await.is_err() {
                return;
            }
        }
    }

    fn depth(&self) -> usize {
        DB::TransactionManager::get_transaction_depth(&self.connection)
    }

    /// Has the driver roll back before it does anything else on the connection.
    fn end(&mut self) {
        for _ in 0..self.depth() {
            DB::TransactionManager::start_rollback(&mut self.connection);
        }
    }
}

impl<DB: Database> Deref for Transaction<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Database> DerefMut for Transaction<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: Database> Drop for Transaction<DB> {
    fn drop(&mut self) {
        self.end();
    }
}
