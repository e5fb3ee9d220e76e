//! Our own cases with the JavaScript client: `tests/conformance/js`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::outcome::Outcome;
use super::{Context, Suite, files};
use crate::shell::Shell;
use crate::{debian, tools};

/// What the client asks for; its test runner and `fetch` are in all of these.
const NODE_MAJOR_MIN: u32 = 18;

/// Node.js and its package manager.
struct Programs {
    node: PathBuf,
    npm: PathBuf,
}

/// Installs Node.js where that is ours to do, and the client.
pub(super) fn prepare(context: &Context<'_>) -> Result<()> {
    let programs = find_or_install(context.shell)?;
    check_version(&programs.node)?;
    let ours = context.sources(Suite::Js);
    files::copy(&ours.join("package.json"), &context.folder.join("package.json"))?;
    files::mirror(&ours.join("cases"), &context.folder.join("cases"))?;
    let mut install = Command::new(&programs.npm);
    install.args(["install", "--no-audit", "--no-fund", "--no-progress"]);
    context.shell.run(install.current_dir(&context.folder))
}

/// Runs the cases; all of them when it has to be quick, since they run at the same time.
pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let programs = find().context("Node.js has gone")?;
    let mut node = Command::new(programs.node);
    node.current_dir(context.folder.join("cases")).args(["--test", "--test-reporter=spec"]);
    // What Node makes of a folder depends on its version.
    node.args(files::names(&context.sources(Suite::Js).join("cases"))?.iter().filter(is_test));
    node.env("SERVICEBUS_CONNECTION_STRING", context.emulator.connection_string());
    node.env("EMULATOR_CONTROL_URL", context.emulator.control_url());
    context.count(Suite::Js, &mut node, count)
}

fn find_or_install(shell: &Shell) -> Result<Programs> {
    if let Some(programs) = find() {
        return Ok(programs);
    }
    debian::install(shell, "Node.js", &["nodejs", "npm"])?;
    find().context("packages nodejs and npm have brought no node and npm")
}

fn find() -> Option<Programs> {
    Some(Programs { node: tools::find("node", &[])?, npm: tools::find("npm", &[])? })
}

fn check_version(node: &PathBuf) -> Result<()> {
    let output = Command::new(node).arg("--version").output()?;
    let answer = String::from_utf8_lossy(&output.stdout);
    ensure!(
        major(&answer).is_some_and(|major| major >= NODE_MAJOR_MIN),
        "{} says it is {}: put Node.js {NODE_MAJOR_MIN} or later in PATH",
        node.display(),
        answer.trim()
    );
    Ok(())
}

/// Whether a file has cases of its own.
fn is_test(name: &&OsString) -> bool {
    name.to_string_lossy().ends_with(".test.js")
}

/// The 18 of `v18.20.4`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Takes the totals of the test runner, such as `ℹ pass 25`.
fn count(line: &str, outcome: &mut Outcome) {
    let Some((what, number)) = line.trim().strip_prefix("ℹ ").and_then(|it| it.split_once(' '))
    else {
        return;
    };
    let total = match what {
        "pass" => &mut outcome.passed,
        "fail" | "cancelled" => &mut outcome.failed,
        "skipped" | "todo" => &mut outcome.skipped,
        _ => return,
    };
    *total += number.parse::<usize>().unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_totals_are_taken_and_nothing_else() {
        let output = "
✔ pass 7 in one (32.1ms)
ℹ tests 32
ℹ pass 27
ℹ fail 2
ℹ cancelled 1
ℹ skipped 2
ℹ todo 0
ℹ duration_ms 21000.5";
        let mut outcome = Outcome::default();
        output.lines().for_each(|line| count(line, &mut outcome));
        assert_eq!(outcome, Outcome { passed: 27, failed: 3, skipped: 2 });
    }

    #[test]
    fn reads_the_version_of_node() {
        assert_eq!(major("v18.20.4\n"), Some(18));
        assert_eq!(major("20"), None);
    }
}
