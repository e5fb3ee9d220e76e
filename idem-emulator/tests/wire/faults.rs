//! Faults, as a client meets them.

use std::time::Duration;

use idem_emulator::{Clock, Emulator, EventKind, Fault, FaultKind, QueueOptions};

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
fn a_lost_answer_to_a_settlement_leaves_the_message_gone() {
    with_manual_clock(async |emulator, clock| {
        let fault = emulator.faults().add(Fault::lose_settlement_answer().on("orders").times(1));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let held = next(&mut receiver).await;
        // This client does not wait for answers to settlements, so it misses nothing.
        receiver.complete_message(&held).await.unwrap();
        event_of(emulator, "m-1", fired(FaultKind::LoseSettlementAnswer)).await;
        assert_eq!(fault.fired(), 1);
        assert_eq!(emulator.events().totals().completed, 1);
        clock.advance(LOCK);
        assert_eq!(counts(emulator), (0, 0, 0));
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_connection_dropped_after_a_settlement_leaves_the_message_gone_and_the_client_comes_back() {
    with_manual_clock(async |emulator, clock| {
        let fault =
            emulator.faults().add(Fault::drop_connection_after_settlement().on("orders").times(1));
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        send(&mut sender, "m-1").await;
        let mut receiver = receiver(&mut client).await;
        let held = next(&mut receiver).await;
        receiver.complete_message(&held).await.unwrap();
        event_of(emulator, "m-1", fired(FaultKind::DropConnectionAfterSettlement)).await;
        event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        assert_eq!(fault.fired(), 1);
        assert_eq!(emulator.events().totals().completed, 1);
        clock.advance(LOCK);
        assert_eq!(counts(emulator), (0, 0, 0));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-2")).await;
        assert_eq!(id(&next(&mut receiver).await), "m-2", "the receiver attaches again");
    });
}

#[test]
fn a_forgotten_completion_brings_the_same_message_again() {
    with_manual_clock(async |emulator, _clock| {
        let fault = emulator.faults().add(Fault::forget_completion().message("m-1").times(1));
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        receiver.abandon_message(&first, None).await.unwrap();
        let second = next(&mut receiver).await;
        assert_eq!((count(&second), fault.fired()), (1, 0), "only completions are forgotten");
        receiver.complete_message(&second).await.unwrap();
        let third = next(&mut receiver).await;
        event_of(emulator, "m-1", fired(FaultKind::ForgetCompletion)).await;
        assert_eq!(fault.fired(), 1);
        assert_eq!((id(&third).as_str(), count(&third)), ("m-1", 1));
        assert_eq!(third.sequence_number(), second.sequence_number());
        assert_ne!(third.lock_token(), second.lock_token());
        receiver.complete_message(&third).await.unwrap();
        event(emulator, |_| emulator.events().totals().completed == 2).await;
        assert_eq!(counts(emulator), (0, 0, 0));
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_closed_connection_is_opened_again() {
    for (fault, kind) in [
        (Fault::close_connection_at_delivery(), FaultKind::CloseConnectionAtDelivery),
        (Fault::close_connection_at_settlement(), FaultKind::CloseConnectionAtSettlement),
    ] {
        with_manual_clock(async |emulator, clock| {
            let fault = emulator.faults().add(fault.on("orders").times(1));
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            // After a close at the delivery, the client may have seen it or not.
            let mut received = next_through_a_cut(&mut receiver, emulator, &clock).await;
            if count(&received) == 0 {
                receiver.complete_message(&received).await.ok();
                event_of(emulator, "m-1", fired(kind)).await;
                event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
                clock.advance(LOCK);
                received = next_through_a_cut(&mut receiver, emulator, &clock).await;
            }
            assert_eq!((id(&received).as_str(), count(&received)), ("m-1", 1));
            event_of(emulator, "m-1", fired(kind)).await;
            assert_eq!(fault.fired(), 1);
            receiver.complete_message(&received).await.unwrap();
            event_of(emulator, "m-1", EventKind::Completed).await;
        });
    }
}

#[test]
fn a_delayed_message_comes_late_and_once() {
    with_manual_clock(async |emulator, clock| {
        let delay = Duration::from_secs(10);
        // Without a bound: no message is delayed twice.
        let fault = emulator.faults().add(Fault::delay_delivery(delay).message("m-1"));
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        send(&mut sender, "m-1").await;
        send(&mut sender, "m-2").await;
        let mut receiver = receiver(&mut client).await;
        assert_eq!(id(&next(&mut receiver).await), "m-2");
        event_of(emulator, "m-1", fired(FaultKind::DelayDelivery)).await;
        assert_eq!(counts(emulator), (1, 1, 0));
        clock.advance(delay - Duration::from_millis(1));
        let nothing = receiver.receive_message_with_max_wait_time(Duration::from_millis(200)).await;
        assert!(nothing.unwrap().is_none());
        clock.advance(Duration::from_millis(1));
        let late = next(&mut receiver).await;
        assert_eq!((id(&late).as_str(), count(&late)), ("m-1", 0));
        receiver.complete_message(&late).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        assert_eq!(fault.fired(), 1);
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_reordered_message_comes_after_the_one_behind_it() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let fault = emulator.faults().add(Fault::reorder().message("m-1").times(1));
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            for id in ["m-1", "m-2", "m-3"] {
                send(&mut sender, id).await;
            }
            let mut receiver = receiver(&mut client).await;
            let mut order = Vec::new();
            for _ in 0..3 {
                order.push(id(&next(&mut receiver).await));
            }
            assert_eq!(order, ["m-2", "m-1", "m-3"]);
            assert_eq!(fault.fired(), 1);
            event_of(emulator, "m-1", fired(FaultKind::Reorder)).await;

            let alone = emulator.faults().add(Fault::reorder().message("m-4"));
            send(&mut sender, "m-4").await;
            assert_eq!(id(&next(&mut receiver).await), "m-4");
            assert_eq!(alone.fired(), 0, "there is nothing that could go first");
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_session_lock_lost_at_a_delivery_frees_the_session() {
    let queue = QueueOptions::new("orders").requires_session(true);
    run(Emulator::builder().queue(queue), async |emulator| {
        let fault = emulator.faults().add(Fault::lose_session_lock().on("orders").times(1));
        let mut client = connect_without_retries(emulator).await;
        let mut sent = message("m-1");
        sent.set_session_id("s".to_owned()).unwrap();
        send_once(&mut client, sent).await;
        let mut first =
            client.accept_session_for_queue("orders", "s", Default::default()).await.unwrap();
        // The client may or may not see the message before it is detached.
        let _seen = first.receive_message_with_max_wait_time(Duration::from_secs(3)).await;
        event_of(emulator, "m-1", fired(FaultKind::LoseSessionLock)).await;
        let lost = EventKind::SessionLockLost { session_id: "s".into() };
        event(emulator, |event| event.kind == lost).await;
        event_of(emulator, "m-1", EventKind::LockExpired { delivery_count: 1 }).await;
        assert_eq!(fault.fired(), 1);

        let mut client = connect(emulator).await;
        let mut second =
            client.accept_session_for_queue("orders", "s", Default::default()).await.unwrap();
        let received = second.receive_message_with_max_wait_time(PATIENCE).await.unwrap().unwrap();
        assert_eq!((id(&received).as_str(), count(&received)), ("m-1", 1));
        second.complete_message(&received).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
    });
}

/// Sends `m-1` until the fault has fired, and then again, as an application does that knows nothing
/// of the first: this client waits a minute for a lost answer, and panics when it tries again.
async fn send_through(emulator: &Emulator, fault: Fault, kind: FaultKind) {
    let fault = emulator.faults().add(fault.on("orders").message("m-1").times(1));
    let mut client = connect(emulator).await;
    let mut sender = sender(&mut client).await;
    tokio::select! {
        answer = sender.send_message(message("m-1")) => panic!("it is not answered: {answer:?}"),
        _ = event_of(emulator, "m-1", fired(kind)) => {}
    }
    assert_eq!(fault.fired(), 1);
    let mut client = connect(emulator).await;
    send_once(&mut client, message("m-1")).await;
    assert_eq!(fault.fired(), 1);
}

#[test]
fn a_send_whose_answer_was_lost_is_made_twice_unless_duplicates_are_detected() {
    for (window, stored) in [(None, 2), (Some(Duration::from_secs(60)), 1)] {
        let detect = |queue: QueueOptions| match window {
            Some(window) => queue.duplicate_detection(window),
            None => queue,
        };
        with_orders(detect, async |emulator| {
            let fault = Fault::drop_connection_after_send();
            send_through(emulator, fault, FaultKind::DropConnectionAfterSend).await;
            assert_eq!(counts(emulator), (stored, 0, 0));
            let totals = emulator.events().totals();
            assert_eq!(totals.enqueued + totals.duplicate_dropped, 2);
            event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        });
    }
}

#[test]
fn a_send_that_is_lost_with_its_connection_or_link_stores_nothing() {
    for (fault, kind, connections) in [
        (Fault::drop_connection_at_send(), FaultKind::DropConnectionAtSend, 1),
        (Fault::detach_at_send(), FaultKind::DetachAtSend, 0),
    ] {
        with_orders(
            |queue| queue,
            async |emulator| {
                send_through(emulator, fault, kind).await;
                assert_eq!((counts(emulator), emulator.events().totals().enqueued), ((1, 0, 0), 1));
                let closed = || emulator.events().totals().connection_closed;
                event(emulator, |_| closed() >= connections).await;
            },
        );
    }
}

#[test]
fn a_refused_send_is_told_and_stores_nothing() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let fault = emulator.faults().add(Fault::refuse_send().on("orders").times(1));
            let mut client = connect_without_retries(emulator).await;
            let mut sender = sender(&mut client).await;
            let error = sender.send_message(message("m-1")).await.unwrap_err();
            let error = format!("{error:?}");
            assert!(error.contains("server-busy") || error.contains("ServiceBusy"), "{error}");
            assert_eq!((fault.fired(), counts(emulator)), (1, (0, 0, 0)));
            let busy = EventKind::SendRejected { condition: "com.microsoft:server-busy" };
            event(emulator, |event| event.kind == busy).await;

            send(&mut sender, "m-1").await;
            assert_eq!((fault.fired(), counts(emulator)), (1, (1, 0, 0)));
            event_of(emulator, "m-1", fired(FaultKind::RefuseSend)).await;
        },
    );
}

#[test]
fn a_request_can_be_lost_with_its_connection() {
    with_manual_clock(async |emulator, _clock| {
        let fault = Fault::drop_connection_at_request().operation("peek-message").times(1);
        let fault = emulator.faults().add(fault);
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut first = receiver(&mut client).await;
        // The client fails, or connects again and asks again.
        let _lost = first.peek_message(None).await;
        event(emulator, |event| event.kind == fired(FaultKind::DropConnectionAtRequest)).await;
        event(emulator, |event| event.kind == EventKind::ConnectionClosed).await;
        assert_eq!(fault.fired(), 1);
        let mut client = connect(emulator).await;
        let mut second = receiver(&mut client).await;
        assert!(second.peek_message(None).await.unwrap().is_some());
    });
}

#[test]
fn failing_requests_are_told_by_operation() {
    with_manual_clock(async |emulator, _clock| {
        let faults = emulator.faults();
        let busy = faults.add(Fault::refuse_request().operation("renew-lock").times(1));
        let late = faults.add(Fault::time_out_request().operation("renew-lock"));
        let mut client = connect_without_retries(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let mut held = next(&mut receiver).await;
        for (fault, status) in [(&busy, "503"), (&late, "408")] {
            let error = receiver.renew_message_lock(&mut held).await.unwrap_err();
            let error = format!("{error:?}");
            assert!(error.contains(status), "{error}");
            assert_eq!(fault.fired(), 1);
        }
        late.remove();
        assert_eq!(emulator.events().totals().lock_renewed, 0);
        assert!(receiver.peek_message(None).await.unwrap().is_some());
        receiver.renew_message_lock(&mut held).await.unwrap();
        for kind in [FaultKind::RefuseRequest, FaultKind::TimeOutRequest] {
            event(emulator, |event| event.kind == fired(kind)).await;
        }
        client.dispose().await.unwrap();
    });
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
