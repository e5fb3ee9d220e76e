//! Queues, locks, counts, dead letters, duplicates, faults.

use super::*;

#[test]
fn messages_come_in_order_and_return_to_their_place() {
    let bench = Bench::plain();
    for id in ["a", "b", "c"] {
        bench.send(id);
    }
    let first = bench.one();
    bench.settle(&first, Settlement::Release).unwrap();
    let all = bench.take(Part::Main, 10);
    assert_eq!(ids(&all), ["a", "b", "c"]);
    let numbers: Vec<_> = all.iter().map(|delivery| delivery.message.sequence_number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn only_failures_raise_the_count() {
    let bench = Bench::plain();
    bench.send("a");
    let mut counts = Vec::new();
    for settlement in [Settlement::Release, abandon(), Settlement::Release, abandon()] {
        let delivery = bench.one();
        counts.push(delivery.message.delivery_count);
        bench.settle(&delivery, settlement).unwrap();
    }
    counts.push(bench.one().message.delivery_count);
    assert_eq!(counts, [0, 0, 1, 1, 2]);
}

#[test]
fn a_lock_ends_exactly_at_its_end() {
    let bench = Bench::plain();
    bench.send("a");
    let delivery = bench.one();
    bench.clock.advance(LOCK - Duration::from_millis(1));
    assert_eq!(bench.counts(), (0, 1, 0));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.counts(), (1, 0, 0));
    assert_eq!(bench.settle(&delivery, Settlement::Complete), Err(SettleError::LockLost));
    assert_eq!(bench.queue().renew(Part::Main, &[delivery.token]), Err(SettleError::LockLost));
    assert_eq!(bench.one().message.delivery_count, 1);
    assert_eq!((bench.totals().lock_expired, bench.totals().settlement_rejected), (1, 2));
}

#[test]
fn renewal_counts_from_now_and_is_all_or_nothing() {
    let bench = Bench::plain();
    bench.send("a");
    let delivery = bench.one();
    bench.clock.advance(LOCK / 2);
    let ends = bench.queue().renew(Part::Main, &[delivery.token]).unwrap();
    assert_eq!(ends, [bench.clock.now().plus(LOCK)]);
    let unknown = bench.broker.context.tokens.next();
    assert_eq!(
        bench.queue().renew(Part::Main, &[delivery.token, unknown]),
        Err(SettleError::LockLost)
    );
    bench.clock.advance(LOCK / 2);
    assert_eq!(bench.settle(&delivery, Settlement::Complete), Ok(Acknowledgement::Now));
}

#[test]
fn the_last_failed_delivery_moves_the_message() {
    for expire in [false, true] {
        let bench = Bench::new(|options| options.max_delivery_count(2));
        bench.send("a");
        for _ in 0..2 {
            let delivery = bench.one();
            if expire {
                bench.clock.advance(LOCK);
            } else {
                bench.settle(&delivery, abandon()).unwrap();
            }
        }
        assert_eq!(bench.counts(), (0, 0, 1));
        let dead = bench.take(Part::DeadLetter, 1).remove(0).message;
        let expected = DeadLetter {
            reason: Some("MaxDeliveryCountExceeded".into()),
            description: Some("Message could not be consumed after 2 delivery attempts.".into()),
            source: "orders".into(),
        };
        assert_eq!(dead.dead_letter(), Some(&expected));
        assert_eq!((dead.sequence_number, dead.delivery_count), (1, 2));
    }
}

#[test]
fn a_dead_letter_queue_has_no_maximum_and_no_way_further() {
    let bench = Bench::new(|options| options.max_delivery_count(1));
    bench.send("a");
    bench.settle(&bench.one(), dead_letter("why")).unwrap();
    for _ in 0..5 {
        let delivery = bench.take(Part::DeadLetter, 1).remove(0);
        let queue = bench.queue();
        let again = queue.settle(Part::DeadLetter, delivery.token, dead_letter("again"));
        assert_eq!(again, Err(SettleError::AlreadyDeadLettered));
        queue.settle(Part::DeadLetter, delivery.token, abandon()).unwrap();
    }
    assert_eq!(bench.counts(), (0, 0, 1));
}

#[test]
fn a_batch_drops_only_its_duplicates() {
    let window = Duration::from_secs(60);
    let bench = Bench::new(|options| options.duplicate_detection(window));
    bench.queue().send(["a", "b", "a"].map(submission).to_vec()).unwrap();
    assert_eq!(bench.counts(), (2, 0, 0));
    bench.clock.advance(window - Duration::from_millis(1));
    bench.send("a");
    assert_eq!((bench.counts(), bench.totals().duplicate_dropped), ((2, 0, 0), 2));
    bench.clock.advance(Duration::from_millis(1));
    bench.send("a");
    assert_eq!(bench.counts(), (3, 0, 0));
}

#[test]
fn a_full_queue_takes_all_of_a_batch_or_none() {
    let bench = Bench::new(|options| options.size_max(1024));
    let queue = bench.queue();
    assert!(queue.send(["a", "b", "c", "d"].map(submission).to_vec()).is_err());
    assert_eq!(bench.counts(), (0, 0, 0));
    queue.send(["a", "b", "c"].map(submission).to_vec()).unwrap();
    assert!(queue.send(vec![submission("d")]).is_err());
    bench.settle(&bench.one(), Settlement::Complete).unwrap();
    queue.send(vec![submission("d")]).unwrap();
    for delivery in bench.take(Part::Main, 10) {
        bench.settle(&delivery, dead_letter("why")).unwrap();
    }
    assert!(queue.send(vec![submission("e")]).is_err(), "dead letters take room too");
    queue.purge();
    queue.send(["a", "b", "c"].map(submission).to_vec()).unwrap();
}

#[test]
fn too_many_properties_are_refused_and_the_lock_stays() {
    let bench = Bench::plain();
    bench.send("a");
    let delivery = bench.one();
    let property = Property { name: "large".to_owned(), value: Bytes::from(vec![0; 70_000]) };
    let settlement = Settlement::Abandon { properties: vec![property] };
    assert_eq!(bench.settle(&delivery, settlement), Err(SettleError::PropertiesTooLarge));
    assert_eq!(bench.settle(&delivery, Settlement::Complete), Ok(Acknowledgement::Now));
}

#[test]
fn one_message_wakes_one_receiver_and_a_wake_up_is_never_lost() {
    let bench = Bench::plain();
    let queue = bench.queue();
    let wait = || {
        let woken = Arc::new(Woken::default());
        let consumer = bench.broker.new_consumer();
        let mut none = Vec::new();
        let waker = Waker::from(Arc::clone(&woken));
        queue.receive(Part::Main, ReceiveMode::PeekLock, 1, consumer, &waker, &mut none).unwrap();
        assert!(none.is_empty());
        (consumer, woken)
    };
    let waiting: Vec<_> = (0..3).map(|_| wait()).collect();
    let woken =
        || waiting.iter().map(|(_, woken)| woken.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
    bench.send("a");
    assert_eq!(woken(), [1, 0, 0]);
    // The first goes away instead of receiving; the second has no credit left.
    queue.forget(Part::Main, waiting[0].0);
    assert_eq!(woken(), [1, 1, 0]);
    let mut none = Vec::new();
    queue
        .receive(Part::Main, ReceiveMode::PeekLock, 0, waiting[1].0, Waker::noop(), &mut none)
        .unwrap();
    assert_eq!(woken(), [1, 1, 1]);
}

#[test]
fn an_expired_lock_wakes_a_waiting_receiver() {
    let bench = Bench::plain();
    bench.send("a");
    let _held = bench.one();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let consumer = bench.broker.new_consumer();
    bench
        .queue()
        .receive(Part::Main, ReceiveMode::PeekLock, 1, consumer, &waker, &mut Vec::new())
        .unwrap();
    bench.clock.advance(LOCK);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
}

#[test]
fn giving_up_one_of_two_deliveries_keeps_the_other() {
    let bench = Bench::plain();
    let fault = bench.broker.context.faults.add(Fault::redeliver());
    bench.send("a");
    let both = bench.take(Part::Main, 5);
    assert_eq!((both.len(), fault.fired()), (2, 1));
    assert_eq!(bench.counts(), (0, 1, 0));

    bench.settle(&both[0], abandon()).unwrap();
    assert_eq!(bench.counts(), (0, 1, 0), "the other delivery still holds it");
    assert_eq!(bench.settle(&both[0], Settlement::Complete), Err(SettleError::LockLost));
    bench.clock.advance(LOCK);
    assert_eq!(bench.counts(), (1, 0, 0));
    let again = bench.take(Part::Main, 5);
    assert_eq!(again[0].message.delivery_count, 2, "both deliveries failed");
    assert_eq!((again.len(), fault.fired()), (2, 2), "the next delivery is copied again");

    bench.settle(&again[1], Settlement::Complete).unwrap();
    assert_eq!(bench.settle(&again[0], Settlement::Complete), Err(SettleError::LockLost));
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[test]
fn a_copy_that_comes_too_late_does_not_fire() {
    let bench = Bench::plain();
    let fault = bench.broker.context.faults.add(Fault::redeliver().times(1));
    bench.send("a");
    let first = bench.one();
    bench.settle(&first, Settlement::Complete).unwrap();
    assert!(bench.take(Part::Main, 1).is_empty());
    assert_eq!(fault.fired(), 0);
    bench.send("b");
    assert_eq!(bench.take(Part::Main, 2).len(), 2);
    assert_eq!(fault.fired(), 1);
}

#[test]
fn an_expired_lock_fault_counts_towards_the_maximum() {
    let bench = Bench::new(|options| options.max_delivery_count(3));
    let fault = bench.broker.context.faults.add(Fault::expire_lock());
    bench.send("a");
    assert_eq!(bench.take(Part::Main, 10).len(), 3);
    assert_eq!((bench.counts(), fault.fired()), ((0, 0, 1), 3));
}

#[test]
fn lost_settlements_leave_the_lock_alone() {
    let bench = Bench::plain();
    let lost = bench.broker.context.faults.add(Fault::lose_settlement().nth(1));
    let cut = bench.broker.context.faults.add(Fault::drop_connection_at_settlement().nth(1));
    bench.send("a");
    let delivery = bench.one();
    assert_eq!(bench.settle(&delivery, Settlement::Complete), Ok(Acknowledgement::Never));
    assert_eq!(
        bench.settle(&delivery, Settlement::Complete),
        Ok(Acknowledgement::ConnectionEnds(Ending::Cut))
    );
    assert_eq!(bench.settle(&delivery, Settlement::Complete), Ok(Acknowledgement::Now));
    assert_eq!((lost.fired(), cut.fired(), bench.totals().fault_fired), (1, 1, 2));
    let events = bench.broker.context.events.snapshot();
    assert!(
        events
            .iter()
            .any(|event| event.kind == EventKind::FaultFired { fault: FaultKind::LoseSettlement })
    );
}

#[test]
fn receive_and_delete_takes_no_lock() {
    let bench = Bench::plain();
    bench.send("a");
    let mut deliveries = Vec::new();
    let consumer = bench.broker.new_consumer();
    let mode = ReceiveMode::ReceiveAndDelete;
    bench.queue().receive(Part::Main, mode, 5, consumer, Waker::noop(), &mut deliveries).unwrap();
    assert_eq!(ids(&deliveries), ["a"]);
    assert_eq!(deliveries[0].locked_until, None);
    assert_eq!(bench.counts(), (0, 0, 0));
}

#[test]
fn the_next_deadline_is_the_earliest_lock() {
    let bench = Bench::plain();
    assert_eq!(bench.broker.sweep(), None);
    bench.send("a");
    bench.send("b");
    let first = bench.one();
    let end = bench.clock.now().plus(LOCK);
    bench.clock.advance(Duration::from_secs(1));
    let _second = bench.one();
    assert_eq!(bench.broker.sweep(), Some(end));
    bench.settle(&first, Settlement::Complete).unwrap();
    assert_eq!(bench.broker.sweep(), Some(end.plus(Duration::from_secs(1))));
}

#[test]
fn sweeping_does_not_wake_the_one_who_sweeps() {
    let bench = Bench::plain();
    bench.send("a");
    let _held = bench.one();
    let is_woken = || {
        let changed = std::pin::pin!(bench.broker.context.alarm.changed());
        changed.poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(is_woken(), "the lock is the first thing that is due");
    assert!(bench.broker.sweep().is_some());
    assert!(!is_woken());
}

#[test]
fn a_lock_that_is_renewed_at_once_ends_later_than_before() {
    let bench = Bench::plain();
    bench.send("a");
    let token = bench.one().token;
    let renew = || bench.queue().renew(Part::Main, &[token]).unwrap();
    let first = renew();
    assert!(renew() > first, "{first:?}");
}
