//! Sessions.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn of_session(session: &str, id: &str) -> Submission {
    Submission { session_id: Some(session.into()), ..submission(id) }
}

fn named(id: &str) -> SessionWish {
    SessionWish::Named(id.into())
}

fn sessions() -> Bench {
    Bench::new(|options| options.requires_session(true))
}

/// A receiver, with its wake-ups counted.
struct Receiver {
    queue: Arc<Queue>,
    consumer: ConsumerId,
    woken: Arc<Woken>,
}

impl Bench {
    fn send_to(&self, session: &str, ids: &[&str]) {
        let submissions = ids.iter().map(|id| of_session(session, id)).collect();
        self.queue().send(submissions).unwrap();
    }

    fn receiver(&self) -> Receiver {
        let consumer = self.broker.new_consumer();
        Receiver { queue: self.queue(), consumer, woken: Arc::default() }
    }

    fn holder(&self, session: &str) -> Receiver {
        let receiver = self.receiver();
        receiver.accept(&named(session)).unwrap().expect("a named session is granted at once");
        receiver
    }
}

impl Receiver {
    fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.woken))
    }

    fn accept(&self, wish: &SessionWish) -> Result<Option<SessionGrant>, SessionError> {
        self.queue.accept_session(wish, self.consumer, &self.waker())
    }

    fn accept_next(&self) -> Option<String> {
        let grant = self.accept(&SessionWish::NextAvailable).unwrap();
        grant.map(|grant| grant.id.as_ref().to_owned())
    }

    fn receive(&self, max: usize) -> Result<Vec<Delivery>, SessionError> {
        let mut deliveries = Vec::new();
        let mode = ReceiveMode::PeekLock;
        let waker = self.waker();
        self.queue.receive(Part::Main, mode, max, self.consumer, &waker, &mut deliveries)?;
        Ok(deliveries)
    }

    fn leave(&self) {
        self.queue.forget(Part::Main, self.consumer);
    }

    fn wake_ups(&self) -> usize {
        self.woken.0.load(Ordering::Relaxed)
    }
}

#[test]
fn messages_need_a_session_id_and_no_other_partition() {
    let bench = sessions();
    let refused = bench.queue().send(vec![of_session("s", "a"), submission("b")]).unwrap_err();
    assert_eq!(refused.condition(), "amqp:not-allowed");
    let other = Submission { partition_key: Some("other".into()), ..of_session("s", "a") };
    let refused = bench.queue().send(vec![other]).unwrap_err();
    assert_eq!(refused.condition(), "com.microsoft:argument-error");
    let same = Submission { partition_key: Some("s".into()), ..of_session("s", "a") };
    bench.queue().send(vec![same]).unwrap();
    assert_eq!(bench.counts(), (1, 0, 0));
}

#[test]
fn a_session_has_one_holder_who_gets_its_messages_in_order() {
    let bench = sessions();
    bench.send_to("s", &["a", "b"]);
    bench.send_to("other", &["x"]);
    let holder = bench.holder("s");
    let refused = bench.receiver().accept(&named("s"));
    assert_eq!(refused, Err(SessionError::CannotBeLocked));
    let first = holder.receive(10).unwrap();
    assert_eq!(ids(&first), ["a", "b"]);
    bench.send_to("s", &["c"]);
    assert_eq!(holder.wake_ups(), 1);

    // What is given back comes again before what followed it.
    bench.settle(&first[0], abandon()).unwrap();
    bench.settle(&first[1], Settlement::Release).unwrap();
    let again = holder.receive(10).unwrap();
    assert_eq!(ids(&again), ["a", "b", "c"]);
    let counts: Vec<_> = again.iter().map(|delivery| delivery.message.delivery_count).collect();
    assert_eq!(counts, [1, 0, 0]);
}

#[test]
fn a_named_session_is_granted_without_messages() {
    let bench = sessions();
    let holder = bench.holder("s");
    assert!(holder.receive(1).unwrap().is_empty());
    bench.send_to("s", &["a"]);
    assert_eq!((holder.wake_ups(), holder.receive(1).unwrap().len()), (1, 1));
}

#[test]
fn the_next_session_is_the_one_with_the_oldest_message() {
    let bench = sessions();
    for (session, id) in [("b", "1"), ("a", "2"), ("b", "3"), ("c", "4")] {
        bench.send_to(session, &[id]);
    }
    let _held = bench.holder("a");
    let receivers: Vec<_> = (0..3).map(|_| bench.receiver()).collect();
    assert_eq!(receivers[0].accept_next().as_deref(), Some("b"));
    assert_eq!(receivers[1].accept_next().as_deref(), Some("c"));
    assert_eq!(receivers[2].accept_next(), None);
    bench.send_to("b", &["5"]);
    assert_eq!(receivers[2].wake_ups(), 0, "its session is held");
    receivers[0].leave();
    assert_eq!(receivers[2].wake_ups(), 1);
    assert_eq!(receivers[2].accept_next().as_deref(), Some("b"));
}

#[test]
fn a_new_session_wakes_one_receiver_and_a_wake_up_is_never_lost() {
    let bench = sessions();
    let waiting: Vec<_> = (0..2).map(|_| bench.receiver()).collect();
    for receiver in &waiting {
        assert_eq!(receiver.accept_next(), None);
    }
    bench.send_to("s", &["a"]);
    assert_eq!((waiting[0].wake_ups(), waiting[1].wake_ups()), (1, 0));
    waiting[0].leave();
    assert_eq!(waiting[1].wake_ups(), 1, "the first is gone before it asked again");
    assert_eq!(waiting[1].accept_next().as_deref(), Some("s"));
}

#[test]
fn a_receiver_that_got_its_session_without_being_woken_waits_no_more() {
    let bench = sessions();
    let (first, second) = (bench.receiver(), bench.receiver());
    assert_eq!((first.accept_next(), second.accept_next()), (None, None));
    bench.send_to("s", &["a"]);
    assert_eq!((first.wake_ups(), second.wake_ups()), (1, 0));
    // The second asks once more, as at the end of its time, and is faster than the first.
    assert_eq!(second.accept_next().as_deref(), Some("s"));
    assert_eq!(first.accept_next(), None);
    bench.send_to("t", &["b"]);
    assert_eq!((first.wake_ups(), second.wake_ups()), (2, 0));
}

#[test]
fn a_holder_that_leaves_gives_its_messages_back_uncounted() {
    let bench = sessions();
    bench.send_to("s", &["a", "b"]);
    let holder = bench.holder("s");
    let held = holder.receive(1).unwrap().remove(0);
    holder.leave();
    assert_eq!(bench.counts(), (2, 0, 0));
    assert_eq!(bench.settle(&held, Settlement::Complete), Err(SettleError::SessionLockLost));
    let again = bench.holder("s").receive(2).unwrap();
    assert_eq!(ids(&again), ["a", "b"]);
    assert_eq!((again[0].message.delivery_count, bench.totals().session_released), (0, 1));
}

#[test]
fn the_end_of_a_session_lock_fails_what_its_holder_has() {
    let bench = sessions();
    bench.send_to("s", &["a", "b"]);
    let holder = bench.holder("s");
    let held = holder.receive(1).unwrap().remove(0);
    assert!(holder.receive(0).unwrap().is_empty());
    let waiting = bench.receiver();
    assert_eq!(waiting.accept_next(), None);
    bench.clock.advance(LOCK - Duration::from_millis(1));
    assert_eq!(bench.counts(), (1, 1, 0));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!((bench.counts(), bench.totals().session_lock_lost), ((2, 0, 0), 1));
    assert_eq!(waiting.wake_ups(), 1);
    assert_eq!(holder.receive(1).unwrap_err(), SessionError::LockLost);
    assert_eq!(bench.settle(&held, Settlement::Complete), Err(SettleError::SessionLockLost));
    assert_eq!(waiting.accept_next().as_deref(), Some("s"));
    let again = waiting.receive(2).unwrap();
    let counts: Vec<_> = again.iter().map(|delivery| delivery.message.delivery_count).collect();
    assert_eq!((ids(&again), counts), (vec!["a", "b"], vec![1, 0]));
}

#[test]
fn a_waiting_holder_is_woken_when_its_lock_ends() {
    let bench = sessions();
    let holder = bench.holder("s");
    assert!(holder.receive(1).unwrap().is_empty());
    bench.clock.advance(LOCK);
    assert_eq!(holder.wake_ups(), 1);
    assert_eq!(holder.receive(1).unwrap_err(), SessionError::LockLost);
}

#[test]
fn renewing_a_session_keeps_its_messages_and_they_are_not_renewed_alone() {
    let bench = sessions();
    bench.send_to("s", &["a"]);
    let holder = bench.holder("s");
    let held = holder.receive(1).unwrap().remove(0);
    assert_eq!(held.locked_until, Some(bench.clock.now().plus(LOCK)));
    bench.clock.advance(LOCK / 2);
    let queue = bench.queue();
    assert_eq!(queue.renew(Part::Main, &[held.token]), Err(SettleError::LockedBySession));
    assert_eq!(queue.renew_session("s"), Ok(bench.clock.now().plus(LOCK)));
    bench.clock.advance(LOCK - Duration::from_millis(1));
    assert_eq!(bench.settle(&held, Settlement::Complete), Ok(Acknowledgement::Now));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(queue.renew_session("s"), Err(SessionError::LockLost));
    assert_eq!(queue.renew_session("other"), Err(SessionError::LockLost));
}

#[test]
fn state_needs_the_lock_and_outlives_it() {
    let bench = sessions();
    let queue = bench.queue();
    let state = Bytes::from_static(b"state");
    assert_eq!(queue.set_session_state("s", Some(state.clone())), Err(SessionError::LockLost));
    let holder = bench.holder("s");
    assert_eq!(queue.session_state("s"), Ok(None));
    queue.set_session_state("s", Some(state.clone())).unwrap();
    holder.leave();
    assert_eq!(queue.session_state("s"), Err(SessionError::LockLost));
    let _holder = bench.holder("s");
    assert_eq!(queue.session_state("s"), Ok(Some(state)));
    queue.set_session_state("s", None).unwrap();
    assert_eq!(queue.session_state("s"), Ok(None));
}

#[test]
fn states_take_room_in_the_queue() {
    let bench = Bench::new(|options| options.requires_session(true).size_max(1024));
    let queue = bench.queue();
    let _holder = bench.holder("s");
    let state = |size| Some(Bytes::from(vec![0; size]));
    queue.set_session_state("s", state(1024 - 256)).unwrap();
    assert!(queue.send(vec![of_session("s", "a")]).is_err());
    let refused = queue.set_session_state("s", state(1024 - 255)).unwrap_err();
    assert_eq!(refused.condition(), "amqp:resource-limit-exceeded");
    queue.set_session_state("s", None).unwrap();
    queue.send(vec![of_session("s", "a")]).unwrap();
}

#[test]
fn empty_states_take_room_too() {
    let bench = Bench::new(|options| options.requires_session(true).size_max(1024));
    let queue = bench.queue();
    let mut holders = Vec::new();
    let taken = (0..100).take_while(|number| {
        let session = format!("s-{number}");
        holders.push(bench.holder(&session));
        queue.set_session_state(&session, Some(Bytes::new())).is_ok()
    });
    assert_eq!(taken.count(), 4);
}

#[test]
fn sessions_are_listed_by_messages_or_by_state() {
    let bench = sessions();
    let queue = bench.queue();
    for session in ["c", "a", "b"] {
        bench.send_to(session, &[session]);
    }
    let listed = |since, skip, top| -> Vec<String> {
        let ids = queue.session_ids(since, skip, top);
        ids.iter().map(|id| id.as_ref().to_owned()).collect()
    };
    assert_eq!(listed(None, 0, 2), ["a", "b"]);
    assert_eq!(listed(None, 2, 2), ["c"]);
    let before = bench.clock.now();
    bench.clock.advance(MINUTE);
    let _holder = bench.holder("z");
    queue.set_session_state("z", Some(Bytes::new())).unwrap();
    assert_eq!(listed(Some(before), 0, 9), ["z"]);
    assert!(listed(Some(bench.clock.now()), 0, 9).is_empty());
}

#[test]
fn deferred_messages_and_peeking_stay_within_their_session() {
    let bench = sessions();
    bench.send_to("s", &["a"]);
    bench.send_to("t", &["b"]);
    let holder = bench.holder("s");
    let held = holder.receive(1).unwrap().remove(0);
    bench.settle(&held, Settlement::Defer { properties: Vec::new() }).unwrap();
    let queue = bench.queue();
    let deferred = |session: Option<&str>| {
        queue.receive_deferred(Part::Main, session, ReceiveMode::PeekLock, &[1].into())
    };
    assert_eq!(deferred(None).unwrap_err(), SessionError::LockLost.into());
    assert_eq!(deferred(Some("t")).unwrap_err(), SessionError::LockLost.into());
    let _other = bench.holder("t");
    assert_eq!(deferred(Some("t")).unwrap_err(), MessageNotFound(1).into());
    let peeked = |session| queue.peek(Part::Main, session, 0, 9).len();
    assert_eq!(
        (peeked(Some("s")), peeked(Some("t")), peeked(Some("u")), peeked(None)),
        (1, 1, 0, 2)
    );

    let again = deferred(Some("s")).unwrap().remove(0);
    holder.leave();
    assert_eq!(bench.settle(&again, Settlement::Complete), Err(SettleError::SessionLockLost));
    assert_eq!(queue.counts().deferred, 1);
}

#[test]
fn scheduled_and_expiring_messages_follow_the_same_rules_in_sessions() {
    let bench = sessions();
    let due = bench.clock.now().plus(MINUTE);
    let waiting = bench.receiver();
    assert_eq!(waiting.accept_next(), None);
    let later =
        Submission { scheduled_for: Some(due), time_to_live: Some(MINUTE), ..of_session("s", "a") };
    bench.queue().send(vec![later]).unwrap();
    assert_eq!(waiting.wake_ups(), 0);
    bench.clock.advance(MINUTE);
    assert_eq!(waiting.wake_ups(), 1);
    bench.clock.advance(MINUTE);
    assert_eq!(waiting.accept_next(), None, "its only message has expired");
    assert_eq!(bench.queue().session_ids(None, 0, 9).len(), 0);
}

#[test]
fn dead_letters_of_sessions_are_plain_messages() {
    let bench = Bench::new(|options| options.requires_session(true).max_delivery_count(1));
    bench.send_to("s", &["a"]);
    let holder = bench.holder("s");
    bench.settle(&holder.receive(1).unwrap()[0], abandon()).unwrap();
    let dead = bench.take(Part::DeadLetter, 1).remove(0).message;
    assert_eq!((dead.id.as_deref(), dead.session_id.as_deref()), (Some("a"), Some("s")));
}

#[test]
fn a_copy_of_a_delivery_stays_with_the_holder() {
    let bench = sessions();
    let fault = bench.broker.context.faults.add(Fault::redeliver().times(1));
    bench.send_to("s", &["a"]);
    let holder = bench.holder("s");
    let both = holder.receive(5).unwrap();
    assert_eq!((ids(&both), fault.fired()), (vec!["a", "a"], 1));
    bench.clock.advance(LOCK);
    assert_eq!(bench.counts(), (1, 0, 0));
    assert_eq!(bench.holder("s").receive(5).unwrap()[0].message.delivery_count, 2);
}

#[test]
fn a_purge_leaves_the_holder_its_session() {
    let bench = sessions();
    bench.send_to("s", &["a"]);
    let holder = bench.holder("s");
    let held = holder.receive(1).unwrap().remove(0);
    bench.queue().purge();
    assert_eq!(bench.settle(&held, Settlement::Complete), Err(SettleError::SessionLockLost));
    bench.send_to("s", &["b"]);
    assert_eq!(ids(&holder.receive(1).unwrap()), ["b"]);
    bench.clock.advance(LOCK);
    assert_eq!((bench.counts(), bench.totals().session_lock_lost), ((1, 0, 0), 1));
}
