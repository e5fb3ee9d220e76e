//! Transactions.

use super::*;

impl Bench {
    fn declare(&self) -> Transaction {
        Transaction::declare(&self.broker)
    }

    fn ended(&self) -> (u64, u64) {
        let totals = self.totals();
        (totals.transaction_committed, totals.transaction_rolled_back)
    }
}

fn send(transaction: &mut Transaction, bench: &Bench, id: &str) {
    transaction.send(&bench.queue(), vec![submission(id)]).unwrap();
}

fn complete(
    transaction: &mut Transaction,
    bench: &Bench,
    delivery: &Delivery,
) -> Result<(), TransactionError> {
    transaction.settle(&bench.queue(), Part::Main, delivery.token, Settlement::Complete)
}

#[test]
fn work_is_done_at_the_commit_and_together() {
    let bench = Bench::plain();
    ["a", "b", "c", "d"].into_iter().for_each(|id| bench.send(id));
    let held = bench.take(Part::Main, 4);
    let mut transaction = bench.declare();
    let settlements = [
        Settlement::Complete,
        abandon(),
        dead_letter("why"),
        Settlement::Defer { properties: Vec::new() },
    ];
    for (delivery, settlement) in held.iter().zip(settlements) {
        transaction.settle(&bench.queue(), Part::Main, delivery.token, settlement).unwrap();
    }
    send(&mut transaction, &bench, "e");
    assert_eq!(bench.counts(), (0, 4, 0));
    transaction.commit().unwrap();
    let counts = bench.queue().counts();
    assert_eq!((counts.active, counts.locked, counts.deferred, counts.dead_lettered), (2, 0, 1, 1));
    assert_eq!(ids(&bench.take(Part::Main, 9)), ["b", "e"]);
    assert_eq!(bench.ended(), (1, 0));
}

#[test]
fn a_transaction_that_is_dropped_leaves_no_trace() {
    let bench = Bench::new(|queue| queue.duplicate_detection(Duration::from_secs(60)));
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    send(&mut transaction, &bench, "b");
    drop(transaction);
    assert_eq!((bench.counts(), bench.ended()), ((0, 1, 0), (0, 1)));
    bench.send("b");
    assert_eq!(bench.counts(), (1, 1, 0), "its id is not known");
    assert_eq!(bench.settle(&held, Settlement::Complete), Ok(Acknowledgement::Now));
}

#[test]
fn duplicates_are_found_at_the_commit() {
    let bench = Bench::new(|queue| queue.duplicate_detection(Duration::from_secs(60)));
    let mut transaction = bench.declare();
    send(&mut transaction, &bench, "a");
    send(&mut transaction, &bench, "a");
    send(&mut transaction, &bench, "b");
    bench.send("b");
    transaction.commit().unwrap();
    assert_eq!((bench.counts(), bench.totals().duplicate_dropped), ((2, 0, 0), 2));
}

#[test]
fn a_message_in_a_transaction_is_held_and_settled_in_no_other_way() {
    let bench = Bench::plain();
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    assert_eq!(bench.settle(&held, Settlement::Complete), Err(SettleError::InTransaction));
    let mut other = bench.declare();
    let twice = complete(&mut other, &bench, &held).unwrap_err();
    assert_eq!(twice, TransactionError::Settle(SettleError::InTransaction));
    bench.clock.advance(LOCK * 3);
    assert_eq!(bench.counts(), (0, 1, 0), "its lock does not end");
    transaction.commit().unwrap();
    assert_eq!((bench.counts(), bench.totals().lock_expired), ((0, 0, 0), 0));
}

#[test]
fn a_lock_that_should_have_ended_ends_with_the_rollback() {
    let bench = Bench::plain();
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    bench.clock.advance(LOCK * 2);
    drop(transaction);
    assert_eq!((bench.counts(), bench.totals().lock_expired), ((1, 0, 0), 1));
    assert_eq!(bench.one().message.delivery_count, 1);
}

#[test]
fn a_lock_that_was_renewed_in_a_transaction_lasts_beyond_its_rollback() {
    let bench = Bench::plain();
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    bench.clock.advance(LOCK / 2);
    bench.queue().renew(Part::Main, &[held.token]).unwrap();
    drop(transaction);
    bench.clock.advance(LOCK - Duration::from_millis(1));
    assert_eq!(bench.counts(), (0, 1, 0));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.counts(), (1, 0, 0));
}

#[test]
fn a_transaction_ends_after_two_minutes_and_its_locks_with_it() {
    let bench = Bench::plain();
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    bench.clock.advance(Duration::from_secs(120) - Duration::from_millis(1));
    assert_eq!(bench.counts(), (0, 1, 0));
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.counts(), (1, 0, 0));
    let late = transaction.send(&bench.queue(), vec![submission("b")]).unwrap_err();
    assert_eq!(late.condition(), "amqp:transaction:timeout");
    assert_eq!(transaction.commit().unwrap_err(), TransactionError::TimedOut);
    assert_eq!((bench.counts(), bench.ended()), ((1, 0, 0), (0, 1)));
}

#[test]
fn a_transaction_is_about_one_entity_and_100_messages() {
    let queues = vec![QueueOptions::new("orders"), QueueOptions::new("other")];
    let bench = Bench::of(Topology { queues, ..Topology::default() });
    let mut transaction = bench.declare();
    transaction.send(&bench.queue(), vec![submission("x"); 99]).unwrap();
    let other = bench.broker.node("other").unwrap().queue;
    let elsewhere = transaction.send(&other, vec![submission("a")]).unwrap_err();
    assert_eq!(elsewhere.condition(), "amqp:not-allowed");
    let two = transaction.send(&bench.queue(), vec![submission("a"), submission("b")]);
    assert_eq!(two.unwrap_err(), TransactionError::TooManyMessages);
    send(&mut transaction, &bench, "a");
    let more = transaction.send(&bench.queue(), vec![submission("b")]);
    assert_eq!(more.unwrap_err(), TransactionError::TooManyMessages);
    transaction.commit().unwrap();
    assert_eq!((bench.counts(), other.counts().active), ((100, 0, 0), 0));
}

#[test]
fn a_commit_does_all_or_nothing() {
    let bench = Bench::new(|queue| queue.size_max(1024));
    bench.send("a");
    let held = bench.one();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    ["b", "c", "d", "e"].into_iter().for_each(|id| send(&mut transaction, &bench, id));
    let full = transaction.commit().unwrap_err();
    assert_eq!(full.condition(), "amqp:transaction:rollback");
    assert_eq!((bench.counts(), bench.ended()), ((0, 1, 0), (0, 1)));

    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held).unwrap();
    send(&mut transaction, &bench, "b");
    bench.queue().purge();
    let gone = transaction.commit().unwrap_err();
    assert_eq!(gone.condition(), "amqp:transaction:rollback");
    assert_eq!((bench.counts(), bench.ended()), ((0, 0, 0), (0, 2)));
}

#[test]
fn what_cannot_be_sent_or_settled_is_refused_at_once() {
    let bench = Bench::plain();
    let mut transaction = bench.declare();
    let long = transaction.send(&bench.queue(), vec![submission(&"x".repeat(129))]).unwrap_err();
    assert_eq!(long.condition(), "com.microsoft:argument-out-of-range");
    bench.send("a");
    let held = bench.one();
    bench.settle(&held, Settlement::Complete).unwrap();
    let gone = complete(&mut transaction, &bench, &held).unwrap_err();
    assert_eq!(gone.condition(), "com.microsoft:message-lock-lost");
    transaction.commit().unwrap();
    assert_eq!((bench.counts(), bench.ended()), ((0, 0, 0), (1, 0)));
}

#[test]
fn a_session_that_is_given_up_takes_its_messages_out_of_the_transaction() {
    let bench = Bench::new(|queue| queue.requires_session(true));
    let queue = bench.queue();
    queue.send(vec![Submission { session_id: Some("s".into()), ..submission("a") }]).unwrap();
    let consumer = bench.broker.new_consumer();
    queue.accept_session(&SessionWish::Named("s".into()), consumer, Waker::noop()).unwrap();
    let mut held = Vec::new();
    let mode = ReceiveMode::PeekLock;
    queue.receive(Part::Main, mode, 1, consumer, Waker::noop(), &mut held).unwrap();
    let mut transaction = bench.declare();
    complete(&mut transaction, &bench, &held[0]).unwrap();
    queue.forget(Part::Main, consumer);
    assert_eq!(transaction.commit().unwrap_err().condition(), "amqp:transaction:rollback");
    assert_eq!(bench.counts(), (1, 0, 0));
}
