//! The database of the ledger, by the scheme of its URL.

use anyhow::bail;

/// Where the ledger is.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseUrl {
    /// `postgres://user:password@host:port/database`, `mysql://…` likewise for MariaDB and MySQL,
    /// or `sqlite://path/to/file.db`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: String,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Postgres,
    Mysql,
    Sqlite,
}

impl DatabaseUrl {
    pub(crate) fn engine(&self) -> anyhow::Result<Engine> {
        Ok(match self.database_url.split(':').next().unwrap_or_default() {
            "postgres" | "postgresql" => Engine::Postgres,
            "mysql" | "mariadb" => Engine::Mysql,
            "sqlite" => Engine::Sqlite,
            _ => bail!("the database URL must start with `postgres://`, `mysql://` or `sqlite://`"),
        })
    }
}

/// Connects to the database, and calls a function that takes any store.
macro_rules! with_store {
    ($url:expr, $function:ident($($argument:expr),*)) => {{
        let url = $url.database_url.as_str();
        match $url.engine()? {
            Engine::Postgres => $function(Postgres::connect(url).await?, $($argument),*).await,
            Engine::Mysql => $function(Mysql::connect(url).await?, $($argument),*).await,
            Engine::Sqlite => $function(Sqlite::connect(url).await?, $($argument),*).await,
        }
    }};
}
pub(crate) use with_store;
