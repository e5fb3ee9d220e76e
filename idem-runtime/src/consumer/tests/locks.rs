//! Locks, and what happens when they are lost.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_at_half_time_while_the_handler_runs_and_never_after() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 23, "ok"), locked(2, 1, 60, "ok")]]);
    bench.run_until_told(bench.builder(), 2).await;
    let renewals = bench.broker.renewals.lock().unwrap().clone();
    let of =
        |lock| renewals.iter().filter(move |(_, l)| *l == LockId(lock)).map(|(at, _)| at.as_secs());
    assert_eq!(of(1).collect::<Vec<_>>(), [5, 10, 15, 20]);
    assert_eq!(of(2).collect::<Vec<_>>(), [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]);
}

#[tokio::test(start_paused = true)]
async fn renewal_ends_at_its_limit_and_the_handler_runs_on() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 60, "ok")]]);
    let builder = bench.builder().renewal_max(Duration::from_secs(18));
    bench.run_until_told(builder, 1).await;
    assert_eq!(bench.broker.renewals().len(), 3);
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_is_stopped_and_fails() {
    let script = vec![locked(1, 1, 8, "ok"), locked(2, 1, 3600, "ok"), locked(3, 10, 3600, "ok")];
    let mut bench = Bench::new(vec![script]);
    let builder = bench.builder().handler_timeout(Duration::from_secs(9));
    let summary = bench.run_until_told(builder, 3).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    let told: Vec<_> = told.iter().map(|(_, what)| what.as_str()).collect();
    let reason = "dead-letter: DeliveriesExhausted: the handler did not end within its time-out of \
                  9s, and was stopped";
    assert_eq!(told, ["complete", "abandon", reason]);
    assert_eq!((summary.done, summary.retries), (1, 2));
    assert!(bench.broker.at() < Duration::from_secs(20), "{:?}", bench.broker.at());
}

/// Only the handler's own time counts.
#[tokio::test(start_paused = true)]
async fn what_is_not_the_handlers_is_never_stopped() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 1, "ok"), locked(2, 1, 1, "ok 2")]]);
    bench.store.slowness = Duration::from_secs(30);
    let builder = bench.builder().handler_timeout(Duration::from_secs(2)).batch_max(2);
    let summary = bench.run_until_told(builder, 2).await;
    assert_eq!(summary.done, 2);
    assert!(bench.broker.first_told_after() >= Duration::from_secs(90), "begin, claim and commit");
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 1, "the batch was not taken apart");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_counted_and_does_not_cancel_the_handler() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 60, "ok")]]);
    let unreachable =
        BrokerError::Unreachable { namespace: "bus".to_owned(), source: "cut".into() };
    bench.broker.renewal_errors.lock().unwrap().extend([unreachable, BrokerError::LockLost]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.renewals().len(), 2, "tried again after the first error only");
    assert_eq!((summary.locks_lost, summary.done), (1, 1));
}

/// `Instant::now() + Duration::MAX` panics in the task of every delivery.
#[tokio::test(start_paused = true)]
async fn the_longest_renewal_is_no_panic() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    let builder = bench.builder().renewal_max(Duration::MAX);
    assert_eq!(told_in_time(&bench, builder, 1).await, ["complete"]);
}

/// C-20: trying again goes on for minutes after the lock was lost, beside the redelivered copy.
#[tokio::test(start_paused = true)]
async fn trying_again_stops_when_the_lock_is_lost() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 100_000]);
    bench.broker.renewal_errors.lock().unwrap().push_back(BrokerError::LockLost);
    told_in_time(&bench, bench.builder(), 1).await;
    let after = bench.broker.told.lock().unwrap()[0].0;
    assert!(after < 3 * LOCK, "given up {after:?} after a lock of {LOCK:?} was lost");
}

/// A renewal that cannot succeed any more is asked for twenty times a second.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_keeps_failing_ends_with_the_lock() {
    let bench = Bench::new(vec![vec![locked(1, 1, 120, "ok")]]);
    let unreachable =
        || BrokerError::Unreachable { namespace: "bus".to_owned(), source: "cut".into() };
    bench.broker.renewal_errors.lock().unwrap().extend((0..100_000).map(|_| unreachable()));
    told_in_time(&bench, bench.builder(), 1).await;
    let renewals = bench.broker.renewals();
    let late = renewals.iter().filter(|at| **at > 2 * LOCK).count();
    assert_eq!(late, 0, "{} renewals, {late} of them long after the lock ran out", renewals.len());
}
