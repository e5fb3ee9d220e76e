//! The consumer end to end: from the emulator's wire to PostgreSQL and back, 64 messages in flight.

mod by_hand;
mod hot_key;
mod memory;
mod throughput;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::{Sender, ServiceBus};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

pub(crate) use memory::{Work, work};

const QUEUE: &str = "orders";

const IN_FLIGHT_MAX: u32 = 64;

/// More than messages may be in flight, so that no handler waits for a connection.
const CONNECTIONS: u32 = 72;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Throughput,
    HotKey,
    Memory,
}

/// Measures one part, or all, and fails where a target is missed.
pub(crate) fn run(part: Option<Part>) -> Result<()> {
    let runtime = Runtime::new()?;
    let mut targets = Targets::default();
    for each in Part::value_variants() {
        if part.is_some_and(|part| part != *each) {
            continue;
        }
        match each {
            Part::Throughput => runtime.block_on(throughput::run(&mut targets))?,
            Part::HotKey => runtime.block_on(hot_key::run(&mut targets))?,
            Part::Memory => runtime.block_on(memory::run(&mut targets))?,
        }
    }
    ensure!(targets.missed.is_empty(), "targets were missed: {}", targets.missed.join(", "));
    Ok(())
}

/// What was asked for, and what was not reached.
#[derive(Debug, Default)]
struct Targets {
    missed: Vec<String>,
}

impl Targets {
    fn report(&mut self, name: &str, figure: &dyn std::fmt::Display, target: &str, holds: bool) {
        let verdict = if holds { "" } else { ": missed" };
        println!("consumer_{name}: {figure}, target {target}{verdict}");
        if !holds {
            self.missed.push(format!("consumer_{name}"));
        }
    }
}

/// An emulator on a thread of its own, with one queue.
struct Broker {
    runtime: Option<Runtime>,
    emulator: Option<Emulator>,
    bus: ServiceBus,
    sender: Sender,
}

impl Broker {
    async fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let start = async { Emulator::builder().queue(QueueOptions::new(QUEUE)).start().await };
        let emulator = runtime.spawn(start).await??;
        let bus = ServiceBus::connect(&emulator.connection_string())?;
        let sender = bus.sender(QUEUE).await?;
        Ok(Self { runtime: Some(runtime), emulator: Some(emulator), bus, sender })
    }

    fn emulator(&self) -> Result<&Emulator> {
        self.emulator.as_ref().context("it runs")
    }

    fn completed(&self) -> Result<u64> {
        Ok(self.emulator()?.events().totals().completed)
    }

    /// Sends so many messages, each with an id of its own.
    async fn send<T: Serialize + Sync>(&self, body: &T, messages: u32) -> Result<()> {
        let message = || -> Result<_> {
            let id = format!("{:032x}", fastrand::u128(..));
            Ok(OutgoingMessage::json(body)?.with_message_id(id))
        };
        let messages = (0..messages).map(|_| message());
        self.sender.send_all(messages.collect::<Result<_>>()?).await?;
        Ok(())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.emulator.take();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
