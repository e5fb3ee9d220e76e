//! Faults, as a client meets them.

use std::time::Duration;

use idem_emulator::{Clock, Emulator, EventKind, Fault, FaultKind};

use crate::support::*;

fn fired(fault: FaultKind) -> EventKind {
    EventKind::FaultFired { fault }
}

#[test]
fn a_redelivered_message_is_held_twice_and_removed_by_either() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let fault = emulator.faults().add(Fault::redeliver().on("orders").message("m-1"));
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            let first = next(&mut receiver).await;
            assert_eq!(fault.fired(), 0, "it fires when the second copy is handed out");
            let second = next(&mut receiver).await;
            assert_eq!(fault.fired(), 1);
            assert_eq!(id(&first), id(&second));
            assert_eq!(first.sequence_number(), second.sequence_number());
            assert_eq!((count(&first), count(&second)), (0, 0));
            assert_ne!(first.lock_token(), second.lock_token());
            assert_eq!(counts(emulator), (0, 1, 0));

            receiver.complete_message(&second).await.unwrap();
            event_of(emulator, "m-1", EventKind::Completed).await;
            receiver.complete_message(&first).await.unwrap();
            event(emulator, |event| event.kind == LOCK_LOST).await;
            assert_eq!(counts(emulator), (0, 0, 0));
            event_of(emulator, "m-1", fired(FaultKind::Redeliver)).await;
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn an_expired_lock_sends_the_message_back_at_once() {
    with_manual_clock(async |emulator, _clock| {
        let fault = emulator.faults().add(Fault::expire_lock().on("orders").times(1));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        assert_eq!(fault.fired(), 1);
        receiver.complete_message(&first).await.unwrap();
        event(emulator, |event| event.kind == LOCK_LOST).await;
        let second = next(&mut receiver).await;
        assert_eq!((count(&first), count(&second)), (0, 1));
        receiver.complete_message(&second).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        assert_eq!(fault.fired(), 1);
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_lost_settlement_brings_the_message_back_after_its_lock() {
    with_manual_clock(async |emulator, clock| {
        let fault =
            emulator.faults().add(Fault::lose_settlement().on("orders").message("m-1").times(1));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        receiver.complete_message(&first).await.unwrap();
        event_of(emulator, "m-1", fired(FaultKind::LoseSettlement)).await;
        assert_eq!(fault.fired(), 1);
        assert_eq!(counts(emulator), (0, 1, 0));

        clock.advance(LOCK);
        let second = next(&mut receiver).await;
        assert_eq!((id(&second).as_str(), count(&second)), ("m-1", 1));
        receiver.complete_message(&second).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_connection_dropped_at_settlement_keeps_the_lock_and_the_client_comes_back() {
    with_manual_clock(async |emulator, clock| {
        let fault =
            emulator.faults().add(Fault::drop_connection_at_settlement().on("orders").times(1));
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        send(&mut sender, "m-1").await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        receiver.complete_message(&first).await.unwrap();
        event_of(emulator, "m-1", fired(FaultKind::DropConnectionAtSettlement)).await;
        event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        assert_eq!(fault.fired(), 1);
        assert_eq!(counts(emulator), (0, 1, 0));

        clock.advance(LOCK);
        let second = next(&mut receiver).await;
        assert_eq!((id(&second).as_str(), count(&second)), ("m-1", 1));
        receiver.complete_message(&second).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        send(&mut sender, "m-2").await;
        assert_eq!(emulator.events().totals().connection_opened, 2);
    });
}

#[test]
fn a_connection_dropped_at_delivery_leaves_the_message_locked() {
    with_manual_clock(async |emulator, clock| {
        let fault = emulator.faults().add(Fault::drop_connection_at_delivery().on("orders").nth(1));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        // The client may or may not see the first delivery before it notices the cut.
        let mut received = next_through_a_cut(&mut receiver, emulator, &clock).await;
        if count(&received) == 0 {
            clock.advance(LOCK);
            received = next_through_a_cut(&mut receiver, emulator, &clock).await;
        }
        assert_eq!((id(&received).as_str(), count(&received)), ("m-1", 1));
        assert_eq!(fault.fired(), 1);
        event_of(emulator, "m-1", fired(FaultKind::DropConnectionAtDelivery)).await;
        event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        receiver.complete_message(&received).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
    });
}

/// Receives; lets the lock run out once if the message went down with the connection.
async fn next_through_a_cut(
    receiver: &mut azservicebus::ServiceBusReceiver,
    emulator: &Emulator,
    clock: &Clock,
) -> azservicebus::ServiceBusReceivedMessage {
    loop {
        match receiver.receive_message_with_max_wait_time(Duration::from_secs(3)).await {
            Ok(Some(message)) => return message,
            Ok(None) | Err(_) => {
                event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
                clock.advance(LOCK);
            }
        }
    }
}

#[test]
fn chance_faults_stay_within_their_bound() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let fault = emulator
                .faults()
                .add(Fault::expire_lock().on("orders").probability(0.5).seed(42).times(5));
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            for number in 0..40 {
                send(&mut sender, &format!("m-{number}")).await;
            }
            let mut receiver = prefetching_receiver(&mut client, 10).await;
            while emulator.events().totals().completed < 40 {
                let received = next(&mut receiver).await;
                let settled = emulator.events().totals();
                receiver.complete_message(&received).await.unwrap();
                event(emulator, |_| {
                    let now = emulator.events().totals();
                    now.completed + now.settlement_rejected
                        > settled.completed + settled.settlement_rejected
                })
                .await;
            }
            assert_eq!(fault.fired(), 5);
            assert_eq!(emulator.events().totals().fault_fired, 5);
            assert_eq!(counts(emulator), (0, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}
