//! Faults where the wire does not show them well.

use super::*;

const DELAY: Duration = Duration::from_secs(5);

fn armed(bench: &Bench, fault: Fault) -> crate::faults::FaultHandle {
    bench.broker.context.faults.add(fault)
}

#[test]
fn a_delayed_message_is_there_and_can_expire() {
    let bench = Bench::new(|queue| queue.default_time_to_live(DELAY / 2));
    let fault = armed(&bench, Fault::delay_delivery(DELAY));
    bench.send("a");
    assert!(bench.take(Part::Main, 1).is_empty());
    assert_eq!((bench.counts(), fault.fired()), ((1, 0, 0), 1));
    bench.clock.advance(DELAY);
    assert_eq!((bench.counts(), bench.totals().expired), ((0, 0, 0), 1));
    assert_eq!(bench.broker.sweep(), None, "nothing is left of the delay");
}

#[test]
fn a_delay_ends_by_itself_and_wakes_a_waiting_receiver() {
    let bench = Bench::plain();
    let fault = armed(&bench, Fault::delay_delivery(DELAY));
    bench.send("a");
    let woken = Arc::new(Woken::default());
    let consumer = bench.broker.new_consumer();
    let receive = || {
        let mut deliveries = Vec::new();
        let waker = Waker::from(Arc::clone(&woken));
        let mode = ReceiveMode::PeekLock;
        bench.queue().receive(Part::Main, mode, 1, consumer, &waker, &mut deliveries).unwrap();
        deliveries.len()
    };
    assert_eq!(receive(), 0);
    bench.clock.advance(DELAY);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!((receive(), fault.fired()), (1, 1));
}

#[test]
fn delays_and_reordering_reach_receive_and_delete() {
    let bench = Bench::plain();
    ["a", "b", "c"].into_iter().for_each(|id| bench.send(id));
    let delay = armed(&bench, Fault::delay_delivery(DELAY).message("a"));
    let reorder = armed(&bench, Fault::reorder().message("b").times(1));
    let mut deliveries = Vec::new();
    let consumer = bench.broker.new_consumer();
    let mode = ReceiveMode::ReceiveAndDelete;
    let queue = bench.queue();
    queue.receive(Part::Main, mode, 9, consumer, Waker::noop(), &mut deliveries).unwrap();
    assert_eq!(ids(&deliveries), ["c", "b"]);
    assert_eq!((delay.fired(), reorder.fired(), bench.counts()), (1, 1, (1, 0, 0)));
}

#[test]
fn a_session_keeps_its_order_whatever_is_delayed() {
    let bench = Bench::new(|queue| queue.requires_session(true));
    let queue = bench.queue();
    let of = |session: &str, id| Submission { session_id: Some(session.into()), ..submission(id) };
    queue.send(vec![of("s", "a"), of("s", "b"), of("t", "c")]).unwrap();
    let reorder = armed(&bench, Fault::reorder());
    let delay = armed(&bench, Fault::delay_delivery(DELAY).message("a"));
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let consumer = bench.broker.new_consumer();
    queue.accept_session(&SessionWish::Named("s".into()), consumer, &waker).unwrap();
    let receive = || {
        let mut deliveries = Vec::new();
        let mode = ReceiveMode::PeekLock;
        queue.receive(Part::Main, mode, 9, consumer, &waker, &mut deliveries).unwrap();
        deliveries
    };
    assert!(receive().is_empty(), "nothing behind it goes first");
    assert_eq!((delay.fired(), reorder.fired()), (1, 0));
    queue.forget(Part::Main, consumer);
    let next = |consumer| {
        let wish = SessionWish::NextAvailable;
        queue.accept_session(&wish, consumer, Waker::noop()).unwrap().map(|grant| grant.id)
    };
    let others = [bench.broker.new_consumer(), bench.broker.new_consumer()];
    assert_eq!((next(others[0]).as_deref(), next(others[1])), (Some("t"), None));
    queue.accept_session(&SessionWish::Named("s".into()), consumer, &waker).unwrap();
    assert!(receive().is_empty());
    bench.clock.advance(DELAY);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(ids(&receive()), ["a", "b"]);
}

#[test]
fn a_settlement_that_is_refused_does_not_fire() {
    let bench = Bench::plain();
    let fault = armed(&bench, Fault::lose_settlement_answer());
    bench.send("a");
    let held = bench.one();
    let property = Property { name: "large".to_owned(), value: Bytes::from(vec![0; 70_000]) };
    let settlement = Settlement::Abandon { properties: vec![property] };
    assert_eq!(bench.settle(&held, settlement), Err(SettleError::PropertiesTooLarge));
    assert_eq!(fault.fired(), 0);
    assert_eq!(bench.settle(&held, Settlement::Complete), Ok(Acknowledgement::Never));
    assert_eq!((fault.fired(), bench.counts()), (1, (0, 0, 0)));
}

#[test]
fn a_send_that_is_refused_anyway_does_not_fire() {
    let bench = Bench::plain();
    let fault = armed(&bench, Fault::drop_connection_after_send().times(1));
    assert!(bench.queue().take(vec![submission(&"x".repeat(129))]).is_err());
    assert_eq!(fault.fired(), 0);
    let sent = bench.queue().take(vec![submission("a"), submission("b")]).unwrap();
    assert_eq!(sent, Acknowledgement::ConnectionEnds(Ending::Cut));
    assert_eq!((fault.fired(), bench.counts()), (1, (2, 0, 0)));
}

#[test]
fn a_batch_is_one_send_and_has_all_its_ids() {
    let bench = Bench::plain();
    let fault = armed(&bench, Fault::refuse_send().message("b").nth(1));
    let send = |ids: &[&str]| bench.queue().take(ids.iter().map(|id| submission(id)).collect());
    assert!(send(&["a", "c"]).is_ok());
    assert_eq!(send(&["a", "b"]).unwrap_err().condition(), "com.microsoft:server-busy");
    assert!(send(&["b"]).is_ok());
    assert_eq!((fault.fired(), bench.counts()), (1, (3, 0, 0)));
}
