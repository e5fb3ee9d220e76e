//! Locks: expiry, renewal, and how they outlive links and connections.

use std::time::Duration;

use idem_emulator::EventKind;

use crate::support::*;

#[test]
fn an_expired_lock_refuses_the_settlement_and_the_message_comes_again() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;

        clock.advance(LOCK - Duration::from_millis(1));
        assert_eq!(counts(emulator), (0, 1, 0));
        clock.advance(Duration::from_millis(1));
        assert_eq!(counts(emulator), (1, 0, 0));
        event_of(emulator, "m-1", EventKind::LockExpired { delivery_count: 1 }).await;

        // The client does not wait for the answer, so only the broker knows.
        receiver.complete_message(&first).await.unwrap();
        event(emulator, |event| event.kind == LOCK_LOST).await;
        let second = next(&mut receiver).await;
        assert_eq!((id(&second).as_str(), count(&second)), ("m-1", 1));
        receiver.complete_message(&second).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_lock_expires_by_itself_on_the_system_clock() {
    with_orders(
        |queue| queue.lock_duration(Duration::from_millis(200)),
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = prefetching_receiver(&mut client, 5).await;
            let first = next(&mut receiver).await;
            // Nobody touches the queue: the receiver is woken by the expiry.
            let second = next(&mut receiver).await;
            assert_eq!((count(&first), count(&second)), (0, 1));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn renewing_moves_the_end_of_the_lock() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let mut held = next(&mut receiver).await;
        let before = held.locked_until().unwrap();

        clock.advance(LOCK / 2);
        receiver.renew_message_lock(&mut held).await.unwrap();
        assert_eq!(held.locked_until().unwrap() - before, LOCK / 2);
        event_of(emulator, "m-1", EventKind::LockRenewed).await;
        clock.advance(LOCK - Duration::from_millis(1));
        receiver.complete_message(&held).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        assert_eq!(emulator.events().totals().lock_expired, 0);
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_lock_outlives_its_connection() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut first_receiver = receiver(&mut client).await;
        let held = next(&mut first_receiver).await;
        first_receiver.dispose().await.unwrap();
        client.dispose().await.unwrap();
        event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        assert_eq!(counts(emulator), (0, 1, 0));

        let mut client = connect(emulator).await;
        let mut receiver = receiver(&mut client).await;
        let nothing =
            receiver.receive_message_with_max_wait_time(Duration::from_millis(300)).await.unwrap();
        assert!(nothing.is_none(), "the message is still locked");
        clock.advance(LOCK);
        let again = next(&mut receiver).await;
        assert_eq!((id(&again), count(&again)), (id(&held), 1));
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_message_goes_to_one_of_many_waiting_receivers() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut clients = Vec::new();
            let mut receivers = Vec::new();
            for _ in 0..5 {
                let mut client = connect(emulator).await;
                receivers.push(prefetching_receiver(&mut client, 1).await);
                clients.push(client);
            }
            // The two that wait longest are gone before a message comes.
            for _ in 0..2 {
                receivers.remove(0).dispose().await.unwrap();
                clients.remove(0).dispose().await.unwrap();
            }
            let mut sender = sender(&mut clients[0]).await;
            for number in 0..3 {
                send(&mut sender, &format!("m-{number}")).await;
            }
            let mut ids = Vec::new();
            for receiver in &mut receivers {
                let received = next(receiver).await;
                ids.push(id(&received));
                receiver.complete_message(&received).await.unwrap();
            }
            ids.sort();
            assert_eq!(ids, ["m-0", "m-1", "m-2"]);
            event(emulator, |_| emulator.events().totals().completed == 3).await;
        },
    );
}
