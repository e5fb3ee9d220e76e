//! Every settlement does what it says.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::broker::{ASIDE_MAX, BrokerError, Locked, Receiver, Settler, Source};
use crate::outcome::Rejection;
use crate::{LAST_FAILURE, Property, Settlement};
use idem_emulator::QueueOptions;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::raw::send_with_list_property;
use super::support::{
    HANG, SHORT_LOCK, SettleAndWait, complete, eventually, receive, send, start, start_with_orders,
};

#[tokio::test]
async fn what_is_completed_is_gone() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    let locked = receive(&mut receiver).await;
    assert!(locked.lock_remaining > Duration::from_secs(50), "{:?}", locked.lock_remaining);
    assert!(locked.lock_remaining <= Duration::from_secs(60), "{:?}", locked.lock_remaining);
    let settler = receiver.settler();
    settler.settled(locked.lock, complete()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 1).await;

    let twice = settler.settled(locked.lock, Settlement::Abandon(None)).await;
    assert!(matches!(twice, Err(BrokerError::LockLost)), "{twice:?}");
    let renewed = settler.renew(locked.lock).await;
    assert!(matches!(renewed, Err(BrokerError::LockLost)), "{renewed:?}");
}

#[tokio::test]
async fn what_is_abandoned_comes_again_at_once_and_is_counted() {
    let (_emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    for count in 1..=3 {
        let locked = receive(&mut receiver).await;
        assert_eq!(locked.delivery.delivery_count(), count);
        receiver.settler().settled(locked.lock, Settlement::Abandon(None)).await.unwrap();
    }
}

/// C-16. The broker's own dead letter keeps what was said of the last delivery before.
#[tokio::test]
async fn a_message_that_failed_says_why_wherever_it_goes() {
    let (_emulator, bus) = start(QueueOptions::new("orders").max_delivery_count(2)).await;
    send(&bus, 1).await;
    let queue = bus.queue("orders");
    let mut receiver = queue.clone().open(1).await.unwrap();
    let said = |locked: &Locked| match locked.delivery.property(LAST_FAILURE) {
        Some(Property::Text(text)) => Some(text.clone()),
        other => {
            assert!(other.is_none(), "{other:?}");
            None
        }
    };
    for (count, before, now) in [(1, None, "the first: é"), (2, Some("the first: é"), "the second")]
    {
        let locked = receive(&mut receiver).await;
        assert_eq!((locked.delivery.delivery_count(), said(&locked).as_deref()), (count, before));
        let settlement = Settlement::Abandon(Some(now.to_owned()));
        receiver.settler().settled(locked.lock, settlement).await.unwrap();
    }
    let mut letters = queue.dead_letters().open(1).await.unwrap();
    let letter = receive(&mut letters).await;
    assert_eq!(said(&letter).as_deref(), Some("the second"));
    let reason = letter.delivery.property("DeadLetterReason");
    assert!(matches!(reason, Some(Property::Text(text)) if text == "MaxDeliveryCountExceeded"));
}

#[tokio::test]
async fn a_dead_letter_has_reason_and_description() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let queue = bus.queue("orders");
    let mut receiver = queue.open(1).await.unwrap();
    let locked = receive(&mut receiver).await;
    let rejection = Rejection::new("UnknownCurrency", "`XYZ` is no currency: é");
    let settlement = Settlement::DeadLetter(rejection);
    receiver.settler().settled(locked.lock, settlement).await.unwrap();

    let dead_letters = queue.clone().dead_letters();
    assert_eq!(dead_letters.id(), queue.id(), "a redriven message keeps its key");
    let mut receiver = dead_letters.open(1).await.unwrap();
    let locked = receive(&mut receiver).await;
    let text = |name| match locked.delivery.property(name) {
        Some(Property::Text(text)) => text.clone(),
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(text("DeadLetterReason"), "UnknownCurrency");
    assert_eq!(text("DeadLetterErrorDescription"), "`XYZ` is no currency: é");
    assert_eq!(locked.delivery.message_id(), Some("0"));
    receiver.settler().settled(locked.lock, complete()).await.unwrap();
    eventually("completion", || emulator.counts("orders").unwrap().dead_lettered == 0).await;
}

#[tokio::test]
async fn what_is_left_comes_again_when_its_lock_has_run_out() {
    let (_emulator, bus) = start(QueueOptions::new("orders").lock_duration(SHORT_LOCK)).await;
    send(&bus, 3).await;
    // With room for one message, a message left takes up all of it until its lock has run out.
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    for round in 0..4 {
        let locked = receive(&mut receiver).await;
        let settler = receiver.settler();
        settler.settled(locked.lock, Settlement::Leave).await.unwrap();
        let again = settler.settled(locked.lock, Settlement::Abandon(None)).await;
        assert!(matches!(again, Err(BrokerError::LockLost)), "round {round}: {again:?}");
    }
}

#[tokio::test]
async fn twenty_messages_in_flight_are_settled_in_any_order() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 200).await;
    let mut receiver = bus.queue("orders").open(20).await.unwrap();
    let mut tasks = JoinSet::new();
    let mut seen = BTreeSet::new();
    for number in 0..200_u64 {
        let locked = receive(&mut receiver).await;
        assert!(seen.insert(locked.delivery.sequence_number()), "no message comes twice");
        let settler = receiver.settler();
        let completion = complete();
        tasks.spawn(async move {
            tokio::time::sleep(Duration::from_millis(20 - number % 20)).await;
            settler.settled(locked.lock, completion).await
        });
        if tasks.len() == 20 {
            tasks.join_next().await.unwrap().unwrap().unwrap();
        }
    }
    for settled in tasks.join_all().await {
        settled.unwrap();
    }
    eventually("completion", || emulator.events().totals().completed == 200).await;
    assert_eq!(emulator.events().totals().delivered, 200);
}

#[tokio::test]
async fn no_more_is_delivered_than_may_be_held_and_as_many_again() {
    const HELD_MAX: usize = 8;
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 60).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let mut held = Vec::new();
    let mut most_held = 0;
    let mut most_locked = 0;
    for _ in 0..10 {
        let quiet = Duration::from_millis(100);
        while let Ok(locked) = timeout(quiet, receiver.receive()).await {
            held.push(locked.unwrap().lock);
        }
        most_held = most_held.max(held.len());
        most_locked = most_locked.max(emulator.counts("orders").unwrap().locked);
        for lock in held.drain(..2) {
            settler.settled(lock, complete()).await.unwrap();
        }
    }
    assert_eq!(most_held, HELD_MAX);
    assert!(most_locked <= HELD_MAX * 2, "{most_locked}");
}

#[tokio::test]
async fn two_messages_are_in_flight_where_two_may_be() {
    let (_emulator, bus) = start_with_orders().await;
    send(&bus, 20).await;
    let mut receiver = bus.queue("orders").open(2).await.unwrap();
    let settler = receiver.settler();
    for _ in 0..8 {
        let (first, second) = (receive(&mut receiver).await, receive(&mut receiver).await);
        settler.settled(first.lock, complete()).await.unwrap();
        settler.settled(second.lock, complete()).await.unwrap();
    }
}

#[tokio::test]
async fn after_a_stop_no_message_is_taken_and_what_was_received_is_settled() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 60).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(receive(&mut receiver).await.lock);
    }
    // Others wait for us.
    eventually("delivery", || emulator.counts("orders").unwrap().locked == 8).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    receiver.stop();
    eventually("return", || emulator.events().totals().abandoned >= 1).await;
    let more = timeout(Duration::from_millis(200), receiver.receive()).await;
    assert!(more.is_err(), "{more:?}");

    let renewed = settler.renew(held[0]).await.unwrap();
    assert!(renewed > Duration::from_secs(50), "{renewed:?}");
    for lock in held {
        settler.settled(lock, complete()).await.unwrap();
    }
    timeout(HANG, receiver.close()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 4).await;
    let locked = emulator.counts("orders").unwrap().locked;
    assert!(locked <= 8, "only what the client has asked for ahead: {locked}");
}

#[tokio::test]
async fn what_was_not_received_is_given_back_when_the_receiver_is_dropped() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 4).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    receive(&mut receiver).await;
    eventually("delivery", || emulator.counts("orders").unwrap().locked == 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(receiver);
    eventually("return", || emulator.events().totals().abandoned >= 1).await;
}

#[tokio::test]
async fn a_message_that_cannot_be_decoded_stops_no_other() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let mut neighbour = receive(&mut receiver).await;
    for _ in 0..10 {
        send_with_list_property(&emulator).await;
        send(&bus, 2).await;
        for _ in 0..2 {
            let next = receive(&mut receiver).await;
            settler.settled(neighbour.lock, complete()).await.unwrap();
            neighbour = next;
        }
    }
    settler.settled(neighbour.lock, complete()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 21).await;
    assert_eq!(emulator.counts("orders").unwrap().locked, 10, "they were delivered");
}

#[tokio::test]
async fn too_many_messages_that_cannot_be_decoded_end_the_receiver() {
    let (emulator, bus) = start_with_orders().await;
    for _ in 0..2 {
        send_with_list_property(&emulator).await;
    }
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let error = timeout(HANG, receiver.receive()).await.unwrap().unwrap_err();
    let BrokerError::Operation { operation: "receive", source, .. } = error else {
        panic!("{error:?}")
    };
    assert!(source.to_string().contains("cannot decode"), "{source}");

    receiver.close().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    receive(&mut receiver).await;
}

#[tokio::test]
async fn what_is_set_aside_makes_room_for_others_and_is_settled_later() {
    const ROOM: u32 = 4;
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 60).await;
    let mut receiver = bus.queue("orders").open(ROOM).await.unwrap();
    let settler = receiver.settler();
    let mut aside = Vec::new();
    for _ in 0..40 {
        let locked = receive(&mut receiver).await;
        settler.set_aside(locked.lock);
        aside.push((locked.lock, locked.delivery.sequence_number()));
    }
    let mut seen: BTreeSet<_> = aside.iter().map(|(_, number)| *number).collect();
    assert_eq!(seen.len(), 40);
    settler.renew(aside[39].0).await.unwrap();

    // What is not set aside counts as it did.
    let mut held = Vec::new();
    for _ in 0..ROOM {
        held.push(receive(&mut receiver).await);
    }
    let more = timeout(Duration::from_millis(200), receiver.receive()).await;
    assert!(more.is_err(), "{more:?}");
    let locked = emulator.counts("orders").unwrap().locked;
    assert!(locked <= 44 + 8, "{locked}");

    for (lock, _) in aside {
        settler.settled(lock, complete()).await.unwrap();
    }
    for locked in held {
        seen.insert(locked.delivery.sequence_number());
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    while seen.len() < 60 {
        let locked = receive(&mut receiver).await;
        assert!(seen.insert(locked.delivery.sequence_number()), "no message comes twice");
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    eventually("completion", || emulator.events().totals().completed == 60).await;
    assert_eq!(emulator.events().totals().delivered, 60);
    assert_eq!(emulator.events().totals().settlement_rejected, 0);

    // With nothing to do, the second link goes.
    let open = || {
        let totals = emulator.events().totals();
        totals.connection_opened - totals.connection_closed
    };
    eventually("the end of the spare link", || open() == 2).await;
    timeout(HANG, receiver.close()).await.unwrap();
    eventually("the end of all", || open() == 0).await;
}

#[tokio::test]
async fn no_more_can_be_set_aside_than_there_is_room_for() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, ASIDE_MAX + 20).await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let settler = receiver.settler();
    let mut received = 0;
    let quiet = Duration::from_secs(1);
    while let Ok(locked) = timeout(quiet, receiver.receive()).await {
        settler.set_aside(locked.unwrap().lock);
        received += 1;
    }
    assert_eq!(received, ASIDE_MAX + 4);
    let locked = emulator.counts("orders").unwrap().locked;
    assert!(locked <= received + 8, "{locked}");
}
