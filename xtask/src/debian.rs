//! Installing system packages, where that is ours to do: as root on Debian and its kin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::Shell;
use crate::tools;

/// Read by postgresql-common before it creates the machine's own cluster.
const CREATE_CLUSTER_FOLDER: &str = "/etc/postgresql-common/createcluster.d";

/// Installs `packages`, which `what` needs; where it may not, the error says what to install.
pub(crate) fn install(shell: &Shell, what: &str, packages: &[&str]) -> Result<()> {
    let names = packages.join(" ");
    ensure!(
        tools::find("apt-get", &[]).is_some(),
        "{what} not found: install it and put its programs in PATH"
    );
    ensure!(
        rustix::process::geteuid().is_root(),
        "{what} not found: run `sudo apt-get install --no-install-recommends {names}`, or run this command as root"
    );
    eprintln!("    {what} not found: installing {names}");
    let _no_cluster = NoCluster::declare(Path::new(CREATE_CLUSTER_FOLDER))?;
    let log = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    if let Err(error) = shell.run_logged(apt_get().arg("update"), log.path()) {
        // One dead package source is no reason to give up: the installation is the judge.
        shell.check()?;
        eprintln!("    going on with the package lists at hand: {error:#}");
    }
    let options = ["install", "--yes", "--no-install-recommends"];
    shell
        .run_logged(apt_get().args(options).args(packages), log.path())
        .with_context(|| format!("cannot install {names}"))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    // Another installation may be at work; it gets a while to end.
    command.args(["-o", "DPkg::Lock::Timeout=300"]);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Keeps Debian's PostgreSQL from creating and starting a cluster of its own when installed.
///
/// The MariaDB packages we install hold no service, so they need nothing of the kind.
#[derive(Debug)]
struct NoCluster {
    file: PathBuf,
    /// Those that were made for the file, innermost first.
    folders: Vec<PathBuf>,
}

impl NoCluster {
    fn declare(folder: &Path) -> Result<Self> {
        let folders = folder.ancestors().take_while(|folder| !folder.exists());
        let folders = folders.map(Path::to_owned).collect();
        let file = folder.join("idem-xtask.conf");
        let guard = Self { file, folders };
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&guard.file, "create_main_cluster = false\n"))
            .with_context(|| format!("cannot write {}", guard.file.display()))?;
        Ok(guard)
    }
}

impl Drop for NoCluster {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.file) {
            eprintln!("warning: cannot remove {}: {error}", self.file.display());
        }
        for folder in &self.folders {
            // A folder that packages have put files into meanwhile stays.
            let _ = fs::remove_dir(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_setting_leaves_no_trace() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("postgresql-common/createcluster.d");
        let guard = NoCluster::declare(&folder).unwrap();
        let text = fs::read_to_string(folder.join("idem-xtask.conf")).unwrap();
        assert_eq!(text, "create_main_cluster = false\n");
        drop(guard);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_in_use_stays() {
        let root = tempfile::tempdir().unwrap();
        let guard = NoCluster::declare(&root.path().join("common/createcluster.d")).unwrap();
        fs::write(root.path().join("common/createcluster.conf"), "").unwrap();
        drop(guard);
        assert!(root.path().join("common/createcluster.conf").exists());
        assert!(!root.path().join("common/createcluster.d").exists());
    }
}
