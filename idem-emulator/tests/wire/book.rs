//! The code that the book's chapter about the emulator quotes.

use std::time::Duration;

use idem_emulator::{
    Clock, Emulator, EventKind, Fault, QueueOptions, SubscriptionOptions, TopicOptions,
};

use crate::support::*;

#[tokio::test]
async fn a_lost_settlement_brings_the_message_again() {
    // ANCHOR: in_process
    let clock = Clock::manual();
    let emulator = Emulator::builder()
        .queue(QueueOptions::new("orders").lock_duration(Duration::from_secs(30)))
        .clock(clock.clone())
        .start()
        .await
        .unwrap();
    let lost = emulator.faults().add(Fault::lose_settlement().on("orders").times(1));

    // Any client of Service Bus: it connects to `emulator.connection_string()`.
    let mut client = connect(&emulator).await;
    send_once(&mut client, message("m-1")).await;
    let mut receiver = receiver(&mut client).await;
    let first = next(&mut receiver).await;
    receiver.complete_message(&first).await.unwrap();

    // The completion is lost on its way. Once it is, the lock may end.
    let is_fault = |kind: &EventKind| matches!(kind, EventKind::FaultFired { .. });
    emulator.events().wait_for(|event| is_fault(&event.kind)).await;
    clock.advance(Duration::from_secs(30));

    let again = next(&mut receiver).await;
    assert_eq!(again.message_id(), first.message_id());
    assert_eq!(lost.fired(), 1);
    // ANCHOR_END: in_process
    client.dispose().await.unwrap();
    emulator.shutdown().await;
}

#[tokio::test]
async fn entities_come_and_go() {
    // ANCHOR: entities
    let emulator = Emulator::builder().start().await.unwrap();
    emulator.create_queue(QueueOptions::new("audit")).unwrap();
    emulator.create_topic(TopicOptions::new("orders")).unwrap();
    emulator
        .create_subscription("orders", SubscriptionOptions::new("all").forward_to("audit"))
        .unwrap();
    let paths: Vec<_> = emulator.entities().into_iter().map(|entity| entity.path).collect();
    assert_eq!(paths, ["audit", "orders", "orders/Subscriptions/all"]);
    emulator.delete("orders").unwrap();
    // ANCHOR_END: entities
    assert_eq!(emulator.entities().len(), 1);
}

/// The chapter's own examples of what one writes outside of Rust.
#[cfg(feature = "config")]
#[test]
fn the_chapters_configuration_is_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../book/src/the-emulator.md");
    let chapter = std::fs::read_to_string(path).unwrap();
    let (_, after) = chapter.split_once("```json\n").expect("a configuration");
    let (config, _) = after.split_once("```").expect("its end");
    assert!(config.contains("PT30S"));
    let builder = Emulator::builder().config(config).unwrap();
    assert!(format!("{builder:?}").contains("news"));
    let error = Emulator::builder().config(&config.replace("PT30S", "PT10M")).unwrap_err();
    let (_, after) = chapter.split_once("```text\n").expect("an error");
    let (text, _) = after.split_once("\n```").expect("its end");
    assert_eq!(error.to_string(), text.replace('\n', " "));
}
