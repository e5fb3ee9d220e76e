//! `cargo xtask`: the workspace's own commands.
//!
//! `test` is the one that everybody runs, CI included. It needs Rust and nothing else: what is
//! missing is found, or installed where that is allowed, and the database servers of the tests
//! are private instances that end with the command.

#[cfg(not(unix))]
compile_error!("cargo xtask runs on Linux and macOS; use plain `cargo test` here");

mod bench;
mod book;
mod ci;
mod conformance;
mod debian;
mod fuzz;
mod report;
mod server;
mod services;
mod shell;
mod soak;
mod test;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::shell::Shell;

/// idem's own commands: tests, checks, benchmarks and the book.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all tests against private PostgreSQL and MariaDB servers, build the book, run a selection
    /// of other people's clients against the embedded emulator, and a short soak.
    ///
    /// Finds PostgreSQL and MariaDB, or installs them with apt-get as root on Debian; starts an
    /// instance of each on a free loopback port with its data in a temporary folder; runs the
    /// tests with cargo-nextest where it is installed, else with cargo test; and stops the
    /// servers, also after a failure or Ctrl-C. Every step that can still run does run, and the
    /// command fails if any of them failed.
    Test(test::Options),
    /// Run every check of the project: formatting, clippy, docs, licences, tests.
    ///
    /// Installs cargo-deny when it is missing, which takes some minutes.
    Ci(ci::Options),
    /// Run other people's clients against the embedded emulator.
    ///
    /// Downloads each suite with the package manager of its language, starts one emulator, runs
    /// the suites side by side, and ends with the counts of each.
    Conformance(conformance::Options),
    /// Run a benchmark, or all of them, against private PostgreSQL and MariaDB servers.
    ///
    /// Builds in release mode and prints one `NAME: VALUE` a line, with the spread.
    Bench(bench::Options),
    /// Feed the emulator with made-up input, and see that it holds.
    ///
    /// Installs cargo-fuzz when it is missing. What breaks a target is kept, and the command fails.
    Fuzz(fuzz::Options),
    /// Let three consumers work through many messages while everything goes wrong: processes are
    /// killed, the database is restarted, connections break, locks and settlements are lost.
    ///
    /// Starts a PostgreSQL server of its own. Fails unless each message is done exactly once, the
    /// queues are empty, and each kind of fault has happened.
    Soak(soak::Options),
    /// Build the book; a warning of mdBook is a failure.
    ///
    /// Installs mdBook under the target folder when the right version is not in PATH.
    Book,
    /// Start the servers of the tests, print their URLs, and wait for Ctrl-C.
    ///
    /// For running single tests or programs by hand: put the printed lines in another shell.
    Services,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let shell = Shell::new()?;
    Ok(match command {
        Command::Test(options) => test::run(&shell, &options),
        Command::Ci(options) => ci::run(&shell, &options),
        Command::Conformance(options) => conformance::run(&shell, &options),
        Command::Bench(options) => bench::run(&shell, &options),
        Command::Fuzz(options) => fuzz::run(&shell, &options),
        Command::Soak(options) => soak::run(&shell, &options),
        Command::Book => book::run(&shell),
        Command::Services => services::run(&shell),
    })
}
