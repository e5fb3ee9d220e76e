//! Renewing holds a lock, and nothing waits for a renewal but the one who asked for it.

use std::time::{Duration, Instant};

use idem_emulator::{Clock, Emulator, QueueOptions};

use super::support::{SHORT_LOCK, SettleAndWait, complete, eventually, receive, send, start};
use crate::broker::servicebus::ServiceBus;
use crate::broker::{BrokerError, Receiver, Settler, Source};
use crate::settle::Settlement;

#[tokio::test]
async fn a_renewed_lock_holds_on() {
    let lock = Duration::from_secs(1);
    let (emulator, bus) = start(QueueOptions::new("orders").lock_duration(lock)).await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(1).await.unwrap();
    let locked = receive(&mut receiver).await;
    let settler = receiver.settler();
    for _ in 0..4 {
        tokio::time::sleep(lock * 3 / 10).await;
        let remaining = settler.renew(locked.lock).await.unwrap();
        assert!(remaining > lock / 2 && remaining <= lock, "{remaining:?}");
    }
    settler.settled(locked.lock, complete()).await.unwrap();
    eventually("completion", || emulator.events().totals().completed == 1).await;
    assert_eq!(emulator.events().totals().lock_expired, 0);
}

#[tokio::test]
async fn a_lost_lock_is_told_at_once_while_others_are_settled() {
    let (emulator, bus) = start(QueueOptions::new("orders").lock_duration(SHORT_LOCK)).await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let lost = receive(&mut receiver).await;
    eventually("expiry", || emulator.events().totals().lock_expired == 1).await;

    let settler = receiver.settler();
    let started = Instant::now();
    let settled_meanwhile = async {
        let again = receive(&mut receiver).await;
        settler.settled(again.lock, complete()).await.unwrap();
    };
    let (renewed, ()) = tokio::join!(settler.renew(lost.lock), settled_meanwhile);
    assert!(matches!(renewed, Err(BrokerError::LockLost)), "{renewed:?}");
    // The client's own retries would take 11 s.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    eventually("completion", || emulator.events().totals().completed == 1).await;

    // A lost lock is settled in vain: the client does not learn of it.
    settler.settled(lost.lock, complete()).await.unwrap();
    eventually("refusal", || emulator.events().totals().settlement_rejected == 1).await;
}

#[tokio::test]
async fn what_is_settled_while_it_is_renewed_is_settled() {
    let (emulator, bus) = start(QueueOptions::new("orders")).await;
    send(&bus, 20).await;
    let mut receiver = bus.queue("orders").open(20).await.unwrap();
    let settler = receiver.settler();
    for _ in 0..20 {
        let locked = receive(&mut receiver).await;
        // The first renewal opens the link, so it is under way for a while.
        let (renewed, twice, settled, again) = tokio::join!(
            biased;
            settler.renew(locked.lock),
            settler.renew(locked.lock),
            settler.settled(locked.lock, complete()),
            settler.settled(locked.lock, complete()),
        );
        renewed.unwrap();
        assert!(
            matches!(twice, Err(BrokerError::Operation { operation: "renew", .. })),
            "{twice:?}"
        );
        settled.unwrap();
        assert!(matches!(again, Err(BrokerError::LockLost)), "{again:?}");
    }
    eventually("completion", || emulator.events().totals().completed == 20).await;
    receiver.close().await;
}

#[tokio::test]
async fn a_message_that_waited_until_its_lock_was_lost_is_not_handed_over() {
    let lock = Duration::from_secs(2);
    let queue = QueueOptions::new("orders").lock_duration(lock).max_delivery_count(100);
    let (emulator, bus) = start(queue).await;
    send(&bus, 100).await;
    let mut receiver = bus.queue("orders").open(8).await.unwrap();
    let settler = receiver.settler();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(receive(&mut receiver).await.lock);
    }
    for lock in held.drain(..4) {
        settler.settled(lock, complete()).await.unwrap();
    }
    for _ in 0..4 {
        held.push(receive(&mut receiver).await.lock);
    }
    let mut handed = 12;
    // Eight are held, and others wait in the client.
    eventually("delivery", || emulator.counts("orders").unwrap().locked == 12).await;
    let expired = emulator.events().totals().lock_expired;
    tokio::time::sleep(lock * 3 / 2).await;
    let waited = emulator.events().totals().lock_expired - expired;
    for lock in held {
        settler.settled(lock, Settlement::Leave).await.unwrap();
    }
    for _ in 0..8 {
        let locked = receive(&mut receiver).await;
        handed += 1;
        assert!(locked.lock_remaining > lock / 4, "{:?}", locked.lock_remaining);
        settler.renew(locked.lock).await.unwrap();
        settler.settled(locked.lock, complete()).await.unwrap();
    }
    let delivered = emulator.events().totals().delivered;
    assert!(waited >= 12, "{waited}");
    assert!(delivered >= handed + 4, "{delivered} delivered, {handed} handed over");
}

async fn start_on_clock(clock: &Clock, lock: Duration) -> (Emulator, ServiceBus) {
    let queue = QueueOptions::new("orders").lock_duration(lock);
    let builder = Emulator::builder().queue(queue).clock(clock.clone());
    let emulator = builder.start().await.unwrap();
    let bus = ServiceBus::connect(&emulator.connection_string()).unwrap();
    (emulator, bus)
}

#[tokio::test]
async fn where_our_clock_is_ahead_new_locks_do_not_count_as_ended() {
    // It stands, and ours goes on.
    let clock = Clock::manual();
    let lock = Duration::from_secs(3);
    let (emulator, bus) = start_on_clock(&clock, lock).await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    tokio::time::sleep(lock * 6 / 5).await;
    for _ in 0..2 {
        send(&bus, 1).await;
        let locked = receive(&mut receiver).await;
        assert!(locked.lock_remaining > lock / 4, "{:?}", locked.lock_remaining);
        // A renewed lock ends later than before, be it by a millisecond, also where time stands.
        let longest = lock + Duration::from_millis(1);
        assert!(locked.lock_remaining <= longest, "{:?}", locked.lock_remaining);
        assert_eq!(emulator.events().totals().lock_renewed, 1, "once it had to be asked");
    }
}

#[tokio::test]
async fn where_our_clock_is_behind_locks_do_not_seem_longer_than_they_are() {
    let clock = Clock::manual();
    clock.advance(Duration::from_secs(200));
    let lock = Duration::from_secs(60);
    let (_emulator, bus) = start_on_clock(&clock, lock).await;
    send(&bus, 1).await;
    let mut receiver = bus.queue("orders").open(4).await.unwrap();
    let locked = receive(&mut receiver).await;
    let remaining = locked.lock_remaining;
    assert!(remaining > lock / 2 && remaining <= lock, "{remaining:?}");
    let renewed = receiver.settler().renew(locked.lock).await.unwrap();
    assert!(renewed > lock / 2 && renewed <= lock, "{renewed:?}");
}
