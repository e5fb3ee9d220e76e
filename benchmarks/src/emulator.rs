//! How fast the emulator is and how much memory it takes, with the client that idem uses.
//!
//! What it must reach is absolute, so these are figures of the machine that they are taken on.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::core::BasicRetryPolicy;
use azservicebus::{
    CreateMessageBatchOptions, ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage,
    ServiceBusReceiver, ServiceBusReceiverOptions, ServiceBusSender,
};
use idem_emulator::{Emulator, Event, QueueOptions};

use crate::median::Median;

const QUEUE: &str = "orders";
const REPETITIONS: usize = 5;

/// How many messages one repetition sends and receives.
const MESSAGES: u32 = 100_000;

const PREFETCH: u32 = 200;

/// Less than a link takes: the client forgets some bytes of each message when it measures a batch,
/// and its retries hide that a batch was refused.
const BATCH_BYTES_MAX: u64 = 200 * 1024;

/// Far beyond what the last messages take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked of the medians.
const SENT_PER_SECOND_MIN: f64 = 30_000.0;
const RECEIVED_PER_SECOND_MIN: f64 = 20_000.0;
const START_MILLISECONDS_MAX: f64 = 50.0;

/// The sizes of messages in bytes, and how many of each are queued to weigh them.
const WEIGHED: [(u32, u32); 3] = [(100, 100_000), (1024, 100_000), (10 * 1024, 20_000)];

type Client = ServiceBusClient<BasicRetryPolicy>;

pub(crate) fn run() -> Result<()> {
    let mut missed = Vec::new();
    let mut report = |name: String, median: Median, holds: bool| {
        println!("{name}: {median}");
        if !holds {
            missed.push(name);
        }
    };
    let start = Median::of(REPETITIONS, start_milliseconds)?;
    let holds = start.value() < START_MILLISECONDS_MAX;
    report("emulator_start_to_first_message_ms".to_owned(), start, holds);

    let mut received = Vec::new();
    let sent = Median::of(REPETITIONS, || {
        let rates = on_two_threads(rates)?;
        received.push(rates.received);
        Ok(rates.sent)
    })?;
    let holds = sent.value() >= SENT_PER_SECOND_MIN;
    report("emulator_sent_in_batches_per_second".to_owned(), sent, holds);
    let received = Median::from(received);
    let holds = received.value() >= RECEIVED_PER_SECOND_MIN;
    report("emulator_received_and_completed_per_second".to_owned(), received, holds);

    for (size, messages) in WEIGHED {
        let bytes = Median::of(1, || bytes_per_message(size, messages))?;
        let holds = bytes.value() <= f64::from(2 * size + 1024);
        report(format!("emulator_bytes_per_queued_message_of_{size}"), bytes, holds);
    }
    ensure!(missed.is_empty(), "targets were missed: {}", missed.join(", "));
    Ok(())
}

/// Runs an emulator on one thread and its client on another, as they would share two cores. On
/// several threads the sends of this client can hang.
fn on_two_threads<T>(act: impl AsyncFnOnce(&Emulator) -> Result<T>) -> Result<T> {
    let server =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let emulator = server.block_on(Emulator::builder().queue(QueueOptions::new(QUEUE)).start())?;
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = client.block_on(act(&emulator));
    server.block_on(emulator.shutdown());
    result
}

async fn connect(port: u16) -> Result<Client> {
    let credential = AzureNamedKeyCredential::new("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    let options = ServiceBusClientOptions::default();
    Ok(ServiceBusClient::unsecured()
        .new_from_named_key_credential(format!("localhost:{port}"), credential, options)
        .await?)
}

async fn receiver(client: &mut Client, prefetch_count: u32) -> Result<ServiceBusReceiver> {
    let options = ServiceBusReceiverOptions { prefetch_count, ..Default::default() };
    Ok(client.create_receiver_for_queue(QUEUE, options).await?)
}

/// From the builder to a message that was sent and has come.
fn start_milliseconds() -> Result<f64> {
    let started = Instant::now();
    on_two_threads(async |emulator| {
        let mut client = connect(emulator.port()).await?;
        let mut sender = client.create_sender(QUEUE, Default::default()).await?;
        sender.send_message("first").await?;
        let mut receiver = receiver(&mut client, 0).await?;
        receiver.receive_message().await?;
        let taken = started.elapsed();
        client.dispose().await?;
        Ok(1000.0 * taken.as_secs_f64())
    })
}

/// Messages a second.
struct Rates {
    sent: f64,
    received: f64,
}

async fn rates(emulator: &Emulator) -> Result<Rates> {
    let mut client = connect(emulator.port()).await?;
    let started = Instant::now();
    send(&mut client, 100, MESSAGES).await?;
    let sent = rate(started);
    let enqueued = emulator.events().totals().enqueued;
    ensure!(enqueued == u64::from(MESSAGES), "{enqueued} of {MESSAGES} were taken");

    let mut receiver = receiver(&mut client, PREFETCH).await?;
    let started = Instant::now();
    for _ in 0..MESSAGES {
        let message = receiver.receive_message().await?;
        receiver.complete_message(&message).await?;
    }
    // The client does not wait for the emulator to complete the last ones.
    let events = emulator.events();
    let is_done = |_: &Event| events.totals().completed == u64::from(MESSAGES);
    tokio::time::timeout(PATIENCE, events.wait_for(is_done)).await?;
    let received = rate(started);
    client.dispose().await?;
    Ok(Rates { sent, received })
}

fn rate(started: Instant) -> f64 {
    f64::from(MESSAGES) / started.elapsed().as_secs_f64()
}

async fn send(client: &mut Client, size: u32, messages: u32) -> Result<()> {
    let mut sender = client.create_sender(QUEUE, Default::default()).await?;
    let body = vec![b'x'; usize::try_from(size)?];
    let mut left = messages;
    while left > 0 {
        left -= send_batch(&mut sender, &body, left).await?;
    }
    sender.dispose().await?;
    Ok(())
}

/// Sends one batch of at most `max` messages; returns their number.
async fn send_batch(sender: &mut ServiceBusSender, body: &[u8], max: u32) -> Result<u32> {
    let options = CreateMessageBatchOptions { max_size_in_bytes: Some(BATCH_BYTES_MAX) };
    let mut batch = sender.create_message_batch(options)?;
    let mut count = 0;
    while count < max && batch.try_add_message(ServiceBusMessage::new(body)).is_ok() {
        count += 1;
    }
    ensure!(count > 0, "a message does not fit into a batch");
    sender.send_message_batch(batch).await?;
    Ok(count)
}

/// How much the memory of an emulator, alone in its process, grows with each message of a size.
fn bytes_per_message(size: u32, messages: u32) -> Result<f64> {
    let mut holder = Holder::start()?;
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    client.block_on(async {
        let mut client = connect(holder.port).await?;
        // What a first message costs does not count.
        send(&mut client, size, 1).await?;
        let before = holder.resident_bytes()?;
        send(&mut client, size, messages).await?;
        let after = holder.resident_bytes()?;
        client.dispose().await?;
        holder.check(messages + 1)?;
        Ok((after - before) / f64::from(messages))
    })
}

/// The process of [`hold`].
struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
    port: u16,
}

impl Holder {
    fn start() -> Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("the output is a pipe")?;
        let mut holder = Self { process, output: BufReader::new(output), port: 0 };
        holder.port = holder.line()?.parse()?;
        Ok(holder)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Resident memory, as Linux counts it.
    fn resident_bytes(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        let kibibytes = number.context("Linux says how much memory a process uses")?;
        Ok(1024.0 * kibibytes.parse::<f64>()?)
    }

    /// Sees that the messages are there.
    fn check(&mut self, messages: u32) -> Result<()> {
        self.process.stdin.take().context("the input is a pipe")?.write_all(b"\n")?;
        let held: u32 = self.line()?.parse()?;
        ensure!(held == messages, "the emulator holds {held} messages of {messages}");
        Ok(())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// An emulator alone in its process: prints its port, and after a line of input how many messages
/// it holds.
pub(crate) async fn hold() -> Result<()> {
    let queue = QueueOptions::new(QUEUE);
    let emulator = Emulator::builder().queue(queue).start().await?;
    println!("{}", emulator.port());
    let (asked, ask) = tokio::sync::oneshot::channel();
    thread::spawn(move || asked.send(std::io::stdin().read_line(&mut String::new())));
    match tokio::time::timeout(10 * PATIENCE, ask).await?? {
        Ok(_) => println!("{}", emulator.counts(QUEUE)?.active),
        Err(error) => bail!("nobody asks: {error}"),
    }
    emulator.shutdown().await;
    Ok(())
}
