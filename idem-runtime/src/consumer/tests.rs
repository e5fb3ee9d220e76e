//! The loop against a scripted broker and a scripted database, on tokio's paused clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use super::*;
use crate::broker::{BrokerError, LockId, Locked, Receiver, Settler};
use crate::delivery::{Delivery, SourceId};
use crate::handler::{Context, Handler, HandlerSpec, Level, State};
use crate::handler::{FromContext, Requirements};
use crate::horizon::{Horizon, Retention};
use crate::key::{Digest, KeyEncoder, KeyValue};
use crate::outcome::{Chain, Failure, Reply};
use crate::settle::Settlement;
use crate::store::{
    Claim, Claimed, Constraint, Earlier, Fault, Names, ScopeKeys, StoreError, Work,
};

const LOCK: Duration = Duration::from_secs(10);

// --- A broker that hands out what it is given and writes down what it is told. -------------------

#[derive(Clone, Debug)]
struct ScriptedSource {
    id: SourceId,
    dead_letters: bool,
    broker: Arc<ScriptedBroker>,
}

#[derive(Debug, Default)]
struct ScriptedBroker {
    /// What `open` and `receive` give next; when a script is empty they wait for ever.
    opens: Mutex<VecDeque<Vec<Result<Locked, BrokerError>>>>,
    told: Mutex<Vec<(Duration, LockId, String)>>,
    renewals: Mutex<Vec<(Duration, LockId)>>,
    renewal_errors: Mutex<VecDeque<BrokerError>>,
    started: Mutex<Option<Instant>>,
    changed: Notify,
    closed: AtomicUsize,
}

impl ScriptedBroker {
    fn at(&self) -> Duration {
        self.started.lock().unwrap().expect("the consumer has started").elapsed()
    }

    fn told(&self) -> Vec<(LockId, String)> {
        self.told.lock().unwrap().iter().map(|(_, lock, what)| (*lock, what.clone())).collect()
    }

    fn first_told_after(&self) -> Duration {
        self.told.lock().unwrap().first().expect("something was settled").0
    }

    fn renewals(&self) -> Vec<Duration> {
        self.renewals.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    async fn until_told(&self, count: usize) {
        while self.told.lock().unwrap().len() < count {
            self.changed.notified().await;
        }
    }
}

impl Source for ScriptedSource {
    type Receiver = ScriptedReceiver;

    fn id(&self) -> &SourceId {
        &self.id
    }

    fn is_dead_letter_queue(&self) -> bool {
        self.dead_letters
    }

    async fn open(&self, _prefetch: u32) -> Result<ScriptedReceiver, BrokerError> {
        self.broker.started.lock().unwrap().get_or_insert_with(Instant::now);
        let Some(script) = self.broker.opens.lock().unwrap().pop_front() else {
            return Err(BrokerError::Closed);
        };
        Ok(ScriptedReceiver { script: script.into(), broker: Arc::clone(&self.broker) })
    }
}

struct ScriptedReceiver {
    script: VecDeque<Result<Locked, BrokerError>>,
    broker: Arc<ScriptedBroker>,
}

impl Receiver for ScriptedReceiver {
    type Settler = ScriptedSettler;

    fn settler(&self) -> ScriptedSettler {
        ScriptedSettler(Arc::clone(&self.broker))
    }

    async fn receive(&mut self) -> Result<Locked, BrokerError> {
        match self.script.pop_front() {
            Some(next) => next,
            None => std::future::pending().await,
        }
    }

    fn stop(&mut self) {
        self.script.clear();
    }

    async fn close(self) {
        self.broker.closed.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(Clone)]
struct ScriptedSettler(Arc<ScriptedBroker>);

impl Settler for ScriptedSettler {
    async fn renew(&self, lock: LockId) -> Result<Duration, BrokerError> {
        self.0.renewals.lock().unwrap().push((self.0.at(), lock));
        match self.0.renewal_errors.lock().unwrap().pop_front() {
            Some(error) => Err(error),
            None => Ok(LOCK),
        }
    }

    async fn settle(&self, lock: LockId, settlement: Settlement) -> Result<(), BrokerError> {
        let what = match settlement {
            Settlement::Complete(_) => "complete".to_owned(),
            Settlement::Abandon => "abandon".to_owned(),
            Settlement::DeadLetter(rejection) => format!("dead-letter: {rejection}"),
            Settlement::Leave => "leave".to_owned(),
        };
        self.0.told.lock().unwrap().push((self.0.at(), lock, what));
        self.0.changed.notify_waiters();
        Ok(())
    }

    fn give_back(&self, lock: LockId) {
        self.0.told.lock().unwrap().push((self.0.at(), lock, "give back".to_owned()));
        self.0.changed.notify_waiters();
    }
}

// --- A database whose transactions begin and claim as the script says. ---------------------------

#[derive(Clone, Debug, Default)]
struct ScriptedStore {
    begins: Arc<Mutex<VecDeque<Fault>>>,
    claims: Arc<Mutex<VecDeque<Claimed>>>,
    /// Whether a claim is found before a transaction begins.
    is_claimed: bool,
    /// How long each step of a transaction takes.
    slowness: Duration,
    begun: Arc<AtomicUsize>,
    refuses_to_start: bool,
    /// What the ledger has of the scope, where that is something else.
    registered: Option<ScopeKeys>,
    kept_alive: Arc<Mutex<Vec<Retention>>>,
    prunings: Arc<AtomicUsize>,
}

struct ScriptedWork {
    claims: Arc<Mutex<VecDeque<Claimed>>>,
    slowness: Duration,
}

impl Work<ScriptedStore> for ScriptedWork {
    async fn begin(store: &ScriptedStore) -> Result<Self, StoreError> {
        store.begun.fetch_add(1, Ordering::SeqCst);
        let fault = store.begins.lock().unwrap().pop_front();
        match fault {
            Some(fault) => Err(StoreError::found("begin", fault)),
            None => {
                sleep(store.slowness).await;
                Ok(Self { claims: Arc::clone(&store.claims), slowness: store.slowness })
            }
        }
    }

    async fn claim_many(&mut self, claims: &[&Claim]) -> Result<Vec<Claimed>, StoreError> {
        sleep(self.slowness).await;
        Ok(claims.iter().map(|_| Claimed::Ours).collect())
    }

    async fn keep(&mut self, _: &[(Digest, &Reply)]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn mark(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn may_be_forgotten(
        &mut self,
        _: &'static str,
        _: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        Ok(false)
    }

    async fn claim(&mut self, _: &Claim) -> Result<Claimed, StoreError> {
        Ok(self.claims.lock().unwrap().pop_front().unwrap_or(Claimed::Ours))
    }

    async fn commit(self, _: &ScriptedStore) -> Result<(), StoreError> {
        sleep(self.slowness).await;
        Ok(())
    }

    async fn rollback(self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Store for ScriptedStore {
    type Connection = ();
    type Transaction = Box<()>;

    const MIGRATIONS: &'static [&'static str] = &[];

    fn with_names(self, _: Names) -> Result<Self, StoreError> {
        Ok(self)
    }

    async fn begin(&self) -> Result<Box<()>, StoreError> {
        Ok(Box::new(()))
    }

    async fn claim(_: &mut Box<()>, _: &Claim) -> Result<Claimed, StoreError> {
        Ok(Claimed::Ours)
    }

    async fn claim_many(_: &mut Box<()>, claims: &[&Claim]) -> Result<Vec<Claimed>, StoreError> {
        Ok(claims.iter().map(|_| Claimed::Ours).collect())
    }

    async fn keep(_: &mut Box<()>, _: &[(Digest, &Reply)]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn commit(_: Box<()>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn was_ended(_: &mut Box<()>) -> bool {
        false
    }

    async fn rollback(_: Box<()>) {}

    async fn find(&self, _: Digest) -> Result<Option<Earlier>, StoreError> {
        Ok(self.is_claimed.then(earlier))
    }

    fn fault_of(_: &(dyn std::error::Error + 'static)) -> Option<Fault> {
        None
    }

    async fn register(&self, scope: &ScopeKeys) -> Result<ScopeKeys, StoreError> {
        Ok(self.registered.clone().unwrap_or_else(|| scope.clone()))
    }

    async fn keep_alive(&self, scope: &str, retention: Retention) -> Result<(), StoreError> {
        assert_eq!(scope, "test::obey");
        self.kept_alive.lock().unwrap().push(retention);
        Ok(())
    }

    async fn scopes(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn prune(&self, scope: &str, _: u32) -> Result<Option<u64>, StoreError> {
        assert_eq!(scope, "test::obey");
        self.prunings.fetch_add(1, Ordering::SeqCst);
        Ok(Some(0))
    }

    async fn oldest_claim_age(&self, _: &str) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    async fn pruned_before(_: &mut Box<()>, _: &str) -> Result<i64, StoreError> {
        Ok(0)
    }

    async fn mark(_: &mut Box<()>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        let (schema, table, columns, table_columns) = Default::default();
        Ok(Constraint { name: name.to_owned(), schema, table, columns, table_columns })
    }

    fn violates(_: &(dyn std::error::Error + 'static), _: &Constraint) -> bool {
        false
    }

    async fn agreement(
        &self,
        _: &Constraint,
        _: &[KeyValue],
        _: &[(&'static str, &KeyValue)],
    ) -> Result<Option<Vec<bool>>, StoreError> {
        Ok(None)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        match self.refuses_to_start {
            true => Err(StoreError::found("the ledger's tables are missing", Fault::Refused)),
            false => Ok(()),
        }
    }
}

// --- A handler that does what its message says. ---------------------------------------------------

#[derive(Deserialize)]
struct Instruction {
    seconds: u64,
    then: String,
}

#[derive(Clone, Default)]
struct Running {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Obedient;

impl Handler<ScriptedStore> for Obedient {
    const SPEC: HandlerSpec = HandlerSpec {
        name: "obey",
        scope: "test::obey",
        level: Level::Two,
        key: &["then"],
        constraint: None,
        same: &[],
    };

    type Message = Instruction;
    type Work = ScriptedWork;

    fn key(message: &Instruction, key: &mut KeyEncoder) {
        assert_ne!(message.then, "panic in key", "on purpose");
        key.part(&message.then);
    }

    fn require(requirements: &mut Requirements) {
        <State<Running> as FromContext<'_>>::require(requirements);
    }

    async fn call<'a>(
        _: &'a mut ScriptedWork,
        message: Instruction,
        context: &'a Context,
    ) -> Result<Option<Reply>, Failure> {
        let State(running) = State::<Running>::from_context(context)?;
        let now = running.now.fetch_add(1, Ordering::SeqCst) + 1;
        running.most.fetch_max(now, Ordering::SeqCst);
        sleep(Duration::from_secs(message.seconds)).await;
        running.now.fetch_sub(1, Ordering::SeqCst);
        match message.then.as_str() {
            "fail" => Err("the shop is closed".into()),
            "reject" => Err(Failure::reject("UnknownCurrency", "no such currency: XXX")),
            "panic" => panic!("boom"),
            _ => Ok(None),
        }
    }
}

fn earlier() -> Earlier {
    Earlier { claimed_at: OffsetDateTime::UNIX_EPOCH, same: Vec::new(), reply: None }
}

// --- Putting them together. -------------------------------------------------------------------------

struct Bench {
    broker: Arc<ScriptedBroker>,
    store: ScriptedStore,
    running: Running,
    stop: mpsc::Sender<()>,
    stopped: Option<mpsc::Receiver<()>>,
    dead_letters: bool,
}

impl Bench {
    fn new(opens: Vec<Vec<Result<Locked, BrokerError>>>) -> Self {
        let broker = ScriptedBroker { opens: Mutex::new(opens.into()), ..Default::default() };
        let (stop, stopped) = mpsc::channel(1);
        Self {
            broker: Arc::new(broker),
            store: ScriptedStore::default(),
            running: Running::default(),
            stop,
            stopped: Some(stopped),
            dead_letters: false,
        }
    }

    fn builder(&self) -> ConsumerBuilder<ScriptedSource, ScriptedStore> {
        let id = SourceId::new("bus.example.net", "orders");
        let broker = Arc::clone(&self.broker);
        let source = ScriptedSource { id, dead_letters: self.dead_letters, broker };
        Consumer::builder(source, self.store.clone()).handler(Obedient).state(self.running.clone())
    }

    /// Runs until `count` messages are settled, then stops the consumer in order.
    async fn run_until_told(
        &mut self,
        builder: ConsumerBuilder<ScriptedSource, ScriptedStore>,
        count: usize,
    ) -> Summary {
        let consumer = builder.build().expect("a valid consumer");
        let counters = consumer.counters();
        let mut stopped = self.stopped.take().expect("runs once");
        let run = consumer.run_until(async move {
            stopped.recv().await;
        });
        let stop = async {
            self.broker.until_told(count).await;
            self.stop.send(()).await.expect("the consumer is running");
        };
        let (ran, ()) = tokio::join!(run, stop);
        ran.expect("the consumer starts");
        counters.summary()
    }
}

fn locked(lock: u64, delivery_count: u32, seconds: u64, then: &str) -> Result<Locked, BrokerError> {
    let body = format!(r#"{{"seconds":{seconds},"then":"{then}"}}"#);
    let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), body)
        .with_message_id(format!("m-{lock}"))
        .with_delivery_count(delivery_count);
    Ok(Locked { delivery, lock: LockId(lock), lock_remaining: LOCK })
}

/// Eight messages that are ready at once, of which the fourth fails.
#[tokio::test(start_paused = true)]
async fn messages_that_are_ready_share_a_transaction_and_a_bad_one_does_not_spoil_them() {
    let ok = |lock: u64| locked(lock, 1, 0, &format!("ok {lock}"));
    let one = |lock| if lock == 4 { locked(lock, 1, 0, "fail") } else { ok(lock) };
    let messages = (1..=8).map(one).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(8), 8).await;
    assert_eq!((summary.done, summary.retries), (7, 1));
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 1 + 8, "together, and then one by one");

    let messages = (1..=8).map(ok).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(4), 8).await;
    assert_eq!(summary.done, 8);
    assert_eq!(bench.store.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_counted_before_is_handled_alone() {
    let messages = (1..=4).map(|lock| locked(lock, 2, 0, &format!("ok {lock}"))).collect();
    let mut bench = Bench::new(vec![messages]);
    let summary = bench.run_until_told(bench.builder().batch_max(8), 4).await;
    assert_eq!((summary.done, bench.store.begun.load(Ordering::SeqCst)), (4, 4));
}

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

const DAY: Duration = Duration::from_secs(24 * 3600);

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
}

#[tokio::test(start_paused = true)]
async fn without_a_horizon_claims_are_kept_for_ever() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 3600, "ok")]]);
    bench.run_until_told(bench.builder(), 1).await;
    assert!(bench.store.kept_alive.lock().unwrap().is_empty());
    assert_eq!(bench.store.prunings.load(Ordering::SeqCst), 0);
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

#[tokio::test(start_paused = true)]
async fn only_a_delivery_that_was_counted_before_looks_for_its_claim_first() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok"), locked(2, 2, 0, "ok")]]);
    bench.store.is_claimed = true;
    let builder = bench.builder().in_flight_max(1);
    let summary = bench.run_until_told(builder, 2).await;
    assert_eq!(bench.store.begun.load(Ordering::SeqCst), 1, "the first delivery's");
    assert_eq!((summary.done, summary.duplicates), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_completed_after_its_handler_has_ended_and_not_before() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 3, "ok")]]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert!(bench.broker.first_told_after() >= Duration::from_secs(3));
    assert_eq!((summary.deliveries, summary.done), (1, 1));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_completed_without_running_the_handler() {
    let mut bench = Bench::new(vec![vec![locked(1, 2, 3, "ok")]]);
    bench.store.claims.lock().unwrap().push_back(Claimed::Before(earlier()));
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert_eq!((summary.duplicates, summary.done), (1, 0));
    assert_eq!(bench.running.most.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_given_back_after_a_pause_that_grows_with_its_deliveries() {
    let pause_of = async |delivery_count| {
        let mut bench = Bench::new(vec![vec![locked(1, delivery_count, 0, "fail")]]);
        bench.run_until_told(bench.builder(), 1).await;
        assert_eq!(bench.broker.told(), [(LockId(1), "abandon".to_owned())]);
        bench.broker.first_told_after()
    };
    let (first, seventh) = (pause_of(1).await, pause_of(7).await);
    assert!(first >= Duration::from_millis(25), "{first:?}");
    assert!(seventh >= Duration::from_millis(1600), "{seventh:?}");
}

#[tokio::test(start_paused = true)]
async fn the_last_delivery_is_dead_lettered_with_the_real_reason() {
    let mut bench = Bench::new(vec![vec![locked(1, 4, 0, "fail"), locked(2, 5, 0, "fail")]]);
    let summary = bench.run_until_told(bench.builder().delivery_count_max(5), 2).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told[0].1, "abandon");
    assert_eq!(
        told[1].1,
        "dead-letter: DeliveriesExhausted: the handler failed: the shop is closed"
    );
    assert_eq!((summary.retries, summary.dead_letters), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_dead_lettered_at_once() {
    let mut undecodable = locked(2, 1, 0, "ok").unwrap();
    undecodable.delivery = Delivery::new(undecodable.delivery.source().clone(), "not JSON");
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "reject"), Ok(undecodable)]]);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told[0].1, "dead-letter: UnknownCurrency: no such currency: XXX");
    assert!(
        told[1].1.starts_with("dead-letter: UndecodableBody: the body is not JSON"),
        "{told:?}"
    );
    assert_eq!((summary.rejected, summary.dead_letters), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_never_dead_lettered_again() {
    let mut bench = Bench::new(vec![vec![locked(1, 12, 0, "fail"), locked(2, 12, 0, "reject")]]);
    bench.dead_letters = true;
    let summary = bench.run_until_told(bench.builder(), 2).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    assert_eq!(told, [(LockId(1), "abandon".to_owned()), (LockId(2), "leave".to_owned())]);
    assert_eq!(summary.dead_letters, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_message_and_no_other() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 1, "panic"), locked(2, 1, 2, "ok")]]);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    let expected = [(LockId(1), "abandon".to_owned()), (LockId(2), "complete".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!((summary.retries, summary.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_renewed_at_half_time_while_the_handler_runs_and_never_after() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 23, "ok"), locked(2, 1, 60, "ok")]]);
    bench.run_until_told(bench.builder(), 2).await;
    let renewals = bench.broker.renewals.lock().unwrap().clone();
    let of =
        |lock| renewals.iter().filter(move |(_, l)| *l == LockId(lock)).map(|(at, _)| at.as_secs());
    assert_eq!(of(1).collect::<Vec<_>>(), [5, 10, 15, 20]);
    assert_eq!(of(2).collect::<Vec<_>>(), [5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55]);
}

#[tokio::test(start_paused = true)]
async fn renewal_ends_at_its_limit_and_the_handler_runs_on() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 60, "ok")]]);
    let builder = bench.builder().renewal_max(Duration::from_secs(18));
    bench.run_until_told(builder, 1).await;
    assert_eq!(bench.broker.renewals().len(), 3);
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_takes_too_long_is_stopped_and_fails() {
    let script = vec![locked(1, 1, 8, "ok"), locked(2, 1, 3600, "ok"), locked(3, 10, 3600, "ok")];
    let mut bench = Bench::new(vec![script]);
    let builder = bench.builder().handler_timeout(Duration::from_secs(9));
    let summary = bench.run_until_told(builder, 3).await;
    let mut told = bench.broker.told();
    told.sort_by_key(|(lock, _)| lock.0);
    let told: Vec<_> = told.iter().map(|(_, what)| what.as_str()).collect();
    let reason = "dead-letter: DeliveriesExhausted: the handler did not end within its time-out of \
                  9s, and was stopped";
    assert_eq!(told, ["complete", "abandon", reason]);
    assert_eq!((summary.done, summary.retries), (1, 2));
    assert!(bench.broker.at() < Duration::from_secs(20), "{:?}", bench.broker.at());
}

/// Only the handler's own time counts.
#[tokio::test(start_paused = true)]
async fn what_is_not_the_handlers_is_never_stopped() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 1, "ok"), locked(2, 1, 1, "ok 2")]]);
    bench.store.slowness = Duration::from_secs(30);
    let builder = bench.builder().handler_timeout(Duration::from_secs(2)).batch_max(2);
    let summary = bench.run_until_told(builder, 2).await;
    assert_eq!(summary.done, 2);
    assert!(bench.broker.first_told_after() >= Duration::from_secs(90), "begin, claim and commit");
    let begun = bench.store.begun.load(Ordering::SeqCst);
    assert_eq!(begun, 1, "the batch was not taken apart");
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

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_counted_and_does_not_cancel_the_handler() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 60, "ok")]]);
    let unreachable =
        BrokerError::Unreachable { namespace: "bus".to_owned(), source: "cut".into() };
    bench.broker.renewal_errors.lock().unwrap().extend([unreachable, BrokerError::LockLost]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.renewals().len(), 2, "tried again after the first error only");
    assert_eq!((summary.locks_lost, summary.done), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn no_more_messages_are_handled_than_may_be_in_flight() {
    let script = (1..=20).map(|lock| locked(lock, 1, 1, "ok")).collect();
    let mut bench = Bench::new(vec![script]);
    bench.run_until_told(bench.builder().in_flight_max(3), 20).await;
    assert_eq!(bench.running.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_and_a_database_that_is_away_are_waited_for() {
    let mut bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Unavailable; 50]);
    bench.store.claims.lock().unwrap().extend([Claimed::Busy, Claimed::Busy, Claimed::Busy]);
    let summary = bench.run_until_told(bench.builder(), 1).await;
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
    assert_eq!((summary.done, summary.retries, summary.busy), (1, 0, 0));
    assert!(!bench.broker.renewals().is_empty(), "the lock is renewed meanwhile");
    assert!(bench.store.begins.lock().unwrap().is_empty(), "every fault was met");
    assert!(bench.store.claims.lock().unwrap().is_empty(), "every busy answer was met");
}

#[tokio::test(start_paused = true)]
async fn a_lost_race_before_the_handler_runs_costs_nothing() {
    let mut bench = Bench::new(vec![vec![locked(1, 1, 0, "ok"), locked(2, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Contention; 5]);
    let summary = bench.run_until_told(bench.builder().in_flight_max(1), 2).await;
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "complete".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert_eq!((summary.retries, summary.done), (0, 2));
    assert!(bench.store.begins.lock().unwrap().is_empty(), "every fault was met");
}

#[tokio::test(start_paused = true)]
async fn a_broken_receiver_is_closed_and_opened_again() {
    let broken = || Err(BrokerError::Closed);
    let script =
        vec![vec![locked(1, 1, 1, "ok"), broken()], vec![broken()], vec![locked(2, 1, 0, "ok")]];
    let mut bench = Bench::new(script);
    let summary = bench.run_until_told(bench.builder(), 2).await;
    assert_eq!((summary.done, summary.reconnects), (2, 2));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_running_handlers() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok")]]);
    let consumer = bench.builder().build().unwrap();
    consumer.run_until(sleep(Duration::from_secs(5))).await.unwrap();
    assert_eq!(bench.broker.told(), [(LockId(1), "complete".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_back_what_does_not_end_in_time() {
    let bench = Bench::new(vec![vec![locked(1, 1, 20, "ok"), locked(2, 1, 60, "ok")]]);
    let consumer =
        bench.builder().shutdown_deadline(Duration::from_secs(30)).build().expect("valid");
    consumer.run_until(sleep(Duration::from_secs(5))).await.unwrap();
    let expected = [(LockId(1), "complete".to_owned()), (LockId(2), "give back".to_owned())];
    assert_eq!(bench.broker.told(), expected);
    assert!(bench.broker.at() < Duration::from_secs(40));
    assert_eq!(bench.broker.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_start_says_why() {
    let mut bench = Bench::new(vec![]);
    let error = bench.builder().build().unwrap().run_until(std::future::pending()).await;
    assert!(matches!(error, Err(RunError::Broker(_))));

    bench.store.refuses_to_start = true;
    let error = bench.builder().build().unwrap().run_until(std::future::pending()).await;
    assert!(matches!(error, Err(RunError::Store(_))));
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

/// Runs until `count` messages are settled, or says after ten (paused) minutes that they never were.
async fn told_in_time(
    bench: &Bench,
    builder: ConsumerBuilder<ScriptedSource, ScriptedStore>,
    count: usize,
) -> Vec<String> {
    let consumer = builder.build().expect("a valid consumer");
    let broker = Arc::clone(&bench.broker);
    let stop = async move {
        tokio::time::timeout(Duration::from_secs(600), broker.until_told(count)).await.ok();
    };
    consumer.run_until(stop).await.expect("the consumer starts");
    bench.broker.told().into_iter().map(|(_, what)| what).collect()
}

/// A panic outside `Handler::call` ends the task: nobody settles or forgets the lock, and the
/// adapter counts the message as held for ever.
#[tokio::test(start_paused = true)]
async fn a_panic_in_the_key_is_settled_too() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "panic in key")]]);
    assert_eq!(told_in_time(&bench, bench.builder(), 1).await, ["abandon"]);
}

/// `Instant::now() + Duration::MAX` panics in the task of every delivery.
#[tokio::test(start_paused = true)]
async fn the_longest_renewal_is_no_panic() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    let builder = bench.builder().renewal_max(Duration::MAX);
    assert_eq!(told_in_time(&bench, builder, 1).await, ["complete"]);
}

/// An outage that lasts longer than `renewal_max` dead-letters every message on its last delivery.
#[tokio::test(start_paused = true)]
async fn an_outage_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 100_000]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// Contention in `BEGIN` or in the claim is nothing that the message can help.
#[tokio::test(start_paused = true)]
async fn contention_at_begin_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Contention; 3]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// Neither is a ledger that refuses us: a revoked privilege, a table in another schema.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_refuses_dead_letters_nothing() {
    let bench = Bench::new(vec![vec![locked(1, 10, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend([Fault::Refused]);
    let told = told_in_time(&bench, bench.builder(), 1).await;
    assert!(!told.iter().any(|what| what.starts_with("dead-letter")), "{told:?}");
}

/// C-20: trying again goes on for minutes after the lock was lost, beside the redelivered copy.
#[tokio::test(start_paused = true)]
async fn trying_again_stops_when_the_lock_is_lost() {
    let bench = Bench::new(vec![vec![locked(1, 1, 0, "ok")]]);
    bench.store.begins.lock().unwrap().extend(vec![Fault::Unavailable; 100_000]);
    bench.broker.renewal_errors.lock().unwrap().push_back(BrokerError::LockLost);
    told_in_time(&bench, bench.builder(), 1).await;
    let after = bench.broker.told.lock().unwrap()[0].0;
    assert!(after < 3 * LOCK, "given up {after:?} after a lock of {LOCK:?} was lost");
}

/// A renewal that cannot succeed any more is asked for twenty times a second.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_keeps_failing_ends_with_the_lock() {
    let bench = Bench::new(vec![vec![locked(1, 1, 120, "ok")]]);
    let unreachable =
        || BrokerError::Unreachable { namespace: "bus".to_owned(), source: "cut".into() };
    bench.broker.renewal_errors.lock().unwrap().extend((0..100_000).map(|_| unreachable()));
    told_in_time(&bench, bench.builder(), 1).await;
    let renewals = bench.broker.renewals();
    let late = renewals.iter().filter(|at| **at > 2 * LOCK).count();
    assert_eq!(late, 0, "{} renewals, {late} of them long after the lock ran out", renewals.len());
}

/// Opening succeeds and receiving fails at once: each round starts again with the first pause.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_breaks_at_once_is_reopened_with_growing_pauses() {
    let script = (0..100_000).map(|_| vec![Err(BrokerError::Closed)]).collect();
    let bench = Bench::new(script);
    let consumer = bench.builder().build().unwrap();
    let counters = consumer.counters();
    consumer.run_until(sleep(Duration::from_secs(300))).await.unwrap();
    let reconnects = counters.summary().reconnects;
    assert!(reconnects < 60, "{reconnects} connections in five minutes");
}
