//! What is sent arrives as it was sent, and what cannot be sent is told.

use std::time::Duration;

use crate::MessageId;
use crate::broker::servicebus::ServiceBus;
use crate::broker::{BrokerError, OutgoingMessage, Source};
use idem_emulator::{Emulator, QueueOptions};

use super::support::{receive, send, start, start_with_orders};

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let (_emulator, bus) = start_with_orders().await;
    let sender = bus.sender("Orders").await.unwrap();
    let message = OutgoingMessage {
        subject: Some("OrderPlaced".to_owned()),
        ..OutgoingMessage::json(&[1, 2]).unwrap().with_message_id("order 7")
    };
    sender.send(message).await.unwrap();
    sender.send(OutgoingMessage::default()).await.unwrap();

    let mut receiver = bus.queue("orders").open(2).await.unwrap();
    let delivery = receive(&mut receiver).await.delivery;
    assert_eq!(delivery.body().as_ref(), b"[1,2]");
    assert_eq!(delivery.message_id(), Some("order 7"));
    assert_eq!(delivery.subject(), Some("OrderPlaced"));
    assert_eq!(delivery.content_type(), Some("application/json"));
    assert_eq!(delivery.delivery_count(), 1);
    assert_eq!(delivery.sequence_number(), 1);
    assert!(delivery.enqueued_at().is_some());
    assert_eq!(delivery.source(), bus.queue("orders").id());

    let bare = receive(&mut receiver).await.delivery;
    assert_eq!(bare.message_id(), None);
    assert_eq!(bare.sequence_number(), 2);
}

/// A message that is sent again has the id that it had, and the broker drops it.
#[tokio::test]
async fn an_id_of_the_message_itself_is_what_duplicate_detection_goes_by() {
    #[derive(serde::Serialize, MessageId)]
    #[message_id = "{order_no}/payment/{attempt}"]
    #[message_id(crate = crate)]
    struct Payment {
        order_no: &'static str,
        attempt: u32,
    }

    let (emulator, bus) =
        start(QueueOptions::new("orders").duplicate_detection(Duration::from_secs(600))).await;
    let sender = bus.sender("orders").await.unwrap();
    let payments = [("2026/7", 1), ("2026/7", 2), ("2026/7", 1), ("2026", 7)]
        .map(|(order_no, attempt)| Payment { order_no, attempt });
    for payment in &payments {
        let message = OutgoingMessage::json(payment).unwrap().with_message_id_of(payment).unwrap();
        sender.send(message).await.unwrap();
    }
    let mut receiver = bus.queue("orders").open(3).await.unwrap();
    for expected in ["2026%2F7/payment/1", "2026%2F7/payment/2", "2026/payment/7"] {
        assert_eq!(receive(&mut receiver).await.delivery.message_id(), Some(expected));
    }
    assert_eq!(emulator.events().totals().duplicate_dropped, 1);
}

#[tokio::test]
async fn many_messages_go_in_batches_that_the_broker_takes() {
    let (emulator, bus) = start_with_orders().await;
    let sender = bus.sender("orders").await.unwrap();
    let large =
        |size| OutgoingMessage { body: vec![b' '; size].into(), ..OutgoingMessage::default() };
    let mut messages = vec![OutgoingMessage::default(); 5_000];
    messages.extend((0..10).map(|n| large(n * 20_000)));
    sender.send_all(messages).await.unwrap();
    sender.send_all(Vec::new()).await.unwrap();
    assert_eq!(emulator.counts("orders").unwrap().active, 5_010);
}

#[tokio::test]
async fn depth_counts_up_to_a_bound_also_what_is_locked() {
    let (_emulator, bus) = start_with_orders().await;
    let queue = bus.queue("orders");
    assert_eq!(queue.depth(10).await.unwrap(), 0);
    send(&bus, 250).await;
    let mut receiver = queue.open(3).await.unwrap();
    receive(&mut receiver).await;
    assert_eq!(queue.depth(1_000).await.unwrap(), 250);
    assert_eq!(queue.depth(250).await.unwrap(), 250);
    assert_eq!(queue.depth(101).await.unwrap(), 101);
    assert_eq!(queue.depth(0).await.unwrap(), 0);
    assert_eq!(queue.dead_letters().depth(10).await.unwrap(), 0);
}

#[tokio::test]
async fn a_refused_message_is_an_error_and_the_sender_stays_good() {
    let (emulator, bus) = start_with_orders().await;
    let sender = bus.sender("orders").await.unwrap();
    let too_large =
        OutgoingMessage { body: vec![b' '; 300 * 1024].into(), ..OutgoingMessage::default() };
    let error = sender.send(too_large).await.unwrap_err();
    assert!(matches!(error, BrokerError::Operation { operation: "send", .. }), "{error:?}");
    let no_id = OutgoingMessage::default().with_message_id("");
    let error = sender.send(no_id).await.unwrap_err();
    assert!(matches!(error, BrokerError::Operation { operation: "send", .. }), "{error:?}");
    sender.send(OutgoingMessage::default()).await.unwrap();
    assert_eq!(emulator.counts("orders").unwrap().active, 1);
}

#[tokio::test]
async fn a_full_queue_refuses_one_message_and_many() {
    let (emulator, bus) = start(QueueOptions::new("orders").size_max(2_000)).await;
    let sender = bus.sender("orders").await.unwrap();
    let message =
        || OutgoingMessage { body: vec![b' '; 1_000].into(), ..OutgoingMessage::default() };
    sender.send(message()).await.unwrap();
    for messages in [vec![message()], vec![message(), message()]] {
        let error = sender.send_all(messages).await.unwrap_err();
        assert!(matches!(error, BrokerError::Operation { operation: "send", .. }), "{error:?}");
    }
    assert_eq!(emulator.events().totals().send_rejected, 2);
    assert_eq!(emulator.counts("orders").unwrap().active, 1);
    emulator.purge("orders").unwrap();
    sender.send(message()).await.unwrap();
}

#[tokio::test]
async fn a_sender_connects_again_after_the_broker_was_away() {
    let (emulator, bus) = start_with_orders().await;
    let sender = bus.sender("orders").await.unwrap();
    let port = emulator.port();
    emulator.shutdown().await;
    let error = sender.send(OutgoingMessage::default()).await.unwrap_err();
    assert!(matches!(error, BrokerError::Unreachable { .. }), "{error:?}");

    let builder = Emulator::builder().queue(QueueOptions::new("orders")).port(port);
    let emulator = builder.start().await.unwrap();
    sender.send(OutgoingMessage::default()).await.unwrap();
    assert_eq!(emulator.counts("orders").unwrap().active, 1);
}

#[tokio::test]
async fn what_cannot_be_opened_is_told_for_each_way_of_opening() {
    let (emulator, bus) = start_with_orders().await;
    let queue = bus.queue("bills");
    let errors = [
        queue.open(1).await.map(drop).unwrap_err(),
        queue.depth(1).await.map(drop).unwrap_err(),
        bus.sender("bills").await.map(drop).unwrap_err(),
    ];
    for error in errors {
        let expected = format!("there is no entity `bills` at `localhost:{}`", emulator.port());
        assert!(error.to_string().starts_with(&expected), "{error:?}");
    }

    let text = format!("{};EntityPath=orders", emulator.connection_string());
    let bus = ServiceBus::connect(&text).unwrap();
    assert_eq!(bus.queue("orders").dead_letters().depth(1).await.unwrap(), 0);
    let error = bus.sender("bills").await.map(drop).unwrap_err();
    assert!(matches!(error, BrokerError::ConnectionString(_)), "{error:?}");
}
