//! The `idem` command. One file a subcommand.

mod database;
mod emulator;
mod migrate;
mod prune;

use clap::{Parser, Subcommand};

/// Looks after the ledger in which idem keeps its claims, and runs a Service Bus emulator.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Emulator(emulator::Arguments),
    Migrate(migrate::Arguments),
    Prune(prune::Arguments),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Emulator(arguments) => emulator::run(arguments).await,
        Command::Migrate(arguments) => migrate::run(arguments).await,
        Command::Prune(arguments) => prune::run(arguments).await,
    }
}
