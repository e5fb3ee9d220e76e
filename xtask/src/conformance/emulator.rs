//! The emulator that the suites run against: `idem emulator`, as users start it.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

use crate::server::{self, Launch, Server};
use crate::shell::{self, Shell};

/// The emulator takes any key; these are those of its own connection string.
pub(super) const KEY_NAME: &str = "RootManageSharedAccessKey";
pub(super) const KEY: &str = "SAS_KEY_VALUE";

/// A running emulator with the entities of `tests/conformance/config.json`. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Emulator {
    server: Server,
    log: PathBuf,
    port: u16,
    http_port: u16,
}

impl Emulator {
    /// Builds `idem`, starts its emulator on free ports, and waits until it takes connections.
    pub(super) fn start(shell: &Shell) -> Result<Self> {
        shell.run(shell.cargo().args(["build", "--package", "idem-cli", "--bin", "idem"]))?;
        let folder = shell.target().join("conformance");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let log = folder.join("emulator.log");
        let ports = Cell::new((0, 0));
        let server = Server::start(
            shell,
            &Launch {
                log: log.clone(),
                ready: "Endpoint=sb://",
                stop: Signal::INT,
                command: &|port| {
                    let http_port = server::free_port()?;
                    ports.set((port, http_port));
                    let mut command = Command::new(shell.target().join("debug/idem"));
                    command.args(["emulator", "--port", &port.to_string()]).arg("--config");
                    command.arg(shell.root().join("tests/conformance/config.json"));
                    command.args(["--http-port", &http_port.to_string()]);
                    Ok(command)
                },
                url: &|port| format!("amqp://localhost:{port}"),
            },
        )?;
        let (port, http_port) = ports.get();
        Ok(Self { server, log, port, http_port })
    }

    /// What the SDKs connect by.
    pub(super) fn connection_string(&self) -> String {
        format!(
            "Endpoint=sb://{};SharedAccessKeyName={KEY_NAME};SharedAccessKey={KEY};\
             UseDevelopmentEmulator=true;",
            self.address()
        )
    }

    /// Host and port of AMQP.
    pub(super) fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Where the control API is, without a slash at the end.
    pub(super) fn control_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http_port)
    }

    /// Stops it; that it has ended before is an error.
    pub(super) fn stop(mut self) -> Result<()> {
        ensure!(
            self.server.is_running()?,
            "it has ended by itself; {}",
            shell::log_tail(&self.log)
        );
        self.server.stop()
    }
}
