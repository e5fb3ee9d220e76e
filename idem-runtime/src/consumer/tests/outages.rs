//! Busy keys, and a database or a broker that is away.

use super::*;

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_handled_than_may_be_in_flight() {
    let script = (1..=20).map(|lock| locked(lock, 1, 1, "ok")).collect();
    let mut bench = Bench::new(vec![script]);
    bench.run_until_told(bench.builder().in_flight_max(3), 20).await;
    assert_eq!(bench.running.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_and_a_database_that_is_away_are_waited_for() {
    let mut bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Unavailable; 50]);
    bench.store.claims.lock().unwrap().extend([Claimed::Busy, Claimed::Busy, Claimed::Busy]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert_eq!((summary.done, summary.retries, summary.busy), (1, 0, 0));
    assert!(!bench.broker.renewals().is_empty(), "the lock is renewed meanwhile");
    assert!(bench.store.begins.lock().unwrap().is_empty(), "every fault was met");
    assert!(bench.store.claims.lock().unwrap().is_empty(), "every busy answer was met");
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_before_the_handler_runs_costs_nothing() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok"), locked(2, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Contention; 5]);
    let summary = bench.run_until_told(bench.builder().in_flight_max(1), 2).await;
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "complete".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!((summary.retries, summary.done), (0, 2));
    assert!(bench.store.begins.lock().unwrap().is_empty(), "every fault was met");
}

#[tokio::test(start_paused = true)]
async fn a_broken_receiver_is_closed_and_opened_again() {
    let broken = || Err(BrokerError::Closed);
    let script =
        vec![vec![locked(1, 1, 1, "ok"), broken()], vec![broken()], vec![locked(2, 1, 0, "ok")]];
    let mut bench = Bench::new(script);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    assert_eq!((summary.done, summary.reconnects), (2, 2));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 3);
}

/// An outage that lasts longer than `renewal_max` dead-letters every message on its last delivery.
#[tokio::test(start_paused = true)]
async fn an_outage_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 100_000]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// Contention in `BEGIN` or in the claim is nothing that the message can help.
#[tokio::test(start_paused = true)]
async fn contention_at_begin_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Contention; 3]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// Neither is a ledger that refuses us: a revoked privilege, a table in another schema.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_refuses_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Refused]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// Opening succeeds and receiving fails at once: each round starts again with the first pause.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_breaks_at_once_is_reopened_with_growing_pauses() {
    let script = (0..100_000).map(|_| vec![Err(BrokerError::Closed)]).collect();
    let bench = Bench::new(script);
    let consumer = bench.builder().build().unwrap();
    let counters = consumer.counters();
    consumer.run_until(sleep(Duration::from_secs(300))).await.unwrap();
    let reconnects = counters.summary().reconnects;
    assert!(reconnects < 60, "{reconnects} connections in five minutes");
}
