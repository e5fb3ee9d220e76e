//! `cargo xtask bench`.

mod compile;

use std::process::ExitCode;

use clap::Args;

use crate::report::Report;
use crate::services::Services;
use crate::shell::Shell;

/// The benchmark that needs no database.
const WITHOUT_SERVERS: &str = "emulator";

/// The benchmark of the compiler, which is no program of ours.
const COMPILE: &str = "compile";

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The benchmark, such as `execute` or `compile`; all of them when left out
    name: Option<String>,
}

/// Measures the compiler, or runs the benchmark program with servers of its own.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    if options.name.as_deref().is_none_or(|name| name == COMPILE) {
        report.step(COMPILE, || compile::run(shell));
    }
    if options.name.as_deref() == Some(COMPILE) {
        return report.finish();
    }
    let services = match options.name.as_deref() {
        Some(WITHOUT_SERVERS) => Services::none(),
        Some(_) | None => Services::start(shell, &mut report),
    };
    report.step("benchmarks", || {
        let mut cargo = shell.cargo();
        cargo.args(["run", "--release", "--package", "idem-benchmarks", "--"]);
        cargo.args(&options.name).envs(services.variables());
        shell.run(&mut cargo)
    });
    services.stop(&mut report);
    report.finish()
}
