//! The database of the ledger, by the scheme of its URL.

use anyhow::bail;
use idem_runtime::store::Names;

/// Where the ledger is, and what its tables are called.
#[derive(Debug, clap::Args)]
pub(crate) struct DatabaseUrl {
    /// `postgres://user:password@host:port/database`, `mysql://…` likewise for MariaDB and MySQL,
    /// `sqlserver://…` for SQL Server, or `sqlite://path/to/file.db`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub(crate) database_url: String,
    /// The schema that the ledger's tables are in, on PostgreSQL and SQL Server; by default the first
    /// one of the `search_path`, or the user's.
    #[arg(long, conflicts_with = "prefix")]
    pub(crate) schema: Option<String>,
    /// What the names of the ledger's tables begin with: `shop_` makes `shop_idem_claim`.
    #[arg(long)]
    pub(crate) prefix: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Engine {
    Postgres,
    Mysql,
    SqlServer,
    Sqlite,
}

impl DatabaseUrl {
    pub(crate) fn names(&self) -> anyhow::Result<Names> {
        Ok(match (&self.schema, &self.prefix) {
            (Some(schema), _) => Names::schema(schema)?,
            (None, Some(prefix)) => Names::prefix(prefix)?,
            (None, None) => Names::default(),
        })
    }

    pub(crate) fn engine(&self) -> anyhow::Result<Engine> {
        Ok(match self.database_url.split(':').next().unwrap_or_default() {
            "postgres" | "postgresql" => Engine::Postgres,
            "mysql" | "mariadb" => Engine::Mysql,
            "sqlserver" => Engine::SqlServer,
            "sqlite" => Engine::Sqlite,
            _ => bail!(
                "the database URL must start with `postgres://`, `mysql://`, `sqlserver://` or \
                 `sqlite://`"
            ),
        })
    }
}

/// Connects to the database, and calls a function that takes any store.
macro_rules! with_store {
    ($url:expr, $function:ident($($argument:expr),*)) => {{
        let (url, names) = ($url.database_url.as_str(), $url.names()?);
        match $url.engine()? {
            Engine::Postgres => {
                $function(Postgres::connect(url).await?.with_names(names)?, $($argument),*).await
            }
            Engine::Mysql => {
                $function(Mysql::connect(url).await?.with_names(names)?, $($argument),*).await
            }
            Engine::SqlServer => {
                $function(SqlServer::connect(url).await?.with_names(names)?, $($argument),*).await
            }
            Engine::Sqlite => {
                $function(Sqlite::connect(url).await?.with_names(names)?, $($argument),*).await
            }
        }
    }};
}
pub(crate) use with_store;
