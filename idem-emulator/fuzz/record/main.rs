//! Records what clients send, as seeds for the fuzz target `connection`: see `../README.md`.
//!
//! Each connection gets an emulator of its own that holds what the target's broker holds, so that a
//! replay finds the messages, numbers and locks that the client found.

mod rust;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use azservicebus::ServiceBusMessage;
use idem_emulator::{
    CorrelationFilter, Emulator, Filter, QueueOptions, Rule, SubscriptionOptions, TopicOptions,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, LocalSet};

/// The first half of the lock tokens of the target's broker.
const TOKEN_PREFIX: [u8; 8] = [0x1d, 0xe3, 0x1d, 0xe3, 0x1d, 0xe3, 0x4d, 0xe3];

/// The client has said its last word when it hangs up; this is for one that does not.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().context("give the seeds a name, and a program to run, if any")?;
    let program: Vec<_> = arguments.collect();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/connection");
    fs::create_dir_all(&seeds)?;
    let seed = seeds.join(name);
    LocalSet::new().run_until(record(&seed, program)).await
}

async fn record(seed: &Path, program: Vec<OsString>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::select! {
        refused = accept(listener, seed) => refused,
        played = play(port, program) => played,
    }
}

/// Lets a client have its session.
async fn play(port: u16, program: Vec<OsString>) -> Result<()> {
    match program.split_first() {
        None => rust::session(port).await?,
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            command.args(arguments).env("SERVICEBUS_CONNECTION_STRING", connection_string(port));
            let status = tokio::task::spawn_blocking(move || command.status()).await??;
            ensure!(status.success(), "the program has failed: {status}");
        }
    }
    // Whoever is connected still is about to hang up.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

fn connection_string(port: u16) -> String {
    format!(
        "Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;\
         SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
    )
}

async fn accept(listener: TcpListener, seed: &Path) -> Result<()> {
    let mut connections = JoinSet::new();
    for number in 1.. {
        let (client, _) = listener.accept().await?;
        let file = seed.with_added_extension(number.to_string());
        connections.spawn_local(async move {
            match tokio::time::timeout(PATIENCE, relay(client)).await {
                Ok(Ok(sent)) => fs::write(&file, sent).expect("a seed can be written"),
                Ok(Err(error)) => eprintln!("connection {number}: {error:#}"),
                Err(_) => eprintln!("connection {number} goes on and on; it is left out"),
            }
        });
    }
    Ok(())
}

/// Carries bytes between a client and an emulator of its own; returns what the client has sent.
async fn relay(client: TcpStream) -> Result<Vec<u8>> {
    let emulator = emulator().await?;
    let server = TcpStream::connect(("127.0.0.1", emulator.port())).await?;
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    let (sent, answered) =
        tokio::join!(copy(client_read, server_write), copy(server_read, client_write));
    emulator.shutdown().await;
    Ok(masked(sent, &answered))
}

/// Until either end has had enough, which is no failure here.
async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        all.extend_from_slice(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    // The other end may be gone.
    to.shutdown().await.ok();
    all
}

/// What the target's broker holds: the same entities, and the same numbers of messages.
async fn emulator() -> Result<Emulator> {
    let minute = Duration::from_secs(60);
    let red = Rule::new("red", Filter::sql("colour = 'red' OR sys.Label LIKE 'a%'"))
        .action("SET weight = weight + 1; REMOVE colour");
    let blue = Rule::new("blue", CorrelationFilter::new().subject("blue"));
    let topic = TopicOptions::new("events")
        .subscription(SubscriptionOptions::new("all").lock_duration(minute))
        .subscription(SubscriptionOptions::new("some").rule(red).rule(blue));
    let emulator = Emulator::builder()
        .queue(QueueOptions::new("orders").lock_duration(minute).dead_letter_expired(true))
        .queue(QueueOptions::new("sessions").lock_duration(minute).requires_session(true))
        .queue(QueueOptions::new("once").duplicate_detection(10 * minute).max_delivery_count(1))
        .queue(QueueOptions::new("through").forward_to("events"))
        .topic(topic)
        .start()
        .await?;
    fill(&emulator).await?;
    Ok(emulator)
}

async fn fill(emulator: &Emulator) -> Result<()> {
    let mut client = rust::connect(emulator.port()).await?;
    for (entity, session) in [("orders", None), ("sessions", Some("s-1")), ("through", None)] {
        let mut sender = client.create_sender(entity, Default::default()).await?;
        for number in 0..6 {
            let mut message = ServiceBusMessage::new("body");
            message.set_message_id(number.to_string())?;
            if let Some(session) = session {
                message.set_session_id(session.to_owned())?;
            }
            sender.send_message(message).await?;
        }
        if entity == "orders" {
            let mut late = ServiceBusMessage::new("late");
            late.set_message_id("late")?;
            late.set_time_to_live(Duration::from_millis(1))?;
            sender.send_message(late).await?;
        }
        sender.dispose().await?;
    }
    client.dispose().await?;
    while emulator.counts("orders")?.dead_lettered == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Lock tokens become those of the target's broker. Signatures, made with a key that everybody
/// knows, and the names of systems become letters.
fn masked(mut sent: Vec<u8>, answered: &[u8]) -> Vec<u8> {
    if let Some(token) = after(answered, b"x-opt-lock-token\x98") {
        let prefix = token[..8].to_vec();
        replace(&mut sent, &prefix, &TOKEN_PREFIX);
    }
    blank(&mut sent, b"sig=");
    blank(&mut sent, b"Linux");
    sent
}

fn after<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let at = bytes.windows(name.len()).position(|window| window == name)?;
    bytes.get(at + name.len()..).filter(|rest| rest.len() >= 16)
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) {
    for at in 0..bytes.len().saturating_sub(old.len() - 1) {
        if bytes[at..].starts_with(old) {
            bytes[at..at + new.len()].copy_from_slice(new);
        }
    }
}

/// Writes over the word that follows a name, wherever the name occurs.
fn blank(bytes: &mut [u8], name: &[u8]) {
    for at in 0..bytes.len() {
        if bytes[at..].starts_with(name) {
            let word = |byte: &&mut u8| byte.is_ascii_alphanumeric() || b"%+/=._-".contains(byte);
            bytes[at + name.len()..].iter_mut().take_while(word).for_each(|byte| *byte = b'x');
        }
    }
}
