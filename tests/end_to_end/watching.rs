//! What Prometheus reads of a consumer.

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
