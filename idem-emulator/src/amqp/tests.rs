//! Connections without sockets, against an independent implementation of the AMQP types.

use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use fe2o3_amqp_types::definitions::{
    DeliveryTag, Error, ErrorCondition, Fields, ReceiverSettleMode, Role, SenderSettleMode,
};
use fe2o3_amqp_types::messaging::message::__private::{Deserializable, Serializable};
use fe2o3_amqp_types::messaging::{
    Accepted, ApplicationProperties, Body, Data, DeliveryState, FilterSet, Message, MessageId,
    Modified, Outcome, Properties, Rejected, Source, Target, TargetArchetype,
};
use fe2o3_amqp_types::performatives::{
    Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Performative, Transfer,
};
use fe2o3_amqp_types::primitives::{SimpleValue, Symbol, Value};
use fe2o3_amqp_types::transaction::{Coordinator, TransactionalState};
use serde::{Deserialize, Serialize};

mod faults;
mod idle;
mod transactions;

use super::connection::Connection;
use super::frame::{Frame, FrameKind, ProtocolHeader};
use super::idle::{Idle, IdleWatch};
use super::performative::BATCH_FORMAT;
use super::*;
use crate::broker::{Submission, Topology};
use crate::clock::Clock;
use crate::events::Events;
use crate::options::QueueOptions;

type WireMessage = Message<Body<Value>>;

/// The other end of a connection.
struct Peer {
    broker: Arc<Broker>,
    clock: Clock,
    connection: Connection,
}

impl Peer {
    /// Opens a connection and one session, on channel 0.
    fn new(incoming_window: u32, frame_size_max: u32) -> Self {
        Self::open(incoming_window, frame_size_max, false)
    }

    fn with_idle_rules(idle_rules: bool) -> Self {
        Self::open(100, 65536, idle_rules)
    }

    fn open(incoming_window: u32, frame_size_max: u32, idle_rules: bool) -> Self {
        let clock = Clock::manual();
        let sessions = QueueOptions::new("sessions").requires_session(true);
        let queues = vec![QueueOptions::new("orders"), QueueOptions::new("other"), sessions];
        let topology = Topology { queues, ..Topology::default() };
        let events = Events::new(clock.clone(), 1000);
        let broker = Arc::new(Broker::new(topology, clock.clone(), events).unwrap());
        let service = Service::new(Arc::clone(&broker), 256 * 1024, idle_rules);
        let mut peer = Self { broker, clock, connection: Connection::new(service) };
        let mut header = BytesMut::from(&ProtocolHeader::Amqp.bytes()[..]);
        peer.connection.receive(&mut header);
        let _header = peer.connection.shared.out.split_to(8);
        let open = Open {
            container_id: "peer".to_owned(),
            hostname: None,
            max_frame_size: frame_size_max.into(),
            channel_max: 10.into(),
            idle_time_out: Some(1000),
            outgoing_locales: None,
            incoming_locales: None,
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        let begin = Begin {
            remote_channel: None,
            next_outgoing_id: 7,
            incoming_window,
            outgoing_window: 10,
            handle_max: 10.into(),
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        let answers = [peer.exchange(&open, &[]), peer.exchange(&begin, &[])].concat();
        assert!(matches!(answers[..], [(Performative::Open(_), _), (Performative::Begin(_), _)]));
        peer
    }

    /// Sends a performative and returns what comes back.
    fn exchange(&mut self, performative: &impl Serialize, payload: &[u8]) -> Vec<Answer> {
        let mut input = BytesMut::new();
        Frame::write(&mut input, FrameKind::Amqp, 0, |out| {
            out.put_slice(&serde_amqp::to_vec(performative).unwrap());
            out.put_slice(payload);
        });
        self.connection.receive(&mut input);
        assert!(input.is_empty());
        self.answers()
    }

    fn answers(&mut self) -> Vec<Answer> {
        self.connection.pump();
        let mut answers = Vec::new();
        let mut output = self.connection.shared.out.split();
        while let Some(frame) = Frame::take(&mut output, FrameKind::Amqp).unwrap() {
            let mut bytes = &frame.body[..];
            let reader = serde_amqp::read::IoReader::new(&mut bytes);
            let performative =
                Performative::deserialize(&mut serde_amqp::de::Deserializer::new(reader)).unwrap();
            answers.push((performative, bytes.to_vec()));
        }
        answers
    }

    fn attach_sender(&mut self, address: &str) -> Vec<Answer> {
        let target = TargetArchetype::Target(Target::builder().address(address).build());
        self.exchange(&attach(Role::Sender, 1, None, Some(Box::new(target))), &[])
    }

    fn attach_receiver(&mut self, source: Source) -> Vec<Answer> {
        self.exchange(&attach(Role::Receiver, 2, Some(Box::new(source)), None), &[])
    }

    fn receive_from(&mut self, address: &str) {
        let answers = self.attach_receiver(Source::builder().address(address).build());
        assert!(matches!(answers[..], [(Performative::Attach(_), _)]), "{answers:?}");
    }

    /// Asks for a session by name, or for any.
    fn ask_for_session(&mut self, name: Option<&str>) -> Vec<Answer> {
        self.attach_with_session_filter(
            name.map_or(Value::Null, |name| Value::String(name.to_owned())),
        )
    }

    fn attach_with_session_filter(&mut self, wish: Value) -> Vec<Answer> {
        let mut filter = FilterSet::new();
        filter.insert(Symbol::from("com.microsoft:session-filter"), wish);
        let source =
            Source { filter: Some(filter), ..Source::builder().address("sessions").build() };
        let attach = attach(Role::Receiver, 2, Some(Box::new(source)), None);
        let mut properties = Fields::new();
        properties.insert(Symbol::from("com.microsoft:timeout"), Value::Uint(100));
        self.exchange(&Attach { properties: Some(properties), ..attach }, &[])
    }

    fn store_in_session(&self, session: &str) {
        let submission = Submission { session_id: Some(session.into()), ..Submission::default() };
        self.broker.node("sessions").unwrap().queue.send(vec![submission]).unwrap();
    }

    /// Puts messages into the queue directly.
    fn store(&self, bodies: &[&[u8]]) {
        for body in bodies {
            let bytes = encoded(&wire_message(body));
            let sections = crate::codec::message::Sections::split(&bytes).unwrap();
            let submission = crate::codec::message::submission(&sections, false);
            self.broker.node("orders").unwrap().queue.send(vec![submission]).unwrap();
        }
    }

    fn counts(&self) -> (usize, usize, usize) {
        let counts = self.broker.node("orders").unwrap().queue.counts();
        (counts.active, counts.locked, counts.dead_lettered)
    }
}

type Answer = (Performative, Vec<u8>);

fn attach(
    role: Role,
    handle: u32,
    source: Option<Box<Source>>,
    target: Option<Box<TargetArchetype>>,
) -> Attach {
    Attach {
        name: format!("link-{handle}"),
        handle: handle.into(),
        role,
        snd_settle_mode: SenderSettleMode::Mixed,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source,
        target,
        unsettled: None,
        incomplete_unsettled: false,
        initial_delivery_count: Some(0),
        max_message_size: None,
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    }
}

fn flow(window: u32, next_incoming_id: u32, credit: u32, drain: bool) -> Flow {
    Flow {
        next_incoming_id: Some(next_incoming_id),
        incoming_window: window,
        next_outgoing_id: 7,
        outgoing_window: 10,
        handle: Some(2.into()),
        delivery_count: Some(0),
        link_credit: Some(credit),
        available: None,
        drain,
        echo: false,
        properties: None,
    }
}

fn transfer(id: u32, format: u32, more: bool) -> Transfer {
    Transfer {
        handle: 1.into(),
        delivery_id: Some(id),
        delivery_tag: Some(DeliveryTag::from(vec![1])),
        message_format: Some(format),
        settled: Some(false),
        more,
        rcv_settle_mode: None,
        state: None,
        resume: false,
        aborted: false,
        batchable: false,
    }
}

fn settle(first: u32, last: u32, state: DeliveryState) -> Disposition {
    Disposition {
        role: Role::Receiver,
        first,
        last: Some(last),
        settled: false,
        state: Some(state),
        batchable: false,
    }
}

fn modified(undeliverable_here: Option<bool>, message_annotations: Option<Fields>) -> Modified {
    Modified { delivery_failed: None, undeliverable_here, message_annotations }
}

fn wire_message(body: &[u8]) -> WireMessage {
    let properties =
        Properties { message_id: Some(MessageId::String("m".to_owned())), ..Default::default() };
    Message::builder()
        .properties(properties)
        .body(Body::Data(vec![Data(body.to_vec().into())].into()))
        .build()
}

fn encoded(message: &WireMessage) -> Vec<u8> {
    serde_amqp::to_vec(&Serializable(message)).unwrap()
}

fn decoded(bytes: &[u8]) -> WireMessage {
    serde_amqp::from_slice::<Deserializable<WireMessage>>(bytes).unwrap().0
}

fn transfers(answers: &[Answer]) -> Vec<(&Transfer, &[u8])> {
    answers
        .iter()
        .filter_map(|(performative, payload)| match performative {
            Performative::Transfer(transfer) => Some((transfer, payload.as_slice())),
            _ => None,
        })
        .collect()
}

fn only_disposition(answers: &[Answer]) -> &Disposition {
    match answers {
        [(Performative::Disposition(disposition), _)] => disposition,
        other => panic!("not one disposition: {other:?}"),
    }
}

fn condition(error: Option<&Error>) -> String {
    match &error.expect("an error").condition {
        ErrorCondition::Custom(symbol) => symbol.as_str().to_owned(),
        standard => match serde_amqp::to_value(standard).unwrap() {
            Value::Symbol(symbol) => symbol.as_str().to_owned(),
            other => panic!("not a symbol: {other:?}"),
        },
    }
}

#[test]
fn a_sender_is_answered_with_mode_first_and_credit() {
    let mut peer = Peer::new(10, 65536);
    let answers = peer.attach_sender("amqp://localhost/ORDERS");
    let [(Performative::Attach(attach), _), (Performative::Flow(flow), _)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(
        (&attach.role, &attach.rcv_settle_mode),
        (&Role::Receiver, &ReceiverSettleMode::First)
    );
    let Some(TargetArchetype::Target(target)) = attach.target.as_deref() else {
        panic!("{attach:?}")
    };
    assert_eq!(target.address.as_deref(), Some("amqp://localhost/ORDERS"), "echoed as it was sent");
    assert_eq!(attach.max_message_size, Some(256 * 1024));
    assert!(flow.link_credit > Some(0) && flow.next_incoming_id == Some(7));
}

#[test]
fn a_message_in_parts_is_stored_once_it_is_whole() {
    let mut peer = Peer::new(10, 65536);
    peer.attach_sender("orders");
    let bytes = encoded(&wire_message(b"hello"));
    let (start, end) = bytes.split_at(5);
    assert!(peer.exchange(&transfer(3, 0, true), start).is_empty());
    assert_eq!(peer.counts(), (0, 0, 0));
    let next = Transfer { delivery_id: None, delivery_tag: None, ..transfer(3, 0, false) };
    let answers = peer.exchange(&next, end);
    let disposition = only_disposition(&answers);
    assert!(disposition.settled && disposition.first == 3);
    assert_eq!(disposition.state, Some(DeliveryState::Accepted(Accepted {})));
    assert_eq!(peer.counts(), (1, 0, 0));
}

#[test]
fn a_batch_may_be_no_larger_than_a_message() {
    let mut peer = Peer::new(10, 65536);
    peer.attach_sender("orders");
    // Each message alone would be small enough.
    let message = encoded(&wire_message(&vec![0; 130 * 1024]));
    let data = |message: &Vec<u8>| Data(message.clone().into());
    let batch: WireMessage =
        Message::builder().body(Body::Data(vec![data(&message), data(&message)].into())).build();
    let mut parts: Vec<_> = encoded(&batch).chunks(60_000).map(<[u8]>::to_vec).collect();
    let last = parts.pop().unwrap();
    for part in parts {
        assert!(peer.exchange(&transfer(0, BATCH_FORMAT, true), &part).is_empty());
    }
    let answers = peer.exchange(&transfer(0, BATCH_FORMAT, false), &last);
    let Some(DeliveryState::Rejected(rejected)) = &only_disposition(&answers).state else {
        panic!("{answers:?}");
    };
    assert!(condition(rejected.error.as_ref()).contains("message-size-exceeded"), "{rejected:?}");
    assert_eq!(peer.counts(), (0, 0, 0));
}

#[test]
fn an_aborted_message_is_forgotten() {
    let mut peer = Peer::new(10, 65536);
    peer.attach_sender("orders");
    peer.exchange(&transfer(0, 0, true), b"half");
    let abort = Transfer { aborted: true, ..transfer(0, 0, false) };
    assert!(peer.exchange(&abort, &[]).is_empty());
    let answers = peer.exchange(&transfer(1, 0, false), &encoded(&wire_message(b"whole")));
    assert_eq!(only_disposition(&answers).first, 1);
    assert_eq!(peer.counts(), (1, 0, 0));
}

#[test]
fn what_cannot_be_stored_is_rejected_with_its_reason() {
    let mut peer = Peer::new(10, 65536);
    peer.attach_sender("orders");
    let cases: [(u32, Vec<u8>, &str); 2] = [
        (0, b"not a message".to_vec(), "DecodeError"),
        (BATCH_FORMAT, encoded(&wire_message(b"not a message")), "DecodeError"),
    ];
    for (id, (format, payload, expected)) in (0..).zip(cases) {
        let answers = peer.exchange(&transfer(id, format, false), &payload);
        let state = format!("{:?}", only_disposition(&answers).state);
        assert!(state.contains("Rejected") && state.contains(expected), "{state}");
    }
    assert_eq!(peer.counts(), (0, 0, 0));
}

#[test]
fn deliveries_keep_to_credit_and_window() {
    let mut peer = Peer::new(2, 65536);
    peer.store(&[b"a", b"b", b"c", b"d", b"e"]);
    peer.receive_from("orders");
    let answers = peer.exchange(&flow(2, 0, 4, false), &[]);
    assert_eq!(transfers(&answers).len(), 2, "the window");
    assert_eq!(peer.counts(), (3, 2, 0), "nothing is locked ahead of the window");
    let answers = peer.exchange(&flow(10, 2, 4, false), &[]);
    assert_eq!(transfers(&answers).len(), 2, "the credit");
    assert_eq!(peer.counts(), (1, 4, 0));
    let (transfer, payload) = transfers(&answers)[0];
    assert_eq!(transfer.delivery_tag.as_ref().map(|tag| tag.len()), Some(16));
    assert_eq!(transfer.settled, Some(false));
    assert_eq!(decoded(payload).header.map(|header| header.delivery_count), Some(0));
}

#[test]
fn large_messages_are_cut_to_the_peers_frame_size() {
    let mut peer = Peer::new(3, 512);
    let body: Vec<u8> = (0..2000u32).map(|number| number.to_le_bytes()[0]).collect();
    peer.store(&[&body]);
    peer.receive_from("orders");
    let first = peer.exchange(&flow(3, 0, 1, false), &[]);
    assert_eq!(transfers(&first).len(), 3, "the window ends in the middle of the message");
    let second = peer.exchange(&flow(100, 3, 1, false), &[]);
    let all = [first, second].concat();
    let parts = transfers(&all);
    let (last, before) = parts.split_last().unwrap();
    assert!(before.iter().all(|(transfer, _)| transfer.more) && !last.0.more);
    assert!(parts[1..].iter().all(|(transfer, _)| transfer.delivery_id.is_none()));
    let whole: Vec<u8> = parts.iter().flat_map(|(_, payload)| payload.iter().copied()).collect();
    assert_eq!(format!("{:?}", decoded(&whole).body), format!("{:?}", wire_message(&body).body));
}

#[test]
fn draining_sends_what_is_there_and_gives_the_rest_back() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a", b"b"]);
    peer.receive_from("orders");
    let answers = peer.exchange(&flow(100, 0, 10, true), &[]);
    assert_eq!(transfers(&answers).len(), 2);
    let Some((Performative::Flow(flow), _)) = answers.last() else { panic!("{answers:?}") };
    assert_eq!((flow.drain, flow.link_credit, flow.delivery_count), (true, Some(0), Some(10)));
    peer.store(&[b"c"]);
    assert!(peer.answers().is_empty(), "no credit is left");
}

#[test]
fn a_waiting_receiver_is_woken_by_a_message() {
    let mut peer = Peer::new(100, 65536);
    peer.receive_from("orders");
    assert!(peer.exchange(&flow(100, 0, 1, false), &[]).is_empty());
    peer.store(&[b"a", b"b"]);
    assert_eq!(transfers(&peer.answers()).len(), 1);
}

#[test]
fn settlements_are_answered_with_their_own_outcome() {
    let info = Fields::from_iter([
        (Symbol::from("DeadLetterReason"), Value::String("why".to_owned())),
        (Symbol::from("extra"), Value::Int(1)),
    ]);
    let condition = ErrorCondition::Custom(Symbol::from("com.microsoft:dead-letter"));
    let dead_letter = Rejected { error: Some(Error::new(condition, None, Some(info))) };
    let properties = Fields::from_iter([(Symbol::from("tried"), Value::Int(1))]);
    let abandon = modified(None, Some(properties));

    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a", b"b", b"c", b"d"]);
    peer.receive_from("orders");
    peer.exchange(&flow(100, 0, 4, false), &[]);
    let answers = peer.exchange(&settle(0, 1, DeliveryState::Accepted(Accepted {})), &[]);
    let disposition = only_disposition(&answers);
    assert_eq!((disposition.first, disposition.last, disposition.settled), (0, Some(1), true));
    assert_eq!(disposition.state, Some(DeliveryState::Accepted(Accepted {})));

    let answers = peer.exchange(&settle(2, 2, DeliveryState::Rejected(dead_letter)), &[]);
    let state = only_disposition(&answers).state.clone();
    assert_eq!(state, Some(DeliveryState::Rejected(Rejected { error: None })));
    let answers = peer.exchange(&settle(3, 3, DeliveryState::Modified(abandon)), &[]);
    assert!(matches!(only_disposition(&answers).state, Some(DeliveryState::Modified(_))));
    assert_eq!(peer.counts(), (1, 0, 1));

    let answers = peer.exchange(&flow(100, 4, 5, false), &[]);
    let again = decoded(transfers(&answers)[0].1);
    assert_eq!(again.header.unwrap().delivery_count, 1);
    assert_eq!(again.application_properties.unwrap().get("tried"), Some(&SimpleValue::Int(1)));
}

#[test]
fn dead_letter_info_may_have_string_keys() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    peer.exchange(&flow(100, 0, 1, false), &[]);
    let mut input = BytesMut::new();
    Frame::write(&mut input, FrameKind::Amqp, 0, |out| {
        use crate::codec::encode;
        encode::descriptor(out, 0x15);
        encode::list(out, 5, |out| {
            encode::boolean(out, true);
            encode::uint(out, 0);
            encode::null(out);
            encode::boolean(out, false);
            encode::descriptor(out, 0x25);
            encode::list(out, 1, |out| {
                encode::descriptor(out, 0x1d);
                encode::list(out, 3, |out| {
                    encode::symbol(out, "com.microsoft:dead-letter");
                    encode::null(out);
                    encode::map(out, 1, |out| {
                        encode::string(out, "DeadLetterReason");
                        encode::string(out, "why");
                    });
                });
            });
        });
    });
    peer.connection.receive(&mut input);
    assert_eq!(only_disposition(&peer.answers()).first, 0);
    let queue = peer.broker.node("orders").unwrap().queue;
    let (dead, _) = queue.peek(crate::broker::Part::DeadLetter, None, 0, 1).remove(0);
    assert_eq!(dead.dead_letter().unwrap().reason.as_deref(), Some("why"));
}

#[test]
fn a_settlement_after_the_lock_is_refused() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    peer.exchange(&flow(100, 0, 1, false), &[]);
    peer.broker.context.clock.advance(Duration::from_secs(60));
    peer.broker.sweep();
    let answers = peer.exchange(&settle(0, 0, DeliveryState::Accepted(Accepted {})), &[]);
    let Some(DeliveryState::Rejected(rejected)) = &only_disposition(&answers).state else {
        panic!("{answers:?}");
    };
    assert_eq!(condition(rejected.error.as_ref()), "com.microsoft:message-lock-lost");
}

#[test]
fn a_deferral_is_answered_as_modified() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    peer.exchange(&flow(100, 0, 1, false), &[]);
    let defer = modified(Some(true), None);
    let answers = peer.exchange(&settle(0, 0, DeliveryState::Modified(defer)), &[]);
    assert!(matches!(only_disposition(&answers).state, Some(DeliveryState::Modified(_))));
    let counts = peer.broker.node("orders").unwrap().queue.counts();
    assert_eq!((counts.active, counts.locked, counts.deferred), (0, 0, 1));
}

fn granted(attach: &Attach) -> (&Value, &Value) {
    let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref()).unwrap();
    let properties = attach.properties.as_ref().unwrap();
    (
        filter.get(&Symbol::from("com.microsoft:session-filter")).unwrap(),
        properties.get(&Symbol::from("com.microsoft:locked-until-utc")).unwrap(),
    )
}

#[test]
fn the_answer_to_an_attach_names_the_session_and_the_end_of_its_lock() {
    let mut peer = Peer::new(100, 65536);
    peer.store_in_session("s");
    let answers = peer.ask_for_session(None);
    let [(Performative::Attach(attach), _)] = &answers[..] else { panic!("{answers:?}") };
    let until = peer.clock.now().plus(Duration::from_secs(60)).milliseconds();
    let ticks = until * 10_000 + 621_355_968_000_000_000;
    assert_eq!(granted(attach), (&Value::String("s".to_owned()), &Value::Long(ticks)));
    assert_eq!(transfers(&peer.exchange(&flow(100, 0, 1, false), &[])).len(), 1);
}

#[test]
fn a_session_id_that_is_no_text_is_refused() {
    let mut peer = Peer::new(100, 65536);
    let answers = peer.attach_with_session_filter(Value::Int(1));
    let [(Performative::Attach(attach), _), (Performative::Detach(detach), _)] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(attach.source, None);
    assert_eq!(condition(detach.error.as_ref()), "com.microsoft:argument-error");
}

#[test]
fn a_link_is_detached_when_it_loses_its_session() {
    let mut peer = Peer::new(100, 65536);
    peer.ask_for_session(Some("s"));
    peer.clock.advance(Duration::from_secs(60));
    peer.broker.sweep();
    let answers = peer.answers();
    let [(Performative::Detach(detach), _)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(condition(detach.error.as_ref()), "com.microsoft:session-lock-lost");
}

#[test]
fn credit_counts_that_comes_before_the_session() {
    let mut peer = Peer::new(100, 65536);
    assert!(peer.ask_for_session(None).is_empty());
    assert!(peer.exchange(&flow(100, 0, 5, false), &[]).is_empty());
    peer.store_in_session("s");
    let answers = peer.answers();
    let [(Performative::Attach(attach), _), (Performative::Transfer(_), _)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(granted(attach).0, &Value::String("s".to_owned()));
}

#[test]
fn a_receiver_that_has_left_is_granted_nothing() {
    let mut peer = Peer::new(100, 65536);
    peer.ask_for_session(None);
    let detach = Detach { handle: 2.into(), closed: true, error: None };
    let answers = peer.exchange(&detach, &[]);
    let [(Performative::Attach(attach), _), (Performative::Detach(_), _)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(attach.source, None);
    peer.store_in_session("s");
    assert!(peer.answers().is_empty());
    assert_eq!(peer.broker.node("sessions").unwrap().queue.counts().active, 1);
    assert_eq!(peer.ask_for_session(None).len(), 1, "the session is still there");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_a_session_ends_with_the_time_that_the_receiver_allows() {
    let mut peer = Peer::new(100, 65536);
    assert!(peer.ask_for_session(None).is_empty());
    tokio::time::advance(Duration::from_millis(99)).await;
    assert!(peer.answers().is_empty());
    tokio::time::advance(Duration::from_millis(2)).await;
    let answers = peer.answers();
    let [(Performative::Attach(attach), _), (Performative::Detach(detach), _)] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(attach.source, None);
    assert_eq!(condition(detach.error.as_ref()), "com.microsoft:timeout");
    peer.store_in_session("s");
    assert!(peer.answers().is_empty());
}

#[test]
fn a_refused_link_is_attached_without_an_address_and_detached_once() {
    let mut peer = Peer::new(100, 65536);
    let answers = peer.attach_receiver(Source::builder().address("nowhere").build());
    let [(Performative::Attach(attach), _), (Performative::Detach(detach), _)] = &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(attach.source, None);
    assert!(detach.closed && format!("{:?}", detach.error).contains("NotFound"));
    let ours = Detach { handle: 2.into(), closed: true, error: None };
    assert!(peer.exchange(&ours, &[]).is_empty(), "a detach that answers ours is not answered");
    peer.receive_from("orders");
    assert_eq!(peer.exchange(&ours, &[]).len(), 1, "the peer's own detach is");
}

#[test]
fn detaching_settles_nothing() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    peer.exchange(&flow(100, 0, 1, false), &[]);
    peer.exchange(&Detach { handle: 2.into(), closed: true, error: None }, &[]);
    assert_eq!(peer.counts(), (0, 1, 0));
    let late = peer.exchange(&settle(0, 0, DeliveryState::Accepted(Accepted {})), &[]);
    assert!(late.is_empty() && peer.counts() == (0, 1, 0), "only the delivering link settles");
}

#[test]
fn links_to_a_deleted_entity_are_detached_and_others_stay() {
    let mut peer = Peer::new(100, 65536);
    assert!(peer.ask_for_session(Some("s")).len() == 1 && peer.attach_sender("orders").len() == 2);
    let source = Source::builder().address("orders/$management").build();
    peer.exchange(&attach(Role::Receiver, 3, Some(Box::new(source)), None), &[]);
    peer.broker.delete("orders").unwrap();
    peer.connection.detach_deleted();
    let mut detached = Vec::new();
    for (performative, _) in peer.answers() {
        let Performative::Detach(detach) = performative else { panic!("{performative:?}") };
        assert!(detach.closed && format!("{:?}", detach.error).contains("NotFound"), "{detach:?}");
        detached.push(detach.handle.0);
    }
    detached.sort_unstable();
    assert_eq!(detached, [1, 3]);
    peer.connection.detach_deleted();
    assert!(peer.answers().is_empty(), "a link is detached once");
    peer.broker.delete("sessions").unwrap();
    peer.connection.detach_deleted();
    assert!(matches!(peer.answers()[..], [(Performative::Detach(_), _)]));
}

#[test]
fn misuse_of_a_session_ends_only_the_session() {
    let mut peer = Peer::new(100, 65536);
    let answers = peer.exchange(&transfer(0, 0, false), b"");
    let [(Performative::End(end), _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(format!("{:?}", end.error).contains("UnattachedHandle"), "{end:?}");
    assert!(peer.exchange(&transfer(1, 0, false), b"").is_empty(), "late frames are ignored");
    assert!(peer.exchange(&End { error: None }, &[]).is_empty());
    assert!(!peer.connection.is_finished());
    let answers = peer.exchange(&Close { error: None }, &[]);
    assert!(matches!(answers[..], [(Performative::Close(_), _)]) && peer.connection.is_finished());
}

#[test]
fn credit_for_a_link_that_both_sides_have_detached_ends_the_session() {
    let mut peer = Peer::new(100, 65536);
    peer.ask_for_session(Some("s"));
    peer.clock.advance(Duration::from_secs(60));
    peer.broker.sweep();
    assert!(matches!(peer.answers()[..], [(Performative::Detach(_), _)]));
    assert!(peer.exchange(&flow(100, 0, 1, false), &[]).is_empty(), "it may cross our detach");
    peer.exchange(&Detach { handle: 2.into(), closed: true, error: None }, &[]);
    let answers = peer.exchange(&flow(100, 0, 1, false), &[]);
    let [(Performative::End(end), _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(format!("{:?}", end.error).contains("UnattachedHandle"), "{end:?}");
}

#[test]
fn requests_are_answered_on_the_link_of_their_reply_address() {
    let mut peer = Peer::new(100, 65536);
    peer.attach_sender("$cbs");
    let target = TargetArchetype::Target(Target::builder().address("replies").build());
    let source = Source::builder().address("$cbs").build();
    peer.exchange(&attach(Role::Receiver, 2, Some(Box::new(source)), Some(Box::new(target))), &[]);
    peer.exchange(&flow(100, 0, 10, false), &[]);
    let properties = Properties {
        message_id: Some(MessageId::Ulong(5)),
        reply_to: Some("replies".to_owned()),
        ..Default::default()
    };
    let operation = ApplicationProperties::builder().insert("operation", "put-token").build();
    let request = Message::builder()
        .properties(properties)
        .application_properties(operation)
        .value(Value::String("token".to_owned()))
        .build();
    let bytes = serde_amqp::to_vec(&Serializable(&request)).unwrap();
    let answers = peer.exchange(&transfer(0, 0, false), &bytes);
    assert!(matches!(answers[0].0, Performative::Disposition(_)), "accepted before it is answered");
    let (transfer, payload) = transfers(&answers)[0];
    assert_eq!(transfer.settled, Some(true));
    let response = decoded(payload);
    assert_eq!(response.properties.unwrap().correlation_id, Some(MessageId::Ulong(5)));
    let properties = response.application_properties.unwrap();
    assert_eq!(properties.get("status-code"), Some(&SimpleValue::Int(202)));
}

/// The elements of an array share one type code: they cannot be echoed one by one.
#[test]
fn what_should_be_a_list_may_not_be_an_array() {
    let strings: [u8; 8] = [0xe0, 6, 2, 0xa1, 1, b'x', 1, b'y'];
    let array = |out: &mut BytesMut, code| {
        crate::codec::encode::descriptor(out, code);
        out.put_slice(&strings);
    };
    let source = |out: &mut BytesMut| {
        use crate::codec::encode;
        encode::descriptor(out, 0x12);
        encode::list(out, 6, |out| {
            encode::string(out, "link");
            encode::uint(out, 2);
            encode::boolean(out, true);
            encode::null(out);
            encode::null(out);
            array(out, 0x28);
        });
    };
    let cases: [&dyn Fn(&mut BytesMut); 2] = [&|out| array(out, 0x12), &source];
    for write in cases {
        let mut peer = Peer::new(100, 65536);
        let mut input = BytesMut::new();
        Frame::write(&mut input, FrameKind::Amqp, 0, write);
        peer.connection.receive(&mut input);
        let answers = peer.answers();
        let [(Performative::Close(close), _)] = &answers[..] else { panic!("{answers:?}") };
        assert!(format!("{:?}", close.error).contains("DecodeError"), "{close:?}");
    }
}

#[test]
fn damaged_frames_never_panic() {
    let coordinator = TargetArchetype::Coordinator(Coordinator::default());
    let outcome = Some(Outcome::Accepted(Accepted {}));
    let state = TransactionalState { txn_id: vec![0; 16].into(), outcome };
    let within = DeliveryState::TransactionalState(state);
    let frames = [
        serde_amqp::to_vec(&flow(100, 0, 5, true)).unwrap(),
        serde_amqp::to_vec(&transfer(0, 0, false)).unwrap(),
        serde_amqp::to_vec(&settle(0, 9, DeliveryState::Accepted(Accepted {}))).unwrap(),
        serde_amqp::to_vec(&Detach { handle: 2.into(), closed: true, error: None }).unwrap(),
        serde_amqp::to_vec(&attach(Role::Receiver, 3, Some(Box::default()), None)).unwrap(),
        serde_amqp::to_vec(&attach(Role::Sender, 5, None, Some(Box::new(coordinator)))).unwrap(),
        serde_amqp::to_vec(&Transfer { handle: 5.into(), ..transfer(0, 0, false) }).unwrap(),
        serde_amqp::to_vec(&settle(0, 9, within)).unwrap(),
    ];
    let mut state = 11u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::from(u16::from_be_bytes([state.to_be_bytes()[0], state.to_be_bytes()[1]])) % below
    };
    let mut survived = 0;
    for _ in 0..300 {
        let mut peer = Peer::new(100, 65536);
        peer.store(&[b"a", b"b", b"c"]);
        peer.attach_sender("orders");
        peer.receive_from("orders");
        for _ in 0..4 {
            let mut input = BytesMut::new();
            Frame::write(&mut input, FrameKind::Amqp, 0, |out| {
                out.put_slice(&frames[random(frames.len())]);
                out.put_slice(&encoded(&wire_message(b"payload")));
            });
            for _ in 0..random(3) {
                let at = 8 + random(input.len() - 8);
                input[at] = u8::try_from(random(256)).unwrap();
            }
            peer.connection.receive(&mut input);
            peer.connection.pump();
        }
        survived += usize::from(!peer.connection.is_finished());
    }
    assert!(
        (1..300).contains(&survived),
        "some damage ends a connection and some does not: {survived}"
    );
}
