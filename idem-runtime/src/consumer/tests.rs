//! The loop against a scripted broker and a scripted database, on tokio's paused clock.

mod batches;
mod building;
mod busy;
mod handle;
mod ledger;
mod locks;
mod outages;
mod routing;
mod running;
mod settling;
mod watching;

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep};

use super::*;
use crate::broker::{BrokerError, LockId, Locked, Receiver, Settler, Told};
use crate::delivery::{Delivery, Json, SourceId};
use crate::handler::{Calling, Context, Definition, HandlerSpec, Level, State};
use crate::handler::{FromContext, Requirements};
use crate::horizon::{Horizon, Retention};
use crate::key::{Digest, KeyEncoder, KeyValue};
use crate::outcome::{Chain, Failure, Reply};
use crate::settle::Settlement;
use crate::store::{
    AnyWork, Claim, Claimed, Constraint, Earlier, Fault, Names, ScopeKeys, StoreError, Work,
};

const LOCK: Duration = Duration::from_secs(10);
const DAY: Duration = Duration::from_secs(24 * 3600);

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
    settle_errors: Mutex<VecDeque<BrokerError>>,
    started: Mutex<Option<Instant>>,
    changed: Notify,
    closed: AtomicUsize,
    /// Whether nobody answers who wants to open.
    is_deaf: AtomicBool,
    /// How long a receiver lasts after it has given all, if that is not for ever.
    lasts: Option<Duration>,
    aside: Mutex<Vec<LockId>>,
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
        if self.broker.is_deaf.load(Ordering::SeqCst) {
            std::future::pending().await
        }
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
        match (self.script.pop_front(), self.broker.lasts) {
            (Some(next), _) => next,
            (None, Some(lasts)) => {
                sleep(lasts).await;
                Err(BrokerError::Closed)
            }
            (None, None) => std::future::pending().await,
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

    async fn settle(&self, lock: LockId, settlement: Settlement, told: Told) {
        let what = match settlement {
            Settlement::Complete(_) => "complete".to_owned(),
            Settlement::Abandon(_) => "abandon".to_owned(),
            Settlement::DeadLetter(rejection) => format!("dead-letter: {rejection}"),
            Settlement::Leave => "leave".to_owned(),
        };
        self.0.told.lock().unwrap().push((self.0.at(), lock, what));
        self.0.changed.notify_waiters();
        let error = self.0.settle_errors.lock().unwrap().pop_front();
        told.tell(error.map_or(Ok(()), Err));
    }

    fn set_aside(&self, lock: LockId) {
        self.0.aside.lock().unwrap().push(lock);
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
    /// How many more times the ledger cannot be looked at.
    checks_refused: Arc<AtomicUsize>,
    /// What the ledger has of the scope, where that is something else.
    registered: Option<ScopeKeys>,
    kept_alive: Arc<Mutex<Vec<Retention>>>,
    scopes_alive: Arc<Mutex<BTreeSet<String>>>,
    scopes_pruned: Arc<Mutex<BTreeSet<String>>>,
    prunings: Arc<AtomicUsize>,
    /// What each pruning deletes; nothing when the script is empty.
    prunable: Arc<Mutex<VecDeque<Result<u64, Fault>>>>,
}

struct ScriptedWork {
    claims: Arc<Mutex<VecDeque<Claimed>>>,
    slowness: Duration,
}

impl AnyWork for ScriptedWork {}

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
        self.scopes_alive.lock().unwrap().insert(scope.to_owned());
        self.kept_alive.lock().unwrap().push(retention);
        Ok(())
    }

    async fn scopes(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn prune(&self, scope: &str, rows_max: u32) -> Result<Option<u64>, StoreError> {
        self.scopes_pruned.lock().unwrap().insert(scope.to_owned());
        self.prunings.fetch_add(1, Ordering::SeqCst);
        if rows_max == 0 {
            return Ok(Some(0));
        }
        let pruned = self.prunable.lock().unwrap().pop_front().unwrap_or(Ok(0));
        pruned.map(Some).map_err(|fault| StoreError::found("prune", fault))
    }

    async fn oldest_claim_age(&self, _: &str) -> Result<Option<i64>, StoreError> {
        Ok(Some(7))
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
        let less = |left: usize| left.checked_sub(1);
        let order = Ordering::SeqCst;
        let is_refused = self.checks_refused.fetch_update(order, order, less).is_ok();
        match self.refuses_to_start || is_refused {
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
    /// Tells messages apart that say the same.
    number: u64,
}

#[derive(Clone, Default)]
struct Running {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Obedient;

impl Definition for Obedient {
    const SPEC: HandlerSpec =
        HandlerSpec::new("obey", "test::obey", Level::Two).with_key(&["then"]);

    type Message = Instruction;
    type Decode = Json;
    type Work = ScriptedWork;

    fn key(message: &Instruction, key: &mut KeyEncoder) {
        assert_ne!(message.then, "panic in key", "on purpose");
        key.part(&message.then);
        key.part(&message.number);
    }

    fn require(requirements: &mut Requirements) {
        <State<Running> as FromContext<'_>>::require(requirements);
    }

    fn call<'a>(
        _: &'a mut ScriptedWork,
        message: Instruction,
        context: &'a Context,
    ) -> Result<Calling<'a>, Failure> {
        let State(running) = State::<Running>::from_context(context)?;
        Ok(Box::pin(async move {
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
        }))
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
        self.builder_without_handler().handler(Obedient).state(self.running.clone())
    }

    fn builder_without_handler(&self) -> ConsumerBuilder<ScriptedSource, ScriptedStore> {
        let id = SourceId::new("bus.example.net", "orders");
        let broker = Arc::clone(&self.broker);
        let source = ScriptedSource { id, dead_letters: self.dead_letters, broker };
        Consumer::builder(source, self.store.clone())
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
    numbered(lock, lock, delivery_count, seconds, then)
}

/// Messages with the same number and end have the same key.
fn numbered(
    lock: u64,
    number: u64,
    delivery_count: u32,
    seconds: u64,
    then: &str,
) -> Result<Locked, BrokerError> {
    let body = format!(r#"{{"seconds":{seconds},"then":"{then}","number":{number}}}"#);
    let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), body)
        .with_message_id(format!("m-{lock}"))
        .with_delivery_count(delivery_count);
    Ok(Locked { delivery, lock: LockId(lock), lock_remaining: LOCK })
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
