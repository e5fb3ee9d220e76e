//! How long messages live.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn mortal(id: &str, time_to_live: Duration) -> Submission {
    Submission { time_to_live: Some(time_to_live), ..submission(id) }
}

impl Bench {
    fn send_mortal(&self, id: &str, time_to_live: Duration) {
        self.queue().send(vec![mortal(id, time_to_live)]).unwrap();
    }
}

#[test]
fn the_shorter_of_two_lives_counts() {
    let bench = Bench::new(|options| options.default_time_to_live(2 * MINUTE));
    bench.send_mortal("short", MINUTE);
    bench.send_mortal("long", 3 * MINUTE);
    bench.send("default");
    bench.clock.advance(MINUTE - Duration::from_millis(1));
    assert_eq!(bench.counts(), (3, 0, 0));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.counts(), (2, 0, 0));
    bench.clock.advance(MINUTE);
    assert_eq!((bench.counts(), bench.totals().expired), ((0, 0, 0), 3));
    assert!(bench.take(Part::Main, 1).is_empty());
}

#[test]
fn expired_messages_are_dead_lettered_on_request_and_then_live_on() {
    let bench = Bench::new(|options| options.dead_letter_expired(true));
    bench.send_mortal("a", MINUTE);
    bench.clock.advance(MINUTE);
    assert_eq!((bench.counts(), bench.totals().expired), ((0, 0, 1), 0));
    bench.clock.advance(100 * MINUTE);
    let dead = bench.take(Part::DeadLetter, 1).remove(0).message;
    let reason = dead.dead_letter().and_then(|dead_letter| dead_letter.reason.as_deref());
    assert_eq!((reason, dead.delivery_count), (Some("TTLExpiredException"), 0));
}

#[test]
fn a_held_message_expires_only_when_it_is_given_back() {
    for settlement in [None, Some(abandon()), Some(Settlement::Release)] {
        let bench = Bench::new(|options| options.lock_duration(2 * MINUTE));
        bench.send_mortal("a", MINUTE);
        let held = bench.one();
        bench.clock.advance(MINUTE);
        assert_eq!((bench.counts(), bench.totals().expired), ((0, 1, 0), 0));
        match settlement {
            Some(settlement) => drop(bench.settle(&held, settlement).unwrap()),
            None => assert!(bench.clock.advance(MINUTE)),
        }
        assert_eq!((bench.counts(), bench.totals().expired), ((0, 0, 0), 1));
    }
    let bench = Bench::new(|options| options.lock_duration(2 * MINUTE));
    bench.send_mortal("a", MINUTE);
    let held = bench.one();
    bench.clock.advance(MINUTE);
    assert_eq!(bench.settle(&held, Settlement::Complete), Ok(Acknowledgement::Now));
}

#[test]
fn deferred_messages_do_not_expire() {
    let bench = Bench::plain();
    bench.send_mortal("a", MINUTE);
    bench.settle(&bench.one(), Settlement::Defer { properties: Vec::new() }).unwrap();
    bench.clock.advance(2 * MINUTE);
    let mode = ReceiveMode::PeekLock;
    assert_eq!(
        bench.queue().receive_deferred(Part::Main, None, mode, &[1].into()).unwrap().len(),
        1
    );
}

#[test]
fn a_scheduled_message_lives_from_when_it_is_enqueued() {
    let bench = Bench::plain();
    let due = bench.clock.now().plus(10 * MINUTE);
    let later = Submission { scheduled_for: Some(due), ..mortal("a", MINUTE) };
    bench.queue().send(vec![later]).unwrap();
    bench.clock.advance(10 * MINUTE);
    assert_eq!(bench.counts(), (1, 0, 0));
    let message = bench.queue().peek(Part::Main, None, 0, 1).remove(0).0;
    assert_eq!(message.expires_at, Some(due.plus(MINUTE)));
    bench.clock.advance(MINUTE);
    assert_eq!((bench.counts(), bench.totals().expired), ((0, 0, 0), 1));
}

#[test]
fn what_passes_in_one_step_happens_in_the_order_of_time() {
    let bench = Bench::plain();
    let due = bench.clock.now().plus(MINUTE);
    let later = Submission { scheduled_for: Some(due), ..mortal("a", MINUTE) };
    bench.queue().send(vec![later]).unwrap();
    bench.clock.advance(60 * MINUTE);
    let kinds: Vec<_> =
        bench.broker.context.events.snapshot().into_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [EventKind::Scheduled, EventKind::Enqueued, EventKind::Expired]);
}
