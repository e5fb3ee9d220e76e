//! MariaDB.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::account::Account;
use super::{make_server_folder, random_password};
use crate::server::{Launch, Server};
use crate::shell::Shell;
use crate::{debian, tools};

/// The server without its service, and `my_print_defaults`, which mariadb-install-db calls.
const PACKAGES: [&str; 2] = ["mariadb-server-core", "mariadb-client-core"];

/// The server's programs.
#[derive(Debug, PartialEq, Eq)]
struct Programs {
    install: PathBuf,
    server: PathBuf,
}

/// Finds or installs MariaDB and starts an instance with its data under `parent`.
pub(super) fn start(shell: &Shell, parent: &Path) -> Result<Server> {
    let programs = find_or_install(shell)?;
    let account = Account::for_server(&["mysql", "nobody"])?;
    let folder = make_server_folder(parent, "mariadb", account)?;
    let data = folder.join("data");
    let password = random_password();
    let first_statements = initialise(shell, &programs, account, &folder, &data, &password)?;
    Server::start(
        shell,
        &Launch {
            log: folder.join("server.log"),
            ready: "ready for connections",
            stop: Signal::TERM,
            command: &|port| {
                let mut command = account.command(&programs.server, "TERM")?;
                command.current_dir(&folder).arg("--no-defaults");
                command.arg(option("datadir", &data)).arg(option("init-file", &first_statements));
                command.arg(option("socket", &folder.join("socket")));
                command.arg(option("pid-file", &folder.join("pid"))).arg(option("tmpdir", &folder));
                command.args(["--bind-address=127.0.0.1", "--skip-name-resolve"]);
                command.args(["--max-connections=200", "--character-set-server=utf8mb4"]);
                command.arg(format!("--port={port}"));
                Ok(command)
            },
            url: &|port| url(port, &password),
        },
    )
}

fn find_or_install(shell: &Shell) -> Result<Programs> {
    if let Some(programs) = find() {
        return Ok(programs);
    }
    debian::install(shell, "MariaDB", &PACKAGES)?;
    find().with_context(|| {
        format!("packages {} have brought no mariadb-install-db and mariadbd", PACKAGES.join(", "))
    })
}

fn find() -> Option<Programs> {
    // The server's folder is in the PATH of root alone.
    let more = [PathBuf::from("/usr/sbin")];
    Some(Programs {
        install: tools::find("mariadb-install-db", &more)?,
        server: tools::find("mariadbd", &more)?,
    })
}

/// Creates the system tables; returns the file of the statements that the server starts with.
fn initialise(
    shell: &Shell,
    programs: &Programs,
    account: Account,
    folder: &Path,
    data: &Path,
    password: &str,
) -> Result<PathBuf> {
    let mut install = account.command(&programs.install, "TERM")?;
    install.current_dir(folder).args(["--no-defaults", "--skip-test-db"]);
    install.arg(option("datadir", data)).arg(option("tmpdir", folder));
    shell
        .run_logged(&mut install, &folder.join("install.log"))
        .context("mariadb-install-db cannot create the system tables")?;

    let file = folder.join("first.sql");
    std::fs::write(&file, first_statements(password))
        .context("cannot write the first statements")?;
    account.take(&file)?;
    Ok(file)
}

/// Each statement on one line, as `--init-file` wants it; run again at a new attempt to start.
fn first_statements(password: &str) -> String {
    format!(
        "CREATE DATABASE IF NOT EXISTS idem CHARACTER SET utf8mb4;\n\
         CREATE USER IF NOT EXISTS 'idem'@'127.0.0.1' IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON *.* TO 'idem'@'127.0.0.1' WITH GRANT OPTION;\n"
    )
}

fn option(name: &str, path: &Path) -> std::ffi::OsString {
    let mut option = std::ffi::OsString::from(format!("--{name}="));
    option.push(path);
    option
}

fn url(port: u16, password: &str) -> String {
    format!("mysql://idem:{password}@127.0.0.1:{port}/idem")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_matches_the_user_and_database_of_the_first_statements() {
        assert_eq!(url(3307, "abc"), "mysql://idem:abc@127.0.0.1:3307/idem");
        let statements = first_statements("abc");
        assert!(statements.contains("DATABASE IF NOT EXISTS idem "));
        assert!(statements.contains("'idem'@'127.0.0.1' IDENTIFIED BY 'abc'"));
        assert!(statements.lines().all(|line| line.ends_with(';')), "{statements}");
    }
}
