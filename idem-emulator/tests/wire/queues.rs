//! Sending, receiving and settling.

use std::time::Duration;

use azservicebus::receiver::DeadLetterOptions;
use azservicebus::{ServiceBusMessage, ServiceBusReceiveMode, ServiceBusReceiverOptions};
use idem_emulator::{Clock, Counts, Emulator, EventKind, QueueOptions};

use crate::support::*;

#[test]
fn a_completed_message_is_gone() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            send(&mut sender, "m-1").await;
            assert_eq!(counts(emulator), (1, 0, 0));

            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            assert_eq!(received.body().unwrap(), b"body of m-1");
            assert_eq!(
                (id(&received).as_str(), received.sequence_number(), count(&received)),
                ("m-1", 1, 0)
            );
            assert_eq!(counts(emulator), (0, 1, 0));

            receiver.complete_message(&received).await.unwrap();
            event_of(emulator, "m-1", EventKind::Completed).await;
            assert_eq!(emulator.counts("orders").unwrap(), Counts::default());
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_batch_arrives_as_single_messages_in_order() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            let mut batch = sender.create_message_batch(Default::default()).unwrap();
            for number in 0..50 {
                batch.try_add_message(message(&format!("m-{number}"))).unwrap();
            }
            sender.send_message_batch(batch).await.unwrap();

            let mut receiver = prefetching_receiver(&mut client, 10).await;
            for number in 0..50 {
                let received = next(&mut receiver).await;
                assert_eq!(id(&received), format!("m-{number}"));
                receiver.complete_message(&received).await.unwrap();
            }
            event(emulator, |_| emulator.events().totals().completed == 50).await;
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_receiver_gets_no_more_than_its_credit() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            for number in 0..10 {
                send(&mut sender, &format!("m-{number}")).await;
            }
            let mut receiver = receiver(&mut client).await;
            for number in 0..3 {
                assert_eq!(id(&next(&mut receiver).await), format!("m-{number}"));
            }
            // Without prefetch the client grants credit for one message at a time.
            assert_eq!(counts(emulator), (7, 3, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn receive_and_delete_leaves_nothing_behind() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let options = ServiceBusReceiverOptions {
                receive_mode: ServiceBusReceiveMode::ReceiveAndDelete,
                ..Default::default()
            };
            let mut receiver = client.create_receiver_for_queue("orders", options).await.unwrap();
            assert_eq!(id(&next(&mut receiver).await), "m-1");
            assert_eq!(counts(emulator), (0, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn abandoning_raises_the_count() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            let first = next(&mut receiver).await;
            receiver.abandon_message(&first, None).await.unwrap();
            let second = next(&mut receiver).await;
            assert_eq!((count(&first), count(&second)), (0, 1));
            assert_eq!(first.sequence_number(), second.sequence_number());
            assert_ne!(first.lock_token(), second.lock_token());
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn too_many_failed_deliveries_end_in_the_dead_letter_queue() {
    with_orders(
        |queue| queue.max_delivery_count(3),
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            for expected in 0..3 {
                let received = next(&mut receiver).await;
                assert_eq!(count(&received), expected);
                receiver.abandon_message(&received, None).await.unwrap();
            }
            let reason = Some("MaxDeliveryCountExceeded".into());
            event_of(emulator, "m-1", EventKind::DeadLettered { reason }).await;
            assert_eq!(counts(emulator), (0, 0, 1));

            let mut dead_letters = dead_letter_receiver(&mut client).await;
            let dead = next(&mut dead_letters).await;
            assert_eq!(dead.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
            assert_eq!(
                dead.dead_letter_error_description(),
                Some("Message could not be consumed after 3 delivery attempts.")
            );
            assert_eq!((id(&dead).as_str(), dead.sequence_number(), count(&dead)), ("m-1", 1, 3));
            dead_letters.complete_message(&dead).await.unwrap();
            event_of(emulator, "m-1", EventKind::Completed).await;
            assert_eq!(counts(emulator), (0, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_dead_lettered_message_keeps_its_reason_and_description() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            let options = DeadLetterOptions {
                dead_letter_reason: Some("unreadable".to_owned()),
                dead_letter_error_description: Some("line 1 column 2".to_owned()),
                properties_to_modify: None,
            };
            receiver.dead_letter_message(&received, options).await.unwrap();

            let mut dead_letters = dead_letter_receiver(&mut client).await;
            let dead = next(&mut dead_letters).await;
            assert_eq!(dead.dead_letter_reason(), Some("unreadable"));
            assert_eq!(dead.dead_letter_error_description(), Some("line 1 column 2"));
            assert_eq!(dead.dead_letter_source(), Some("orders"));
            assert_eq!(dead.body().unwrap(), b"body of m-1");

            let inspected = emulator.dead_letters("orders").unwrap().remove(0);
            assert_eq!(inspected.message_id.as_deref(), Some("m-1"));
            assert_eq!(inspected.dead_letter_reason.as_deref(), Some("unreadable"));
            assert_eq!(inspected.dead_letter_description.as_deref(), Some("line 1 column 2"));
            assert_eq!(inspected.body, "body of m-1");
            assert!(inspected.locked);
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_message_id_counts_once_within_its_window() {
    let clock = Clock::manual();
    let queue = QueueOptions::new("orders").duplicate_detection(Duration::from_secs(600));
    let builder = Emulator::builder().queue(queue).clock(clock.clone());
    run(builder, async |emulator| {
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        send(&mut sender, "m-1").await;
        clock.advance(Duration::from_secs(599));
        send(&mut sender, "m-1").await;
        send(&mut sender, "m-2").await;
        event_of(emulator, "m-1", EventKind::DuplicateDropped).await;
        assert_eq!(counts(emulator), (2, 0, 0));

        // Completing the first copy does not free its id, and the second copy did not extend it.
        let mut receiver = receiver(&mut client).await;
        let received = next(&mut receiver).await;
        receiver.complete_message(&received).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        send(&mut sender, "m-1").await;
        assert_eq!(counts(emulator), (1, 0, 0));
        clock.advance(Duration::from_secs(1));
        send(&mut sender, "m-1").await;
        assert_eq!(counts(emulator), (2, 0, 0));
        assert_eq!(emulator.events().totals().duplicate_dropped, 2);
        client.dispose().await.unwrap();
    });
}

#[test]
fn messages_without_an_id_are_neither_dropped_nor_given_one() {
    with_orders(
        |queue| queue.duplicate_detection(Duration::from_secs(600)),
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            sender.send_message(ServiceBusMessage::new("same")).await.unwrap();
            sender.send_message(ServiceBusMessage::new("same")).await.unwrap();
            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            assert_eq!(received.message_id(), None);
            assert_eq!(counts(emulator), (1, 1, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn an_id_is_assigned_only_on_request() {
    with_orders(
        |queue| queue.assign_message_ids(true),
        async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, ServiceBusMessage::new("body")).await;
            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            assert_eq!(id(&received).len(), 32);
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_large_message_travels_in_many_frames() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let body: Vec<u8> = (0..200_000u32).map(|number| number.to_le_bytes()[0]).collect();
            send_once(&mut client, ServiceBusMessage::new(body.clone())).await;
            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            assert_eq!(received.body().unwrap(), body);
            receiver.complete_message(&received).await.unwrap();
            event(emulator, |event| event.kind == EventKind::Completed).await;
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn an_oversized_message_is_refused_and_the_sender_lives_on() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            // What the client says is of no use: it retries a refused send as if it had succeeded.
            let _misleading =
                sender.send_message(ServiceBusMessage::new(vec![0u8; 300 * 1024])).await;
            let condition = "amqp:link:message-size-exceeded";
            event(emulator, |event| event.kind == EventKind::SendRejected { condition }).await;
            send(&mut sender, "m-1").await;
            assert_eq!(counts(emulator), (1, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn a_full_queue_refuses_messages() {
    with_orders(
        |queue| queue.size_max(2048),
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            for number in 0..4 {
                send(&mut sender, &format!("m-{number}")).await;
            }
            let mut batch = sender.create_message_batch(Default::default()).unwrap();
            for number in 4..8 {
                batch.try_add_message(message(&format!("m-{number}"))).unwrap();
            }
            // There is room for some of the batch, but it goes in as a whole or not at all.
            let _misleading = sender.send_message_batch(batch).await;
            let condition = "amqp:resource-limit-exceeded";
            event(emulator, |event| event.kind == EventKind::SendRejected { condition }).await;
            assert_eq!(counts(emulator), (4, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn purge_and_reset_empty_the_queue() {
    with_orders(
        |queue| queue.duplicate_detection(Duration::from_secs(60)),
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            let mut receiver = receiver(&mut client).await;
            send(&mut sender, "m-1").await;
            let held = next(&mut receiver).await;
            emulator.purge("orders").unwrap();
            assert_eq!(counts(emulator), (0, 0, 0));
            receiver.complete_message(&held).await.unwrap();
            let lost =
                EventKind::SettlementRejected { condition: "com.microsoft:message-lock-lost" };
            event(emulator, |event| event.kind == lost).await;

            send(&mut sender, "m-1").await;
            assert_eq!(emulator.events().totals().duplicate_dropped, 1);
            emulator.reset();
            assert_eq!(emulator.events().totals().duplicate_dropped, 0);
            send(&mut sender, "m-1").await;
            assert_eq!(counts(emulator), (1, 0, 0));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
fn peeking_locks_nothing() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            for name in ["m-1", "m-2"] {
                send(&mut sender, name).await;
            }
            let mut receiver = receiver(&mut client).await;
            let peeked = receiver.peek_messages(10, None).await.unwrap();
            let ids: Vec<_> =
                peeked.iter().map(|message| message.message_id().unwrap().into_owned()).collect();
            assert_eq!(ids, ["m-1", "m-2"]);
            assert_eq!(counts(emulator), (2, 0, 0));
            let bodies: Vec<_> =
                emulator.peek("orders").unwrap().into_iter().map(|message| message.body).collect();
            assert_eq!(bodies, ["body of m-1", "body of m-2"]);
            client.dispose().await.unwrap();
        },
    );
}
