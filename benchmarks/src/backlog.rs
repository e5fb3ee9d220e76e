//! Memory of a consumer against the length of the queue: it must not grow with it.
//!
//! The consumer is a process of its own, so that the emulator's memory, which holds the queue,
//! does not count.

use std::fs;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::Context;
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Failure, Tx, idempotent, shutdown_signal};
use idem_tests::database::SqliteFile;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

const SHORT: u32 = 2_000;
const LONG: u32 = 100_000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    text: String,
}

#[idempotent(level = 1)]
async fn append(tx: &mut Tx<Sqlite>, entry: Entry) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries (text) VALUES ($1)")
        .bind(entry.text)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// The consumer's process.
#[derive(Debug, clap::Args)]
pub(crate) struct Consume {
    bus: String,
    database_url: String,
}

pub(crate) async fn consume(arguments: Consume) -> anyhow::Result<()> {
    let store = Sqlite::connect(&arguments.database_url).await?;
    let bus = ServiceBus::connect(&arguments.bus)?;
    let consumer = Consumer::builder(bus.queue("entries"), store).handler(AppendHandler).build()?;
    Ok(consumer.run_until(shutdown_signal()).await?)
}

pub(crate) async fn run() -> anyhow::Result<()> {
    let short = peak_kib(SHORT).await?;
    let long = peak_kib(LONG).await?;
    let ratio = f64::from(long) / f64::from(short);
    println!("backlog_peak_memory_{LONG}_to_{SHORT}: {ratio:.2} ({long} KiB to {short} KiB)");
    Ok(())
}

/// The most memory that a consumer used while it emptied a queue of this length.
async fn peak_kib(messages: u32) -> anyhow::Result<u32> {
    let emulator = Emulator::builder().queue(QueueOptions::new("entries")).start().await?;
    let file = SqliteFile::new().await;
    sqlx::query("CREATE TABLE entries (text TEXT NOT NULL)").execute(file.store.pool()).await?;
    send(&emulator.connection_string(), messages).await?;

    let consumer = Command::new(std::env::current_exe()?)
        .args(["consume", &emulator.connection_string(), &file.url])
        .spawn()?;
    let mut consumer = Ended(consumer);
    loop {
        sleep(Duration::from_millis(200)).await;
        let counts = emulator.counts("entries")?;
        anyhow::ensure!(counts.dead_lettered == 0, "messages were dead-lettered");
        anyhow::ensure!(consumer.0.try_wait()?.is_none(), "the consumer has ended");
        if counts.active + counts.locked == 0 {
            break;
        }
    }
    let peak = peak_of(consumer.0.id())?;
    drop(consumer);
    let done: i64 =
        sqlx::query_scalar("SELECT count(*) FROM entries").fetch_one(file.store.pool()).await?;
    anyhow::ensure!(done == i64::from(messages), "{done} entries of {messages}");
    emulator.shutdown().await;
    Ok(peak)
}

async fn send(bus: &str, messages: u32) -> anyhow::Result<()> {
    let sender = ServiceBus::connect(bus)?.sender("entries").await?;
    let entry = Entry { text: "x".repeat(1000) };
    for chunk in (0..messages).collect::<Vec<_>>().chunks(1000) {
        let batch = chunk.iter().map(|number| {
            OutgoingMessage::json(&entry).map(|message| message.with_message_id(number.to_string()))
        });
        sender.send_all(batch.collect::<Result<_, _>>()?).await?;
    }
    Ok(())
}

/// The peak of a process's resident memory, as Linux counts it.
pub(crate) fn peak_of(process: u32) -> anyhow::Result<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.context("Linux says how much memory a process has used at most")?.parse()?)
}

/// Ends the process when dropped.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
