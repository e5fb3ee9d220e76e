//! The Rust client's own end-to-end tests.
//!
//! They come with the client's package. They are built unchanged, against a crate of ours that
//! goes by the client's name and lets it connect without TLS: `tests/conformance/rust`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::emulator::{KEY, KEY_NAME};
use super::outcome::Outcome;
use super::{Context, Suite, files};
use crate::shell::Shell;

const CLIENT: &str = "azservicebus";

const STACK_BYTES: u32 = 16 * 1024 * 1024;

/// How many failures may be bad luck: one scenario, and the test function that runs it.
///
/// Where no message comes, the client waits as long as it gives the whole operation. Its tests of an
/// empty queue can see a time-out in place of nothing, since the two timers start one after the other.
/// So few failures count only if they are there again.
const LUCKLESS_MAX: usize = 2;

/// The entities of `tests/conformance/config.json` that the tests are to use.
const ENTITIES: [(&str, &str); 8] = [
    ("SERVICE_BUS_QUEUE", "rust-queue"),
    ("SERVICE_BUS_SESSION_QUEUE", "rust-session-queue"),
    ("SERVICE_BUS_TOPIC", "rust-topic"),
    ("SERVICE_BUS_SUBSCRIPTION", "subscription"),
    ("SERVICE_BUS_SESSION_TOPIC", "rust-session-topic"),
    ("SERVICE_BUS_SESSION_SUBSCRIPTION", "subscription"),
    ("SERVICE_BUS_RULE_FILTER_TEST_TOPIC", "rust-rules-topic"),
    ("SERVICE_BUS_RULE_FILTER_TEST_SUBSCRIPTION", "subscription"),
];

/// Puts our crate and the client's tests into one package, and builds it.
pub(super) fn prepare(context: &Context<'_>) -> Result<()> {
    let ours = context.sources(Suite::Rust);
    let theirs = client_folder(context.shell)?;
    let package = &context.folder;
    files::copy(&ours.join("Cargo.toml"), &package.join("Cargo.toml"))?;
    // So the client and all below it are the versions that the workspace uses.
    files::copy(&context.shell.root().join("Cargo.lock"), &package.join("Cargo.lock"))?;
    files::mirror(&ours.join("src"), &package.join("src"))?;
    files::mirror(&theirs.join("tests"), &package.join("tests"))?;
    context.shell.run(cargo_test(context).arg("--no-run"))
}

/// Runs the tests; the same ones when it has to be quick, since they take a minute or two.
pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let emulator = context.emulator;
    let mut test = cargo_test(context);
    test.envs(ENTITIES)
        .env("SERVICE_BUS_CONNECTION_STRING", emulator.connection_string())
        .env("SERVICE_BUS_NAMESPACE", emulator.address())
        .env("SERVICE_BUS_SAS_KEY_NAME", KEY_NAME)
        .env("SERVICE_BUS_SAS_KEY", KEY);
    // One test function holds the futures of all its scenarios, which needs more than 2 MiB.
    test.env("RUST_MIN_STACK", STACK_BYTES.to_string());
    // With one thread, a test's name would stand before its first line of output.
    test.args(["--no-fail-fast", "--", "--nocapture", "--test-threads=2"]);
    test.args(["--skip", "websocket"]);
    let outcome = context.count(Suite::Rust, &mut test, count)?;
    if (1..=LUCKLESS_MAX).contains(&outcome.failed) {
        eprintln!("    rust: {outcome}; once more, since it may be the client's race with itself");
        return context.count(Suite::Rust, &mut test, count);
    }
    Ok(outcome)
}

fn cargo_test(context: &Context<'_>) -> Command {
    let stand_in = context.shell.root().join("patches/azure_core");
    let mut cargo = context.shell.cargo();
    cargo.current_dir(&context.folder).arg("test");
    cargo.arg("--target-dir").arg(context.shell.target());
    cargo.arg("--config").arg(format!("patch.crates-io.azure_core.path={stand_in:?}"));
    cargo
}

/// Where cargo keeps the sources of the client that the workspace uses.
fn client_folder(shell: &Shell) -> Result<PathBuf> {
    let mut command = shell.cargo();
    let output = command.args(["metadata", "--format-version=1", "--locked"]).output()?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("cannot read what cargo metadata says")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["name"] == CLIENT)
        .find_map(|package| Path::new(package["manifest_path"].as_str()?).parent())
        .map(Path::to_owned)
        .with_context(|| format!("the workspace does not use {CLIENT}"))
}

/// Counts a line of the tests' output.
///
/// Most tests are scenarios that one test function runs in a row. It says `test NAME ... Ok(())` or
/// `Err(...)` for each, some without the dots. The test runner may break such a line to say how
/// long the function has been running.
fn count(line: &str, outcome: &mut Outcome) {
    let line = line.trim();
    if let Some(totals) = line.strip_prefix("test result: ") {
        outcome.skipped += total(totals, "ignored") + total(totals, "filtered out");
        return;
    }
    let is_test = line.starts_with("test ");
    let runs_scenarios = line.contains("_sequentially ");
    if line.ends_with("Ok(())") || (is_test && line.ends_with("... ok") && !runs_scenarios) {
        outcome.passed += 1;
    } else if line.starts_with("Err(")
        || (is_test && (line.contains("Err(") || line.ends_with("... FAILED")))
    {
        outcome.failed += 1;
    }
}

/// The number before `what` in `ok. 2 passed; 0 failed; 1 ignored; ...`.
fn total(totals: &str, what: &str) -> usize {
    let mut parts = totals.split(['.', ';']).map(str::trim);
    let number = parts.find_map(|part| part.strip_suffix(what)?.trim().parse().ok());
    number.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_and_tests_are_counted_but_not_what_runs_the_scenarios() {
        let output = "
running 3 tests
test client_can_connect_using_named_key_credential ... ok
test send_and_receive_one_message ... Ok(())
test schedule_and_receive_messagesOk(())
test peek_empty_queueErr(Os { code: 111 })
test run_topic_subscription_tests_sequentially ... ok
test send_to_queue_every_minute_for_two_hour ... ignored
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 1 filtered out; finished in 2.08s";
        let mut outcome = Outcome::default();
        output.lines().for_each(|line| count(line, &mut outcome));
        assert_eq!(outcome, Outcome { passed: 3, failed: 1, skipped: 2 });
    }

    #[test]
    fn a_broken_line_counts_once() {
        let output = "
test schedule_messagestest run_queue_tests_sequentially has been running for over 60 seconds
Ok(())
test peek_messagestest run_queue_tests_sequentially has been running for over 60 seconds
Err(Empty)";
        let mut outcome = Outcome::default();
        output.lines().for_each(|line| count(line, &mut outcome));
        assert_eq!(outcome, Outcome { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_scenario_that_panics_is_a_failure_of_the_test_that_runs_it() {
        let mut outcome = Outcome::default();
        count("test run_queue_tests_sequentially ... FAILED", &mut outcome);
        assert_eq!(outcome, Outcome { failed: 1, ..Outcome::default() });
    }
}
