//! What went wrong in other emulators, each with the kind of mistake behind it.
//!
//! The names of the tests start with the number of the case.

use std::time::{Duration, Instant};

use azservicebus::receiver::DeadLetterOptions;
use azservicebus::{
    ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusReceiverOptions,
    ServiceBusSender,
};
use azservicebus_amqp_types::primitives::{Binary, SimpleValue, Timestamp, Uuid};
use idem_emulator::{
    Clock, Emulator, EventKind, Fault, QueueOptions, SubscriptionOptions, TopicOptions,
};

use crate::support::*;

#[derive(Debug, Clone, Copy)]
enum Settling {
    Complete,
    Abandon,
    DeadLetter,
    Defer,
}

impl Settling {
    const ALL: [Self; 4] = [Self::Complete, Self::Abandon, Self::DeadLetter, Self::Defer];

    async fn apply(
        self,
        receiver: &mut ServiceBusReceiver,
        message: &ServiceBusReceivedMessage,
    ) -> Result<(), String> {
        let result = match self {
            Self::Complete => receiver.complete_message(message).await,
            Self::Abandon => receiver.abandon_message(message, None).await,
            Self::DeadLetter => {
                receiver.dead_letter_message(message, DeadLetterOptions::default()).await
            }
            Self::Defer => receiver.defer_message(message, None).await,
        };
        result.map_err(|error| format!("{error:?}"))
    }
}

/// A lock that has ended is believed by one way of settling and not by another.
#[test]
fn e_01_every_settlement_after_the_lock_is_refused() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect_without_retries(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        for (failed, settling) in (0..).zip(Settling::ALL) {
            let held = next(&mut receiver).await;
            assert_eq!(count(&held), failed, "{settling:?}");
            clock.advance(LOCK);
            // The client does not wait for the answer, so only the broker knows.
            settling.apply(&mut receiver, &held).await.unwrap();
            let refused = u64::from(failed) + 1;
            event(emulator, |_| emulator.events().totals().settlement_rejected == refused).await;
            assert_eq!(counts(emulator), (1, 0, 0), "{settling:?}");
        }
        assert!(emulator.events().snapshot().iter().any(|event| event.kind == LOCK_LOST));
        let mut held = next(&mut receiver).await;
        clock.advance(LOCK);
        let error = format!("{:?}", receiver.renew_message_lock(&mut held).await.unwrap_err());
        assert!(error.contains("410"), "{error}");
        client.dispose().await.unwrap();
    });
}

/// The same through the management node, where the client is told.
#[test]
fn e_01_every_update_of_a_disposition_after_the_lock_is_refused() {
    with_manual_clock(async |emulator, clock| {
        let mut client = connect_without_retries(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let first = next(&mut receiver).await;
        receiver.defer_message(&first, None).await.unwrap();
        event_of(emulator, "m-1", EventKind::Deferred).await;
        for (failed, settling) in (0..).zip(Settling::ALL) {
            let held = receiver.receive_deferred_message(1).await.unwrap().unwrap();
            assert_eq!(count(&held), failed, "{settling:?}");
            clock.advance(LOCK);
            let error = settling.apply(&mut receiver, &held).await.unwrap_err();
            assert!(error.contains("410"), "{settling:?}: {error}");
            assert_eq!(emulator.counts("orders").unwrap().deferred, 1, "{settling:?}");
        }
        client.dispose().await.unwrap();
    });
}

/// A limit is looked at only when a receiver comes, or for only one way to fail.
#[test]
fn e_02_the_delivery_limit_holds_while_the_receiver_stays() {
    for by_expiry in [false, true] {
        let clock = Clock::manual();
        let queue = QueueOptions::new("orders").lock_duration(LOCK).max_delivery_count(3);
        run(Emulator::builder().queue(queue).clock(clock.clone()), async |emulator| {
            let mut client = connect(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            for failed in 0..3 {
                let held = next(&mut receiver).await;
                assert_eq!(count(&held), failed);
                if by_expiry {
                    clock.advance(LOCK);
                } else {
                    receiver.abandon_message(&held, None).await.unwrap();
                }
            }
            let reason = Some("MaxDeliveryCountExceeded".into());
            event_of(emulator, "m-1", EventKind::DeadLettered { reason }).await;
            assert_eq!((counts(emulator), emulator.events().totals().delivered), ((0, 0, 1), 3));
            let mut dead_letters = dead_letter_receiver(&mut client).await;
            let dead = next(&mut dead_letters).await;
            assert_eq!(dead.dead_letter_reason(), Some("MaxDeliveryCountExceeded"));
            let description = dead.dead_letter_error_description();
            let expected = "Message could not be consumed after 3 delivery attempts.";
            assert_eq!(description, Some(expected));
            client.dispose().await.unwrap();
        });
    }
}

async fn send_body(sender: &mut ServiceBusSender, id: &str, body: &str) {
    let mut message = ServiceBusMessage::new(body);
    message.set_message_id(id).unwrap();
    sender.send_message(message).await.unwrap();
}

/// What makes two messages the same is taken from more, or from less, than the id and the entity.
#[test]
fn e_03_a_duplicate_is_an_id_seen_in_the_window_of_its_entity() {
    let clock = Clock::manual();
    let window = Duration::from_secs(10);
    let queue = |name| QueueOptions::new(name).duplicate_detection(window);
    let builder = Emulator::builder().queue(queue("orders")).queue(queue("other"));
    run(builder.clock(clock.clone()), async |emulator| {
        let mut client = connect(emulator).await;
        let mut sender = sender(&mut client).await;
        send_body(&mut sender, "m-1", "first").await;
        clock.advance(window / 2);
        send_body(&mut sender, "m-1", "another body").await;
        assert_eq!(counts(emulator), (1, 0, 0));
        let mut other = client.create_sender("other", Default::default()).await.unwrap();
        send_body(&mut other, "m-1", "first").await;
        send_body(&mut other, "M-1", "an id in another case").await;
        assert_eq!(emulator.counts("other").unwrap().active, 2);
        clock.advance(window);
        send_body(&mut sender, "m-1", "first").await;
        assert_eq!(counts(emulator), (2, 0, 0));
        assert_eq!(emulator.events().totals().duplicate_dropped, 1);
        client.dispose().await.unwrap();
    });
}

/// A setting of one entity holds for all of them.
#[test]
fn e_04_every_entity_follows_its_own_settings() {
    let clock = Clock::manual();
    let seconds = Duration::from_secs;
    let subscription = SubscriptionOptions::new;
    let topic = TopicOptions::new("news")
        .subscription(subscription("c").lock_duration(seconds(30)).max_delivery_count(1))
        .subscription(subscription("d").lock_duration(seconds(40)).max_delivery_count(3));
    let builder = Emulator::builder()
        .queue(QueueOptions::new("a").lock_duration(seconds(10)).max_delivery_count(2))
        .queue(QueueOptions::new("b").lock_duration(seconds(20)).max_delivery_count(4))
        .topic(topic);
    let entities = [
        ("a", 10, 2),
        ("b", 20, 4),
        ("news/Subscriptions/c", 30, 1),
        ("news/Subscriptions/d", 40, 3),
    ];
    run(builder.clock(clock.clone()), async |emulator| {
        let mut client = connect(emulator).await;
        for entity in ["a", "b", "news"] {
            let mut sender = client.create_sender(entity, Default::default()).await.unwrap();
            sender.send_message(message("m-1")).await.unwrap();
            sender.dispose().await.unwrap();
        }
        let mut receivers = Vec::new();
        for (entity, ..) in entities {
            // With more credit than there are messages, each comes again as soon as it can.
            let options = ServiceBusReceiverOptions { prefetch_count: 5, ..Default::default() };
            receivers.push(client.create_receiver_for_queue(entity, options).await.unwrap());
            let delivered = |event: &idem_emulator::Event| {
                event.entity.as_deref() == Some(entity)
                    && event.kind == EventKind::Delivered { delivery_count: 0 }
            };
            event(emulator, delivered).await;
        }
        // Every ten seconds, one lock after the other ends, and only at its own times.
        for elapsed in (10..=160u64).step_by(10) {
            clock.advance(seconds(10));
            for (entity, lock, limit) in entities {
                let failed = (elapsed / lock).min(limit);
                let at_limit = failed == limit;
                let expected =
                    EventKind::LockExpired { delivery_count: failed.try_into().unwrap() };
                if failed > 0 {
                    let is_it = |event: &idem_emulator::Event| {
                        event.entity.as_deref() == Some(entity) && event.kind == expected
                    };
                    event(emulator, is_it).await;
                }
                let dead = emulator.counts(entity).unwrap().dead_lettered;
                assert_eq!(dead == 1, at_limit, "{entity} after {elapsed} s");
                if !at_limit {
                    // The next lock has to start before the clock moves on.
                    let again = EventKind::Delivered { delivery_count: failed.try_into().unwrap() };
                    let is_it = |event: &idem_emulator::Event| {
                        event.entity.as_deref() == Some(entity) && event.kind == again
                    };
                    event(emulator, is_it).await;
                }
            }
        }
        assert_eq!(emulator.events().totals().lock_expired, 2 + 4 + 1 + 3);
        client.dispose().await.unwrap();
    });
}

/// Time is real, or too coarse, so that nobody tests what happens at its end.
#[test]
fn e_05_short_locks_end_as_fast_as_a_test_can_move_the_clock() {
    let clock = Clock::manual();
    let lock = Duration::from_secs(5);
    let queue = QueueOptions::new("orders").lock_duration(lock).max_delivery_count(100);
    run(Emulator::builder().queue(queue).clock(clock.clone()), async |emulator| {
        let mut client = connect(emulator).await;
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let started = Instant::now();
        for failed in 0..50 {
            assert_eq!(count(&next(&mut receiver).await), failed);
            clock.advance(lock);
        }
        assert!(started.elapsed() < 50 * lock, "the clock of the test is the broker's");
        assert_eq!(emulator.events().totals().lock_expired, 50);
        client.dispose().await.unwrap();
    });
}

/// What a sender wrote is taken apart and put together again with something missing.
#[test]
fn e_06_what_was_sent_comes_back_unchanged() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let properties = [
                ("int", SimpleValue::Int(-7)),
                ("long", SimpleValue::Long(i64::MAX)),
                ("bool", SimpleValue::Bool(true)),
                ("uuid", SimpleValue::Uuid(Uuid::from([7; 16]))),
                ("time", SimpleValue::Timestamp(Timestamp::from_milliseconds(1_700_000_000_123))),
                ("binary", SimpleValue::Binary(Binary::from(vec![0, 255, 1]))),
                ("text", SimpleValue::String("grüße".to_owned())),
                ("real", SimpleValue::Double(2.5.into())),
            ];
            let mut sent = message("m-1");
            sent.set_correlation_id("correlation".to_owned());
            sent.set_subject("subject".to_owned());
            sent.set_session_id("session".to_owned()).unwrap();
            sent.set_reply_to_session_id("reply session".to_owned()).unwrap();
            sent.set_content_type("text/plain".to_owned());
            sent.set_reply_to("replies".to_owned());
            sent.set_to("somewhere".to_owned());
            let own = sent.application_properties_mut().get_or_insert_default();
            for (name, value) in properties.clone() {
                own.0.insert(name.to_owned(), value);
            }
            send_once(&mut client, sent).await;

            // Once as it was sent, and once more from the dead-letter queue.
            let mut receiver = receiver(&mut client).await;
            let mut dead_letters = dead_letter_receiver(&mut client).await;
            for round in 0..2 {
                let source = if round == 0 { &mut receiver } else { &mut dead_letters };
                let received = next(source).await;
                assert_eq!(id(&received), "m-1");
                assert_eq!(received.correlation_id().as_deref(), Some("correlation"));
                assert_eq!(received.subject(), Some("subject"));
                assert_eq!(received.session_id(), Some("session"));
                assert_eq!(received.reply_to_session_id(), Some("reply session"));
                assert_eq!(received.content_type(), Some("text/plain"));
                assert_eq!(received.reply_to(), Some("replies"));
                assert_eq!(received.to(), Some("somewhere"));
                assert_eq!(received.body().unwrap(), b"body of m-1");
                let own = received.application_properties().unwrap();
                for (name, value) in &properties {
                    assert_eq!(own.0.get(*name), Some(value), "{name}");
                }
                if round == 0 {
                    let options = DeadLetterOptions::default();
                    receiver.dead_letter_message(&received, options).await.unwrap();
                }
            }
            client.dispose().await.unwrap();
        },
    );
}

/// A message leaves one place before it is in the next, or stays in both.
#[test]
fn e_06_a_message_is_always_in_exactly_one_queue() {
    with_manual_clock(async |emulator, clock| {
        let faults = [Fault::lose_settlement(), Fault::drop_connection_at_settlement()];
        for (number, fault) in (1..).zip(faults) {
            let id = format!("m-{number}");
            let fault = emulator.faults().add(fault.message(&id).times(1));
            let mut client = connect(emulator).await;
            send_once(&mut client, message(&id)).await;
            let mut first = receiver(&mut client).await;
            let held = next(&mut first).await;
            let _lost = first.dead_letter_message(&held, DeadLetterOptions::default()).await;
            event(emulator, |_| fault.fired() == 1).await;
            assert_eq!(counts(emulator), (0, 1, number - 1), "it is still held");
            clock.advance(LOCK);
            assert_eq!(counts(emulator), (1, 0, number - 1));

            let mut client = connect(emulator).await;
            let mut second = receiver(&mut client).await;
            let held = next(&mut second).await;
            second.dead_letter_message(&held, DeadLetterOptions::default()).await.unwrap();
            event_of(emulator, &id, EventKind::DeadLettered { reason: None }).await;
            assert_eq!(counts(emulator), (0, 0, number));
        }
    });
}
