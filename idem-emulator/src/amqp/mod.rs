//! AMQP 1.0 over TCP: one task per connection.
//!
//! [`connection`] is a state machine without sockets; [`serve`] moves its bytes. Everything that a
//! peer can make grow is bounded: frames, messages, windows, credit, output, pending responses.

mod address;
mod connection;
mod error;
mod frame;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod idle;
mod incoming;
mod outgoing;
mod performative;
mod sasl;
mod session;
mod settlement;
#[cfg(test)]
mod tests;
mod transactions;
mod wake;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::broker::Broker;
use crate::events::EventKind;
use crate::faults::Ending;
use connection::{Connection, IDLE_TIME_OUT};
use error::AmqpError;
use frame::{FRAME_SIZE_MIN, Frame};
use idle::IdleWatch;
use session::DELIVERY_OUTPUT_MAX;
use transactions::Transactions;
use wake::{LinkKey, WakeList};

/// Output that waits for the socket; with more than this, nothing more is read.
const OUTPUT_MAX: usize = 1024 * 1024;

/// What a connection may send of deliveries that are not whole yet, all together; one message of the
/// largest size always has room.
const PARTIAL_MAX: usize = 16 * 1024 * 1024;

/// How much is read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long a closing connection may take to write its last words.
const LINGER: Duration = Duration::from_secs(5);

/// However large messages may be, a batch may have only this much.
const BATCH_SIZE_MAX: usize = 1024 * 1024;

/// What connections need to know of the emulator. Clones are cheap.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    broker: Arc<Broker>,
    limits: Limits,
    idle_rules: bool,
}

/// The largest sends, in encoded bytes.
#[derive(Debug, Clone, Copy)]
struct Limits {
    message_size_max: usize,
    batch_size_max: usize,
}

impl Limits {
    fn message_size(self) -> u64 {
        u64::try_from(self.message_size_max).unwrap_or(u64::MAX)
    }

    fn batch_size(self) -> u64 {
        u64::try_from(self.batch_size_max).unwrap_or(u64::MAX)
    }
}

impl Service {
    pub(crate) fn new(broker: Arc<Broker>, message_size_max: usize, idle_rules: bool) -> Self {
        let limits =
            Limits { message_size_max, batch_size_max: message_size_max.min(BATCH_SIZE_MAX) };
        Self { broker, limits, idle_rules }
    }

    fn broker_ref(&self) -> &Broker {
        &self.broker
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn record(&self, kind: EventKind) {
        self.broker.context.events.record(kind);
    }
}

/// What the sessions of one connection share.
#[derive(Debug)]
struct Shared {
    service: Service,
    wakes: Arc<WakeList>,
    /// What the socket is to write.
    out: BytesMut,
    /// The largest frame that the peer accepts, in bytes.
    peer_frame_max: usize,
    /// Channels and handles of links that may have something to send.
    work: VecDeque<(u16, u32)>,
    /// When links stop to wait for a session.
    time_outs: BTreeSet<(Instant, LinkKey)>,
    transactions: Transactions,
    /// What is left for deliveries that are not whole yet, in bytes.
    partial: Arc<Semaphore>,
    /// Watches over what is not used, if that is wanted, once the connection is open.
    idle: Option<IdleWatch>,
    /// How a fault ends the connection.
    ending: Option<Ending>,
}

impl Shared {
    fn new(service: Service) -> Self {
        let partial_max = PARTIAL_MAX.max(service.limits.message_size_max);
        Self {
            service,
            partial: Arc::new(Semaphore::new(partial_max)),
            wakes: Arc::default(),
            out: BytesMut::new(),
            peer_frame_max: usize::try_from(FRAME_SIZE_MIN).unwrap_or(512),
            work: VecDeque::new(),
            time_outs: BTreeSet::new(),
            transactions: Transactions::default(),
            idle: None,
            ending: None,
        }
    }

    fn link_used(&mut self, channel: u16, handle: u32) {
        if let Some(idle) = &mut self.idle {
            idle.link_used((channel, handle), Instant::now());
        }
    }

    fn link_ended(&mut self, channel: u16, handle: u32) {
        if let Some(idle) = &mut self.idle {
            idle.link_ended((channel, handle), Instant::now());
        }
    }
}

/// Records the end of a connection, however it comes.
struct Recorded(Service);

impl Drop for Recorded {
    fn drop(&mut self) {
        self.0.record(EventKind::ConnectionClosed);
    }
}

pub(crate) async fn serve(socket: TcpStream, service: Service) {
    service.record(EventKind::ConnectionOpened);
    let _recorded = Recorded(service.clone());
    if let Err(error) = exchange(socket, Connection::new(service)).await {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Moves bytes between the socket and the connection, both ways at once, until either ends.
async fn exchange(socket: TcpStream, mut connection: Connection) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (mut reader, mut writer) = socket.into_split();
    let mut deletions = connection.shared.service.broker.deletions();
    let mut input = BytesMut::new();
    let mut last_read = Instant::now();
    let mut last_written = last_read;
    loop {
        connection.receive(&mut input);
        connection.pump();
        if connection.is_finished() {
            break;
        }
        input.reserve(READ_BYTES);
        let wakes = Arc::clone(&connection.shared.wakes);
        let output = connection.shared.out.len();
        let cut_at = last_read + 2 * IDLE_TIME_OUT;
        // Output that waits for a peer that does not read says enough, and one more heartbeat after
        // the other would pile up behind it.
        let interval = connection.heartbeat_interval().filter(|_| output == 0);
        let heartbeat_at = interval.map_or(cut_at, |interval| last_written + interval);
        let wake_at = cut_at.min(heartbeat_at);
        let wake_at = connection.next_time_out().map_or(wake_at, |at| wake_at.min(at));
        // In this order, so that what is ready goes out before more is made ready. Links that have
        // work can do it only while there is room in the output; then the socket decides.
        tokio::select! {
            biased;
            written = writer.write_buf(&mut connection.shared.out), if output > 0 => {
                if written? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                last_written = Instant::now();
            }
            read = reader.read_buf(&mut input), if output < OUTPUT_MAX => {
                if read? == 0 {
                    return Ok(());
                }
                acknowledge(reader.as_ref());
                last_read = Instant::now();
            }
            () = wakes.changed() => {}
            Ok(()) = deletions.changed() => connection.detach_deleted(),
            () = std::future::ready(()), if connection.has_work() && output < DELIVERY_OUTPUT_MAX => {}
            () = tokio::time::sleep_until(wake_at) => {
                let now = Instant::now();
                if now >= cut_at {
                    let text = "nothing was received for twice the idle time-out";
                    connection.close_with(&AmqpError::new("amqp:resource-limit-exceeded", text));
                    break;
                }
                if now >= heartbeat_at {
                    Frame::write_heartbeat(&mut connection.shared.out);
                }
            }
        }
    }
    connection.end_sessions();
    tokio::time::timeout(LINGER, part(&mut reader, &mut writer, connection)).await?
}

/// Tells the peer at once that its bytes have arrived. Clients that leave Nagle's algorithm on hold
/// their next small write back until they know, and the system would let them wait for 40 ms. It forgets
/// the option whenever it sees fit, so it is set after every read.
#[cfg(target_os = "linux")]
fn acknowledge(socket: &TcpStream) {
    if let Err(error) = socket.set_quickack(true) {
        tracing::debug!(%error, "the peer may have to wait for an acknowledgement");
    }
}

/// Other systems have no such option.
#[cfg(not(target_os = "linux"))]
fn acknowledge(_socket: &TcpStream) {}

/// Writes what is left. Unless the connection is to be cut, waits for the peer to hang up: closing
/// a socket with unread input would take our last words away from the peer.
async fn part(
    reader: &mut OwnedReadHalf,
    writer: &mut OwnedWriteHalf,
    mut connection: Connection,
) -> io::Result<()> {
    writer.write_all_buf(&mut connection.shared.out).await?;
    if connection.shared.ending == Some(Ending::Cut) {
        return Ok(());
    }
    writer.shutdown().await?;
    let mut ignored = [0; 4096];
    while reader.read(&mut ignored).await? > 0 {}
    Ok(())
}
