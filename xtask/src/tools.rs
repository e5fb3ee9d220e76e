//! Finding programs, and installing those that cargo can build.

use std::env;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::shell::Shell;

/// The first executable file called `name` in the folders of PATH, then in `more`.
pub(crate) fn find(name: &str, more: &[PathBuf]) -> Option<PathBuf> {
    find_in(&env::var_os("PATH").unwrap_or_default(), name, more)
}

fn find_in(path: &OsStr, name: &str, more: &[PathBuf]) -> Option<PathBuf> {
    env::split_paths(path)
        .chain(more.iter().cloned())
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

/// Whether `path` is a file that somebody may execute.
pub(crate) fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// A program that is found in PATH or built by `cargo install` under the target folder.
#[derive(Debug)]
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    /// Installed exactly; in PATH the same `series` will do.
    pub(crate) version: &'static str,
    /// The start of an acceptable version.
    pub(crate) series: &'static str,
    pub(crate) install_options: &'static [&'static str],
    /// For the patience of whoever waits.
    pub(crate) takes: &'static str,
}

impl CargoTool {
    /// The program's path, after installing it if need be.
    pub(crate) fn find_or_install(&self, shell: &Shell) -> Result<PathBuf> {
        let root = shell.target().join("tools");
        let installed = root.join("bin").join(self.name);
        let in_path = find(self.name, &[]).into_iter();
        if let Some(found) = in_path.chain([installed.clone()]).find(|file| self.is_right(file)) {
            return Ok(found);
        }
        eprintln!("    installing {} {}; this takes {}", self.name, self.version, self.takes);
        let mut install = shell.cargo();
        install.args(["install", self.name, "--version", self.version, "--locked", "--force"]);
        install.args(self.install_options).arg("--root").arg(&root);
        shell.run(&mut install)?;
        Ok(installed)
    }

    fn is_right(&self, file: &Path) -> bool {
        let output = Command::new(file).arg("--version").output();
        output.is_ok_and(|output| self.accepts(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Whether the answer to `--version`, such as `mdbook v0.5.4`, names our series.
    fn accepts(&self, answer: &str) -> bool {
        let version = answer.split_whitespace().nth(1).unwrap_or_default();
        version.trim_start_matches('v').starts_with(self.series)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let file = folder.join(name);
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn finds_the_first_executable_and_skips_plain_files_and_folders() {
        let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let [plain, folder, first, second] = &folders[..] else { unreachable!() };
        put(plain.path(), "initdb", 0o644);
        fs::create_dir(folder.path().join("initdb")).unwrap();
        let expected = put(first.path(), "initdb", 0o755);
        put(second.path(), "initdb", 0o755);

        let path = env::join_paths(folders.iter().map(|folder| folder.path())).unwrap();
        assert_eq!(find_in(&path, "initdb", &[]), Some(expected));
        assert_eq!(find_in(&path, "mariadbd", &[]), None);
    }

    #[test]
    fn path_comes_before_the_other_folders() {
        let (path, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let in_path = put(path.path(), "initdb", 0o755);
        let elsewhere = put(other.path(), "initdb", 0o755);
        let more = [other.path().to_owned()];
        assert_eq!(find_in(path.path().as_os_str(), "initdb", &more), Some(in_path));
        assert_eq!(find_in(OsStr::new(""), "initdb", &more), Some(elsewhere));
    }

    #[test]
    fn accepts_only_its_own_series() {
        let tool = CargoTool {
            name: "mdbook",
            version: "0.5.4",
            series: "0.5.",
            install_options: &[],
            takes: "a minute",
        };
        assert!(tool.accepts("mdbook v0.5.2\n"));
        assert!(tool.accepts("mdbook 0.5.4"));
        assert!(!tool.accepts("mdbook v0.4.52"));
        assert!(!tool.accepts("mdbook v0.50.0"));
        assert!(!tool.accepts(""));
    }
}
