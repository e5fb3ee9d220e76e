//! PostgreSQL.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::account::Account;
use super::{make_server_folder, random_password};
use crate::server::{Launch, Server};
use crate::shell::Shell;
use crate::{debian, tools};

/// Debian's package of the version that the release supports.
const PACKAGE: &str = "postgresql";

/// Debian keeps the server's programs out of PATH, in one folder for each major version.
const DEBIAN_VERSIONS: &str = "/usr/lib/postgresql";

/// The server's programs.
#[derive(Debug, PartialEq, Eq)]
struct Programs {
    initdb: PathBuf,
    postgres: PathBuf,
}

/// Finds or installs PostgreSQL and starts an instance with its data under `parent`.
pub(super) fn start(shell: &Shell, parent: &Path) -> Result<Server> {
    let programs = find_or_install(shell)?;
    let account = Account::for_server(&["postgres", "nobody"])?;
    let folder = make_server_folder(parent, "postgres", account)?;
    let data = folder.join("data");
    let password = random_password();
    initialise(shell, &programs, account, &folder, &data, &password)?;
    Server::start(
        shell,
        &Launch {
            log: folder.join("server.log"),
            ready: "database system is ready to accept connections",
            stop: Signal::INT,
            command: &|port| {
                let mut command = account.command(&programs.postgres, "INT")?;
                command.current_dir(&folder).arg("-D").arg(&data);
                for setting in settings(port) {
                    command.args(["-c", &setting]);
                }
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
    debian::install(shell, "PostgreSQL", &[PACKAGE])?;
    find().with_context(|| format!("package {PACKAGE} has brought no initdb and postgres"))
}

fn find() -> Option<Programs> {
    let more = version_folders(Path::new(DEBIAN_VERSIONS));
    Some(Programs {
        initdb: tools::find("initdb", &more)?,
        postgres: tools::find("postgres", &more)?,
    })
}

/// The program folders of the installed versions, the newest first.
fn version_folders(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut versions: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    versions.sort_unstable_by(|one, other| other.cmp(one));
    let folders = versions.into_iter().map(|version| parent.join(version.to_string()).join("bin"));
    folders.filter(|folder| tools::is_executable(&folder.join("postgres"))).collect()
}

fn initialise(
    shell: &Shell,
    programs: &Programs,
    account: Account,
    folder: &Path,
    data: &Path,
    password: &str,
) -> Result<()> {
    let password_file = folder.join("password");
    std::fs::write(&password_file, password).context("cannot write the password file")?;
    account.take(&password_file)?;
    let mut initdb = account.command(&programs.initdb, "TERM")?;
    // The locale is fixed so that sorting and messages are the same on every machine.
    initdb.current_dir(folder).args(["--username=idem", "--auth=scram-sha-256", "--encoding=UTF8"]);
    initdb.args(["--locale=C", "--no-sync"]);
    initdb.arg("--pwfile").arg(&password_file).arg("--pgdata").arg(data);
    shell
        .run_logged(&mut initdb, &folder.join("initdb.log"))
        .context("initdb cannot create the database")
}

/// Loopback only, no socket files, and room for many tests at once.
fn settings(port: u16) -> [String; 4] {
    [
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        "max_connections=200".to_owned(),
        format!("port={port}"),
    ]
}

fn url(port: u16, password: &str) -> String {
    format!("postgres://idem:{password}@127.0.0.1:{port}/postgres")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_newest_complete_version_comes_first() {
        let parent = tempfile::tempdir().unwrap();
        for version in ["9", "15", "17"] {
            let folder = parent.path().join(version).join("bin");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("postgres"), "").unwrap();
            fs::set_permissions(folder.join("postgres"), fs::Permissions::from_mode(0o755))
                .unwrap();
        }
        // Only clients, as postgresql-client leaves them, and something else altogether.
        fs::create_dir_all(parent.path().join("18/bin")).unwrap();
        fs::create_dir_all(parent.path().join("common")).unwrap();

        let expected: Vec<_> =
            ["17", "15", "9"].map(|version| parent.path().join(version).join("bin")).into();
        assert_eq!(version_folders(parent.path()), expected);
        assert!(version_folders(&parent.path().join("nothing")).is_empty());
    }

    #[test]
    fn the_url_names_the_port_and_the_password() {
        assert_eq!(url(5433, "abc"), "postgres://idem:abc@127.0.0.1:5433/postgres");
        assert!(settings(5433).contains(&"port=5433".to_owned()));
    }
}
