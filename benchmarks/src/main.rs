//! Runs that print figures, one a line, as `NAME: VALUE` with the spread. Those of idem are ratios of
//! side-by-side runs, since absolute times are noise on a shared machine; those of the emulator are
//! absolute and have targets, and a median that misses one is a failure.

mod backlog;
mod consumer;
mod emulator;
mod execute;
mod ledger;
mod median;
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
    /// The consumer against the same protocol by hand, in batches, beside a hot key, and its memory
    /// over a million messages, on PostgreSQL. Takes some ten minutes, and is left out where no
    /// benchmark is named.
    Consumer {
        /// A part of it; all of them when left out.
        part: Option<consumer::Part>,
    },
    /// Throughput, start and memory of the emulator.
    Emulator,
    /// The consumer of `backlog`.
    #[command(hide = true)]
    Consume(backlog::Consume),
    /// The consumer of `consumer` whose memory is measured.
    #[command(hide = true)]
    Work(consumer::Work),
    /// The emulator of `emulator` whose memory is measured.
    #[command(hide = true)]
    Hold,
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    match Arguments::parse().benchmark {
        // They have runtimes of their own.
        Some(Benchmark::Emulator) => emulator::run(),
        Some(Benchmark::Consumer { part }) => consumer::run(part),
        Some(Benchmark::Work(arguments)) => runtime.block_on(consumer::work(arguments)),
        Some(Benchmark::Execute) => runtime.block_on(execute::run()),
        Some(Benchmark::Prune) => runtime.block_on(ledger::prune()),
        Some(Benchmark::Growth) => runtime.block_on(ledger::growth()),
        Some(Benchmark::Backlog) => runtime.block_on(backlog::run()),
        Some(Benchmark::Consume(arguments)) => runtime.block_on(backlog::consume(arguments)),
        Some(Benchmark::Hold) => runtime.block_on(emulator::hold()),
        None => {
            runtime.block_on(execute::run())?;
            runtime.block_on(ledger::prune())?;
            runtime.block_on(backlog::run())?;
            emulator::run()
        }
    }
}
