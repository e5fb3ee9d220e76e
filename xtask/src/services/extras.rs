//! What some tests of PostgreSQL need beside the server. Without it they say that they are left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::report::Report;
use crate::shell::Shell;
use crate::{debian, tools};

/// Where Debian has programs that only root looks for.
const SYSTEM_PROGRAMS: &str = "/usr/sbin";

/// The language in which the tests let the server answer, as `locale -a` shows it.
const LOCALE: &str = "de_DE.utf8";

/// Installs what is missing, where that is ours to do.
pub(super) fn install(shell: &Shell, report: &mut Report) {
    if !debian::may_install() {
        return;
    }
    report.step("PgBouncer", || pooler(shell));
    report.step("German messages", || german(shell));
}

fn pooler(shell: &Shell) -> Result<()> {
    let more = [PathBuf::from(SYSTEM_PROGRAMS)];
    if tools::find("pgbouncer", &more).is_none() {
        debian::install(shell, "PgBouncer", &["pgbouncer"])?;
    }
    Ok(())
}

fn german(shell: &Shell) -> Result<()> {
    if has_locale()? {
        return Ok(());
    }
    if tools::find("localedef", &[]).is_none() || !Path::new(CHARACTERS).exists() {
        debian::install(shell, "German", &["locales"])?;
    }
    let language = ["--inputfile=de_DE", "--charmap=UTF-8", "de_DE.UTF-8"];
    shell.run(Command::new("localedef").args(language))?;
    ensure!(has_locale()?, "localedef has made no {LOCALE}");
    Ok(())
}

/// What `localedef` reads, which the package `locales` brings.
const CHARACTERS: &str = "/usr/share/i18n/locales/de_DE";

fn has_locale() -> Result<bool> {
    let listed = Command::new("locale").arg("-a").output()?;
    Ok(String::from_utf8_lossy(&listed.stdout).lines().any(|name| name == LOCALE))
}
