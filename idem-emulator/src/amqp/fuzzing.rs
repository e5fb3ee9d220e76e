//! A whole connection against a broker that has something of everything, fed with any bytes.

use std::collections::HashMap;
use std::sync::Weak;

use super::frame::{FRAME_SIZE_MAX, FrameKind, ProtocolHeader};
use super::performative::Performative;
use super::*;
use crate::broker::{Submission, Topology};
use crate::clock::{Clock, OnAdvance};
use crate::codec::message::{Sections, submission};
use crate::codec::{Raw, encode};
use crate::events::{EventTotals, Events};
use crate::options::{QueueOptions, SubscriptionOptions, TopicOptions};
use crate::rules::{CorrelationFilter, Filter, Rule};

const MESSAGE_SIZE_MAX: usize = 256 * 1024;

/// More than a connection may ever have to say at once: the output that it fills, a message that
/// goes beyond, and the answers to one read.
const OUTPUT_BOUND: usize = 2 * OUTPUT_MAX;

/// How long a peer takes from one frame to the next.
const PACE: Duration = Duration::from_millis(100);

/// Longer than anything lasts that the broker puts off.
const LONG: Duration = Duration::from_secs(3600);

/// Takes `input` as what a peer sends over one connection, and then lets time pass and the peer hang
/// up. Returns what has happened.
///
/// A heartbeat stands for a pause of as many seconds as its channel number says.
///
/// # Panics
///
/// If the connection answers with what is no AMQP or with too much of it, or if the broker's books are
/// wrong afterwards.
pub fn connection(input: &[u8]) -> EventTotals {
    let mut peer = Peer::new();
    let mut rest = input;
    while !rest.is_empty() && !peer.connection.is_finished() {
        let frame;
        (frame, rest) = rest.split_at(frame_length(rest));
        peer.send(frame);
        peer.wait(pause(frame));
    }
    peer.hang_up()
}

struct Peer {
    broker: Arc<Broker>,
    clock: Clock,
    connection: Connection,
    input: BytesMut,
    /// Deliveries of which more frames are to come, by channel and handle.
    partial: HashMap<(u16, u32), Vec<u8>>,
}

impl Peer {
    fn new() -> Self {
        let clock = Clock::manual();
        let events = Events::new(clock.clone(), 16);
        let broker = Broker::new(topology(), clock.clone(), events).expect("the topology is right");
        let broker = Arc::new(broker);
        let weak: Weak<Broker> = Arc::downgrade(&broker);
        clock.listen(weak as Weak<dyn OnAdvance>);
        fill(&broker);
        clock.advance(PACE);
        let service = Service::new(Arc::clone(&broker), MESSAGE_SIZE_MAX, false);
        let connection = Connection::new(service);
        Self { broker, clock, connection, input: BytesMut::new(), partial: HashMap::new() }
    }

    /// In two pieces, as a socket may hand it out.
    fn send(&mut self, frame: &[u8]) {
        let (first, second) = frame.split_at(frame.len() / 2);
        for piece in [first, second] {
            self.input.extend_from_slice(piece);
            self.connection.receive(&mut self.input);
        }
        self.pump();
    }

    fn wait(&mut self, time: Duration) {
        self.clock.advance(time);
        self.pump();
    }

    fn hang_up(mut self) -> EventTotals {
        self.audit();
        self.wait(LONG);
        self.connection.end_sessions();
        self.clock.advance(LONG);
        self.audit();
        self.broker.context.events.totals()
    }

    fn audit(&self) {
        for entity in self.broker.entities() {
            entity.audit();
        }
    }

    fn pump(&mut self) {
        loop {
            self.connection.pump();
            self.read_output();
            if !self.connection.has_work() || self.connection.is_finished() {
                return;
            }
        }
    }

    fn read_output(&mut self) {
        let mut output = self.connection.shared.out.split();
        assert!(output.len() <= OUTPUT_BOUND, "{} bytes at once", output.len());
        while !output.is_empty() {
            if output.starts_with(b"AMQP") {
                let header = ProtocolHeader::take(&mut output).expect("a whole header");
                header.expect("a header of ours");
                continue;
            }
            let kind = if output[5] == 1 { FrameKind::Sasl } else { FrameKind::Amqp };
            let frame = Frame::take(&mut output, kind).expect("a frame").expect("a whole frame");
            match kind {
                FrameKind::Sasl => drop(Raw::split(&frame.body).expect("a value")),
                FrameKind::Amqp => self.read_frame(&frame),
            }
        }
    }

    /// What receivers get must be whole messages.
    fn read_frame(&mut self, frame: &Frame) {
        if frame.body.is_empty() {
            return;
        }
        let performative = Performative::read(&frame.body).expect("a performative");
        if let Performative::Transfer(transfer, payload) = performative {
            let link = (frame.channel, transfer.handle);
            let message = self.partial.entry(link).or_default();
            message.extend_from_slice(payload);
            if !transfer.more {
                Sections::split(message).expect("a message");
                self.partial.remove(&link);
            }
        }
    }
}

/// The bytes up to the end of what seems to be a header or a frame.
fn frame_length(bytes: &[u8]) -> usize {
    let Some(start) = bytes.first_chunk::<4>() else {
        return bytes.len();
    };
    let size = if start == b"AMQP" { 8 } else { u32::from_be_bytes(*start).min(FRAME_SIZE_MAX) };
    usize::try_from(size).unwrap_or(usize::MAX).clamp(4, bytes.len())
}

fn pause(frame: &[u8]) -> Duration {
    match frame {
        [0, 0, 0, 8, 2, 0, high, low] => {
            Duration::from_secs(u16::from_be_bytes([*high, *low]).into())
        }
        _ => PACE,
    }
}

/// What seeds are recorded with, too.
fn topology() -> Topology {
    let minute = Duration::from_secs(60);
    Topology {
        queues: vec![
            QueueOptions::new("orders").lock_duration(minute).dead_letter_expired(true),
            QueueOptions::new("sessions").lock_duration(minute).requires_session(true),
            QueueOptions::new("once").duplicate_detection(10 * minute).max_delivery_count(1),
            QueueOptions::new("through").forward_to("events"),
        ],
        topics: vec![
            TopicOptions::new("events")
                .subscription(SubscriptionOptions::new("all").lock_duration(minute))
                .subscription(
                    SubscriptionOptions::new("some")
                        .rule(
                            Rule::new("red", Filter::sql("colour = 'red' OR sys.Label LIKE 'a%'"))
                                .action("SET weight = weight + 1; REMOVE colour"),
                        )
                        .rule(Rule::new("blue", CorrelationFilter::new().subject("blue"))),
                ),
        ],
    }
}

/// Something to receive, and a dead letter, for there is no other connection to send it.
fn fill(broker: &Broker) {
    for number in 0..6 {
        for (entity, session) in [("orders", None), ("sessions", Some("s-1")), ("through", None)] {
            let queue = broker.entity(entity).expect("the topology has it");
            queue.send(vec![stored(number, session)]).expect("there is room");
        }
    }
    let late = Submission { time_to_live: Some(Duration::from_millis(1)), ..stored(6, None) };
    let orders = broker.entity("orders").expect("the topology has it");
    orders.send(vec![late]).expect("there is room");
}

fn stored(number: u64, session: Option<&str>) -> Submission {
    let mut message = BytesMut::new();
    encode::descriptor(&mut message, 0x73);
    encode::list(&mut message, 11, |out| {
        encode::ulong(out, number);
        for _ in 0..9 {
            encode::null(out);
        }
        encode::optional(out, session, encode::string);
    });
    encode::descriptor(&mut message, 0x75);
    encode::binary(&mut message, b"body");
    submission(&Sections::split(&message).expect("a message"), false)
}
