//! The `idem` command. One file a subcommand.

mod migrate;

use clap::{Parser, Subcommand};

/// Looks after the ledger in which idem keeps its claims.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Migrate(migrate::Arguments),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Migrate(arguments) => migrate::run(arguments).await,
    }
}
