//! Scheduled and deferred messages.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn scheduled(bench: &Bench, id: &str, after: Duration) -> Submission {
    Submission { scheduled_for: Some(bench.clock.now().plus(after)), ..submission(id) }
}

fn defer() -> Settlement {
    Settlement::Defer { properties: Vec::new() }
}

fn deferred_and_scheduled(bench: &Bench) -> (usize, usize) {
    let counts = bench.queue().counts();
    (counts.deferred, counts.scheduled)
}

impl Bench {
    fn schedule(&self, id: &str, after: Duration) -> i64 {
        self.queue().send(vec![scheduled(self, id, after)]).unwrap()[0]
    }

    fn deferred(&self, mode: ReceiveMode, number: i64) -> Result<Vec<Delivery>, DeferredError> {
        self.queue().receive_deferred(Part::Main, None, mode, &[number].into())
    }
}

#[test]
fn a_scheduled_message_is_enqueued_at_its_time_under_a_new_number() {
    let bench = Bench::plain();
    let number = bench.schedule("later", HOUR);
    bench.send("now");
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((1, 0, 0), (0, 1)));
    let due = bench.clock.now().plus(HOUR);
    assert_eq!(bench.broker.sweep(), Some(due));
    bench.clock.advance(HOUR - Duration::from_millis(1));
    assert_eq!(bench.counts(), (1, 0, 0));
    bench.clock.advance(HOUR);
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((2, 0, 0), (0, 0)));
    let both = bench.take(Part::Main, 5);
    assert_eq!(ids(&both), ["now", "later"]);
    let later = &both[1].message;
    assert_eq!((number, later.sequence_number), (1, 3));
    assert_eq!((later.enqueued_at, later.state), (due, MessageState::Active));
}

#[test]
fn a_time_that_has_passed_means_now() {
    let bench = Bench::plain();
    bench.schedule("a", Duration::ZERO);
    assert_eq!(bench.counts(), (1, 0, 0));
    assert_eq!(bench.totals().scheduled, 0);
}

#[test]
fn activation_wakes_a_waiting_receiver() {
    let bench = Bench::plain();
    bench.schedule("a", HOUR);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let consumer = bench.broker.new_consumer();
    bench
        .queue()
        .receive(Part::Main, ReceiveMode::PeekLock, 1, consumer, &waker, &mut Vec::new())
        .unwrap();
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);
    bench.clock.advance(HOUR);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
}

#[test]
fn cancelling_is_all_or_nothing_and_only_before_the_time() {
    let bench = Bench::plain();
    let numbers = [bench.schedule("a", HOUR), bench.schedule("b", HOUR)];
    let queue = bench.queue();
    assert_eq!(queue.cancel(&[numbers[0], 99]), Err(MessageNotFound(99)));
    assert_eq!(deferred_and_scheduled(&bench), (0, 2));
    queue.cancel(&numbers[..1]).unwrap();
    assert_eq!(queue.cancel(&numbers[..1]), Err(MessageNotFound(numbers[0])));
    bench.clock.advance(HOUR);
    assert_eq!(queue.cancel(&numbers[1..]), Err(MessageNotFound(numbers[1])));
    assert_eq!(ids(&bench.take(Part::Main, 5)), ["b"]);
    assert_eq!(bench.totals().schedule_cancelled, 1);
}

#[test]
fn scheduled_messages_take_part_in_duplicate_detection_when_they_are_sent() {
    let bench = Bench::new(|options| options.duplicate_detection(HOUR));
    let number = bench.schedule("a", 2 * HOUR);
    bench.send("a");
    bench.schedule("a", 3 * HOUR);
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 0, 0), (0, 1)));
    bench.queue().cancel(&[number]).unwrap();
    bench.send("a");
    assert_eq!(bench.totals().duplicate_dropped, 3, "cancelling does not free the id");

    // Outside of the window, and enqueueing does not look again.
    bench.clock.advance(HOUR);
    bench.schedule("a", HOUR);
    bench.clock.advance(HOUR);
    bench.send("a");
    assert_eq!(bench.counts(), (2, 0, 0));
}

#[test]
fn a_deferred_message_comes_only_by_its_number() {
    let bench = Bench::plain();
    bench.send("a");
    let first = bench.one();
    bench.settle(&first, defer()).unwrap();
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 0, 0), (1, 0)));
    assert!(bench.take(Part::Main, 5).is_empty());
    assert_eq!(bench.settle(&first, Settlement::Complete), Err(SettleError::LockLost));
    assert_eq!(bench.queue().peek(Part::Main, None, 1, 1)[0].0.state, MessageState::Deferred);

    let again = bench.deferred(ReceiveMode::PeekLock, 1).unwrap().remove(0);
    assert_ne!(again.token, first.token);
    assert_eq!((again.message.delivery_count, again.message.sequence_number), (0, 1));
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 1, 0), (0, 0)));
    let held = bench.deferred(ReceiveMode::PeekLock, 1);
    assert_eq!(held.unwrap_err(), MessageNotFound(1).into(), "it is held");
    bench.settle(&again, Settlement::Complete).unwrap();
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 0, 0), (0, 0)));
}

#[test]
fn a_deferred_message_stays_deferred_when_it_comes_back() {
    let bench = Bench::new(|options| options.max_delivery_count(3));
    bench.send("a");
    bench.settle(&bench.one(), defer()).unwrap();
    let held = bench.deferred(ReceiveMode::PeekLock, 1).unwrap().remove(0);
    bench.settle(&held, abandon()).unwrap();
    let _held = bench.deferred(ReceiveMode::PeekLock, 1).unwrap();
    bench.clock.advance(LOCK);
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 0, 0), (1, 0)));
    let held = bench.deferred(ReceiveMode::PeekLock, 1).unwrap().remove(0);
    assert_eq!(held.message.delivery_count, 2);
    bench.settle(&held, abandon()).unwrap();
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((0, 0, 1), (0, 0)));
    assert_eq!(ids(&bench.take(Part::DeadLetter, 1)), ["a"], "a dead letter is active again");
}

#[test]
fn one_missing_number_fails_them_all() {
    let bench = Bench::plain();
    for id in ["a", "b"] {
        bench.send(id);
        bench.settle(&bench.one(), defer()).unwrap();
    }
    bench.send("active");
    for missing in [3, 99] {
        let numbers = [1, 2, missing].into();
        let mode = ReceiveMode::ReceiveAndDelete;
        let refused = bench.queue().receive_deferred(Part::Main, None, mode, &numbers);
        assert_eq!(refused.unwrap_err(), MessageNotFound(missing).into());
    }
    assert_eq!(deferred_and_scheduled(&bench), (2, 0));
    let mode = ReceiveMode::ReceiveAndDelete;
    let taken = bench.queue().receive_deferred(Part::Main, None, mode, &[2, 1].into()).unwrap();
    assert_eq!(ids(&taken), ["a", "b"]);
    assert_eq!((bench.counts(), deferred_and_scheduled(&bench)), ((1, 0, 0), (0, 0)));
}

#[test]
fn a_dead_letter_can_be_deferred() {
    let bench = Bench::plain();
    bench.send("a");
    bench.settle(&bench.one(), dead_letter("why")).unwrap();
    let held = bench.take(Part::DeadLetter, 1).remove(0);
    let queue = bench.queue();
    queue.settle(Part::DeadLetter, held.token, defer()).unwrap();
    assert!(bench.take(Part::DeadLetter, 1).is_empty());
    let mode = ReceiveMode::PeekLock;
    let again =
        queue.receive_deferred(Part::DeadLetter, None, mode, &[1].into()).unwrap().remove(0);
    queue.settle(Part::DeadLetter, again.token, Settlement::Complete).unwrap();
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[test]
fn an_expired_lock_fault_reaches_deferred_messages() {
    let bench = Bench::plain();
    bench.send("a");
    bench.settle(&bench.one(), defer()).unwrap();
    let fault = bench.broker.context.faults.add(Fault::expire_lock().times(1));
    let held = bench.deferred(ReceiveMode::PeekLock, 1).unwrap().remove(0);
    assert_eq!(fault.fired(), 1);
    assert_eq!(bench.settle(&held, Settlement::Complete), Err(SettleError::LockLost));
    assert_eq!(deferred_and_scheduled(&bench), (1, 0));
}
