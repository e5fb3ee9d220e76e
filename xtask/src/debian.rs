//! Installing system packages, where that is ours to do: as root on Debian and its kin.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::Shell;
use crate::tools;

/// Read by postgresql-common before it creates the machine's own cluster.
const CREATE_CLUSTER_FOLDER: &str = "/etc/postgresql-common/createcluster.d";

/// Asked by package scripts before they start a service.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// Whether this is Debian or its kin, and we may install packages.
pub(crate) fn may_install() -> bool {
    tools::find("apt-get", &[]).is_some() && rustix::process::geteuid().is_root()
}

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
    let _no_service = NoService::declare(Path::new(SERVICE_POLICY))?;
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

/// Keeps services of the packages, such as a pooler, from starting when they are installed: tests run
/// their own.
#[derive(Debug)]
struct NoService {
    /// Absent where the machine has a policy already.
    policy: Option<PathBuf>,
}

impl NoService {
    fn declare(policy: &Path) -> Result<Self> {
        if policy.exists() {
            return Ok(Self { policy: None });
        }
        let guard = Self { policy: Some(policy.to_owned()) };
        // 101: the action is forbidden by policy.
        fs::write(policy, "#!/bin/sh\nexit 101\n")
            .and_then(|()| fs::set_permissions(policy, Permissions::from_mode(0o755)))
            .with_context(|| format!("cannot write {}", policy.display()))?;
        Ok(guard)
    }
}

impl Drop for NoService {
    fn drop(&mut self) {
        if let Some(policy) = &self.policy
            && let Err(error) = fs::remove_file(policy)
        {
            eprintln!("warning: cannot remove {}: {error}", policy.display());
        }
    }
}

/// Keeps Debian's PostgreSQL from creating and starting a cluster of its own when installed.
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
    fn services_are_forbidden_while_packages_are_installed() {
        let root = tempfile::tempdir().unwrap();
        let policy = root.path().join("policy-rc.d");
        let guard = NoService::declare(&policy).unwrap();
        let answer = Command::new(&policy).status().unwrap();
        assert_eq!(answer.code(), Some(101));
        drop(guard);
        assert!(!policy.exists());
    }

    #[test]
    fn the_machines_own_policy_stays() {
        let root = tempfile::tempdir().unwrap();
        let policy = root.path().join("policy-rc.d");
        fs::write(&policy, "#!/bin/sh\n").unwrap();
        drop(NoService::declare(&policy).unwrap());
        assert_eq!(fs::read_to_string(&policy).unwrap(), "#!/bin/sh\n");
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
