//! Copies of a message wait for each other, and hold no other message.

use super::*;
use crate::broker::ASIDE_MAX;

/// The holder of the key is in this process: nobody asks the database, and nobody has a place.
#[tokio::test(start_paused = true)]
async fn copies_of_a_message_that_is_being_handled_wait_without_a_place_or_a_transaction() {
    let mut messages = vec![numbered(1, 1, 1, 600, "ok")];
    messages.extend((2..=40).map(|lock| numbered(lock, 1, 1, 0, "ok")));
    messages.push(locked(41, 1, 0, "ok"));
    let mut bench = Bench::new(vec![messages]);
    let broker = Arc::clone(&bench.broker);
    let begun = Arc::clone(&bench.store.begun);
    let builder = bench.builder().in_flight_max(2);
    let other_is_done = async {
        broker.until_told(1).await;
        (broker.at(), broker.told(), begun.load(Ordering::SeqCst))
    };
    let (summary, (at, told, begun_by_then)) =
        tokio::join!(bench.run_until_told(builder, 41), other_is_done);

    assert_eq!(told, [(LockId(41), "complete".to_owned())]);
    assert!(at < Duration::from_millis(20), "{at:?}");
    assert_eq!(begun_by_then, 2, "of the first copy and of the other message");
    assert_eq!((summary.done, summary.busy), (41, 0), "this database calls nothing a duplicate");
    assert_eq!(bench.store.begun.load(Ordering::SeqCst), 41, "none was tried in vain");
    let aside = bench.broker.aside.lock().unwrap().clone();
    assert_eq!(aside, (2..=40).map(LockId).collect::<Vec<_>>());
    // All are renewed meanwhile, every five seconds.
    assert!(bench.broker.renewals().len() > 40 * 100, "{}", bench.broker.renewals().len());
    let most = bench.running.most.load(Ordering::SeqCst);
    assert!(most <= 2, "{most} at once");
}

/// Beyond what may be set aside, nothing is received: a place is kept.
#[tokio::test(start_paused = true)]
async fn no_more_copies_are_held_than_may_be_set_aside_and_in_flight() {
    let count = u64::try_from(ASIDE_MAX).unwrap() + 100;
    let copies = (1..=count).map(|lock| numbered(lock, 1, 1, 3600, "ok")).collect();
    let bench = Bench::new(vec![copies]);
    let consumer = bench.builder().in_flight_max(4).build().expect("a valid consumer");
    let counters = consumer.counters();
    consumer.run_until(sleep(Duration::from_secs(60))).await.expect("it starts");
    let held = counters.summary().deliveries;
    // The last one was received when there was still a place.
    let most = u64::try_from(ASIDE_MAX).unwrap() + 4;
    assert_eq!(held, most);
}
