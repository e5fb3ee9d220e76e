//! Sessions: many at once, each in order, and each for itself.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use idem_emulator::{Emulator, Fault, QueueOptions};
use tokio::time::timeout;

use super::super::LinkReceiver;
use super::support::{HANG, SettleAndWait, complete, eventually, receive, start};
use crate::broker::servicebus::ServiceBus;
use crate::broker::{BrokerError, Locked, OutgoingMessage, Receiver, Settler, Source};
use crate::settle::{LAST_FAILURE, Settlement};

async fn start_with_sessions() -> (Emulator, ServiceBus) {
    start(QueueOptions::new("orders").requires_session(true)).await
}

/// Sends `rounds` messages to each session, one to each in turn. Their ids are `session-round`.
async fn send(bus: &ServiceBus, sessions: usize, rounds: usize) {
    let sender = bus.sender("orders").await.expect("the sender opens");
    let messages = (0..rounds).flat_map(|round| {
        (0..sessions).map(move |session| {
            let message = OutgoingMessage::json(&round).expect("a number is JSON");
            message
                .with_session_id(session.to_string())
                .with_message_id(format!("{session}-{round}"))
        })
    });
    for message in messages {
        sender.send(message).await.expect("the message is sent");
    }
}

fn session(locked: &Locked) -> &str {
    locked.delivery.session_id().expect("it belongs to a session")
}

async fn receives_nothing(receiver: &mut LinkReceiver) {
    let more = timeout(Duration::from_millis(200), receiver.receive()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn sessions_are_received_at_once_and_each_in_order() {
    let (emulator, bus) = start_with_sessions().await;
    send(&bus, 3, 5).await;
    let mut receiver = bus.queue("orders").sessions(8).open(16).await.unwrap();
    let settler = receiver.settler();
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for _ in 0..5 {
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(receive(&mut receiver).await);
        }
        let at_once: HashSet<_> = held.iter().map(session).collect();
        assert_eq!(at_once.len(), 3, "one message of each session");
        receives_nothing(&mut receiver).await;
        for locked in held {
            let id = locked.delivery.message_id().unwrap().to_owned();
            seen.entry(session(&locked).to_owned()).or_default().push(id);
            settler.settled(locked.lock, complete()).await.unwrap();
        }
    }
    for (session, ids) in seen {
        let in_order: Vec<_> = (0..5).map(|round| format!("{session}-{round}")).collect();
        assert_eq!(ids, in_order);
    }
    eventually("completion", || emulator.events().totals().completed == 15).await;
    assert_eq!(emulator.events().totals().delivered, 15);
    timeout(HANG, receiver.close()).await.unwrap();
    let totals = emulator.events().totals();
    assert_eq!(totals.session_released, totals.session_accepted);
    eventually("the end of all connections", || {
        let totals = emulator.events().totals();
        totals.connection_opened == totals.connection_closed
    })
    .await;
}

#[tokio::test]
async fn each_of_more_sessions_than_there_is_room_for_gets_its_turn() {
    let (emulator, bus) = start_with_sessions().await;
    send(&bus, 7, 2).await;
    // What may be in flight bounds the sessions too.
    let mut receiver = bus.queue("orders").sessions(8).open(2).await.unwrap();
    let settler = receiver.settler();
    let mut held = vec![receive(&mut receiver).await, receive(&mut receiver).await];
    receives_nothing(&mut receiver).await;
    let mut seen = HashSet::new();
    while seen.len() < 14 {
        let locked = match held.pop() {
            Some(locked) => locked,
            None => receive(&mut receiver).await,
        };
        assert!(seen.insert(locked.delivery.message_id().unwrap().to_owned()));
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    eventually("completion", || emulator.events().totals().completed == 14).await;
    assert_eq!(emulator.events().totals().delivered, 14);
}

#[tokio::test]
async fn what_is_given_back_comes_again_before_what_is_behind_it() {
    let (_emulator, bus) = start_with_sessions().await;
    send(&bus, 1, 3).await;
    let mut receiver = bus.queue("orders").sessions(4).open(16).await.unwrap();
    let settler = receiver.settler();
    for (id, count, settlement) in [
        ("0-0", 1, complete()),
        ("0-1", 1, Settlement::Abandon(Some("no".to_owned()))),
        ("0-1", 2, Settlement::Abandon(None)),
        ("0-1", 3, Settlement::Leave),
        // The session was given up and accepted again, which the broker does not count.
        ("0-1", 3, complete()),
        ("0-2", 1, complete()),
    ] {
        let locked = receive(&mut receiver).await;
        assert_eq!(locked.delivery.message_id(), Some(id));
        assert_eq!(locked.delivery.delivery_count(), count, "{id}");
        let has_failed = locked.delivery.property(LAST_FAILURE).is_some();
        assert_eq!(has_failed, id == "0-1" && count > 1, "{id}");
        settler.settled(locked.lock, settlement).await.unwrap();
        let again = settler.settled(locked.lock, Settlement::Abandon(None));
        let again = timeout(HANG, again).await.unwrap();
        assert!(matches!(again, Err(BrokerError::LockLost | BrokerError::Closed)), "{again:?}");
    }
}

#[tokio::test]
async fn a_lost_session_ends_alone_and_goes_on_where_it_was() {
    let lock = Duration::from_secs(2);
    let queue = QueueOptions::new("orders").requires_session(true).lock_duration(lock);
    let (emulator, bus) = start(queue).await;
    send(&bus, 2, 2).await;
    let mut receiver = bus.queue("orders").sessions(2).open(16).await.unwrap();
    let settler = receiver.settler();
    let (good, bad) = (receive(&mut receiver).await, receive(&mut receiver).await);
    let lost = || emulator.events().totals().session_lock_lost;
    while lost() == 0 {
        settler.renew(good.lock).await.unwrap();
        tokio::time::sleep(lock / 10).await;
    }
    let renewed = timeout(HANG, settler.renew(bad.lock)).await.unwrap();
    assert!(matches!(renewed, Err(BrokerError::LockLost)), "{renewed:?}");
    // The other session did not notice.
    settler.renew(good.lock).await.unwrap();
    settler.settled(good.lock, complete()).await.unwrap();
    let mut ids: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for _ in 0..3 {
        let locked = receive(&mut receiver).await;
        let id = locked.delivery.message_id().unwrap().to_owned();
        ids.entry(session(&locked).to_owned()).or_default().push(id);
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    assert_eq!(ids[session(&good)].len(), 1);
    let again = ["0", "1"].map(|round| format!("{}-{round}", session(&bad)));
    assert_eq!(ids[session(&bad)], again);
    eventually("completion", || emulator.events().totals().completed == 4).await;
    assert_eq!((lost(), emulator.events().totals().delivered), (1, 5));
}

/// What is settled after its session was lost is settled in vain, and the session goes on.
#[tokio::test]
async fn what_is_settled_too_late_comes_again() {
    let (emulator, bus) = start_with_sessions().await;
    send(&bus, 1, 2).await;
    let lost = emulator.faults().add(Fault::lose_session_lock().on("orders").times(1));
    let mut receiver = bus.queue("orders").sessions(2).open(16).await.unwrap();
    let settler = receiver.settler();
    let first = receive(&mut receiver).await;
    assert_eq!(lost.fired(), 1);
    timeout(HANG, settler.settled(first.lock, complete())).await.unwrap().ok();
    for id in ["0-0", "0-1"] {
        let locked = receive(&mut receiver).await;
        assert_eq!(locked.delivery.message_id(), Some(id));
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    eventually("completion", || emulator.events().totals().completed == 2).await;
}

#[tokio::test]
async fn a_session_is_renewed_with_its_message_and_while_it_is_idle() {
    let lock = Duration::from_secs(1);
    let queue = QueueOptions::new("orders").requires_session(true).lock_duration(lock);
    let (emulator, bus) = start(queue).await;
    send(&bus, 1, 2).await;
    let mut receiver = bus.queue("orders").sessions(1).open(1).await.unwrap();
    let settler = receiver.settler();
    let first = receive(&mut receiver).await;
    assert!(first.lock_remaining > lock / 3, "{:?}", first.lock_remaining);
    for _ in 0..5 {
        tokio::time::sleep(lock * 3 / 10).await;
        let remaining = settler.renew(first.lock).await.unwrap();
        assert!(remaining > lock / 2 && remaining <= lock, "{remaining:?}");
    }
    settler.settled(first.lock, complete()).await.unwrap();
    let second = receive(&mut receiver).await;
    settler.settled(second.lock, complete()).await.unwrap();
    let released = || emulator.events().totals().session_released;
    let before = released();
    eventually("the end of the idle session", || released() > before).await;
    assert_eq!(emulator.events().totals().session_lock_lost, 0);
    assert_eq!(emulator.events().totals().delivered, 2);
}

/// That there is no session is nothing out of the ordinary: after a while it is asked for again.
#[tokio::test]
async fn where_there_is_no_session_one_slot_goes_on_asking() {
    let (emulator, bus) = start_with_sessions().await;
    let mut receiver = bus.queue("orders").sessions(3).open(16).await.unwrap();
    let open = || {
        let totals = emulator.events().totals();
        totals.connection_opened - totals.connection_closed
    };
    let opened = || emulator.events().totals().connection_opened;
    eventually("three questions", || opened() == 1 + 3 && open() == 3).await;
    eventually("one more question", || opened() == 1 + 3 + 1 && open() == 1).await;

    send(&bus, 3, 1).await;
    let mut sessions = HashSet::new();
    for _ in 0..3 {
        sessions.insert(session(&receive(&mut receiver).await).to_owned());
    }
    assert_eq!(sessions.len(), 3, "when one was found, the others ask too");
}

#[tokio::test]
async fn a_stop_gives_up_the_sessions_at_once() {
    let (emulator, bus) = start_with_sessions().await;
    send(&bus, 4, 2).await;
    let mut receiver = bus.queue("orders").sessions(4).open(16).await.unwrap();
    let settler = receiver.settler();
    let held = receive(&mut receiver).await;
    eventually("delivery", || emulator.events().totals().delivered == 4).await;
    receiver.stop();
    settler.renew(held.lock).await.unwrap();
    settler.settled(held.lock, complete()).await.unwrap();
    timeout(HANG, receiver.close()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 1).await;
    eventually("release", || emulator.counts("orders").unwrap().locked == 0).await;
    let left = emulator.peek("orders").unwrap();
    assert_eq!(left.len(), 7);
    let counts: Vec<_> = left.iter().map(|message| message.delivery_count).collect();
    // What was ready to be received was given back, and what was not yet is not counted.
    assert!(counts.iter().all(|count| *count <= 1), "{counts:?}");
    assert_eq!(emulator.events().totals().lock_expired, 0);
}

#[tokio::test]
async fn what_has_no_sessions_or_requires_them_is_told_at_once() {
    let (_emulator, bus) = start(QueueOptions::new("orders")).await;
    let error = bus.queue("orders").sessions(2).open(4).await.expect_err("it has no sessions");
    assert!(matches!(error, BrokerError::Operation { .. }), "{error:?}");
    let error = bus.queue("bills").sessions(2).open(4).await.expect_err("there is none");
    assert!(matches!(error, BrokerError::NotFound { .. }), "{error:?}");

    let (emulator, bus) = start_with_sessions().await;
    let error = bus.queue("orders").open(4).await.expect_err("it requires sessions");
    assert!(matches!(error, BrokerError::Operation { .. }), "{error:?}");
    let sender = bus.sender("orders").await.unwrap();
    let error = sender.send(OutgoingMessage::default()).await.expect_err("of no session");
    assert!(matches!(error, BrokerError::Operation { .. }), "{error:?}");
    emulator.shutdown().await;
    let error = bus.queue("orders").sessions(2).open(4).await.expect_err("nobody listens");
    assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_broker_that_goes_away_ends_the_receiver_and_one_dropped_connection_does_not() {
    let (emulator, bus) = start_with_sessions().await;
    send(&bus, 3, 3).await;
    let dropped = Fault::drop_connection_at_delivery().on("orders").message("1-1").times(1);
    let dropped = emulator.faults().add(dropped);
    let mut receiver = bus.queue("orders").sessions(3).open(16).await.unwrap();
    let settler = receiver.settler();
    let mut seen = BTreeMap::new();
    while emulator.events().totals().completed < 9 {
        let Ok(received) = timeout(Duration::from_millis(500), receiver.receive()).await else {
            continue;
        };
        let locked = received.expect("the others go on");
        *seen.entry(locked.delivery.message_id().unwrap().to_owned()).or_insert(0) += 1;
        settler.settled(locked.lock, complete()).await.ok();
    }
    assert_eq!((dropped.fired(), seen.len()), (1, 9), "{seen:?}");
    emulator.shutdown().await;
    let error = timeout(HANG, receiver.receive()).await.unwrap().unwrap_err();
    assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");
    timeout(HANG, receiver.close()).await.unwrap();
}
