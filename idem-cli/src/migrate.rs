//! `idem migrate`: makes or updates the ledger's tables.

use anyhow::Context;
use idem_runtime::store::{Mysql, Names, Postgres, SqlServer, Sqlite, Store};

use crate::database::{DatabaseUrl, Engine, with_store};

/// Makes the ledger's tables, or brings them to the version that this build uses.
///
/// Migrations go forward only. Running it again, or at several places at once, does no harm.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    database: DatabaseUrl,
    /// Print the SQL of all versions instead, for review or to run it by other means. Only the
    /// URL's scheme matters then: nothing is connected to.
    #[arg(long)]
    print: bool,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    if !arguments.print {
        return with_store!(arguments.database, migrate());
    }
    let names = arguments.database.names()?;
    match arguments.database.engine()? {
        Engine::Postgres => print::<Postgres>(&names),
        Engine::Mysql => print::<Mysql>(&names),
        Engine::SqlServer => print::<SqlServer>(&names),
        Engine::Sqlite => print::<Sqlite>(&names),
    }
    Ok(())
}

async fn migrate(store: impl Store) -> anyhow::Result<()> {
    store.migrate().await.context("the ledger is not up to date; run this again")?;
    println!("the ledger is up to date");
    Ok(())
}

fn print<S: Store>(names: &Names) {
    for (version, sql) in (1..).zip(S::MIGRATIONS) {
        println!("-- version {version}\n{}", names.apply(sql));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(database_url: String) -> Arguments {
        let database = DatabaseUrl { database_url, schema: None, prefix: None };
        Arguments { database, print: false }
    }

    #[tokio::test]
    async fn a_file_is_made_with_a_ledger_that_fits_and_again() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("orders.db").display());
        for _ in 0..2 {
            run(arguments(url.clone())).await.unwrap();
        }
        Sqlite::connect(&url).await.unwrap().check().await.unwrap();
    }

    #[tokio::test]
    async fn a_ledger_can_have_a_prefix_and_a_schema_only_where_there_are_some() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("orders.db").display());
        let mut prefixed = arguments(url.clone());
        prefixed.database.prefix = Some("shop_".to_owned());
        run(prefixed).await.unwrap();
        let store = Sqlite::connect(&url).await.unwrap();
        assert!(store.check().await.is_err(), "there is none without the prefix");
        store.with_names(Names::prefix("shop_").unwrap()).unwrap().check().await.unwrap();

        let mut in_schema = arguments(url);
        in_schema.database.schema = Some("shop".to_owned());
        let error = run(in_schema).await.unwrap_err();
        assert!(error.to_string().contains("use a prefix"), "{error}");
    }

    #[tokio::test]
    async fn another_scheme_is_refused_with_those_that_are_known() {
        let error = run(arguments("mongodb://host/db".to_owned())).await.unwrap_err();
        let known = "`postgres://`, `mysql://`, `sqlserver://` or `sqlite://`";
        assert!(error.to_string().contains(known), "{error}");
    }
}
