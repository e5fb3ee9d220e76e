//! Side-by-side runs. Each prints its ratios, one a line, as `NAME: VALUE` with the spread;
//! absolute times are noise on a shared machine and are not printed.

mod backlog;
mod execute;
mod ledger;
mod paired;

use clap::{Parser, Subcommand};

/// Runs benchmarks and prints their ratios; without a name, all of them.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Option<Benchmark>,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// Level 1 `execute` against hand-written sqlx, on SQLite, PostgreSQL and MariaDB.
    Execute,
    /// Claims while a million others are pruned, on PostgreSQL and MariaDB.
    Prune,
    /// Claims in a ledger of ten million and in one of a hundred thousand, on PostgreSQL. Takes some
    /// minutes and 3 GB of disk, and is left out where no benchmark is named.
    Growth,
    /// Memory of a consumer against the length of the queue.
    Backlog,
    /// The consumer of `backlog`.
    #[command(hide = true)]
    Consume(backlog::Consume),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().benchmark {
        Some(Benchmark::Execute) => execute::run().await,
        Some(Benchmark::Prune) => ledger::prune().await,
        Some(Benchmark::Growth) => ledger::growth().await,
        Some(Benchmark::Backlog) => backlog::run().await,
        Some(Benchmark::Consume(arguments)) => backlog::consume(arguments).await,
        None => {
            execute::run().await?;
            ledger::prune().await?;
            backlog::run().await
        }
    }
}
