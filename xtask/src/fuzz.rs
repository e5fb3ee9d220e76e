//! `cargo xtask fuzz`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::report::Report;
use crate::shell::Shell;
use crate::tools::CargoTool;

const CARGO_FUZZ: CargoTool = CargoTool {
    name: "cargo-fuzz",
    version: "0.13.2",
    series: "0.13.",
    install_options: &[],
    takes: "about a minute",
};

const FOLDER: &str = "idem-emulator/fuzz";

/// More than any input needs; the rest would be a leak.
const MEMORY_MIB_MAX: u32 = 1024;

/// Longer than any input takes, in seconds.
const TIME_MAX: u32 = 10;

/// What to fuzz.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The target; all of them when left out
    target: Option<Target>,

    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Target {
    Connection,
    Values,
    Rules,
    Config,
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Values => "values",
            Self::Rules => "rules",
            Self::Config => "config",
        }
    }
}

/// Runs the targets one after the other. An input that breaks one is an error, and is kept.
pub(crate) fn run(shell: &Shell, options: &Options) -> ExitCode {
    let mut report = Report::default();
    let targets = match &options.target {
        Some(target) => std::slice::from_ref(target),
        None => Target::value_variants(),
    };
    for target in targets {
        report.step(target.name(), || fuzz(shell, target.name(), options.seconds));
    }
    report.finish()
}

fn fuzz(shell: &Shell, target: &str, seconds: u32) -> Result<()> {
    let program = CARGO_FUZZ.find_or_install(shell)?;
    let folder = shell.root().join(FOLDER);
    let corpus = folder.join("corpus").join(target);
    std::fs::create_dir_all(&corpus).context("cannot make the folder of the corpus")?;
    let mut fuzz = Command::new(program);
    // What it asks of the compiler is not stable. Without `unsafe` there is nothing to sanitize.
    fuzz.current_dir(shell.root()).env("RUSTC_BOOTSTRAP", "1");
    fuzz.args(["run", "--sanitizer", "none", "--fuzz-dir", FOLDER, target]);
    fuzz.arg(corpus).arg(folder.join("seeds").join(target)).arg("--");
    fuzz.arg(format!("-max_total_time={seconds}")).arg(format!("-timeout={TIME_MAX}"));
    shell.run(fuzz.arg(format!("-rss_limit_mb={MEMORY_MIB_MAX}")).arg("-print_final_stats=1"))
}
