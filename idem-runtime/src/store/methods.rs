//! What the engines of sqlx do with the scopes of the ledger: the same, but for their SQL.

/// The statements of an engine. Their values are bound in the order that is said here.
pub(super) struct Statements {
    /// Inserts a scope that is not there: scope, level, key.
    pub(super) register: &'static str,
    /// Level and key: scope.
    pub(super) keys: &'static str,
    /// Says that a consumer is alive, counts more than 90 seconds since the last time as downtime,
    /// and raises what is declared: horizon, retention, scope.
    pub(super) keep_alive: &'static str,
    /// All scopes with a retention.
    pub(super) scopes: &'static str,
    /// Up to when claims were pruned: scope.
    pub(super) pruned_before: &'static str,
}

/// The methods of the seam, for an `impl Store` with `pool`, `names` and a function `failed`.
macro_rules! scope_methods {
    ($statements:expr) => {
        async fn register(&self, scope: &ScopeKeys) -> Result<ScopeKeys, StoreError> {
            let failed = failed("register the scope");
            sqlx::query(self.names.sql($statements.register))
                .bind(&scope.scope)
                .bind(scope.level)
                .bind(&scope.key)
                .execute(&self.pool)
                .await
                .map_err(&failed)?;
            let (level, key) = sqlx::query_as(self.names.sql($statements.keys))
                .bind(&scope.scope)
                .fetch_one(&self.pool)
                .await
                .map_err(&failed)?;
            Ok(ScopeKeys { scope: scope.scope.clone(), level, key })
        }

        async fn keep_alive(&self, scope: &str, retention: Retention) -> Result<(), StoreError> {
            sqlx::query(self.names.sql($statements.keep_alive))
                .bind($crate::store::ledger::seconds(retention.horizon))
                .bind($crate::store::ledger::seconds(retention.kept))
                .bind(scope)
                .execute(&self.pool)
                .await
                .map_err(failed("keep alive"))?;
            Ok(())
        }

        async fn scopes(&self) -> Result<Vec<String>, StoreError> {
            sqlx::query_scalar(self.names.sql($statements.scopes))
                .fetch_all(&self.pool)
                .await
                .map_err(failed("read the scopes"))
        }

        async fn pruned_before(
            transaction: &mut Self::Transaction,
            scope: &str,
        ) -> Result<i64, StoreError> {
            let sql = transaction.names.sql($statements.pruned_before);
            let pruned_before = sqlx::query_scalar(sql)
                .bind(scope)
                .fetch_optional(&mut **transaction)
                .await
                .map_err(failed("read what was pruned"))?;
            Ok(pruned_before.unwrap_or(0))
        }
    };
}
pub(super) use scope_methods;
