//! `cargo xtask conformance`: what other people's clients say about the emulator.
//!
//! One file a suite. A suite is downloaded by the package manager of its language into a folder
//! under the target folder; what we add to it is in `tests/conformance`.

mod emulator;
mod files;
mod js;
mod outcome;
mod python;
mod rust;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};

use self::emulator::Emulator;
use self::outcome::Outcome;
use crate::report::Report;
use crate::shell::Shell;

/// Which suites to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only a selection of the cases, for all suites together in less than five minutes
    #[arg(long)]
    pub(crate) quick: bool,

    /// The suites to run, by default all
    #[arg(value_name = "SUITE")]
    pub(crate) suites: Vec<Suite>,
}

impl Options {
    /// A selection of all suites.
    pub(crate) fn quick() -> Self {
        Self { quick: true, suites: Vec::new() }
    }
}

/// The tests of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// The end-to-end tests of the Rust client
    Rust,
    /// Our own cases with the JavaScript client
    Js,
    /// The live tests of the Python client
    Python,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::Js => "js",
            Self::Python => "python",
        }
    }

    /// What stands before each line of the suite's output.
    fn label(self) -> &'static str {
        match self {
            Self::Rust => "rust | ",
            Self::Js => "js | ",
            Self::Python => "python | ",
        }
    }

    /// Downloads, installs and builds what the suite needs.
    fn prepare(self, context: &Context<'_>) -> Result<()> {
        match self {
            Self::Rust => rust::prepare(context),
            Self::Js => js::prepare(context),
            Self::Python => python::prepare(context),
        }
    }

    /// Runs the suite, and counts its cases. That some of them fail is no error here.
    fn run(self, context: &Context<'_>) -> Result<Outcome> {
        match self {
            Self::Rust => rust::run(context),
            Self::Js => js::run(context),
            Self::Python => python::run(context),
        }
    }
}

/// What a suite works with.
#[derive(Debug)]
struct Context<'a> {
    shell: &'a Shell,
    emulator: &'a Emulator,
    /// The suite's own folder, under the target folder. It is there, and what an earlier run has
    /// downloaded too.
    folder: PathBuf,
    /// Only a selection of the cases is wanted.
    quick: bool,
}

impl<'a> Context<'a> {
    fn new(shell: &'a Shell, emulator: &'a Emulator, suite: Suite, quick: bool) -> Result<Self> {
        let folder = shell.target().join("conformance").join(suite.name());
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { shell, emulator, folder, quick })
    }

    /// Where the suite's files are in the repository.
    fn sources(&self, suite: Suite) -> PathBuf {
        self.shell.root().join("tests/conformance").join(suite.name())
    }

    /// Runs the program of a suite, and counts its cases by the lines of its output.
    ///
    /// Such a program fails when a case fails, which is no error here. That it fails otherwise is.
    fn count(
        &self,
        suite: Suite,
        program: &mut Command,
        count: fn(&str, &mut Outcome),
    ) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let result =
            self.shell.run_labelled(program, suite.label(), &mut |line| count(line, &mut outcome));
        self.shell.check()?;
        if outcome.failed == 0 {
            result?;
        }
        Ok(outcome)
    }
}

/// Runs the suites and reports on each.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    steps(shell, options, &mut report);
    report.finish()
}

/// The steps of the command, for a report of which they may be a part.
pub(crate) fn steps(shell: &Shell, options: &Options, report: &mut Report) {
    let Some(emulator) = report.step("start the emulator", || Emulator::start(shell)) else {
        return;
    };
    let mut results: Vec<_> = Suite::value_variants()
        .iter()
        .filter(|suite| options.suites.is_empty() || options.suites.contains(suite))
        .map(|suite| (*suite, None))
        .collect();
    // Suites prepare one at a time: they may use the system's package manager.
    let preparing = Mutex::new(());
    let actions = results.iter_mut().map(|(suite, outcome)| {
        let action = || {
            let context = Context::new(shell, &emulator, *suite, options.quick)?;
            {
                let _turn = preparing.lock().unwrap_or_else(PoisonError::into_inner);
                suite.prepare(&context)?;
            }
            outcome.insert(suite.run(&context)?).verdict()
        };
        (suite.name(), action)
    });
    report.side_by_side(actions.collect());
    report.step("stop the emulator", || emulator.stop());
    report.repeat_at_end(results.iter().map(|(suite, outcome)| summary(*suite, outcome)).collect());
}

fn summary(suite: Suite, outcome: &Option<Outcome>) -> String {
    match outcome {
        Some(outcome) => format!("{}: {outcome}", suite.name()),
        None => format!("{}: not run", suite.name()),
    }
}
