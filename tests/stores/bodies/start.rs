//! What a consumer refuses before it receives anything, and what to do then.

use std::error::Error;
use std::future::pending;
use std::time::Duration;

use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::consumer::RunError;
use idem_runtime::outcome::RetryReason;
use idem_runtime::{Consumer, Handler, Horizon, Outcome, execute};
use tokio::time::timeout;

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, delivery};

/// Nobody listens there; the store is looked at first.
const NOBODY: &str = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=c2VjcmV0;\
     UseDevelopmentEmulator=true";

/// Starts a consumer that ends where it would begin to receive.
pub(super) async fn start<E: Engine>(
    engine: &E,
    store: &E::Store,
    handler: impl Handler<E::Store>,
    in_flight_max: u32,
) -> Result<(), RunError> {
    let bus = ServiceBus::connect(NOBODY).expect("a readable string");
    let day = Duration::from_secs(24 * 3600);
    let consumer = Consumer::builder(bus.queue("orders"), store.clone())
        .handler(handler)
        .state(engine.gate().clone())
        .state(store.clone())
        .in_flight_max(in_flight_max)
        .horizon(Horizon { dead_letter_age_max: day, resend_window: day })
        .build()
        .expect("a valid consumer");
    consumer.run_until(pending()).await
}

/// What a consumer says that refuses to start with this store.
pub(super) async fn refusal<E: Engine>(
    engine: &E,
    store: &E::Store,
    handler: impl Handler<E::Store>,
) -> String {
    let started = timeout(Duration::from_secs(60), start(engine, store, handler, 16));
    match started.await.expect("it does not go on") {
        Err(RunError::Store(error)) => chain(&error),
        other => panic!("the store is not refused: {other:?}"),
    }
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

pub(crate) async fn a_ledger_that_lacks_something_is_refused_at_start<E: Engine>(engine: &E) {
    for broken in [
        "ALTER TABLE idem_claim RENAME TO idem_claim_away",
        "ALTER TABLE idem_scope RENAME TO idem_scope_away",
        "ALTER TABLE idem_migration RENAME TO idem_migration_away",
    ] {
        engine.execute(broken).await;
        let refusal = refusal(engine, engine.store(), E::HANDLER).await;
        assert!(refusal.contains("run `idem migrate`"), "{broken}: {refusal}");
        let words: Vec<_> = broken.split(' ').collect();
        engine.execute(&format!("ALTER TABLE {} RENAME TO {}", words[5], words[2])).await;
    }
    engine.execute("ALTER TABLE idem_claim RENAME COLUMN reply TO response").await;
    // Where no handler replays, nobody misses it.
    engine.execute("ALTER TABLE idem_claim RENAME COLUMN same TO equal").await;
    let refusal = refusal(engine, engine.store(), E::HANDLER).await;
    assert!(refusal.contains("run `idem migrate`"), "{refusal}");
}

const ALL: [&str; 3] = [
    "SELECT ON idem_migration",
    "SELECT, INSERT, UPDATE ON idem_scope",
    "SELECT, INSERT, UPDATE, DELETE ON idem_claim",
];

pub(crate) async fn a_user_who_lacks_a_privilege_is_refused_at_start<E: Engine>(engine: &E) {
    let lacking = [
        [ALL[0], "SELECT ON idem_scope", ALL[2]],
        [ALL[0], ALL[1], "SELECT, UPDATE, DELETE ON idem_claim"],
        [ALL[0], ALL[1], "SELECT, INSERT, UPDATE ON idem_claim"],
        ["SELECT ON effects", ALL[1], ALL[2]],
    ];
    for privileges in lacking {
        let Some((store, remove)) = engine.as_user_with(&privileges).await else { return };
        let refusal = refusal(engine, &store, E::HANDLER).await;
        assert!(refusal.contains("lacks a privilege"), "{privileges:?}: {refusal}");
        assert!(refusal.contains("idem_"), "it names the table: {refusal}");
        drop(store);
        engine.execute(&remove).await;
    }
    let mut all = ALL.to_vec();
    all.push("SELECT, INSERT ON effects");
    let (store, remove) = engine.as_user_with(&all).await.expect("as before");
    let context = engine.context_on(&store, delivery("r1", "ok"));
    assert_outcome!(execute::<E::ByKey, _>(&store, &context).await, Outcome::Done(_));
    drop(store);
    engine.execute(&remove).await;
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_database_that_can_only_be_read_is_refused_at_start<E: Engine>(engine: &E) {
    let Some(store) = engine.reading_only().await else { return };
    let refusal = refusal(engine, &store, E::HANDLER).await;
    assert!(refusal.contains("can only be read"), "{refusal}");
}

/// While it lasts the message waits; it is neither rejected nor taken for failed.
pub(crate) async fn what_is_lost_while_running_is_no_messages_fault<E: Engine>(engine: &E) {
    engine.execute("ALTER TABLE idem_claim RENAME TO idem_claim_away").await;
    let outcome = engine.place("r1", "ok").await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotStarted(error)) if error.to_string().contains("run `idem migrate`"));
    engine.execute("ALTER TABLE idem_claim_away RENAME TO idem_claim").await;
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}
