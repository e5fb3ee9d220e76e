//! `cargo xtask ci`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::debian;
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

/// Builds of the runtime that must compile on their own: no feature, and each one alone.
const FEATURE_SETS: [&str; 4] = ["", "sqlite", "postgres", "servicebus"];

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
    report.step("dependencies", || {
        check_dependencies(shell, options.advisories)
    });
    report.step("system libraries", || debian::provide_libraries(shell));
    report.step("clippy", || {
        cargo(
            shell,
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        )
    });
    report.step("docs", || {
        shell.check()?;
        let mut doc = shell.cargo();
        doc.args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings");
        shell.run(&mut doc)
    });
    report.step("features", || check_features(shell));
    test::steps(
        shell,
        &test::Options {
            no_services: false,
            filter: Vec::new(),
        },
        &mut report,
    );
    report.finish()
}

fn cargo(shell: &Shell, arguments: &[&str]) -> Result<()> {
    shell.check()?;
    shell.run(shell.cargo().args(arguments))
}

fn check_dependencies(shell: &Shell, advisories: bool) -> Result<()> {
    shell.check()?;
    let deny = CARGO_DENY.find_or_install(shell)?;
    let mut command = std::process::Command::new(deny);
    command
        .current_dir(shell.root())
        .args(["--workspace", "check", "bans", "licenses", "sources"]);
    if advisories {
        command.arg("advisories");
    } else {
        eprintln!("    known vulnerabilities are not checked; `cargo xtask ci --advisories` does");
    }
    shell.run(&mut command)
}

fn check_features(shell: &Shell) -> Result<()> {
    FEATURE_SETS.iter().try_for_each(|features| {
        let package = [
            "check",
            "--package",
            "idem-runtime",
            "--no-default-features",
        ];
        cargo(shell, &[&package[..], &["--features", features]].concat())
    })
}
