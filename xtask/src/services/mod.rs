//! Private database servers for tests and benchmarks.
//!
//! Each has its data in one temporary folder, listens on a free loopback port, asks for a random
//! password, and ends with this command.

mod account;
mod extras;
mod mariadb;
mod postgres;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::report::Report;
use crate::server::Server;
use crate::shell::Shell;

/// Where the tests find PostgreSQL.
const POSTGRES_URL: &str = "IDEM_TEST_POSTGRES_URL";
/// Where the tests find MariaDB.
const MARIADB_URL: &str = "IDEM_TEST_MARIADB_URL";

/// The running servers. Dropping it stops them and removes their data.
#[derive(Debug)]
pub(crate) struct Services {
    // The servers come before the folder, so that they have ended when it is removed.
    running: Vec<(&'static str, Server)>,
    folder: Option<TempDir>,
}

impl Services {
    /// No server at all: the tests say what they leave out.
    pub(crate) fn none() -> Self {
        Self { running: Vec::new(), folder: None }
    }

    /// Starts what can be started; a server that cannot is a failed step of the report.
    pub(crate) fn start(shell: &Shell, report: &mut Report) -> Self {
        let mut services = Self::none();
        let Some(folder) = report.step("folder of the servers", make_folder) else {
            return services;
        };
        let path = folder.path();
        extras::install(shell, report);
        let postgres = report.step("start PostgreSQL", || postgres::start(shell, path));
        let mariadb = report.step("start MariaDB", || mariadb::start(shell, path));
        services.running.extend(postgres.map(|server| (POSTGRES_URL, server)));
        services.running.extend(mariadb.map(|server| (MARIADB_URL, server)));
        services.folder = Some(folder);
        services
    }

    /// The variables that tests and benchmarks read.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.running.iter().map(|(variable, server)| (*variable, server.url()))
    }

    /// Stops the servers and removes their data, and says so if that fails.
    pub(crate) fn stop(mut self, report: &mut Report) {
        let Some(folder) = self.folder.take() else {
            return;
        };
        report.step("stop the servers", || {
            // All are stopped before the first error counts: the folder goes last.
            let stopped: Vec<_> =
                self.running.iter_mut().map(|(_, server)| server.stop()).collect();
            stopped.into_iter().collect::<Result<()>>()?;
            folder.close().context("cannot remove the data of the servers")
        });
    }
}

/// Starts PostgreSQL alone, for whoever has a server of its own to restart; its data is in the folder.
pub(crate) fn start_postgres(shell: &Shell, report: &mut Report) -> Option<(Server, TempDir)> {
    let folder = report.step("folder of the server", make_folder)?;
    let server = report.step("start PostgreSQL", || postgres::start(shell, folder.path()))?;
    Some((server, folder))
}

/// `cargo xtask services`.
pub(crate) fn run(shell: &Shell) -> ExitCode {
    let mut report = Report::default();
    let services = Services::start(shell, &mut report);
    for (variable, url) in services.variables() {
        println!("export {variable}='{url}'");
    }
    if !services.running.is_empty() {
        eprintln!("    running until Ctrl-C");
        shell.wait_for_interrupt();
    }
    services.stop(&mut report);
    report.finish()
}

/// The folder is open to pass through, because the servers may run under another account; each
/// has a closed folder inside.
fn make_folder() -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("idem-services-")
        .permissions(Permissions::from_mode(0o711))
        .tempdir()
        .context("cannot make a temporary folder; set TMPDIR to a writable one")
}

/// Makes the folder of one server, owned by the account that it runs under.
fn make_server_folder(parent: &Path, name: &str, account: account::Account) -> Result<PathBuf> {
    let folder = parent.join(name);
    std::fs::create_dir(&folder)
        .and_then(|()| std::fs::set_permissions(&folder, Permissions::from_mode(0o700)))
        .with_context(|| format!("cannot make {}", folder.display()))?;
    account.take(&folder)?;
    Ok(folder)
}

/// A password for servers that live as long as this command.
fn random_password() -> String {
    format!("{:032x}", rand::random::<u128>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_need_no_escaping_and_differ() {
        let (one, other) = (random_password(), random_password());
        assert_ne!(one, other);
        assert!(one.len() == 32 && one.chars().all(|char| char.is_ascii_hexdigit()), "{one}");
    }

    #[test]
    fn the_folder_can_be_passed_through_but_not_listed_by_others() {
        let folder = make_folder().unwrap();
        let mode = folder.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o711);
    }
}
