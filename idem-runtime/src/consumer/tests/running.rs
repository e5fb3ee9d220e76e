//! Start and stop.

use super::*;

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_handlers() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok")]]);
    let consumer = bench.builder().build().unwrap();
    consumer.run_until(sleep(Duration::from_secs(5))).await.unwrap();
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_back_what_does_not_end_in_time() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok"), locked(2, 1, 60, "ok")]]);
    let consumer =
        bench.builder().shutdown_deadline(Duration::from_secs(30)).build().expect("valid");
    consumer.run_until(sleep(Duration::from_secs(5))).await.unwrap();
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "give back".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert!(bench.broker.at() < Duration::from_secs(40));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_start_says_why() {
    let mut bench = Bench::new(vec![]);
    let error = bench.builder().build().unwrap().run_until(std::future::pending()).await;
    assert!(matches!(error, Err(RunError::Broker(_))));

    bench.store.refuses_to_start = true;
    let error = bench.builder().build().unwrap().run_until(std::future::pending()).await;
    assert!(matches!(error, Err(RunError::Store(_))));
}
