//! Scheduled, deferred and expiring messages.

use std::time::Duration;

use azservicebus::primitives::service_bus_message_state::ServiceBusMessageState;
use idem_emulator::{Clock, Emulator, EventKind, QueueOptions};
use time::OffsetDateTime;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);

/// By the emulator's clock, which the event tells.
fn after(emulator: &Emulator, duration: Duration) -> OffsetDateTime {
    let opened = emulator.events().snapshot().remove(0);
    OffsetDateTime::from(opened.time) + duration
}

#[test]
fn a_scheduled_message_comes_at_its_time() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        let due = after(emulator, HOUR);
        let number = sender.schedule_message(message("m-1"), due).await.unwrap();
        event_of(emulator, "m-1", EventKind::Scheduled).await;
        assert_eq!(emulator.counts("orders").unwrap().scheduled, 1);

        let mut receiver = receiver(&mut client).await;
        let peeked = receiver.peek_messages(1, None).await.unwrap().remove(0);
        assert_eq!(peeked.sequence_number(), number);
        assert_eq!(peeked.state(), ServiceBusMessageState::Scheduled);
        clock.advance(HOUR);
        let received = next(&mut receiver).await;
        assert!(received.sequence_number() > number);
        assert_eq!(received.enqueued_time(), due);
        client.dispose().await.unwrap();
    });
}

#[test]
fn an_annotated_message_is_scheduled_too() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        let mut later = message("m-1");
        later.set_scheduled_enqueue_time(after(emulator, HOUR));
        sender.send_message(later).await.unwrap();
        let mut past = message("m-2");
        past.set_scheduled_enqueue_time(after(emulator, Duration::ZERO) - HOUR);
        sender.send_message(past).await.unwrap();
        let counts = emulator.counts("orders").unwrap();
        assert_eq!((counts.active, counts.scheduled), (1, 1));
        clock.advance(HOUR);
        event_of(emulator, "m-1", EventKind::Enqueued).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_scheduled_message_can_be_taken_back_once() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect_without_retries(emulator).await;
        let mut sender = sender(&mut client).await;
        let due = after(emulator, HOUR);
        let both = [message("m-1"), message("m-2")];
        let numbers = sender.schedule_messages(both, due).await.unwrap();
        sender.cancel_scheduled_message(numbers[0]).await.unwrap();
        event_of(emulator, "m-1", EventKind::ScheduleCancelled).await;
        let again = sender.cancel_scheduled_message(numbers[0]).await;
        assert!(format!("{again:?}").contains("404"), "{again:?}");
        clock.advance(HOUR);
        assert_eq!(counts(emulator), (1, 0, 0));
        client.dispose().await.unwrap();
    });
}

#[test]
fn a_deferred_message_is_received_by_its_number_and_settled() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect_without_retries(emulator).await;
            let mut sender = sender(&mut client).await;
            for id in ["m-1", "m-2", "m-3"] {
                send(&mut sender, id).await;
            }
            let mut receiver = receiver(&mut client).await;
            for id in ["m-1", "m-2", "m-3"] {
                let received = next(&mut receiver).await;
                receiver.defer_message(&received, None).await.unwrap();
                event_of(emulator, id, EventKind::Deferred).await;
            }
            assert_eq!(emulator.counts("orders").unwrap().deferred, 3);
            assert!(receiver.receive_deferred_message(99).await.is_err());

            let held = receiver.receive_deferred_messages([1, 2, 3]).await.unwrap();
            assert_eq!(held.iter().map(id).collect::<Vec<_>>(), ["m-1", "m-2", "m-3"]);
            assert_eq!(held[0].body().unwrap(), b"body of m-1");
            assert_eq!(counts(emulator), (0, 3, 0));
            // This client settles what it received by number through the management node.
            receiver.complete_message(&held[0]).await.unwrap();
            receiver.abandon_message(&held[1], None).await.unwrap();
            receiver.dead_letter_message(&held[2], Default::default()).await.unwrap();
            let counts = emulator.counts("orders").unwrap();
            assert_eq!((counts.active, counts.deferred, counts.dead_lettered), (0, 1, 1));

            let again = receiver.receive_deferred_message(2).await.unwrap().unwrap();
            assert_eq!(count(&again), 1);
            receiver.defer_message(&again, None).await.unwrap();
            assert_eq!(emulator.counts("orders").unwrap().deferred, 1);
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn an_expired_message_is_dead_lettered_with_its_reason() {
    let clock = Clock::manual();
    let queue = QueueOptions::new("orders").dead_letter_expired(true);
    run(Emulator::builder().queue(queue).clock(clock.clone()), async |emulator| {
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        let mut mortal = message("m-1");
        mortal.set_time_to_live(HOUR).unwrap();
        sender.send_message(mortal).await.unwrap();
        send(&mut sender, "m-2").await;

        let mut receiver = receiver(&mut client).await;
        let peeked = receiver.peek_messages(1, None).await.unwrap().remove(0);
        assert_eq!(peeked.time_to_live(), Some(HOUR));
        clock.advance(HOUR);
        assert_eq!(id(&next(&mut receiver).await), "m-2");
        let mut dead_letters = dead_letter_receiver(&mut client).await;
        let dead = next(&mut dead_letters).await;
        assert_eq!(id(&dead), "m-1");
        assert_eq!(dead.dead_letter_reason(), Some("TTLExpiredException"));
        client.dispose().await.unwrap();
    });
}
