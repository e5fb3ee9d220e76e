//! `idem emulator`: the embedded emulator as a server for other programs.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use idem_emulator::{Clock, Emulator};

/// Runs a Service Bus emulator for programs in any language, until Ctrl-C or SIGTERM.
///
/// It speaks AMQP on the loopback interface, without TLS, takes any credential, and keeps everything
/// in memory. Queues, topics and subscriptions come from a configuration file of Microsoft's
/// emulator, or over HTTP while it runs, where faults, events and the clock are too.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// A `Config.json` as of Microsoft's emulator. Without it there are no entities at the start.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The AMQP port; 0 lets the system choose a free one.
    #[arg(long, default_value_t = 5672)]
    port: u16,
    /// The port of `/health` and the control API; 0 lets the system choose a free one.
    #[arg(long, default_value_t = 5300)]
    http_port: u16,
    /// Let time stand still until `POST /control/clock` moves it: locks, times to live, scheduled
    /// messages and duplicate detection follow this clock.
    #[arg(long)]
    manual_clock: bool,
}

pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    // Before anything is printed, so that whoever has read it can already ask for the end.
    let stop = stop_signals()?;
    let emulator = start(&arguments).await?;
    announce(&emulator).context("cannot print the connection string")?;
    stop.await;
    emulator.shutdown().await;
    Ok(())
}

async fn start(arguments: &Arguments) -> anyhow::Result<Emulator> {
    let mut builder = Emulator::builder().port(arguments.port).http_port(arguments.http_port);
    if arguments.manual_clock {
        builder = builder.clock(Clock::manual());
    }
    if let Some(path) = &arguments.config {
        let text = fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration `{}`", path.display()))?;
        builder = builder
            .config(&text)
            .with_context(|| format!("the configuration `{}` is wrong", path.display()))?;
    }
    Ok(builder.start().await?)
}

/// One `name: value` a line, for people and for programs that start this one.
fn announce(emulator: &Emulator) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "connection string: {}", emulator.connection_string())?;
    if let Some(port) = emulator.http_port() {
        writeln!(out, "control API: http://localhost:{port}")?;
    }
    writeln!(out, "entities: {}", emulator.entities().len())?;
    writeln!(out, "to stop: Ctrl-C or SIGTERM")?;
    out.flush()
}

#[cfg(unix)]
fn stop_signals() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let listen = |kind| signal(kind).context("cannot listen to signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signals() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        // Without a way to be told, it runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
