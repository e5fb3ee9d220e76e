//! The account that a server runs under.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::geteuid;

use crate::tools;

/// Database servers refuse to run as root, so root starts them under another account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    Own,
    Other { user: u32, group: u32 },
}

impl Account {
    /// Our own account, or as root the first of `names` that exists.
    pub(super) fn for_server(names: &[&str]) -> Result<Self> {
        if !geteuid().is_root() {
            return Ok(Self::Own);
        }
        names.iter().find_map(|name| Self::called(name)).with_context(|| {
            format!(
                "database servers do not run as root, and none of these users exists: {}",
                names.join(", ")
            )
        })
    }

    fn called(name: &str) -> Option<Self> {
        Some(Self::Other { user: number("-u", name)?, group: number("-g", name)? })
    }

    /// Hands a file or folder over to the account.
    pub(super) fn take(self, path: &Path) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { user, group } => chown(path, Some(user), Some(group))
                .with_context(|| format!("cannot hand over {}", path.display())),
        }
    }

    /// A command that runs `program` under the account and receives `death_signal` when this
    /// command dies without having stopped it (on Linux, where `setpriv` is always there).
    pub(super) fn command(self, program: &Path, death_signal: &str) -> Result<Command> {
        let setpriv = tools::find("setpriv", &[]);
        let mut command = match (self, setpriv) {
            (Self::Own, None) => return Ok(Command::new(program)),
            (Self::Other { .. }, None) => {
                anyhow::bail!("setpriv not found: install util-linux, or do not run as root")
            }
            (Self::Own, Some(setpriv)) => Command::new(setpriv),
            (Self::Other { user, group }, Some(setpriv)) => {
                let mut command = Command::new(setpriv);
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
                command.arg("--clear-groups");
                command
            }
        };
        command.arg(format!("--pdeathsig={death_signal}")).arg("--").arg(program);
        Ok(command)
    }
}

/// A user's or group's number, by POSIX `id`.
fn number(option: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([option, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_user_is_none_and_root_is_zero() {
        assert_eq!(Account::called("no-such-user-of-idem"), None);
        assert_eq!(number("-u", "root"), Some(0));
    }

    #[test]
    fn root_never_runs_a_server_itself() {
        let account = Account::for_server(&["no-such-user-of-idem", "nobody"]).unwrap();
        assert_eq!(account == Account::Own, !geteuid().is_root());
        if geteuid().is_root() {
            let error = Account::for_server(&["no-such-user-of-idem"]).unwrap_err();
            assert!(error.to_string().contains("no-such-user-of-idem"), "{error}");
        }
    }
}
