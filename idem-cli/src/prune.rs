//! `idem prune`: deletes claims that have outlived their retention.

use anyhow::{Context, bail};
use idem_runtime::store::{Mysql, Postgres, SqlServer, Sqlite, Store};
use idem_runtime::{Pruned, prune};
use indicatif::{ProgressBar, ProgressStyle};

use crate::database::{DatabaseUrl, Engine, with_store};

/// Deletes the claims that no message can meet any more.
///
/// Consumers that declare a horizon prune their own scopes while they run; this is for those that
/// have been told to keep claims for less long, or for doing it at a time of your choosing. Only
/// scopes with a declared horizon are pruned, and nothing younger than that. It deletes in small
/// transactions: it can run beside live consumers, and be interrupted at any time.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseUrl,
    /// Only this scope, such as `orders.place`.
    #[arg(long)]
    scope: Option<String>,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    with_store!(arguments.database, prune_in(arguments.scope.as_deref()))
}

async fn prune_in(store: impl Store, scope: Option<&str>) -> anyhow::Result<()> {
    store.check().await?;
    let scopes = store.scopes().await?;
    if let Some(scope) = scope
        && !scopes.iter().any(|known| known == scope)
    {
        let known = if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") };
        bail!(
            "no consumer has declared a horizon for the scope `{scope}`; those with one: {known}"
        );
    }
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {pos} claims deleted, {per_sec}")?);
    let pruned = prune(&store, scope, |deleted| bar.set_position(deleted)).await;
    bar.finish_and_clear();
    match pruned.context("the pruning stopped; what was deleted stays deleted")? {
        Pruned::All(deleted) => println!("{deleted} claims deleted"),
        Pruned::Elsewhere(deleted) => {
            println!("{deleted} claims deleted; somebody else is pruning this ledger now");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use idem_runtime::horizon::Retention;
    use idem_runtime::store::ScopeKeys;

    use super::*;

    #[tokio::test]
    async fn a_scope_without_a_horizon_is_refused_with_those_that_have_one() {
        let folder = tempfile::tempdir().unwrap();
        let database_url = format!("sqlite://{}", folder.path().join("orders.db").display());
        let store = Sqlite::connect(&database_url).await.unwrap();
        store.migrate().await.unwrap();
        let keys = ScopeKeys { scope: "orders.place".to_owned(), level: 1, key: String::new() };
        store.register(&keys).await.unwrap();
        let hour = Duration::from_secs(3600);
        store.keep_alive(&keys.scope, Retention { horizon: hour, kept: hour }).await.unwrap();

        let arguments = |scope: Option<&str>| Arguments {
            database: DatabaseUrl {
                database_url: database_url.clone(),
                schema: None,
                prefix: None,
            },
            scope: scope.map(str::to_owned),
        };
        run(arguments(None)).await.unwrap();
        run(arguments(Some("orders.place"))).await.unwrap();
        let error = run(arguments(Some("orders.plaice"))).await.unwrap_err();
        assert!(error.to_string().contains("those with one: orders.place"), "{error}");
    }
}
