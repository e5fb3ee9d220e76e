//! The soak: three consumer processes and PostgreSQL under every fault, for as long as so many
//! messages take. At the end nothing is lost, nothing is done twice, and the queues are empty.
//!
//! `cargo xtask soak` runs it, with a server of its own: what goes wrong with that server is asked of
//! whoever started it, one request a line of the output.

mod consumer;
mod database;
mod faults;
mod messages;
mod plan;
mod processes;
mod progress;
mod run;
mod verdict;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

/// A soak.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the soak; the exit code tells what came of it.
    Run(Options),
    /// One of the consumers.
    #[command(hide = true)]
    Consume(consumer::Options),
}

/// What is soaked.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A database of its own, on a server that whoever reads the output restarts
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    /// What decides all that is random; printed, and random itself when not given
    #[arg(long)]
    seed: Option<u64>,
    /// How many messages are sent; a fifth of them are duplicates
    #[arg(long, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    messages: u32,
    /// Where the consumers' logs go
    #[arg(long)]
    logs: PathBuf,
}

fn main() -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Arguments::parse().command {
        Command::Run(options) => runtime.block_on(run(options)),
        Command::Consume(options) => runtime.block_on(consumer::run(options)),
    }
}

async fn run(options: Options) -> anyhow::Result<ExitCode> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut terminate = signal(SignalKind::terminate())?;
    // The consumers end with the future that is dropped.
    let result = tokio::select! {
        result = run::run(&options, seed) => result,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
    };
    let logs = options.logs.display();
    match result {
        Ok(verdict) if verdict.is_good() => {
            println!("{verdict}");
            Ok(ExitCode::SUCCESS)
        }
        Ok(verdict) => {
            println!("{verdict}");
            eprintln!("error: the soak failed; seed {seed}, the consumers' logs are in {logs}");
            Ok(ExitCode::FAILURE)
        }
        Err(error) => {
            eprintln!("error: {error:#}; seed {seed}, the consumers' logs are in {logs}");
            Ok(ExitCode::FAILURE)
        }
    }
}
