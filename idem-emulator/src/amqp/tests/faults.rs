//! Faults, as a peer sees them that waits for every answer.

use super::*;
use crate::faults::Fault;

fn complete(id: u32) -> Disposition {
    settle(id, id, DeliveryState::Accepted(Accepted {}))
}

/// A peer that holds one message, as delivery 0, and a fault.
fn holding_one(fault: Fault) -> (Peer, crate::faults::FaultHandle) {
    let mut peer = Peer::new(100, 65536);
    let handle = peer.broker.context.faults.add(fault);
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    let answers = peer.exchange(&flow(100, 0, 1, false), &[]);
    assert_eq!(transfers(&answers).len(), 1);
    (peer, handle)
}

fn closed_with(answers: &[Answer]) -> String {
    let Some((Performative::Close(close), _)) = answers.last() else { panic!("{answers:?}") };
    format!("{:?}", close.error)
}

#[test]
fn a_delayed_answer_to_a_settlement_comes_at_its_time() {
    let delay = Duration::from_secs(5);
    let (mut peer, fault) = holding_one(Fault::delay_settlement_answer(delay));
    assert!(peer.exchange(&complete(0), &[]).is_empty());
    assert_eq!((fault.fired(), peer.counts()), (1, (0, 0, 0)), "it is applied at once");
    peer.clock.advance(delay - Duration::from_millis(1));
    peer.broker.sweep();
    assert!(peer.answers().is_empty());
    peer.clock.advance(Duration::from_millis(1));
    assert_eq!(peer.broker.sweep(), None, "nothing else is due");
    let answers = peer.answers();
    let disposition = only_disposition(&answers);
    assert!(disposition.settled && disposition.first == 0);
    assert_eq!(disposition.state, Some(DeliveryState::Accepted(Accepted {})));
}

#[test]
fn a_delay_of_no_time_is_none() {
    let (mut peer, fault) = holding_one(Fault::delay_settlement_answer(Duration::ZERO));
    assert_eq!(only_disposition(&peer.exchange(&complete(0), &[])).first, 0);
    assert_eq!(fault.fired(), 1);
    let delay = peer.broker.context.faults.add(Fault::delay_delivery(Duration::ZERO));
    peer.store(&[b"b"]);
    assert_eq!(transfers(&peer.exchange(&flow(100, 1, 2, false), &[])).len(), 1);
    assert_eq!(delay.fired(), 0);
}

#[test]
fn a_lost_answer_to_a_settlement_never_comes() {
    let (mut peer, fault) = holding_one(Fault::lose_settlement_answer());
    assert!(peer.exchange(&complete(0), &[]).is_empty());
    assert_eq!((fault.fired(), peer.counts()), (1, (0, 0, 0)));
    fault.remove();
    let answers = peer.exchange(&complete(0), &[]);
    let state = format!("{:?}", only_disposition(&answers).state);
    assert!(state.contains("message-lock-lost"), "the lock is gone: {state}");
}

#[test]
fn a_connection_is_closed_with_forced_after_the_delivery_was_written() {
    let mut peer = Peer::new(100, 65536);
    let fault = peer.broker.context.faults.add(Fault::close_connection_at_delivery());
    peer.store(&[b"a", b"b"]);
    peer.receive_from("orders");
    let answers = peer.exchange(&flow(100, 0, 2, false), &[]);
    assert_eq!(transfers(&answers).len(), 1);
    assert!(closed_with(&answers).contains("ConnectionForced"), "{answers:?}");
    assert_eq!((fault.fired(), peer.counts()), (1, (1, 1, 0)));
    assert!(peer.connection.is_finished());
}

#[test]
fn a_connection_is_closed_with_forced_instead_of_an_answer() {
    let (mut peer, fault) = holding_one(Fault::close_connection_at_settlement());
    let answers = peer.exchange(&complete(0), &[]);
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert!(closed_with(&answers).contains("ConnectionForced"), "{answers:?}");
    assert_eq!((fault.fired(), peer.counts()), (1, (0, 1, 0)), "it is not applied");
}

#[test]
fn a_link_is_detached_by_force_instead_of_an_answer() {
    let mut peer = Peer::new(100, 65536);
    let fault = peer.broker.context.faults.add(Fault::detach_at_send().times(1));
    peer.attach_sender("orders");
    let answers = peer.exchange(&transfer(0, 0, false), &encoded(&wire_message(b"a")));
    let [(Performative::Detach(detach), _)] = &answers[..] else { panic!("{answers:?}") };
    assert!(format!("{:?}", detach.error).contains("DetachForced"), "{detach:?}");
    assert_eq!((fault.fired(), peer.counts()), (1, (0, 0, 0)));
}

#[test]
fn a_connection_dropped_at_a_send_is_cut_without_a_word() {
    for (fault, stored) in
        [(Fault::drop_connection_at_send(), 0), (Fault::drop_connection_after_send(), 1)]
    {
        let mut peer = Peer::new(100, 65536);
        let fault = peer.broker.context.faults.add(fault);
        peer.attach_sender("orders");
        let answers = peer.exchange(&transfer(0, 0, false), &encoded(&wire_message(b"a")));
        assert!(answers.is_empty() && peer.connection.is_finished());
        assert_eq!((fault.fired(), peer.counts()), (1, (stored, 0, 0)));
    }
}

#[test]
fn a_link_that_loses_its_session_has_the_message_first() {
    let mut peer = Peer::new(100, 65536);
    let fault = peer.broker.context.faults.add(Fault::lose_session_lock());
    peer.store_in_session("s");
    peer.ask_for_session(Some("s"));
    let mut answers = peer.exchange(&flow(100, 0, 2, false), &[]);
    answers.append(&mut peer.answers());
    let [(Performative::Transfer(_), _), (Performative::Detach(detach), _)] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert_eq!(condition(detach.error.as_ref()), "com.microsoft:session-lock-lost");
    assert_eq!(fault.fired(), 1);
    let counts = peer.broker.node("sessions").unwrap().queue.counts();
    assert_eq!((counts.active, counts.locked), (1, 0));
}

#[test]
fn a_lost_request_is_accepted_and_neither_done_nor_answered() {
    let mut peer = Peer::new(100, 65536);
    let fault = peer.broker.context.faults.add(Fault::lose_request().operation("peek-message"));
    peer.attach_sender("orders/$management");
    peer.receive_from("orders/$management");
    peer.exchange(&flow(100, 0, 10, false), &[]);
    let request = |operation: &str| {
        let operation = ApplicationProperties::builder().insert("operation", operation).build();
        let body = Value::Map(Default::default());
        let request = Message::builder().application_properties(operation).value(body).build();
        serde_amqp::to_vec(&Serializable(&request)).unwrap()
    };
    let lost = peer.exchange(&transfer(0, 0, false), &request("com.microsoft:peek-message"));
    assert!(transfers(&lost).is_empty());
    assert_eq!(only_disposition(&lost).state, Some(DeliveryState::Accepted(Accepted {})));
    assert_eq!(fault.fired(), 1);
    let other = peer.exchange(&transfer(1, 0, false), &request("com.microsoft:renew-lock"));
    assert_eq!(transfers(&other).len(), 1);
    assert_eq!(fault.fired(), 1);

    let cut = peer.broker.context.faults.add(Fault::drop_connection_at_request());
    let last = peer.exchange(&transfer(2, 0, false), &request("com.microsoft:renew-lock"));
    assert!(transfers(&last).is_empty() && peer.connection.is_finished());
    assert_eq!(cut.fired(), 1);
}

#[test]
fn a_delayed_answer_to_a_settlement_by_token_comes_at_its_time() {
    let delay = Duration::from_secs(5);
    let mut peer = Peer::new(100, 65536);
    let fault = peer.broker.context.faults.add(Fault::delay_settlement_answer(delay));
    peer.store(&[b"a"]);
    peer.receive_from("orders");
    let answers = peer.exchange(&flow(100, 0, 1, false), &[]);
    let tag = transfers(&answers)[0].0.delivery_tag.clone().unwrap();
    let token = uuid::Uuid::from_bytes_le(tag.as_slice().try_into().unwrap());

    peer.attach_sender("orders/$management");
    let source = Source::builder().address("orders/$management").build();
    peer.exchange(&attach(Role::Receiver, 3, Some(Box::new(source)), None), &[]);
    peer.exchange(&Flow { handle: Some(3.into()), ..flow(100, 1, 10, false) }, &[]);
    let operation = ApplicationProperties::builder()
        .insert("operation", "com.microsoft:update-disposition")
        .build();
    let body = [
        ("disposition-status", Value::String("completed".to_owned())),
        ("lock-tokens", Value::List(vec![Value::Uuid((*token.as_bytes()).into())])),
    ];
    let body = body.into_iter().map(|(name, value)| (Value::String(name.to_owned()), value));
    let request = Message::builder()
        .application_properties(operation)
        .value(Value::Map(body.collect()))
        .build();
    let bytes = serde_amqp::to_vec(&Serializable(&request)).unwrap();
    let answers = peer.exchange(&transfer(0, 0, false), &bytes);
    assert!(transfers(&answers).is_empty());
    assert_eq!((fault.fired(), peer.counts()), (1, (0, 0, 0)), "it is applied at once");
    peer.clock.advance(delay);
    peer.broker.sweep();
    let answers = peer.answers();
    let (_, payload) = transfers(&answers)[0];
    let properties = decoded(payload).application_properties.unwrap();
    assert_eq!(properties.get("statusCode"), Some(&SimpleValue::Int(200)));
}
