//! `cargo xtask book`.

use std::process::{Command, ExitCode};

use anyhow::{Result, ensure};

use crate::report::Report;
use crate::shell::Shell;
use crate::tools::CargoTool;

/// Without its default features, mdBook builds the book and cannot serve it; search stays.
const MDBOOK: CargoTool = CargoTool {
    name: "mdbook",
    version: "0.5.4",
    series: "0.5.",
    install_options: &["--no-default-features", "--features", "search"],
    takes: "one or two minutes",
};

/// Builds the book and reports on it.
pub(crate) fn run(shell: &Shell) -> ExitCode {
    let mut report = Report::default();
    report.step("book", || build(shell));
    report.finish()
}

/// Builds the book in `book/`; a warning is a failure.
pub(crate) fn build(shell: &Shell) -> Result<()> {
    let mdbook = MDBOOK.find_or_install(shell)?;
    let mut command = Command::new(mdbook);
    command.arg("build").arg(shell.root().join("book"));
    let (warnings, result) = shell.run_keeping(&mut command, is_warning);
    result?;
    ensure!(warnings.is_empty(), "mdBook warns:\n{}", warnings.join("\n"));
    Ok(())
}

/// mdBook logs a missing include and the like, and yet succeeds.
fn is_warning(line: &str) -> bool {
    line.split_whitespace().any(|word| word == "WARN" || word == "ERROR")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_mdbooks_warnings() {
        assert!(is_warning(" WARN no such chapter\n"));
        assert!(is_warning("ERROR Error updating \"{{#include nothing.rs}}\"\n"));
        assert!(!is_warning(" INFO Book building has started\n"));
    }
}
