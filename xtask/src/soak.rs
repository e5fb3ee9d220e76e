//! `cargo xtask soak`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;
use rustix::process::Signal;

use crate::report::Report;
use crate::server::Server;
use crate::services;
use crate::shell::Shell;

const MESSAGES: u32 = 200_000;

/// What takes about two minutes, restarts and all.
const MESSAGES_SHORT: u32 = 20_000;

/// What to soak.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Take about two minutes: 20,000 messages, in a debug build; without it 200,000, in a release
    /// build
    #[arg(long)]
    short: bool,

    /// What decides all that is random, to run a soak again; random itself when left out, and printed
    #[arg(long)]
    seed: Option<u64>,

    /// How many messages are sent
    #[arg(long)]
    messages: Option<u32>,
}

impl Options {
    /// The form that is part of the tests.
    pub(crate) fn short() -> Self {
        Self { short: true, seed: None, messages: None }
    }
}

/// Runs the soak.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    steps(shell, options, &mut report);
    report.finish()
}

/// The steps of the command, for a report of which they may be a part.
pub(crate) fn steps(shell: &Shell, options: &Options, report: &mut Report) {
    let Some(program) = report.step("build the soak", || build(shell, options)) else { return };
    let Some((mut server, folder)) = services::start_postgres(shell, report) else { return };
    report.step("soak", || soak(shell, options, &program, &mut server));
    report.step("stop PostgreSQL", || {
        server.stop()?;
        folder.close().context("cannot remove the data of the server")
    });
}

/// Builds the program and says where it is.
fn build(shell: &Shell, options: &Options) -> Result<PathBuf> {
    let mut cargo = shell.cargo();
    cargo.args(["build", "--package", "idem-tests", "--bin", "soak"]);
    if options.short {
        shell.run(&mut cargo)?;
        return Ok(shell.target().join("debug/soak"));
    }
    shell.run(cargo.arg("--release"))?;
    Ok(shell.target().join("release/soak"))
}

fn soak(shell: &Shell, options: &Options, program: &Path, server: &mut Server) -> Result<()> {
    let logs = shell.target().join("soak");
    // Those of the run before are of no use any more.
    if let Err(error) = fs::remove_dir_all(&logs)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", logs.display()));
    }
    let default = if options.short { MESSAGES_SHORT } else { MESSAGES };
    let mut soak = Command::new(program);
    soak.arg("run").env("DATABASE_URL", server.url()).arg("--logs").arg(&logs);
    soak.args(["--messages", &options.messages.unwrap_or(default).to_string()]);
    if let Some(seed) = options.seed {
        soak.args(["--seed", &seed.to_string()]);
    }
    let mut restarted = Ok(());
    let soaked = shell.run_heeding(&mut soak, &mut |line| {
        if let Some(signal) = signal_asked_for(line)
            && let Err(error) = server.restart(shell, signal)
        {
            restarted = Err(error.context("cannot restart PostgreSQL"));
        }
    });
    if soaked.is_err() {
        fs::create_dir_all(&logs)
            .and_then(|()| fs::copy(server.log(), logs.join("postgres.log")))?;
    }
    restarted.and(soaked)
}

/// What `pg_ctl restart --mode` sends. The soak asks for it, since only we can start the server again.
fn signal_asked_for(line: &str) -> Option<Signal> {
    match line.trim_end() {
        "restart fast" => Some(Signal::INT),
        "restart immediate" => Some(Signal::QUIT),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heeds_requests_and_nothing_else() {
        assert_eq!(signal_asked_for("restart fast\n"), Some(Signal::INT));
        assert_eq!(signal_asked_for("restart immediate\n"), Some(Signal::QUIT));
        assert_eq!(signal_asked_for("       4  database restarts, fast\n"), None);
    }
}
