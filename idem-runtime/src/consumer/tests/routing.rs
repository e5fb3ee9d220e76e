//! Several types of messages on one source.

use super::*;
use crate::delivery::Property;
use crate::store::NoTransaction;

/// What each handler was called with, in their order: its name and the MessageId.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Calls {
    fn sorted(&self) -> Vec<(&'static str, String)> {
        let mut calls = self.0.lock().unwrap().clone();
        calls.sort();
        calls
    }
}

macro_rules! recording_handler {
    ($handler:ident, $name:literal, $scope:literal, $level:ident, $work:ty) => {
        recording_handler!($handler, $name, $scope, [], $level, $work);
    };
    ($handler:ident, $name:literal, $scope:literal, $was:expr, $level:ident, $work:ty) => {
        struct $handler;

        impl Definition for $handler {
            const SPEC: HandlerSpec =
                HandlerSpec::new($name, $scope, Level::$level).with_was(&$was);

            type Message = serde_json::Value;
            type Decode = Json;
            type Work = $work;

            fn require(requirements: &mut Requirements) {
                <State<Calls> as FromContext<'_>>::require(requirements);
            }

            fn call<'a>(
                _: &'a mut $work,
                message: serde_json::Value,
                context: &'a Context,
            ) -> Result<Calling<'a>, Failure> {
                let State(calls) = State::<Calls>::from_context(context)?;
                let id = context.delivery().message_id().unwrap_or_default().to_owned();
                calls.0.lock().unwrap().push(($name, id));
                let fails = message["then"] == "fail";
                Ok(Box::pin(async move {
                    if fails { Err("the shop is closed".into()) } else { Ok(None) }
                }))
            }
        }
    };
}

recording_handler!(Place, "place", "test::place", One, ScriptedWork);
recording_handler!(Cancel, "cancel", "test::cancel", One, ScriptedWork);
recording_handler!(Log, "log", "test::log", Zero, NoTransaction);
recording_handler!(Placed, "placed", "test::placed", ["test::place"], One, ScriptedWork);
recording_handler!(OtherPlace, "other_place", "test::place", One, ScriptedWork);

fn with_subject(lock: u64, subject: &str) -> Result<Locked, BrokerError> {
    with(lock, |delivery| delivery.with_subject(subject))
}

fn with(lock: u64, change: impl FnOnce(Delivery) -> Delivery) -> Result<Locked, BrokerError> {
    let mut locked = locked(lock, 1, 0, "ok")?;
    locked.delivery = change(locked.delivery);
    Ok(locked)
}

fn dead_letter_of(bench: &Bench, lock: u64) -> String {
    let told = bench.broker.told();
    let (_, what) =
        told.into_iter().find(|(told, _)| *told == LockId(lock)).expect("it is settled");
    what
}

#[tokio::test(start_paused = true)]
async fn each_message_goes_to_the_handler_of_its_subject() {
    let script = vec![
        with_subject(1, "OrderPlaced"),
        with_subject(2, "OrderCancelled"),
        with_subject(3, "OrderViewed"),
        with_subject(4, "OrderRenewed"),
    ];
    let mut bench = Bench::new(vec![script]);
    let calls = Calls::default();
    let builder = bench.builder_without_handler().state(calls.clone());
    let builder = builder
        .route("OrderPlaced", Place)
        .route("OrderRenewed", Place)
        .route("OrderCancelled", Cancel)
        .route("OrderViewed", Log);
    let summary = bench.run_until_told(builder, 4).await;
    let expected = [("cancel", "m-2"), ("log", "m-3"), ("place", "m-1"), ("place", "m-4")];
    assert_eq!(calls.sorted(), expected.map(|(name, id)| (name, id.to_owned())));
    assert_eq!((summary.done, summary.rejected), (4, 0));
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 3, "the handler of level 0 has no transaction");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_no_route_names_is_dead_lettered_and_says_what_there_is() {
    let script = vec![with_subject(1, "orderplaced"), with_subject(2, ""), locked(3, 1, 0, "ok")];
    let mut bench = Bench::new(vec![script]);
    let calls = Calls::default();
    let builder = bench.builder_without_handler().state(calls.clone());
    let builder = builder.route("OrderPlaced", Place).route("OrderCancelled", Cancel);
    let summary = bench.run_until_told(builder, 3).await;
    let routes = "there are routes for `OrderCancelled`, `OrderPlaced`";
    let unknown = format!("dead-letter: Unroutable: no route for subject `orderplaced`; {routes}");
    assert_eq!(dead_letter_of(&bench, 1), unknown);
    let missing = "the message has no subject, by which it is routed";
    for lock in [2, 3] {
        let missing = format!("dead-letter: Unroutable: {missing}; {routes}");
        assert_eq!(dead_letter_of(&bench, lock), missing);
    }
    assert_eq!(calls.sorted(), []);
    assert_eq!((summary.rejected, summary.dead_letters), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_unroutable_stays_where_it_is() {
    let mut bench = Bench::new(vec![vec![with_subject(1, "Unknown")]]);
    bench.dead_letters = true;
    let builder = bench.builder_without_handler().state(Calls::default());
    bench.run_until_told(builder.route("OrderPlaced", Place), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "leave".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn beside_routes_the_handler_takes_all_else() {
    let script = vec![with_subject(1, "OrderPlaced"), with_subject(2, "?"), locked(3, 1, 0, "ok")];
    let mut bench = Bench::new(vec![script]);
    let calls = Calls::default();
    let builder = bench.builder_without_handler().state(calls.clone());
    bench.run_until_told(builder.handler(Log).route("OrderPlaced", Place), 3).await;
    let expected = [("log", "m-2"), ("log", "m-3"), ("place", "m-1")];
    assert_eq!(calls.sorted(), expected.map(|(name, id)| (name, id.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_property_can_name_the_route() {
    let typed = |lock, value: Property| {
        with(lock, |delivery| delivery.with_subject("OrderPlaced").with_property("type", value))
    };
    let script = vec![
        typed(1, Property::Text("cancel".to_owned())),
        typed(2, Property::Integer(7)),
        typed(3, Property::Bool(true)),
        typed(4, Property::Text("OrderPlaced".to_owned())),
        with_subject(5, "cancel"),
    ];
    let mut bench = Bench::new(vec![script]);
    let calls = Calls::default();
    let builder = bench.builder_without_handler().state(calls.clone()).route_by_property("type");
    bench.run_until_told(builder.route("cancel", Cancel).route("7", Place), 5).await;
    let expected = [("cancel", "m-1"), ("place", "m-2")];
    assert_eq!(calls.sorted(), expected.map(|(name, id)| (name, id.to_owned())));
    let cases = [
        (3, "property `type` is neither text nor an integer"),
        (4, "no route for property `type` `OrderPlaced`"),
        (5, "the message has no property `type`, by which it is routed"),
    ];
    for (lock, problem) in cases {
        let letter =
            format!("dead-letter: Unroutable: {problem}; there are routes for `7`, `cancel`");
        assert_eq!(dead_letter_of(&bench, lock), letter);
    }
}

/// Neither what a sender wrote nor the number of routes can push the rest out of the description.
#[tokio::test(start_paused = true)]
async fn the_description_of_an_unroutable_message_is_bounded() {
    let mut bench = Bench::new(vec![vec![with_subject(1, &"\u{1}".repeat(100_000))]]);
    let mut builder = bench.builder_without_handler().state(Calls::default());
    for number in 0..500 {
        builder = builder.route(format!("{number:03}{}", "ü".repeat(1000)), Place);
    }
    bench.run_until_told(builder, 1).await;
    let letter = dead_letter_of(&bench, 1);
    assert!(letter.chars().count() < 4096, "{} characters", letter.chars().count());
    assert!(letter.contains("`000ü") && letter.contains("`019ü"), "{letter}");
    assert!(!letter.contains("`020"), "{letter}");
    assert!(letter.ends_with(" and 480 more"), "{letter}");
    assert!(!letter.contains('\u{1}'), "control characters are escaped");
}

/// Three of each of two handlers, ready at once, of which one fails.
#[tokio::test(start_paused = true)]
async fn a_batch_has_messages_of_one_handler_only() {
    let subject = |lock: u64| if lock.is_multiple_of(2) { "OrderPlaced" } else { "OrderCancelled" };
    let mut script: Vec<_> = (1..=6).map(|lock| with_subject(lock, subject(lock))).collect();
    let mut bad = locked(7, 1, 0, "fail").unwrap();
    bad.delivery = bad.delivery.with_subject("OrderPlaced");
    script.push(Ok(bad));
    let mut bench = Bench::new(vec![script]);
    let calls = Calls::default();
    let builder = bench.builder_without_handler().state(calls.clone()).batch_max(8);
    let builder = builder.route("OrderPlaced", Place).route("OrderCancelled", Cancel);
    let summary = bench.run_until_told(builder, 7).await;
    assert_eq!((summary.done, summary.retries), (6, 1));
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 1 + 1 + 4, "a batch for each, and one of them again one by one");
    let cancelled: Vec<_> =
        calls.sorted().into_iter().filter(|(name, _)| *name == "cancel").collect();
    assert_eq!(cancelled.len(), 3, "the other handler's failure is none of its business");
}

#[tokio::test(start_paused = true)]
async fn each_handler_that_claims_enters_the_ledger() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    let builder = bench.builder_without_handler().state(Calls::default());
    let builder = builder.handler(Log).route("a", Place).route("b", Cancel).route("c", Place);
    let horizon = Horizon { dead_letter_age_max: DAY, resend_window: DAY };
    bench.run_until_told(builder.horizon(horizon), 1).await;
    let scopes: BTreeSet<_> = ["test::cancel", "test::place"].map(str::to_owned).into();
    assert_eq!(*bench.store.scopes_alive.lock().unwrap(), scopes);
    assert_eq!(*bench.store.scopes_pruned.lock().unwrap(), scopes);
    assert_eq!(bench.store.kept_alive.lock().unwrap().len(), 2, "each handler once");
}

/// M-05, and what else cannot be meant.
#[test]
fn routes_that_contradict_each_other_are_refused_with_all_problems_at_once() {
    let bench = Bench::new(vec![]);
    let error = bench
        .builder_without_handler()
        .handler(Log)
        .handler(Cancel)
        .route("a", Place)
        .route("a", Cancel)
        .route("b", Place)
        .route("b", Place)
        .route("", OtherPlace)
        .route_by_property("")
        .in_flight_max(0)
        .build()
        .expect_err("must be refused");
    let expected = [
        "`in_flight_max` must be 1 to 2000, found 0",
        "there are 2 handlers for all messages, `log` and `cancel`; give each a `.route(…)`",
        "`route_by_property` needs the name of a property",
        "route \"a\" is there twice, for `place` and for `cancel`",
        "route \"b\" is there twice, for `place` and for `place`",
        "the route of `other_place` has an empty name",
        "handlers `place` and `other_place` have the same scope, `test::place`: what one has done \
         would count as done for the other; set another `scope` on one of them",
    ];
    assert_eq!(error.problems()[..7], expected);
    let state = &error.problems()[7];
    assert!(state.contains("Calls"), "{state}");
    assert_eq!(error.problems().len(), 8, "the missing state is said once: {error}");
}

#[test]
fn an_earlier_scope_that_is_another_handlers_is_refused() {
    let bench = Bench::new(vec![]);
    let builder = bench.builder_without_handler().state(Calls::default());
    let error = builder.route("a", Place).route("b", Placed).build().expect_err("must be refused");
    let expected = "handlers `place` and `placed` have the same scope, `test::place`: what one has \
        done would count as done for the other; set another `scope` on one of them, or take it out \
        of `was`";
    assert_eq!(error.problems(), [expected]);
}

/// Its claims are to be kept, and pruned, for as long as anybody makes some.
#[tokio::test(start_paused = true)]
async fn the_ledger_of_an_earlier_scope_is_kept_too() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    let builder = bench.builder_without_handler().state(Calls::default()).handler(Placed);
    let horizon = Horizon { dead_letter_age_max: DAY, resend_window: DAY };
    bench.run_until_told(builder.horizon(horizon), 1).await;
    let scopes: BTreeSet<_> = ["test::place", "test::placed"].map(str::to_owned).into();
    assert_eq!(*bench.store.scopes_alive.lock().unwrap(), scopes);
    assert_eq!(*bench.store.scopes_pruned.lock().unwrap(), scopes);
}

#[test]
fn what_has_no_effect_is_refused() {
    let bench = Bench::new(vec![]);
    let horizon = Horizon { dead_letter_age_max: DAY, resend_window: DAY };
    let builder = bench.builder_without_handler().state(Calls::default()).state(Calls::default());
    let error = builder.handler(Log).route_by_property("type").horizon(horizon).build();
    let error = error.expect_err("must be refused");
    let problems = error.problems();
    assert_eq!(problems[0], "`horizon` has no effect at level 0, where nothing is claimed");
    assert_eq!(problems[1], "`route_by_property(\"type\")` has no effect without a `.route(…)`");
    assert!(problems[2].starts_with("two states of type `"), "{problems:?}");
    assert_eq!(problems.len(), 3, "{error}");

    let error = bench.builder_without_handler().build().expect_err("must be refused");
    assert!(error.to_string().contains("there is no handler"), "{error}");
}

/// M-05: the very same handler is no contradiction.
#[test]
fn one_handler_for_several_routes_and_all_else_is_fine() {
    let bench = Bench::new(vec![]);
    let builder = bench.builder_without_handler().state(Calls::default());
    let built = builder.handler(Place).handler(Place).route("a", Place).route("b", Place).build();
    assert!(built.is_ok(), "{:?}", built.err());
}
