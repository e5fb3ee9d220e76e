//! `cargo xtask ci`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::report::Report;
use crate::shell::Shell;
use crate::test;
use crate::tools::CargoTool;

const CARGO_DENY: CargoTool = CargoTool {
    name: "cargo-deny",
    version: "0.20.2",
    series: "0.",
    install_options: &[],
    takes: "several minutes",
};

/// Which checks to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Also check the dependencies for known vulnerabilities; this fetches the advisory database
    /// from its git host
    #[arg(long)]
    advisories: bool,
}

/// Runs every check, cheap ones first, and reports on them.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    report.step("formatting", || cargo(shell, &["fmt", "--all", "--check"]));
    report.step("dependencies", || deny(shell, &["bans", "licenses", "sources"]));
    if options.advisories {
        report.step("advisories", || {
            deny(shell, &["advisories"]).context("vulnerable, or no advisory database (see above)")
        });
    } else {
        eprintln!("    known vulnerabilities are not checked; `cargo xtask ci --advisories` does");
    }
    report.step("clippy", || {
        cargo(shell, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
    });
    report.step("docs", || {
        let mut doc = shell.cargo();
        doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
        shell.run(&mut doc)
    });
    test::steps(shell, &test::Options { no_services: false, filter: Vec::new() }, &mut report);
    report.finish()
}

fn cargo(shell: &Shell, arguments: &[&str]) -> Result<()> {
    shell.run(shell.cargo().args(arguments))
}

fn deny(shell: &Shell, checks: &[&str]) -> Result<()> {
    let mut deny = Command::new(CARGO_DENY.find_or_install(shell)?);
    deny.current_dir(shell.root()).args(["--workspace", "check", "--hide-inclusion-graph"]);
    shell.run(deny.args(checks))
}
