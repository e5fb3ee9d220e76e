//! What a consumer tells, by what Prometheus reads and by what is logged.

use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage, ServiceBusSenderOptions,
};
use azservicebus_amqp_types::messaging::ApplicationProperties;
use idem_emulator::QueueOptions;
use idem_runtime::store::Sqlite;
use idem_runtime::{Consumer, Failure, Tx, idempotent};
use idem_tests::log::Log;
use idem_tests::until;
use serde::Deserialize;

use crate::bench::Bench;
use crate::prometheus::{has, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_reads_what_a_consumer_did() {
    let scrape = run().await.expect("the example runs");
    let (source, scope) = (r#"source="localhost/watched""#, r#"scope="orders.place""#);
    let expected = [
        ("idem_deliveries_total{", vec![source, scope, r#"outcome="done""#], "50"),
        ("idem_deliveries_total{", vec![source, scope, r#"outcome="duplicate""#], "10"),
        ("idem_processing_seconds_count{", vec![source, scope, r#"outcome="done""#], "50"),
        ("idem_processing_seconds_bucket{", vec![source, r#"outcome="done""#, r#"le="600""#], "50"),
        ("idem_enqueued_to_done_seconds_count{", vec![source, scope], "50"),
        ("idem_settlements_total{", vec![source, r#"settlement="complete""#], "60"),
        ("idem_in_flight_messages{", vec![source], "0"),
        ("# TYPE idem_deliveries_total", vec![], "counter"),
        ("# HELP idem_deliveries_total", vec!["Deliveries that came to an"], "outcome."),
    ];
    for (metric, labels, value) in expected {
        assert!(has(&scrape, metric, &labels, value), "{metric} {labels:?} {value}:\n{scrape}");
    }
}

#[derive(Deserialize)]
struct Entry {
    account: i64,
}

#[idempotent(key = "account")]
async fn append(tx: &mut Tx<Sqlite>, entry: Entry) -> Result<(), Failure> {
    sqlx::query("INSERT INTO entries VALUES ($1)").bind(entry.account).execute(&mut **tx).await?;
    Ok(())
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A message of another sender, under a property as it names its trace.
fn traced(account: i64, property: &str, value: &str) -> ServiceBusMessage {
    let body = format!(r#"{{"account": {account}}}"#);
    let mut message = ServiceBusMessage::new(body.into_bytes());
    let properties = ApplicationProperties::builder().insert(property, value).build();
    *message.application_properties_mut() = Some(properties);
    message
}

/// On one thread, which is the one that is heard; the sender's client hangs now and then on several.
#[tokio::test]
async fn a_delivery_is_logged_with_the_trace_of_its_sender() {
    let bench = Bench::with(QueueOptions::new("entries")).await;
    let mut client = ServiceBusClient::unsecured()
        .new_from_named_key_credential(
            format!("localhost:{}", bench.emulator.port()),
            AzureNamedKeyCredential::new("RootManageSharedAccessKey", "not checked"),
            ServiceBusClientOptions::default(),
        )
        .await
        .expect("connected");
    let options = ServiceBusSenderOptions::default();
    let mut sender = client.create_sender("entries", options).await.expect("a sender");
    let messages = [
        traced(1, "traceparent", &format!("00-{TRACE}-0000000000000001-01")),
        traced(2, "Diagnostic-Id", &format!("00-{TRACE}-0000000000000002-01")),
        traced(3, "Diagnostic-Id", &format!("|{TRACE}.0000000000000003.")),
    ];
    for message in messages {
        sender.send_message(message).await.expect("sent");
    }
    sender.dispose().await.expect("closed");

    let log = Log::listen("idem_runtime=debug");
    let queue = bench.bus.queue("entries");
    let consumer = Consumer::builder(queue.clone(), bench.file.store.clone())
        .handler(AppendHandler)
        .build()
        .expect("a valid consumer");
    let is_empty = async || queue.depth(1).await.expect("peeked") == 0;
    consumer.run_until(until("the queue is empty", is_empty)).await.expect("it starts");

    assert_eq!(bench.entries().await, [1, 2, 3]);
    let text = log.text();
    for sender in 1..=3 {
        let traced = format!(r#"trace_id={TRACE} parent_id=000000000000000{sender}"#);
        let is_told =
            |line: &&str| line.contains("idem_runtime::outcome") && line.contains(&traced);
        assert_eq!(text.lines().filter(is_told).count(), 1, "{traced}: {text}");
    }
}
