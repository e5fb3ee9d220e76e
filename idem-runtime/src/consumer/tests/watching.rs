//! What is told to those who watch: metrics, spans and events.

use std::collections::{BTreeMap, BTreeSet};

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing::Level;

use super::*;
use crate::delivery::Property;
use crate::telemetry::recording::{Recorded, Recording};

/// A run in which everything happens that is counted, and how often a renewal was asked for.
async fn eventful_run() -> (Summary, usize) {
    let mut script: Vec<_> =
        (1..=2).map(|lock| locked(lock, 1, 0, &format!("ok {lock}"))).collect();
    for locked in script.iter_mut().flatten() {
        let later = OffsetDateTime::new_utc(time::Date::MAX, time::Time::MIDNIGHT);
        locked.delivery = locked.delivery.clone().with_enqueued_at(later);
    }
    script.push(locked(3, 1, 25, "ok"));
    script.push(locked(4, 2, 25, "ok"));
    script.push(locked(5, 2, 0, "fail"));
    script.push(locked(6, 2, 0, "reject"));
    script.push(Err(BrokerError::Closed));
    let bench = Bench::new(vec![script, vec![]]);
    bench.store.prunable.lock().unwrap().extend([Ok(3), Err(Fault::Unavailable), Ok(0)]);
    bench.store.begins.lock().unwrap().extend([Fault::Unavailable; 20]);
    bench.broker.renewal_errors.lock().unwrap().push_back(BrokerError::LockLost);
    bench.broker.settle_errors.lock().unwrap().push_back(BrokerError::LockLost);
    let horizon = Horizon { dead_letter_age_max: DAY, resend_window: DAY };
    let consumer = bench.builder().horizon(horizon).batch_max(2).build().expect("valid");
    let counters = consumer.counters();
    consumer.run_until(sleep(Duration::from_secs(3600))).await.expect("it runs");

    let summary = counters.summary();
    assert_eq!((summary.deliveries, summary.done), (6, 4), "{summary:?}");
    assert_eq!((summary.retries, summary.rejected), (1, 1), "{summary:?}");
    assert!(summary.held > 0, "{summary:?}");
    let faults = (summary.locks_lost, summary.settlements_failed, summary.reconnects);
    assert_eq!(faults, (1, 1, 1), "{summary:?}");
    assert!(bench.store.prunable.lock().unwrap().is_empty(), "every pruning happened");
    (summary, bench.broker.renewals().len())
}

/// The list in the book: the kind and the labels of each metric by its name.
fn list_in_the_book() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let chapter = include_str!("../../../../book/src/watching.md");
    let (_, list) = chapter.split_once("## Metrics").expect("a list");
    let (list, _) = list.split_once("## ").expect("the next section");
    let rows = list.lines().filter(|line| line.starts_with("| `idem_"));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let labels = cells[3].split('`').skip(1).step_by(2).map(str::to_owned);
            (cells[1].trim_matches('`').to_owned(), (cells[2].to_owned(), labels.collect()))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn the_book_lists_every_metric_and_no_other() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    {
        let _local = metrics::set_default_local_recorder(&recorder);
        eventful_run().await;
    }
    let mut found = BTreeMap::new();
    for (key, unit, description, _) in snapshotter.snapshot().into_vec() {
        let (kind, key) = key.into_parts();
        assert!(unit.is_some() && description.is_some(), "{key} is described");
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = key.labels().map(|label| label.key().to_owned()).collect::<BTreeSet<_>>();
        let earlier = found.insert(key.name().to_owned(), (kind.to_owned(), labels.clone()));
        assert!(earlier.is_none_or(|earlier| earlier.1 == labels), "{key} always has these labels");
    }
    assert!(found.len() > 10, "the run recorded {found:?}");
    assert_eq!(found, list_in_the_book());
}

#[tokio::test(start_paused = true)]
async fn metrics_say_what_happened() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let (summary, renewals) = {
        let _local = metrics::set_default_local_recorder(&recorder);
        eventful_run().await
    };
    let snapshot = snapshotter.snapshot().into_vec();
    let value = |name: &str, labels: &[(&str, &str)]| {
        let mut found = snapshot.iter().filter(|(key, ..)| {
            let has = |(label, value): &(&str, &str)| {
                key.key().labels().any(|found| found.key() == *label && found.value() == *value)
            };
            key.key().name() == name && labels.iter().all(has)
        });
        let (.., value) = found.next().unwrap_or_else(|| panic!("no {name} with {labels:?}"));
        match value {
            DebugValue::Counter(count) => *count as f64,
            DebugValue::Gauge(value) => value.0,
            DebugValue::Histogram(values) => values.iter().map(|value| value.0).sum(),
        }
    };
    let scope = ("scope", "test::obey");
    let source = ("source", "bus.example.net/orders");
    assert_eq!(value("idem_deliveries_total", &[source, scope, ("outcome", "done")]), 4.0);
    assert_eq!(value("idem_failures_total", &[source, scope, ("cause", "handler_failed")]), 1.0);
    let took = value("idem_processing_seconds", &[source, scope, ("outcome", "done")]);
    assert!((50.0..60.0).contains(&took), "two of 25 seconds and two of none: {took}");
    assert_eq!(value("idem_batch_messages", &[scope]), 3.0);
    assert_eq!(value("idem_in_flight_messages", &[source]), 0.0);
    let held = value("idem_held_total", &[source, scope, ("cause", "not_started")]);
    assert_eq!(held, summary.held as f64);
    assert_eq!(value("idem_settlements_total", &[source, ("settlement", "complete")]), 4.0);
    assert_eq!(value("idem_settlements_total", &[source, ("settlement", "dead_letter")]), 1.0);
    assert_eq!(value("idem_settlements_failed_total", &[source]), 1.0);
    let renewed = value("idem_lock_renewals_total", &[source]);
    assert_eq!(renewed, (renewals - 1) as f64, "one was refused");
    assert_eq!(value("idem_claims_pruned_total", &[scope]), 3.0);
    assert_eq!(value("idem_oldest_claim_age_seconds", &[scope]), 7.0);
    assert_eq!(value("idem_enqueued_to_done_seconds", &[source, scope]), 0.0, "sent in our future");
}

async fn recorded(bench: &mut Bench, count: usize) -> Recorded {
    let recording = Recording::start();
    bench.run_until_told(bench.builder(), count).await;
    recording.recorded()
}

/// R-24.
#[tokio::test(start_paused = true)]
async fn a_thousand_duplicates_raise_no_alarm() {
    let script = (1..=1000).map(|lock| locked(lock, 1, 0, "ok")).collect();
    let mut bench = Bench::new(vec![script]);
    let before = (1..=1000).map(|_| Claimed::Before(earlier()));
    bench.store.claims.lock().unwrap().extend(before);
    let recorded = recorded(&mut bench, 1000).await;
    let alarms: Vec<_> = recorded.events.iter().filter(|e| e.level <= Level::WARN).collect();
    assert!(alarms.is_empty(), "{alarms:?}");
    let ignored = recorded.events.iter().filter(|event| {
        event.level == Level::INFO
            && event.field("message") == "duplicate ignored, already processed"
            && event.field("first_claimed_at").starts_with("1970-01-01")
    });
    assert_eq!(ignored.count(), 1000);
    assert!(recorded.spans.iter().all(|span| span.get("otel.status_code").is_none()));
}

#[tokio::test(start_paused = true)]
async fn each_delivery_has_one_span_and_one_event_of_its_outcome() {
    let script = vec![
        locked(1, 1, 1, "ok"),
        locked(2, 3, 1, "fail"),
        locked(3, 1, 1, "reject"),
        locked(4, 1, 1, "panic"),
    ];
    let mut bench = Bench::new(vec![script]);
    let recorded = recorded(&mut bench, 4).await;
    assert_eq!(recorded.spans.len(), 4);
    let expected = [
        ("m-1", "done", Level::DEBUG, None),
        ("m-2", "retry", Level::WARN, Some("handler_failed")),
        ("m-3", "reject", Level::ERROR, Some("UnknownCurrency")),
        ("m-4", "retry", Level::ERROR, Some("handler_panicked")),
    ];
    for (message_id, outcome, level, error) in expected {
        let mut events = recorded.events.iter().filter(|event| {
            event.target == "idem_runtime::outcome" && event.field("message_id") == message_id
        });
        let event = events.next().expect("an event");
        assert_eq!((event.field("outcome"), event.level), (outcome, level));
        assert_eq!(event.field("scope"), "test::obey");
        assert!(events.next().is_none(), "one for each delivery");
        let is_its = |span: &&BTreeMap<String, String>| span["messaging.message.id"] == message_id;
        let span = recorded.spans.iter().find(is_its).expect("a span");
        assert_eq!(span["idem.outcome"], outcome);
        assert_eq!(span["idem.scope"], "test::obey");
        assert_eq!(span["idem.level"], "2");
        assert_eq!(span["messaging.system"], "servicebus");
        assert_eq!(span["messaging.destination.name"], "orders");
        assert_eq!(span["messaging.operation.type"], "process");
        assert_eq!(span["otel.kind"], "consumer");
        assert_eq!(span.get("error.type").map(String::as_str), error);
    }
}

/// Whatever a message holds, and whoever the handler works for.
#[tokio::test(start_paused = true)]
async fn nothing_that_is_told_holds_a_body_or_a_key() {
    let secret = |body: &str| {
        let mut locked = locked(1, 1, 0, "ok").unwrap();
        locked.delivery = Delivery::new(locked.delivery.source().clone(), body.to_owned())
            .with_message_id("m-1")
            .with_property("owner", Property::Text("secret owner".to_owned()))
            .with_property("traceparent", Property::Text("secret trace".to_owned()))
            .with_property("Diagnostic-Id", Property::Text("secret id".to_owned()));
        Ok(locked)
    };
    let script = vec![
        secret(r#"{"seconds":0,"then":"secret key"}"#),
        secret(r#"{"seconds":"secret number","then":"x"}"#),
        secret("secret text"),
    ];
    let mut bench = Bench::new(vec![script]);
    let recorded = recorded(&mut bench, 3).await;
    assert_eq!(recorded.spans.len(), 3);
    let told = format!("{recorded:?}");
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_has_a_span_that_follows_from_its_deliveries() {
    let script = (1..=4).map(|lock| locked(lock, 1, 0, &format!("ok {lock}"))).collect();
    let mut bench = Bench::new(vec![script]);
    let recording = Recording::start();
    bench.run_until_told(bench.builder().batch_max(4), 4).await;
    let recorded = recording.recorded();
    let batch = recorded.spans.iter().find(|span| span["span"] == "process_batch");
    let batch = batch.expect("a batch");
    assert_eq!(batch["messaging.batch.message_count"], "4");
    assert_eq!(batch["follows_from"], "4");
}

fn traced(lock: u64, name: &str, value: &str) -> Result<Locked, BrokerError> {
    let mut locked = locked(lock, 1, 0, &format!("ok {lock}")).unwrap();
    locked.delivery = locked.delivery.with_property(name, Property::Text(value.to_owned()));
    Ok(locked)
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENDER: &str = "00f067aa0ba902b7";

fn traced_script() -> Vec<Result<Locked, BrokerError>> {
    vec![
        traced(1, "traceparent", &format!("00-{TRACE}-{SENDER}-01")),
        traced(2, "Diagnostic-Id", &format!("|{TRACE}.{SENDER}.")),
        traced(3, "Diagnostic-Id", "|of-old.1_"),
        traced(4, "traceparent", "nonsense"),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_span_names_the_trace_of_its_sender() {
    let mut bench = Bench::new(vec![traced_script()]);
    let recorded = recorded(&mut bench, 4).await;
    let traced = |span: &BTreeMap<String, String>| {
        let field = |name: &str| span.get(name).cloned().unwrap_or_default();
        (
            field("messaging.message.id"),
            field("trace_id"),
            field("parent_id"),
            field("diagnostic_id"),
        )
    };
    let mut found: Vec<_> = recorded.spans.iter().map(traced).collect();
    found.sort();
    let expected = [
        ("m-1", TRACE, SENDER, ""),
        ("m-2", TRACE, SENDER, ""),
        ("m-3", "", "", "|of-old.1_"),
        ("m-4", "", "", ""),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.into(), b.into(), c.into(), d.into()));
    assert_eq!(found, expected);
}

/// By what OpenTelemetry exports, rather than by what our fields say.
#[cfg(feature = "opentelemetry")]
#[tokio::test(start_paused = true)]
async fn a_span_is_part_of_the_trace_of_its_sender() {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing_subscriber::layer::SubscriberExt;

    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    let mut bench = Bench::new(vec![traced_script()]);
    {
        let _default = tracing::subscriber::set_default(subscriber);
        bench.run_until_told(bench.builder(), 4).await;
    }
    let mut found: Vec<_> = exporter
        .get_finished_spans()
        .expect("spans")
        .into_iter()
        .map(|span| {
            assert_eq!(
                (span.name.as_ref(), span.span_kind),
                ("process orders", opentelemetry::trace::SpanKind::Consumer)
            );
            let id = span.attributes.iter().find(|a| a.key.as_str() == "messaging.message.id");
            let id = id.expect("an id").value.to_string();
            let is_of_sender = span.span_context.trace_id().to_string() == TRACE;
            (id, is_of_sender, span.parent_span_id.to_string(), span.parent_span_is_remote)
        })
        .collect();
    found.sort();
    let none = "0000000000000000";
    let expected = [
        ("m-1", true, SENDER, true),
        ("m-2", true, SENDER, true),
        ("m-3", false, none, false),
        ("m-4", false, none, false),
    ];
    let expected = expected
        .map(|(id, of_sender, parent, remote)| (id.into(), of_sender, parent.into(), remote));
    assert_eq!(found, expected);
}
