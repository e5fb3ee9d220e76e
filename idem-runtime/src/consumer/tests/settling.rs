//! From what came of a delivery to what the broker is told.

use super::*;

#[tokio::test(start_paused = true)]
async fn only_a_delivery_that_was_counted_before_looks_for_its_claim_first() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok"), locked(2, 2, 0, "ok")]]);
    bench.store.is_claimed = true;
    let builder = bench.builder().in_flight_max(1);
    let summary = bench.run_until_told(builder, 2).await;
    assert_eq!(bench.store.begun.load(Ordering::SeqCst), 1, "the first delivery's");
    assert_eq!((summary.done, summary.duplicates), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_completed_after_its_handler_has_ended_and_not_before() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 3, "ok")]]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert!(bench.broker.first_told_after() >= Duration::from_secs(3));
    assert_eq!((summary.deliveries, summary.done), (1, 1));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_completed_without_running_the_handler() {
    let mut bench = Bench::new(vec![vec![locked(1, 2, 3, "ok")]]);
    bench.store.claims.lock().unwrap().push_back(Claimed::Before(earlier()));
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert_eq!((summary.duplicates, summary.done), (1, 0));
    assert_eq!(bench.running.most.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_given_back_after_a_pause_that_grows_with_its_deliveries() {
    let pause_of = async |delivery_count| {
        let mut bench = Bench::new(vec![vec![locked(1, delivery_count, 0, "fail")]]);
        bench.run_until_told(bench.builder(), 1).await;
        assert_eq!(bench.broker.told(), [(LockId(1), "abandon".to_owned())]);
        bench.broker.first_told_after()
    };
    let (first, seventh) = (pause_of(1).await, pause_of(7).await);
    assert!(first >= Duration::from_millis(25), "{first:?}");
    assert!(seventh >= Duration::from_millis(1600), "{seventh:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_delivery_is_dead_lettered_with_the_real_reason() {
    let mut bench = Bench::new(vec![vec![locked(1, 4, 0, "fail"), locked(2, 5, 0, "fail")]]);
    let summary = bench.run_until_told(bench.builder().delivery_count_max(5), 2).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told[0].1, "abandon");
    assert_eq!(
        told[1].1,
        "dead-letter: DeliveriesExhausted: the handler failed: the shop is closed"
    );
    assert_eq!((summary.retries, summary.dead_letters), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_dead_lettered_at_once() {
    let mut undecodable = locked(2, 1, 0, "ok").unwrap();
    undecodable.delivery = Delivery::new(undecodable.delivery.source().clone(), "not JSON");
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "reject"), Ok(undecodable)]]);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told[0].1, "dead-letter: UnknownCurrency: no such currency: XXX");
    assert!(
        told[1].1.starts_with("dead-letter: UndecodableBody: the body is not JSON"),
        "{told:?}"
    );
    assert_eq!((summary.rejected, summary.dead_letters), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_not_handled_stays_and_one_that_was_rejected_is_not_handled_again() {
    let letter = |lock, number, then: &str| {
        let mut letter = locked(lock, 12, 0, then).unwrap();
        letter.delivery = letter.delivery.with_sequence_number(number);
        Ok(letter)
    };
    let (failing, rejected) = (letter(1, 7, "fail"), letter(2, 8, "reject"));
    let again = vec![letter(3, 7, "fail"), letter(4, 8, "reject")];
    let broken = Err(BrokerError::Closed);
    let mut bench = Bench::new(vec![vec![failing, rejected, broken], again]);
    bench.dead_letters = true;
    let summary = bench.run_until_told(bench.builder(), 4).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told, [1, 2, 3, 4].map(|lock| (LockId(lock), "leave".to_owned())));
    assert_eq!((summary.deliveries, summary.dead_letters), (4, 0));
    assert_eq!((summary.retries, summary.rejected), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_message_and_no_other() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 1, "panic"), locked(2, 1, 2, "ok")]]);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    let expected = [(LockId(1), "abandon".to_owned()), (LockId(2), "complete".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!((summary.retries, summary.done), (1, 1));
}

/// A panic outside `Handler::call` ends the task: nobody settles or forgets the lock, and the
/// adapter counts the message as held for ever.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_key_is_settled_too() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "panic in key")]]);
    assert_eq!(told_in_time(&bench, bench.builder(), 1).await, ["abandon"]);
}
