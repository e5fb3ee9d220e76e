//! Renewing holds a lock, and nothing waits for a renewal but the one who asked for it.

use std::time::{Duration, Instant};

use idem_emulator::QueueOptions;

use super::support::{SHORT_LOCK, complete, eventually, receive, send, start};
use crate::broker::{BrokerError, Receiver, Settler, Source};

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
    settler.settle(locked.lock, complete()).await.unwrap();
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
        settler.settle(again.lock, complete()).await.unwrap();
    };
    let (renewed, ()) = tokio::join!(settler.renew(lost.lock), settled_meanwhile);
    assert!(matches!(renewed, Err(BrokerError::LockLost)), "{renewed:?}");
    // The client's own retries would take 11 s.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    eventually("completion", || emulator.events().totals().completed == 1).await;

    // A lost lock is settled in vain: the client does not learn of it.
    settler.settle(lost.lock, complete()).await.unwrap();
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
            settler.settle(locked.lock, complete()),
            settler.settle(locked.lock, complete()),
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
