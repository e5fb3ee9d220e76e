//! What is too long or too large.

use super::*;
use crate::rules::{Filter, Rule};

fn condition(submission: Submission) -> Option<&'static str> {
    let bench = Bench::plain();
    let sent = bench.queue().send(vec![submission]);
    let stored = usize::from(sent.is_ok());
    assert_eq!(bench.counts(), (stored, 0, 0));
    sent.err().map(|error| error.condition())
}

#[test]
fn names_have_at_most_128_characters() {
    let name = |length| Some(Arc::from("ü".repeat(length)));
    let named = |length| {
        [
            Submission { id: name(length), ..Submission::default() },
            Submission { session_id: name(length), ..Submission::default() },
            Submission { partition_key: name(length), ..Submission::default() },
        ]
    };
    for (fits, does_not) in named(128).into_iter().zip(named(129)) {
        assert_eq!(condition(fits), None);
        assert_eq!(condition(does_not), Some("com.microsoft:argument-out-of-range"));
    }
}

#[test]
fn properties_have_a_size_each_and_in_all() {
    let sized = |each, all| Submission {
        property_size_max: each,
        properties_size: all,
        ..Submission::default()
    };
    assert_eq!(condition(sized(32 * 1024, 64 * 1024)), None);
    for too_large in [sized(32 * 1024 + 1, 40_000), sized(1000, 64 * 1024 + 1)] {
        assert_eq!(condition(too_large), Some("com.microsoft:argument-out-of-range"));
    }
}

#[test]
fn one_message_beyond_a_limit_fails_its_batch() {
    let bench = Bench::plain();
    let batch = vec![submission("a"), submission(&"x".repeat(129))];
    assert!(bench.queue().send(batch).is_err());
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[test]
fn a_partition_key_beside_a_session_id_is_the_session_id() {
    let both = |key: &str| Submission {
        session_id: Some("s".into()),
        partition_key: Some(key.into()),
        ..submission("a")
    };
    assert_eq!(condition(both("s")), None);
    assert_eq!(condition(both("other")), Some("com.microsoft:argument-error"));
}

#[test]
fn a_long_session_id_is_not_accepted() {
    let bench = Bench::new(|queue| queue.requires_session(true));
    let consumer = bench.broker.new_consumer();
    let accept = |length| {
        let wish = SessionWish::Named("s".repeat(length).into());
        bench.queue().accept_session(&wish, consumer, Waker::noop())
    };
    assert_eq!(accept(129).unwrap_err().condition(), "com.microsoft:argument-out-of-range");
    assert!(accept(128).unwrap().is_some());
}

#[test]
fn a_copy_whose_action_makes_it_too_large_is_a_dead_letter() {
    let doubling = "SET a = user.large; SET b = user.large; SET c = user.large";
    let subscription =
        SubscriptionOptions::new("s").rule(Rule::new("grow", Filter::True).action(doubling));
    let topic = TopicOptions::new("news").subscription(subscription);
    let bench = Bench::of(Topology { topics: vec![topic], ..Topology::default() });
    let large = routes::with_property("a", "large", &"x".repeat(20_000));
    assert!(large.properties_size > 20_000 && large.property_size_max > 20_000);
    bench.broker.node("news").unwrap().queue.send(vec![large]).unwrap();
    let queue = bench.broker.node("news/Subscriptions/s").unwrap().queue;
    let counts = queue.counts();
    assert_eq!((counts.active, counts.dead_lettered), (0, 1));
    let dead = queue.peek(Part::DeadLetter, None, 0, 1).remove(0).0;
    let reason = dead.dead_letter().and_then(|dead_letter| dead_letter.reason.as_deref());
    assert_eq!(reason, Some("HeaderSizeExceeded"));
}

#[test]
fn a_receiver_cannot_make_a_message_too_large() {
    let bench = Bench::plain();
    let large = routes::with_property("a", "large", &"x".repeat(30_000));
    bench.queue().send(vec![large]).unwrap();
    let delivery = bench.one();
    let property = Property { name: "more".to_owned(), value: Bytes::from(vec![0; 40_000]) };
    let settlement = Settlement::Abandon { properties: vec![property] };
    assert_eq!(bench.settle(&delivery, settlement), Err(SettleError::PropertiesTooLarge));
    assert_eq!(bench.counts(), (0, 1, 0));
}

#[test]
fn thousands_of_small_properties_are_too_large_together() {
    let bench = Bench::plain();
    bench.send("a");
    let delivery = bench.one();
    let properties = |count: u32| {
        let property =
            |number| Property { name: format!("{number}"), value: Bytes::from_static(&[0x40]) };
        Settlement::Abandon { properties: (0..count).map(property).collect() }
    };
    assert_eq!(bench.settle(&delivery, properties(5000)), Err(SettleError::PropertiesTooLarge));
    bench.settle(&delivery, properties(1000)).unwrap();
}

#[test]
fn a_dead_letter_reason_or_description_is_no_longer_than_in_the_cloud() {
    let bench = Bench::plain();
    bench.send("a");
    let delivery = bench.one();
    let text = |length| Some("\u{e9}".repeat(length).into());
    let buried = |reason, description| Settlement::DeadLetter {
        reason: text(reason),
        description: text(description),
        properties: Vec::new(),
    };
    for too_long in [buried(4097, 1), buried(1, 4097)] {
        let error = bench.settle(&delivery, too_long).unwrap_err();
        assert_eq!(error.condition(), "com.microsoft:argument-out-of-range");
    }
    bench.settle(&delivery, buried(4096, 4096)).unwrap();
    assert_eq!(bench.counts(), (0, 0, 1));
}

#[test]
fn duplicates_do_not_extend_the_window_of_their_id() {
    let window = Duration::from_secs(10);
    let bench = Bench::new(|queue| queue.duplicate_detection(window));
    bench.send("a");
    bench.clock.advance(Duration::from_secs(6));
    bench.send("a");
    assert_eq!(bench.totals().duplicate_dropped, 1);
    bench.clock.advance(Duration::from_secs(6));
    bench.send("a");
    assert_eq!((bench.totals().duplicate_dropped, bench.counts()), (1, (2, 0, 0)));
}
