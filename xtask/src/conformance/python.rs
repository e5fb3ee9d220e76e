//! The Python client's own live tests.
//!
//! They come with the client's source package, and are run unchanged, with stand-ins for the tools
//! that its makers have for them: `tests/conformance/python`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::outcome::Outcome;
use super::{Context, Suite};
use crate::shell::Shell;
use crate::{debian, tools};

const CLIENT: &str = "azure-servicebus";

/// The first version that the releases in `requirements.txt` support.
const PYTHON_MINOR_MIN: u32 = 10;

/// Most of what the tests do is to wait, so many of them run at the same time.
const TESTS_PER_PROCESSOR: usize = 12;

/// How long a test may take, in seconds. One of them takes ten minutes.
const PATIENCE: &str = "900";

/// Installs Python where that is ours to do, the client, and its suite.
pub(super) fn prepare(context: &Context<'_>) -> Result<()> {
    let shell = context.shell;
    let python = find_or_install(shell)?;
    shell.run(Command::new(python).args(["-m", "venv"]).arg(context.folder.join("venv")))?;
    let requirements = context.sources(Suite::Python).join("requirements.txt");
    let mut install = pip(context, "install");
    shell.run(install.arg("--quiet").arg("--requirement").arg(&requirements))?;
    let requirements = fs::read_to_string(requirements).context("cannot read the requirements")?;
    let client = requirement(&requirements)?;
    if !suite(context, client).exists() {
        download(context, client)?;
    }
    Ok(())
}

/// Gets the client's source package, and moves its tests to where they are to be once they are whole.
fn download(context: &Context<'_>, client: &str) -> Result<()> {
    let folder = tempfile::tempdir_in(&context.folder).context("cannot make a folder")?;
    let mut download = pip(context, "download");
    download.args(["--no-deps", "--no-binary", ":all:", "--dest"]).arg(folder.path());
    context.shell.run(download.arg(client))?;
    let name = client.replace("==", "-").replace("azure-", "azure_");
    let package = folder.path().join(format!("{name}.tar.gz"));
    let mut unpack = python(context);
    unpack.args(["-m", "tarfile", "--extract"]).arg(package).arg(folder.path());
    context.shell.run(&mut unpack)?;
    fs::rename(folder.path().join(name).join("tests"), suite(context, client))
        .with_context(|| format!("the source package of {client} has no tests"))
}

/// Runs the live tests, or those of them that `quick.txt` lists.
pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let sources = context.sources(Suite::Python);
    let requirements = fs::read_to_string(sources.join("requirements.txt"))?;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut pytest = python(context);
    pytest.current_dir(suite(context, requirement(&requirements)?));
    pytest.args(["-m", "pytest", "-p", "idem_conformance", "-p", "no:cacheprovider"]);
    pytest.args(["--override-ini", "asyncio_mode=auto"]);
    pytest.args(["--override-ini", "asyncio_default_fixture_loop_scope=function"]);
    pytest.args(["--verbose", "--tb=short", "--show-capture=no", "--disable-warnings"]);
    pytest.args(["--timeout", PATIENCE, "--dist", "worksteal", "--numprocesses"]);
    pytest.arg((processors * TESTS_PER_PROCESSOR).to_string());
    if context.quick {
        pytest.arg("--quick");
    }
    pytest.env("SERVICEBUS_CONNECTION_STRING", context.emulator.connection_string());
    pytest.env("EMULATOR_CONTROL_URL", context.emulator.control_url());
    pytest.env("PYTHONPATH", sources.join("shim")).env("PYTHONDONTWRITEBYTECODE", "1");
    context.count(Suite::Python, &mut pytest, count)
}

fn find_or_install(shell: &Shell) -> Result<PathBuf> {
    if find().is_none_or(|python| !makes_environments(&python)) {
        debian::install(shell, "Python with its venv module", &["python3", "python3-venv"])?;
    }
    let python = find().context("package python3 has brought no python3")?;
    let output = Command::new(&python).arg("--version").output()?;
    let version = String::from_utf8_lossy(&output.stdout);
    ensure!(
        minor(&version).is_some_and(|minor| minor >= PYTHON_MINOR_MIN),
        "{} says it is {}: put Python 3.{PYTHON_MINOR_MIN} or later in PATH",
        python.display(),
        version.trim()
    );
    Ok(python)
}

fn find() -> Option<PathBuf> {
    tools::find("python3", &[])
}

/// Debian has the parts of Python that make environments in a package of their own.
fn makes_environments(python: &PathBuf) -> bool {
    let output = Command::new(python).args(["-c", "import ensurepip, venv"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// The Python of the suite's own environment.
fn python(context: &Context<'_>) -> Command {
    Command::new(context.folder.join("venv/bin/python"))
}

fn pip(context: &Context<'_>, command: &str) -> Command {
    let mut pip = python(context);
    pip.args(["-m", "pip", "--disable-pip-version-check", command]);
    pip
}

/// Where the suite of a version of the client is.
fn suite(context: &Context<'_>, client: &str) -> PathBuf {
    context.folder.join(client.replace("==", "-"))
}

/// The line of the requirements that names the client and its version.
fn requirement(requirements: &str) -> Result<&str> {
    let mut lines = requirements.lines();
    let line = lines.find(|line| line.strip_prefix(CLIENT).is_some_and(|it| it.starts_with("==")));
    line.with_context(|| format!("requirements.txt has no {CLIENT}==VERSION"))
}

/// The 11 of `Python 3.11.2`.
fn minor(version: &str) -> Option<u32> {
    version.trim().strip_prefix("Python 3.")?.split('.').next()?.parse().ok()
}

/// Takes the totals of the last line, such as `2 failed, 202 passed, 4 xpassed in 600.10s (0:10:00)`.
///
/// Tests that are to fail, by what the suite says of them, count as left out when they do.
fn count(line: &str, outcome: &mut Outcome) {
    let line = line.trim().trim_matches('=').trim();
    let Some((totals, _)) = line.rsplit_once(" in ").filter(|(_, time)| is_time(time)) else {
        return;
    };
    for total in totals.split(", ") {
        let Some((number, what)) = total.split_once(' ') else {
            continue;
        };
        let place = match what {
            "passed" | "xpassed" => &mut outcome.passed,
            "failed" | "error" | "errors" => &mut outcome.failed,
            "skipped" | "xfailed" => &mut outcome.skipped,
            _ => continue,
        };
        *place += number.parse::<usize>().unwrap_or_default();
    }
}

/// Whether a text is what pytest says a run took, such as `7.10s` or `600.10s (0:10:00)`.
fn is_time(text: &str) -> bool {
    let seconds = text.split(' ').next().and_then(|it| it.strip_suffix('s'));
    seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_totals_are_taken_and_nothing_else() {
        let output = "
[gw1] [ 50%] PASSED test_queues.py::test_two_passed in 1s
44 failed, 202 passed, 2 skipped, 48 deselected, 2 xfailed, 4 xpassed, 9 warnings, 1 error in 600.10s (0:10:00)
nothing, in particular";
        let mut outcome = Outcome::default();
        output.lines().for_each(|line| count(line, &mut outcome));
        assert_eq!(outcome, Outcome { passed: 206, failed: 45, skipped: 4 });

        count("==== 1 passed in 0.12s ====", &mut outcome);
        assert_eq!(outcome.passed, 207);
    }

    #[test]
    fn reads_versions() {
        assert_eq!(minor("Python 3.11.2\n"), Some(11));
        assert_eq!(minor("Python 2.7"), None);
        let requirements = "# comment\nazure-core==1\nazure-servicebus==7.15.0\n";
        assert_eq!(requirement(requirements).unwrap(), "azure-servicebus==7.15.0");
        assert!(requirement("azure-core==1").is_err());
    }

    fn conformance() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/conformance")
    }

    /// One row of the README a reason, as `skips.json` has it.
    fn table(groups: &serde_json::Value) -> String {
        let mut table = String::from("| reason | tests |\n|---|---|\n");
        for group in groups.as_array().unwrap() {
            let tests = group["tests"].as_array().unwrap().iter();
            let tests: Vec<_> = tests.map(|it| format!("`{}`", it.as_str().unwrap())).collect();
            let reason = group["reason"].as_str().unwrap();
            writeln!(table, "| {reason} | {} |", tests.join(", ")).unwrap();
        }
        table
    }

    #[test]
    fn the_readme_lists_what_is_left_out() {
        let readme = fs::read_to_string(conformance().join("README.md")).unwrap();
        let skips = fs::read_to_string(conformance().join("python/skips.json")).unwrap();
        let skips: serde_json::Value = serde_json::from_str(&skips).unwrap();
        for kind in ["skips", "fails"] {
            let table = table(&skips[kind]);
            assert!(readme.contains(&table), "the README must have this table:\n\n{table}");
        }
    }

    #[test]
    fn what_is_quick_is_also_run() {
        let skips = fs::read_to_string(conformance().join("python/skips.json")).unwrap();
        let quick = fs::read_to_string(conformance().join("python/quick.txt")).unwrap();
        let tests = quick.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let tests: Vec<_> = tests.collect();
        assert!(tests.len() >= 40, "{} tests", tests.len());
        for test in tests {
            assert!(!skips.contains(&format!("\"{test}\"")), "{test} is in both files");
        }
    }
}
