//! Queues, topics and subscriptions that come and go while clients are connected.

use idem_emulator::{
    Emulator, EntityKind, EventKind, QueueOptions, SubscriptionOptions, TopicOptions,
};

use crate::support::*;

#[test]
fn a_queue_can_be_used_as_soon_as_it_is_created() {
    run(Emulator::builder(), async |emulator| {
        let mut client = connect(emulator).await;
        emulator.create_queue(QueueOptions::new("orders")).unwrap();
        send_once(&mut client, message("m-1")).await;
        let mut receiver = receiver(&mut client).await;
        let received = next(&mut receiver).await;
        receiver.complete_message(&received).await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        client.dispose().await.unwrap();
    });
}

#[test]
fn deleting_a_queue_ends_the_wait_for_its_messages() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect_without_retries(emulator).await;
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            let held = next(&mut receiver).await;
            assert_eq!((id(&held), counts(emulator)), ("m-1".to_owned(), (0, 1, 0)));

            let waiting = receiver.receive_message_with_max_wait_time(PATIENCE);
            let (waiting, ()) = tokio::join!(waiting, async {
                emulator.delete("orders").unwrap();
            });
            let error = format!("{:?}", waiting.unwrap_err());
            assert!(error.contains("NotFound"), "{error}");

            assert!(emulator.counts("orders").is_err());
            assert!(emulator.delete("orders").is_err());
            emulator.create_queue(QueueOptions::new("orders")).unwrap();
            assert_eq!(counts(emulator), (0, 0, 0));
        },
    );
}

#[test]
fn a_subscription_gets_what_is_sent_after_it_was_created() {
    run(Emulator::builder(), async |emulator| {
        emulator.create_topic(TopicOptions::new("orders")).unwrap();
        let mut client = connect(emulator).await;
        send_once(&mut client, message("before")).await;
        emulator.create_subscription("orders", SubscriptionOptions::new("all")).unwrap();
        send_once(&mut client, message("after")).await;
        let path = "orders/Subscriptions/all";
        let ids: Vec<_> =
            emulator.peek(path).unwrap().into_iter().map(|it| it.message_id).collect();
        assert_eq!(ids, [Some("after".to_owned())]);

        let known: Vec<_> = emulator
            .entities()
            .into_iter()
            .map(|it| (it.path, it.kind, it.counts.active))
            .collect();
        let expected = [
            ("orders".to_owned(), EntityKind::Topic, 0),
            (path.to_owned(), EntityKind::Subscription, 1),
        ];
        assert_eq!(known, expected);
        client.dispose().await.unwrap();
    });
}
