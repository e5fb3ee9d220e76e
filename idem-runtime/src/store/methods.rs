//! What the engines of sqlx do alike, but for their SQL.

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
    /// The age of the oldest claim in seconds: scope.
    pub(super) oldest_claim_age: &'static str,
    /// What compares a column with a value, whatever is null.
    pub(super) is_same: &'static str,
}

/// Methods of the seam, for an `impl Store` with `pool` and `names`, beside functions `failed`, `find`,
/// `quoted`, `bind` and `server_fault`.
macro_rules! sqlx_methods {
    ($statements:expr) => {
        async fn find(&self, digest: Digest) -> Result<Option<Earlier>, StoreError> {
            let found = find(self.pool(), &self.names, digest).await;
            Ok(found.map_err(failed("read the claim"))?.map($crate::store::ledger::earlier))
        }

        async fn agreement(
            &self,
            constraint: &Constraint,
            key: &[KeyValue],
            same: &[(&'static str, &KeyValue)],
        ) -> Result<Option<Vec<bool>>, StoreError> {
            let agreement = $crate::store::driver::Agreement {
                table: match &constraint.schema {
                    Some(schema) => format!("{}.{}", quoted(schema), quoted(&constraint.table)),
                    None => quoted(&constraint.table),
                },
                columns: constraint.columns.iter().map(|column| quoted(column)).collect(),
                key,
                same: same.iter().map(|(column, value)| (quoted(column), *value)).collect(),
                is_same: $statements.is_same,
            };
            let failed = failed("read the row of an earlier message");
            let mut query = agreement.query(bind)?;
            let row = query.build().fetch_optional(self.pool()).await.map_err(&failed)?;
            let Some(row) = row else { return Ok(None) };
            let agrees = (0..same.len()).map(|number| row.try_get(number));
            agrees.collect::<Result<_, _>>().map(Some).map_err(&failed)
        }

        fn fault_of(error: &(dyn Error + 'static)) -> Option<Fault> {
            $crate::store::driver::fault_in(error, server_fault)
        }

        async fn oldest_claim_age(&self, scope: &str) -> Result<Option<i64>, StoreError> {
            sqlx::query_scalar(self.names.sql($statements.oldest_claim_age))
                .bind(scope)
                .fetch_one(self.pool())
                .await
                .map_err(failed("read the oldest claim"))
        }

        async fn register(&self, scope: &ScopeKeys) -> Result<ScopeKeys, StoreError> {
            let failed = failed("register the scope");
            sqlx::query(self.names.sql($statements.register))
                .bind(&scope.scope)
                .bind(scope.level)
                .bind(&scope.key)
                .execute(self.pool())
                .await
                .map_err(&failed)?;
            let (level, key) = sqlx::query_as(self.names.sql($statements.keys))
                .bind(&scope.scope)
                .fetch_one(self.pool())
                .await
                .map_err(&failed)?;
            Ok(ScopeKeys { scope: scope.scope.clone(), level, key })
        }

        async fn keep_alive(&self, scope: &str, retention: Retention) -> Result<(), StoreError> {
            sqlx::query(self.names.sql($statements.keep_alive))
                .bind($crate::store::ledger::seconds(retention.horizon))
                .bind($crate::store::ledger::seconds(retention.kept))
                .bind(scope)
                .execute(self.pool())
                .await
                .map_err(failed("keep alive"))?;
            Ok(())
        }

        async fn scopes(&self) -> Result<Vec<String>, StoreError> {
            sqlx::query_scalar(self.names.sql($statements.scopes))
                .fetch_all(self.pool())
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
pub(super) use sqlx_methods;
