//! Side-by-side runs. Each prints its ratios, one a line, as `NAME: VALUE` with the spread;
//! absolute times are noise on a shared machine and are not printed.

mod execute;
mod paired;

use clap::Parser;

/// Runs benchmarks and prints their ratios.
#[derive(Debug, Parser)]
struct Arguments {
    /// Which benchmark; all when not given.
    name: Option<Name>,
    /// How many messages each worker handles with each variant.
    #[arg(long, default_value_t = 1500)]
    rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// Level 1 `execute` against hand-written sqlx, on SQLite and PostgreSQL.
    Execute,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.name.unwrap_or(Name::Execute) {
        Name::Execute => execute::run(arguments.rounds).await,
    }
}
