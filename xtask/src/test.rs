//! `cargo xtask test`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::book;
use crate::conformance;
use crate::report::Report;
use crate::services::Services;
use crate::shell::Shell;
use crate::soak;

/// Builds that must compile on their own, by package: no feature, and each one alone.
const FEATURE_SETS: [(&str, &[&str]); 2] = [
    (
        "idem-runtime",
        &[
            "",
            "sqlite",
            "postgres",
            "mysql",
            "sqlserver",
            "servicebus",
            "chrono",
            "decimal",
            "opentelemetry",
        ],
    ),
    ("idem-emulator", &["", "config", "control"]),
];

/// What to test.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Start no server: tests that need one use IDEM_TEST_POSTGRES_URL and IDEM_TEST_MARIADB_URL
    /// if you set them, else say that they are left out; other people's clients and the soak are
    /// not run
    #[arg(long)]
    pub(crate) no_services: bool,

    /// Arguments for the test runner, such as `-p idem-runtime` or a part of a test's name; then
    /// only those tests run, and nothing else
    #[arg(last = true, value_name = "FILTER")]
    pub(crate) filter: Vec<String>,
}

/// Runs the tests and reports on every step.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    steps(shell, options, &mut report);
    report.finish()
}

/// The steps of the command, for a report of which they may be a part.
pub(crate) fn steps(shell: &Shell, options: &Options, report: &mut Report) {
    let services =
        if options.no_services { Services::none() } else { Services::start(shell, report) };
    run_tests(shell, options, &services, report);
    if options.filter.is_empty() {
        report.step("features", || check_features(shell));
        report.step("book", || book::build(shell));
        if !options.no_services {
            conformance::steps(shell, &conformance::Options::quick(), report);
        }
    }
    services.stop(report);
    if options.filter.is_empty() && !options.no_services {
        soak::steps(shell, &soak::Options::short(), report);
    }
}

fn run_tests(shell: &Shell, options: &Options, services: &Services, report: &mut Report) {
    let nextest = has_nextest(shell);
    let mut runs = vec![("tests", test_arguments(nextest, &options.filter))];
    if nextest && options.filter.is_empty() {
        runs.push((
            "doc tests",
            vec!["test".into(), "--workspace".into(), "--doc".into(), "--no-fail-fast".into()],
        ));
    }
    for (name, arguments) in runs {
        let mut summary = Vec::new();
        report.step(name, || {
            let mut cargo = shell.cargo();
            cargo.args(&arguments).envs(services.variables());
            let (lines, result) = shell.run_keeping(&mut cargo, is_summary);
            summary = lines;
            result
        });
        report.repeat_at_end(summary);
    }
}

fn check_features(shell: &Shell) -> Result<()> {
    for (package, sets) in FEATURE_SETS {
        for features in sets {
            let mut check = shell.cargo();
            check.args(["check", "--package", package, "--no-default-features"]);
            shell.run(check.args(["--features", features]))?;
        }
    }
    Ok(())
}

fn has_nextest(shell: &Shell) -> bool {
    let output = shell.cargo().args(["nextest", "--version"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The filter may select packages, which `--workspace` would overrule.
fn test_arguments(nextest: bool, filter: &[String]) -> Vec<String> {
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test"] };
    let mut arguments: Vec<String> = runner.iter().copied().map(str::to_owned).collect();
    arguments.push("--no-fail-fast".to_owned());
    if filter.is_empty() {
        arguments.push("--workspace".to_owned());
    }
    arguments.extend_from_slice(filter);
    arguments
}

/// The lines in which the test runners say what a run came to, unless it had no test.
fn is_summary(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with("test result: ok. 0 passed; 0 failed; 0 ignored;") {
        return false;
    }
    line.starts_with("test result:") || line.starts_with("Summary [")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_filter_the_whole_workspace_is_tested() {
        assert_eq!(test_arguments(true, &[]), ["nextest", "run", "--no-fail-fast", "--workspace"]);
        assert_eq!(test_arguments(false, &[]), ["test", "--no-fail-fast", "--workspace"]);
    }

    #[test]
    fn a_filter_selects_packages_and_names() {
        let filter = ["-p", "xtask", "claim"].map(str::to_owned);
        let expected = ["test", "--no-fail-fast", "-p", "xtask", "claim"];
        assert_eq!(test_arguments(false, &filter), expected);
    }

    #[test]
    fn knows_the_summaries_of_both_runners() {
        assert!(is_summary("     Summary [   0.012s] 3 tests run: 3 passed, 0 skipped\n"));
        assert!(is_summary("test result: ok. 3 passed; 0 failed; 0 ignored\n"));
        assert!(!is_summary("test shell::tests::keeps_wanted_lines ... ok\n"));
    }
}
