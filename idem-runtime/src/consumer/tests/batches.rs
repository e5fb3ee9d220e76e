//! Deliveries that share a transaction.

use super::*;

/// Eight messages that are ready at once, of which the fourth fails.
#[tokio::test(start_paused = true)]
async fn messages_that_are_ready_share_a_transaction_and_a_bad_one_does_not_spoil_them() {
    let ok = |lock: u64| locked(lock, 1, 0, &format!("ok {lock}"));
    let one = |lock| if lock == 4 { locked(lock, 1, 0, "fail") } else { ok(lock) };
    let messages = (1..=8).map(one).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(8), 8).await;
    assert_eq!((summary.done, summary.retries), (7, 1));
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 1 + 8, "together, and then one by one");

    let messages = (1..=8).map(ok).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(4), 8).await;
    assert_eq!(summary.done, 8);
    assert_eq!(bench.store.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_counted_before_is_handled_alone() {
    let messages = (1..=4).map(|lock| locked(lock, 2, 0, &format!("ok {lock}"))).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(8), 4).await;
    assert_eq!((summary.done, bench.store.begun.load(Ordering::SeqCst)), (4, 4));
}

/// A batch takes 15 s: five each to begin, to claim and to commit.
#[tokio::test(start_paused = true)]
async fn a_full_batch_does_not_wait_for_the_one_before_and_another_does() {
    let seconds_of = async |messages: u64| {
        let script = (1..=messages).map(|lock| locked(lock, 1, 0, &format!("ok {lock}")));
        let mut bench = Bench::new(vec![script.collect()]);
        bench.store.slowness = Duration::from_secs(5);
        let told = usize::try_from(messages).expect("few");
        let summary = bench.run_until_told(bench.builder().batch_max(4), told).await;
        assert_eq!(summary.done, messages);
        (bench.store.begun.load(Ordering::SeqCst), bench.broker.at().as_secs())
    };
    assert_eq!(seconds_of(8).await, (2, 15), "side by side");
    assert_eq!(seconds_of(6).await, (2, 30), "one after the other");
}
