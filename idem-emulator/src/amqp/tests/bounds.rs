//! What a peer can make the emulator keep for it.

use super::*;
use crate::amqp::connection::LINKS_MAX;
use crate::amqp::session::DELIVERY_OUTPUT_MAX;
use crate::faults::Fault;

/// The largest message of the emulator under test, and a good part of it.
const LARGE: usize = 100 * 1024;

impl Peer {
    /// Sends a performative on a channel and returns what comes back.
    fn exchange_on(&mut self, channel: u16, performative: &impl Serialize) -> Vec<Answer> {
        let mut input = BytesMut::new();
        Frame::write(&mut input, FrameKind::Amqp, channel, |out| {
            out.put_slice(&serde_amqp::to_vec(performative).unwrap());
        });
        self.connection.receive(&mut input);
        self.answers()
    }

    /// Attaches both ends of the management node of `orders`; the peer grants no credit.
    fn attach_management(&mut self) {
        let address = "orders/$management";
        self.attach_sender(address);
        let target = TargetArchetype::Target(Target::builder().address("replies").build());
        let source = Source::builder().address(address).build();
        let receiver = attach(Role::Receiver, 3, Some(Box::new(source)), Some(Box::new(target)));
        self.exchange(&receiver, &[]);
    }

    /// Sends a request; returns why it was not taken, if it was not.
    fn ask(&mut self, id: u32, operation: &str, arguments: &[(&str, Value)]) -> Option<String> {
        let map = arguments
            .iter()
            .map(|(name, value)| (Value::String((*name).to_owned()), value.clone()));
        let request = Message::builder()
            .properties(Properties { reply_to: Some("replies".to_owned()), ..Default::default() })
            .application_properties(
                ApplicationProperties::builder().insert("operation", operation).build(),
            )
            .value(Value::Map(map.collect()))
            .build();
        let bytes = serde_amqp::to_vec(&Serializable(&request)).unwrap();
        let answers = self.exchange(&transfer(id, 0, false), &bytes);
        // A flow may come with it, once half of the credit is used.
        let state = answers.into_iter().find_map(|(performative, _)| match performative {
            Performative::Disposition(disposition) => disposition.state,
            _ => None,
        });
        match state {
            Some(DeliveryState::Accepted(_)) => None,
            Some(DeliveryState::Rejected(rejected)) => Some(condition(rejected.error.as_ref())),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_connection_has_so_many_links_and_no_more() {
    let mut peer = Peer::new(100, 65536);
    let begin = Begin {
        remote_channel: None,
        next_outgoing_id: 0,
        incoming_window: 10,
        outgoing_window: 10,
        handle_max: u32::MAX.into(),
        offered_capabilities: None,
        desired_capabilities: None,
        properties: None,
    };
    peer.exchange_on(1, &begin);
    let sender = |handle| {
        let target = TargetArchetype::Target(Target::builder().address("orders").build());
        attach(Role::Sender, handle, None, Some(Box::new(target)))
    };
    for number in 0..u32::try_from(LINKS_MAX).unwrap() {
        let channel = u16::try_from(number / 4000).unwrap();
        let answers = peer.exchange_on(channel, &sender(number % 4000));
        assert!(matches!(answers[..], [(Performative::Attach(_), _), (Performative::Flow(_), _)]));
    }
    let answers = peer.exchange_on(1, &sender(4000));
    let [(Performative::End(end), _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(format!("{:?}", end.error).contains("ResourceLimitExceeded"), "{end:?}");

    // Only that session has ended, which makes room.
    assert!(peer.exchange_on(1, &End { error: None }).is_empty());
    peer.exchange_on(1, &begin);
    for (channel, handle) in [(0, 4000), (1, 0)] {
        let answers = peer.exchange_on(channel, &sender(handle));
        assert!(matches!(answers[..], [(Performative::Attach(_), _), (Performative::Flow(_), _)]));
    }
}

#[test]
fn large_messages_are_taken_only_as_they_can_be_written() {
    let mut peer = Peer::new(u32::MAX / 2, 65536);
    let body = vec![b'x'; LARGE];
    peer.store(&[&body[..]; 60]);
    peer.receive_from("orders");
    let mut input = BytesMut::new();
    Frame::write(&mut input, FrameKind::Amqp, 0, |out| {
        out.put_slice(&serde_amqp::to_vec(&flow(u32::MAX / 2, 0, 60, false)).unwrap());
    });
    peer.connection.receive(&mut input);
    for _ in 0..10 {
        peer.connection.pump();
    }
    let output = peer.connection.shared.out.len();
    assert!((1..DELIVERY_OUTPUT_MAX + 65536).contains(&output), "{output} bytes wait");
    let locked = peer.counts().1;
    assert!(locked * LARGE <= 2 * (DELIVERY_OUTPUT_MAX + LARGE), "{locked} are on their way");

    let mut delivered = 0;
    while peer.connection.has_work() {
        let answers = peer.answers();
        delivered += transfers(&answers).iter().filter(|(transfer, _)| !transfer.more).count();
    }
    assert_eq!((delivered, peer.counts()), (60, (0, 60, 0)));
}

#[test]
fn responses_that_nobody_takes_are_bounded_in_number() {
    let mut peer = Peer::new(100, 65536);
    peer.attach_management();
    let refused = (0..1000).find_map(|id| Some((id, peer.ask(id, "peek-message", &[])?)));
    let (taken, condition) = refused.expect("the responses are bounded");
    assert!(condition.contains("resource-limit-exceeded"), "{condition}");
    assert_eq!(taken, 256);
}

#[test]
fn responses_that_nobody_takes_are_bounded_in_size() {
    let mut peer = Peer::new(100, 65536);
    peer.store(&[&[b'x'; LARGE][..]; 2]);
    peer.attach_management();
    let count = [("message-count", Value::Int(2))];
    let refused = (0..1000).find_map(|id| Some((id, peer.ask(id, "peek-message", &count)?)));
    let (taken, condition) = refused.expect("the responses are bounded");
    assert!(condition.contains("resource-limit-exceeded"), "{condition}");
    assert!((2..10).contains(&taken), "{taken} responses of 200 KiB wait");
}

#[test]
fn responses_that_are_put_off_count_too() {
    let mut peer = Peer::new(100, 65536);
    let late = Fault::delay_settlement_answer(Duration::from_secs(1));
    let fault = peer.broker.context.faults.add(late);
    let bodies = [&b"a"[..]; 300];
    peer.store(&bodies);
    peer.attach_management();
    let queue = peer.broker.node("orders").unwrap().queue;
    let mut held = Vec::new();
    let waker = std::task::Waker::noop();
    let (part, mode) = (crate::broker::Part::Main, crate::broker::ReceiveMode::PeekLock);
    queue.receive(part, mode, 300, peer.broker.new_consumer(), waker, &mut held).unwrap();
    let mut taken = 0;
    for (id, delivery) in (0..).zip(&held) {
        let token = Value::Uuid((*delivery.token.as_bytes()).into());
        let arguments = [
            ("lock-tokens", Value::List(vec![token])),
            ("disposition-status", Value::String("completed".to_owned())),
        ];
        taken += u64::from(peer.ask(id, "update-disposition", &arguments).is_none());
    }
    assert_eq!((taken, fault.fired()), (256, 256));
}

#[test]
fn deliveries_that_are_not_whole_yet_are_bounded_together() {
    const SENDERS: u32 = 200;
    let mut peer = Peer::new(100, 65536);
    let message = encoded(&wire_message(&[b'x'; LARGE]));
    let parts: Vec<_> = message.chunks(60_000).collect();
    let [first, last] = parts[..] else { panic!("{} parts", parts.len()) };
    let part = |handle: u32, more| Transfer { handle: handle.into(), ..transfer(handle, 0, more) };
    for handle in 0..SENDERS {
        let target = TargetArchetype::Target(Target::builder().address("orders").build());
        peer.exchange(&attach(Role::Sender, handle, None, Some(Box::new(target))), &[]);
        // The first half twice makes no message, but counts.
        for _ in 0..2 {
            assert!(peer.exchange(&part(handle, true), first).is_empty());
        }
    }
    let mut refused = 0;
    for handle in 0..SENDERS {
        let answers = peer.exchange(&part(handle, false), &[]);
        let state = format!("{:?}", only_disposition(&answers).state);
        refused += usize::from(state.contains("ResourceLimitExceeded"));
    }
    let held = (usize::try_from(SENDERS).unwrap() - refused) * 2 * first.len();
    assert!(refused > 0 && held <= 16 * 1024 * 1024, "{held} bytes were held");

    assert!(peer.exchange(&part(0, true), first).is_empty());
    let answers = peer.exchange(&part(0, false), last);
    assert!(format!("{:?}", only_disposition(&answers).state).contains("Accepted"));
}
