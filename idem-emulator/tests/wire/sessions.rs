//! Sessions.

use std::time::Duration;

use azservicebus::{ServiceBusClientOptions, ServiceBusMessage, ServiceBusSessionReceiver};
use idem_emulator::{Clock, Emulator, EventKind, QueueOptions};

use crate::support::*;

type SessionReceiver = ServiceBusSessionReceiver;

fn of_session(session: &str, id: &str) -> ServiceBusMessage {
    let mut message = message(id);
    message.set_session_id(session.to_owned()).unwrap();
    message
}

fn with_sessions(test: impl AsyncFnOnce(&Emulator, Clock)) {
    let clock = Clock::manual();
    let queue = QueueOptions::new("orders").lock_duration(LOCK).requires_session(true);
    let builder = Emulator::builder().queue(queue).clock(clock.clone());
    run(builder, async |emulator| test(emulator, clock).await);
}

async fn send_all(client: &mut Client, messages: &[(&str, &str)]) {
    let mut sender = sender(client).await;
    for (session, id) in messages {
        sender.send_message(of_session(session, id)).await.unwrap();
    }
    sender.dispose().await.unwrap();
}

async fn accept(client: &mut Client, session: &str) -> SessionReceiver {
    client.accept_session_for_queue("orders", session, Default::default()).await.unwrap()
}

async fn next_id(receiver: &mut SessionReceiver) -> String {
    let received = receiver.receive_message_with_max_wait_time(PATIENCE).await.unwrap();
    id(&received.expect("a message comes"))
}

#[test]
fn a_named_session_brings_its_own_messages_in_order() {
    with_sessions(async |emulator, _| {
        let mut client = connect_without_retries(emulator).await;
        send_all(&mut client, &[("s", "m-1"), ("t", "m-2"), ("s", "m-3")]).await;
        let mut receiver = accept(&mut client, "s").await;
        assert_eq!(receiver.session_id(), "s");
        for expected in ["m-1", "m-3"] {
            let received = receiver.receive_message().await.unwrap();
            assert_eq!((id(&received).as_str(), received.session_id()), (expected, Some("s")));
            receiver.complete_message(&received).await.unwrap();
            event_of(emulator, expected, EventKind::Completed).await;
        }
        assert_eq!(counts(emulator), (1, 0, 0));

        let refused = client.accept_session_for_queue("orders", "s", Default::default()).await;
        let error = format!("{:?}", refused.expect_err("the session is held"));
        assert!(error.contains("session-cannot-be-locked"), "{error}");
    });
}

#[test]
fn the_next_available_session_is_waited_for() {
    with_sessions(async |emulator, _| {
        let mut client = connect(emulator).await;
        let mut other = connect(emulator).await;
        let accept = client.accept_next_session_for_queue("orders", Default::default());
        let send = async {
            // Far longer than an attach takes, so that the receiver waits for the message.
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert_eq!(emulator.events().totals().session_accepted, 0);
            send_all(&mut other, &[("t", "m-1")]).await;
        };
        let (receiver, ()) = tokio::join!(accept, send);
        let mut receiver = receiver.unwrap();
        assert_eq!(receiver.session_id(), "t");
        assert_eq!(next_id(&mut receiver).await, "m-1");
        receiver.dispose().await.unwrap();
        let released = EventKind::SessionReleased { session_id: "t".into() };
        event(emulator, |event| event.kind == released).await;
        assert_eq!(counts(emulator), (1, 0, 0));
        client.dispose().await.unwrap();
    });
}

#[test]
fn state_and_lock_are_kept_by_the_management_node() {
    with_sessions(async |emulator, clock| {
        let mut client = connect_without_retries(emulator).await;
        let mut receiver = accept(&mut client, "s").await;
        receiver.set_session_state(b"half done".to_vec()).await.unwrap();
        assert_eq!(receiver.session_state().await.unwrap(), b"half done");
        clock.advance(LOCK / 2);
        receiver.renew_session_lock().await.unwrap();
        clock.advance(LOCK - Duration::from_millis(1));
        assert_eq!(receiver.session_state().await.unwrap(), b"half done");
        clock.advance(Duration::from_millis(1));
        let lost = format!("{:?}", receiver.renew_session_lock().await.unwrap_err());
        assert!(lost.contains("410"), "{lost}");
    });
}

#[test]
fn a_lost_session_lock_fails_its_deliveries_and_frees_the_session() {
    with_sessions(async |emulator, clock| {
        let mut client = connect(emulator).await;
        send_all(&mut client, &[("s", "m-1")]).await;
        let mut receiver = accept(&mut client, "s").await;
        let held = receiver.receive_message().await.unwrap();
        assert_eq!(count(&held), 0);
        clock.advance(LOCK);
        let lost = EventKind::SessionLockLost { session_id: "s".into() };
        event(emulator, |event| event.kind == lost).await;
        assert_eq!(counts(emulator), (1, 0, 0));

        let mut other = connect(emulator).await;
        let mut receiver = accept(&mut other, "s").await;
        assert_eq!(count(&receiver.receive_message().await.unwrap()), 1);
        other.dispose().await.unwrap();
    });
}

/// A receiver of the session `s` whose lock has expired, and what it says to the next receive.
async fn receive_after_expiry(client: &mut Client, emulator: &Emulator, clock: &Clock) -> String {
    send_all(client, &[("s", "m-1")]).await;
    let mut receiver = accept(client, "s").await;
    clock.advance(LOCK);
    let lost = EventKind::SessionLockLost { session_id: "s".into() };
    event(emulator, |event| event.kind == lost).await;
    format!("{:?}", receiver.receive_message().await.expect_err("the session is lost"))
}

#[test]
fn a_receive_after_a_lost_session_lock_says_so() {
    with_sessions(async |emulator, clock| {
        let mut client = connect_without_retries(emulator).await;
        let error = receive_after_expiry(&mut client, emulator, &clock).await;
        assert!(error.contains("com.microsoft:session-lock-lost"), "{error}");
    });
}

/// This client never attaches its link again: it detaches it, and then waits for messages on it.
#[test]
fn a_client_that_retries_after_a_lost_session_lock_does_not_wait_for_ever() {
    with_sessions(async |emulator, clock| {
        let mut options = ServiceBusClientOptions::default();
        options.retry_options.delay = Duration::from_millis(10);
        let mut client = connect_with(emulator, options).await;
        let error = receive_after_expiry(&mut client, emulator, &clock).await;
        assert!(error.contains("IllegalSessionState"), "{error}");
    });
}

#[test]
fn deferred_messages_of_a_session_are_peeked_and_received_within_it() {
    with_sessions(async |emulator, _| {
        let mut client = connect(emulator).await;
        send_all(&mut client, &[("s", "m-1"), ("t", "m-2")]).await;
        let mut receiver = accept(&mut client, "s").await;
        let received = receiver.receive_message().await.unwrap();
        receiver.defer_message(&received, None).await.unwrap();
        event_of(emulator, "m-1", EventKind::Deferred).await;
        let peeked = receiver.peek_messages(5, None).await.unwrap();
        assert_eq!(peeked.len(), 1);
        let again = receiver.receive_deferred_message(1).await.unwrap().unwrap();
        receiver.complete_message(&again).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn sessions_are_used_exactly_where_they_are_required() {
    let builder = Emulator::builder()
        .queue(QueueOptions::new("plain"))
        .queue(QueueOptions::new("orders").requires_session(true));
    run(builder, async |emulator| {
        let mut client = connect_without_retries(emulator).await;
        let refused = client.accept_session_for_queue("plain", "s", Default::default()).await;
        let error = format!("{:?}", refused.expect_err("the queue has no sessions"));
        assert!(error.contains("NotAllowed"), "{error}");

        let mut client = connect_without_retries(emulator).await;
        let refused = client.create_receiver_for_queue("orders", Default::default()).await;
        let error = format!("{:?}", refused.expect_err("the queue requires sessions"));
        assert!(error.contains("NotAllowed"), "{error}");

        let mut client = connect_without_retries(emulator).await;
        let mut sender = sender(&mut client).await;
        let _misleading = sender.send_message(message("m-1")).await;
        let condition = "amqp:not-allowed";
        event(emulator, |event| event.kind == EventKind::SendRejected { condition }).await;
    });
}
