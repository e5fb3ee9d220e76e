//! What a consumer does for its ledger.

use super::*;

#[tokio::test(start_paused = true)]
async fn with_a_horizon_the_ledger_is_told_that_we_are_alive_and_is_pruned() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 3600, "ok")]]);
    let horizon = Horizon { dead_letter_age_max: 14 * DAY, resend_window: DAY };
    bench.run_until_told(bench.builder().horizon(horizon), 1).await;
    let kept_alive = bench.store.kept_alive.lock().unwrap();
    assert!((115..=122).contains(&kept_alive.len()), "once at start, then twice a minute");
    // Ten deliveries of 5 minutes, a pause of half a minute and a lock of 5 minutes.
    let kept = 15 * DAY + 10 * Duration::from_secs(630);
    assert!(kept_alive.iter().all(|r| *r == Retention { horizon: kept, kept }), "{kept_alive:?}");
    let prunings = bench.store.prunings.load(Ordering::SeqCst);
    assert!((10..=15).contains(&prunings), "about every five minutes: {prunings}");
    assert_eq!(*bench.store.scopes_alive.lock().unwrap(), ["test::obey".to_owned()].into());
    assert_eq!(*bench.store.scopes_pruned.lock().unwrap(), ["test::obey".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn without_a_horizon_claims_are_kept_for_ever() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 3600, "ok")]]);
    bench.run_until_told(bench.builder(), 1).await;
    assert!(bench.store.kept_alive.lock().unwrap().is_empty());
    assert_eq!(bench.store.prunings.load(Ordering::SeqCst), 0);
}

/// M-05: with another key, all that was done would be done again.
#[tokio::test(start_paused = true)]
async fn a_scope_with_keys_of_another_kind_is_refused_at_start() {
    let mut bench = Bench::new(vec![]);
    let other = ScopeKeys { scope: "test::obey".to_owned(), level: 2, key: "id".to_owned() };
    bench.store.registered = Some(other);
    let consumer = bench.builder().build().expect("a valid consumer");
    let error = consumer.run_until(std::future::pending()).await.unwrap_err();
    let text = Chain(&error).to_string();
    assert!(text.contains("level 2 and key `id` in this ledger"), "{text}");
    assert!(text.contains("level 2 and key `then`"), "{text}");
}
