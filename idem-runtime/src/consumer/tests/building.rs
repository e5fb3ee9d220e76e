//! What a builder refuses.

use super::*;

#[test]
fn a_batch_is_no_larger_than_what_is_in_flight() {
    let bench = Bench::new(vec![]);
    for size in [0, 17] {
        let error = bench.builder().batch_max(size).build().unwrap_err();
        let problem =
            format!("`batch_max` must be 1 to `in_flight_max`, which is 16, found {size}");
        assert_eq!(error.problems(), [problem]);
    }
    assert!(bench.builder().batch_max(16).build().is_ok());
}

/// P-02.
#[test]
fn a_retention_below_the_horizon_is_refused_with_the_numbers() {
    let bench = Bench::new(vec![]);
    let horizon = Horizon { dead_letter_age_max: 14 * DAY, resend_window: DAY };
    let hour = Duration::from_secs(3600);
    let error = bench.builder().horizon(horizon).retention(hour).build().unwrap_err();
    assert_eq!(
        error.problems(),
        ["a `retention` of 1 h is shorter than the time within which a message may come again, \
             15 d 1 h 45 min: 10 deliveries of up to 5 min 30 s and a lock, 14 d among the dead \
             letters, and 1 d in which the sender repeats itself"]
    );
    let error = bench.builder().retention(hour).build().unwrap_err();
    assert_eq!(error.problems(), ["`retention` needs a `horizon`, which says what is safe"]);
    assert!(bench.builder().horizon(horizon).retention(16 * DAY).build().is_ok());
}

#[test]
fn a_wrong_description_is_refused_with_all_problems_at_once() {
    let source = ScriptedSource {
        id: SourceId::new("bus.example.net", "orders"),
        dead_letters: false,
        broker: Arc::default(),
    };
    let builder = Consumer::builder(source, ScriptedStore::default());
    let error = builder.handler(Obedient).in_flight_max(0).delivery_count_max(0).build();
    let error = error.expect_err("must be refused");
    assert_eq!(error.problems().len(), 3, "{error}");
    assert!(error.to_string().contains("State<"), "{error}");
}

#[test]
fn a_time_out_that_outlasts_the_lock_is_refused() {
    let bench = Bench::new(vec![]);
    let limited = |seconds| bench.builder().handler_timeout(Duration::from_secs(seconds)).build();
    assert_eq!(
        limited(301).unwrap_err().problems(),
        ["`handler_timeout` is 301s, and locks are renewed for 300s only: a slow handler would \
          lose its lock before it is stopped; lower it, or raise `renewal_max`"]
    );
    let none = limited(0).unwrap_err();
    assert_eq!(none.problems(), ["`handler_timeout` must be longer than zero"]);
    assert!(limited(300).is_ok());
}
