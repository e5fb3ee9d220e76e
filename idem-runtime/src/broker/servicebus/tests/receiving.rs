//! Every settlement does what it says.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::broker::{BrokerError, Receiver, Settler, Source};
use crate::outcome::Rejection;
use crate::{Property, Settlement};
use idem_emulator::QueueOptions;
use tokio::task::JoinSet;

use super::support::{SHORT_LOCK, complete, eventually, receive, send, start, start_with_orders};

#[tokio::test]
async fn what_is_completed_is_gone() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    let locked = receive(&mut receiver).await;
    assert!(locked.lock_remaining > Duration::from_secs(50), "{:?}", locked.lock_remaining);
    assert!(locked.lock_remaining <= Duration::from_secs(60), "{:?}", locked.lock_remaining);
    let settler = receiver.settler();
    settler.settle(locked.lock, complete()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 1).await;

    let twice = settler.settle(locked.lock, Settlement::Abandon).await;
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
        receiver.settler().settle(locked.lock, Settlement::Abandon).await.unwrap();
    }
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
    receiver.settler().settle(locked.lock, settlement).await.unwrap();

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
    receiver.settler().settle(locked.lock, complete()).await.unwrap();
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
        settler.settle(locked.lock, Settlement::Leave).await.unwrap();
        let again = settler.settle(locked.lock, Settlement::Abandon).await;
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
            settler.settle(locked.lock, completion).await
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
async fn no_more_is_delivered_than_may_be_held() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 10).await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(receive(&mut receiver).await);
    }
    let more = tokio::time::timeout(Duration::from_millis(200), receiver.receive()).await;
    assert!(more.is_err(), "{more:?}");
    assert_eq!(emulator.counts("orders").unwrap().locked, 4);
}

#[tokio::test]
async fn after_a_stop_no_message_is_taken_and_what_was_received_is_settled() {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, 4).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let first = receive(&mut receiver).await;
    // The other three wait for us.
    eventually("delivery", || emulator.events().totals().delivered == 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    receiver.stop();
    eventually("return", || emulator.events().totals().abandoned == 3).await;

    let renewed = settler.renew(first.lock).await.unwrap();
    assert!(renewed > Duration::from_secs(50), "{renewed:?}");
    settler.settle(first.lock, complete()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 1).await;
    let more = tokio::time::timeout(Duration::from_millis(200), receiver.receive()).await;
    assert!(more.is_err(), "{more:?}");
    receiver.close().await;
}
