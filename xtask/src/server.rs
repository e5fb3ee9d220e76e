//! One server process: started on a free port, awaited, stopped.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::shell::{self, Shell};

/// How often a port may be lost to another program before we give up.
const PORT_ATTEMPTS_MAX: usize = 5;

/// A loaded machine with a slow disk needs a while to start a database.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How one kind of server is started and recognised.
pub(crate) struct Launch<'a> {
    pub(crate) log: PathBuf,
    /// What the server writes to its log when it takes connections.
    pub(crate) ready: &'static str,
    /// What makes it end in order without waiting for its clients.
    pub(crate) stop: Signal,
    /// The command for a port.
    pub(crate) command: &'a dyn Fn(u16) -> Result<Command>,
    /// The URL for a port.
    pub(crate) url: &'a dyn Fn(u16) -> String,
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// What it was started with; it appends to its log.
    command: Command,
    log: PathBuf,
    ready: &'static str,
    stop: Signal,
    url: String,
}

enum Start {
    Ready,
    Ended,
    Slow,
}

impl Start {
    /// Says why the server is not ready.
    fn checked(self, log: &Path) -> Result<()> {
        match self {
            Self::Ready => Ok(()),
            Self::Ended => bail!("it ended at once; {}", shell::log_tail(log)),
            Self::Slow => {
                bail!("it is not ready after {START_LIMIT:?}; {}", shell::log_tail(log))
            }
        }
    }
}

impl Server {
    /// Starts the server on a free port and waits until it takes connections.
    pub(crate) fn start(shell: &Shell, launch: &Launch<'_>) -> Result<Self> {
        for _ in 0..PORT_ATTEMPTS_MAX {
            let port = free_port()?;
            let (output, errors) = shell::open_log(&launch.log)?;
            let mut command = (launch.command)(port)?;
            let child = shell::spawn(command.stdout(output).stderr(errors))?;
            let mut server = Self {
                child,
                command,
                log: launch.log.clone(),
                ready: launch.ready,
                stop: launch.stop,
                url: (launch.url)(port),
            };
            match server.await_start(shell, 0)? {
                Start::Ended if is_taken(port) => {} // Another program was faster.
                start => return start.checked(&launch.log).map(|()| server),
            }
        }
        bail!("lost {PORT_ATTEMPTS_MAX} free ports in a row to other programs")
    }

    /// Ends the server with `signal`, starts it again where it was, and waits until it takes
    /// connections.
    pub(crate) fn restart(&mut self, shell: &Shell, signal: Signal) -> Result<()> {
        let said = times_said(&self.log, self.ready);
        shell::stop(&mut self.child, signal)?;
        self.child = shell::spawn(&mut self.command)?;
        self.await_start(shell, said)?.checked(&self.log)
    }

    /// Waits until the server has said that it is ready more often than before.
    fn await_start(&mut self, shell: &Shell, said_before: usize) -> Result<Start> {
        let mut start = Start::Slow;
        shell.wait_until(START_LIMIT, || {
            if self.child.try_wait()?.is_some() {
                start = Start::Ended;
            } else if times_said(&self.log, self.ready) > said_before {
                start = Start::Ready;
            }
            Ok(!matches!(start, Start::Slow))
        })?;
        Ok(start)
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    pub(crate) fn stop(&mut self) -> Result<()> {
        shell::stop(&mut self.child, self.stop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("warning: {error:#}");
        }
    }
}

/// A loopback port that nobody listens on now. It may be lost before it is used.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free loopback port")?;
    Ok(listener.local_addr()?.port())
}

fn is_taken(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err()
}

fn times_said(log: &Path, text: &str) -> usize {
    let log = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&log).matches(text).count()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rustix::process::Pid;

    use super::*;

    /// Starts `script` under `sh`, with a port as `$1`.
    fn start(script: &str, on_port: &dyn Fn(u16)) -> Result<Server> {
        let folder = tempfile::tempdir()?;
        Server::start(
            &Shell::new()?,
            &Launch {
                log: folder.path().join("log"),
                ready: "ready",
                stop: Signal::TERM,
                command: &|port| {
                    on_port(port);
                    let mut command = Command::new("sh");
                    command.args(["-c", script, "sh", &port.to_string()]);
                    Ok(command)
                },
                url: &|port| format!("test://127.0.0.1:{port}"),
            },
        )
    }

    #[test]
    fn starts_when_ready_and_ends_when_dropped() {
        let server = start("echo ready; exec sleep 600", &|_| ()).unwrap();
        assert!(server.url().starts_with("test://127.0.0.1:"));
        let process = Pid::from_child(&server.child);
        rustix::process::test_kill_process(process).unwrap();
        drop(server);
        assert!(rustix::process::test_kill_process(process).is_err());
    }

    #[test]
    fn restarts_where_it_was() {
        let mut server = start("echo $$ on $1 is ready; exec sleep 600", &|_| ()).unwrap();
        let (url, first) = (server.url().to_owned(), Pid::from_child(&server.child));
        // Its log went with the folder that it was started in.
        let folder = tempfile::tempdir().unwrap();
        server.log = folder.path().join("log");
        let (output, _) = shell::open_log(&server.log).unwrap();
        server.command.stdout(output);

        server.restart(&Shell::new().unwrap(), Signal::QUIT).unwrap();
        assert_eq!(server.url(), url);
        assert!(rustix::process::test_kill_process(first).is_err(), "the first has ended");
        let log = std::fs::read_to_string(server.log()).unwrap();
        let port = url.rsplit_once(':').unwrap().1;
        assert!(log.ends_with(&format!(" on {port} is ready\n")), "{log}");
    }

    #[test]
    fn a_lost_port_is_replaced() {
        let lost = RefCell::new(Vec::new());
        let lose_two = |port| {
            if lost.borrow().len() < 2 {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
                lost.borrow_mut().push((port, listener));
            }
        };
        let attempts = tempfile::NamedTempFile::new().unwrap();
        let script = format!(
            "echo >>{0}; test $(wc -l <{0}) -gt 2 || exit 1; echo ready; exec sleep 600",
            attempts.path().display()
        );
        let server = start(&script, &lose_two).unwrap();
        assert_eq!(lost.borrow().len(), 2);
        assert!(lost.borrow().iter().all(|(port, _)| !server.url().ends_with(&format!(":{port}"))));
    }

    #[test]
    fn losing_every_port_ends_with_an_error() {
        let lost = RefCell::new(Vec::new());
        let lose = |port| {
            lost.borrow_mut().push(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap());
        };
        let error = start("exit 1", &lose).unwrap_err();
        assert!(error.to_string().contains("free ports"), "{error}");
        assert_eq!(lost.borrow().len(), PORT_ATTEMPTS_MAX);
    }

    #[test]
    fn a_server_that_ends_shows_its_log() {
        let error = start("echo no space on device >&2; exit 1", &|_| ()).unwrap_err();
        assert!(error.to_string().contains("no space on device"), "{error}");
    }
}
