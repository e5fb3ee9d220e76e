//! A consumer that is stopped, paused and looked at while it runs.

use std::pin::pin;

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Bench {
    fn consumer(&self) -> Consumer<ScriptedSource, ScriptedStore> {
        self.builder().build().expect("a valid consumer")
    }
}

fn away() -> Result<Locked, BrokerError> {
    Err(BrokerError::Unreachable { namespace: "bus".to_owned(), source: "cut".into() })
}

#[tokio::test(start_paused = true)]
async fn a_handle_stops_in_order() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    assert_eq!(handle.health(), Health::Starting);
    let stop = async {
        handle.wait_for(Health::is_ready).await;
        sleep(seconds(5)).await;
        handle.stop();
        assert_eq!(handle.wait_for(|health| *health != Health::Consuming).await, Health::Stopping);
        handle.resume();
        handle.pause();
    };
    let (ran, ()) = tokio::join!(consumer.run(), stop);
    ran.expect("the consumer starts");
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert_eq!(bench.broker.at().as_secs(), 20);
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
    assert_eq!((handle.health(), handle.counters().summary().done), (Health::Stopped, 1));
}

#[tokio::test(start_paused = true)]
async fn who_cannot_wait_for_the_deadline_stops_now() {
    let bench = Bench::new(vec![vec![locked(1, 1, 7, "ok"), locked(2, 1, 3600, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let stop = async {
        sleep(seconds(5)).await;
        handle.stop();
        sleep(seconds(4)).await;
        handle.stop_now();
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), stop);
    ran.expect("the consumer starts");
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "give back".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!(bench.broker.at().as_secs(), 9);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_can_be_stopped_before_it_runs_and_while_it_starts() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    let consumer = bench.consumer();
    consumer.handle().stop();
    consumer.handle().resume();
    consumer.run().await.expect("it has nothing to complain about");
    assert_eq!(bench.broker.opens.lock().unwrap().len(), 1, "nothing was opened");

    bench.broker.is_deaf.store(true, Ordering::SeqCst);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let ran = tokio::time::timeout(seconds(60), consumer.run_until(sleep(seconds(5)))).await;
    ran.expect("it does not wait for a broker that does not answer").expect("stopped in order");
    assert_eq!(handle.health(), Health::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_pause_lets_what_is_in_flight_finish_and_closes_the_link() {
    let later = vec![locked(2, 1, 0, "ok")];
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok")], later]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let closed = || bench.broker.closed.load(Ordering::SeqCst);
    let work = async {
        sleep(seconds(5)).await;
        handle.pause();
        assert_eq!(handle.wait_for(|health| *health != Health::Consuming).await, Health::Pausing);
        assert_eq!(closed(), 0, "what is in flight is settled on it");
        handle.wait_for(|health| *health == Health::Paused).await;
        assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
        assert_eq!((bench.broker.at().as_secs(), closed()), (20, 1));
        sleep(seconds(3600)).await;
        assert_eq!(bench.broker.told().len(), 1, "nothing is received");

        handle.resume();
        bench.broker.until_told(2).await;
        assert_eq!(bench.broker.told()[1], (LockId(2), "complete".to_owned()));
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(handle.counters().summary().reconnects, 0, "nothing broke");
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_resumed_early_goes_on_when_all_has_finished() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok")], vec![locked(2, 1, 0, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let work = async {
        sleep(seconds(5)).await;
        handle.pause();
        sleep(seconds(5)).await;
        handle.resume();
        bench.broker.until_told(2).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(bench.broker.told().len(), 2);
    assert_eq!(bench.broker.at().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_pausing_can_be_stopped() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok"), locked(2, 1, 3600, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let work = async {
        sleep(seconds(5)).await;
        handle.pause();
        sleep(seconds(5)).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "give back".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!(bench.broker.at().as_secs(), 40, "the deadline counts from the stop");
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_database_that_is_away_shows_after_one_attempt_and_is_back_with_the_first_success() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok"), locked(2, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 200]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let work = async {
        let health = handle.wait_for(|health| matches!(health, Health::DatabaseAway(_))).await;
        bench.store.checks_refused.store(usize::MAX, Ordering::SeqCst);
        assert!(!health.is_ready());
        assert_eq!(health.to_string(), "the database is away for 0 s: begin");
        let left = bench.store.begins.lock().unwrap().len();
        assert!(left >= 200 - 2 * 3, "an attempt is three tries: {left} faults are left");
        assert!(bench.broker.at() < seconds(1), "{:?}", bench.broker.at());

        handle.wait_for(Health::is_ready).await;
        assert!(bench.store.checks_refused.load(Ordering::SeqCst) < usize::MAX, "it was asked too");
        assert!(bench.store.begins.lock().unwrap().is_empty(), "every fault was met");
        bench.broker.until_told(2).await;
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    let summary = handle.counters().summary();
    assert_eq!((summary.done, summary.dead_letters, summary.retries), (2, 0, 0), "{summary:?}");
}

/// What was held has gone elsewhere, and no message comes that would notice.
#[tokio::test(start_paused = true)]
async fn a_database_that_was_away_is_asked_whether_it_is_back() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 100_000]);
    bench.broker.renewal_errors.lock().unwrap().push_back(BrokerError::LockLost);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let work = async {
        bench.broker.until_told(1).await;
        let refused = &bench.store.checks_refused;
        refused.store(3, Ordering::SeqCst);
        let health = handle.health();
        assert!(matches!(health, Health::DatabaseAway(_)), "{health}");
        bench.store.begins.lock().unwrap().clear();
        handle.wait_for(Health::is_ready).await;
        assert_eq!(refused.load(Ordering::SeqCst), 0, "it was asked until it answered");
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(bench.broker.told(), [(LockId(1), "abandon".to_owned())]);
}

/// C-18.
#[tokio::test(start_paused = true)]
async fn a_link_that_breaks_shows_until_it_is_open_again() {
    let bench = Bench::new(vec![vec![away()], vec![locked(1, 1, 0, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    let work = async {
        let health = handle.wait_for(|health| matches!(health, Health::Reconnecting(_))).await;
        let expected = "reconnecting to the broker for 0 s: cannot reach `bus`";
        assert!(health.to_string().starts_with(expected), "{health}");
        assert!(!health.is_ready());
        handle.wait_for(Health::is_ready).await;
        bench.broker.until_told(1).await;
        // The second receiver is the last one: nothing can be opened from here on.
        handle.stop();
    };
    let (ran, ()) = tokio::join!(consumer.run(), work);
    ran.expect("the consumer starts");
    assert_eq!(handle.counters().summary().reconnects, 1);
}

/// Nothing was received and nothing is wrong: the broker ends links that are idle for long.
#[tokio::test(start_paused = true)]
async fn idle_links_that_are_ended_now_and_then_are_reopened_at_once() {
    let mut bench = Bench::new((0..20).map(|_| vec![]).collect());
    let broker = Arc::get_mut(&mut bench.broker).expect("nobody has it yet");
    broker.lasts = Some(seconds(600));
    let consumer = bench.consumer();
    let counters = consumer.counters();
    consumer.run_until(sleep(seconds(6001))).await.unwrap();
    assert_eq!(counters.summary().reconnects, 10, "the pauses have not grown");
}

#[tokio::test(start_paused = true)]
async fn whatever_ends_a_consumer_it_is_stopped() {
    let bench = Bench::new(vec![vec![locked(1, 1, 60, "ok")]]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    {
        let mut run = pin!(consumer.run());
        let ready = handle.wait_for(Health::is_ready);
        tokio::select! {
            ran = &mut run => ran.expect("it runs"),
            _ = ready => {}
        }
    }
    assert_eq!(handle.health(), Health::Stopped, "its future was dropped");

    let consumer = bench.consumer();
    let handle = consumer.handle();
    let (ran, health) = tokio::join!(consumer.run(), handle.wait_for(Health::is_ready));
    ran.expect_err("there is nothing to open any more");
    assert_eq!(health, Health::Stopped, "it could not start, and nobody waits for it");

    let consumer = bench.consumer();
    let handle = consumer.handle();
    drop(consumer);
    assert_eq!(handle.health(), Health::Stopped, "it never ran");
}

#[test]
fn a_running_consumer_can_be_sent_and_its_handle_shared() {
    fn is_send(_: &impl Send) {}
    fn is_shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let bench = Bench::new(vec![]);
    let consumer = bench.consumer();
    let handle = consumer.handle();
    is_shared(&handle);
    is_send(&handle.wait_for(Health::is_ready));
    is_send(&consumer.run_until(std::future::pending()));
}
