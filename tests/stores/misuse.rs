//! Handlers that break the rules: each is found out, and nothing is completed on its word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use idem_runtime::delivery::Json;
use idem_runtime::handler::{Calling, States};
use idem_runtime::key::KeyEncoder;
use idem_runtime::outcome::RetryReason;
use idem_runtime::store::{NoTransaction, Postgres, Sqlite};
use idem_runtime::{
    Context, Definition, Delivery, Failure, Handler, HandlerSpec, Level, Outcome, State, Tx,
    execute, idempotent,
};
use serde::Deserialize;
use sqlx::Connection;

use crate::bodies::assert_outcome;
use crate::engines::postgres::on_postgres;
use crate::engines::sqlite::on_sqlite;
use crate::engines::{Engine, delivery};

#[derive(Deserialize)]
struct Named {
    external_ref: String,
}

const EFFECT: &str = "INSERT INTO effects VALUES (7, $1)";

/// Both engines, by the same code.
macro_rules! handlers {
    ($module:ident, $store:ty) => {
        mod $module {
            use super::*;

            #[idempotent(key = "external_ref")]
            pub(super) async fn commit_and_fail(
                tx: &mut Tx<$store>,
                message: Named,
            ) -> Result<(), Failure> {
                sqlx::query(EFFECT).bind(message.external_ref).execute(&mut **tx).await?;
                sqlx::raw_sql("COMMIT").execute(&mut **tx).await?;
                Err("and then the second half fails".into())
            }

            #[idempotent(key = "external_ref")]
            pub(super) async fn forget_a_nested_transaction(
                tx: &mut Tx<$store>,
                message: Named,
            ) -> Result<(), Failure> {
                sqlx::query(EFFECT).bind(message.external_ref).execute(&mut **tx).await?;
                std::mem::forget((**tx).begin().await?);
                Ok(())
            }

            #[idempotent(key = "external_ref")]
            pub(super) async fn use_a_nested_transaction(
                tx: &mut Tx<$store>,
                message: Named,
            ) -> Result<(), Failure> {
                let mut kept = (**tx).begin().await?;
                sqlx::query(EFFECT).bind(&message.external_ref).execute(&mut *kept).await?;
                kept.commit().await?;
                let mut undone = (**tx).begin().await?;
                sqlx::query(EFFECT).bind(&message.external_ref).execute(&mut *undone).await?;
                undone.rollback().await?;
                Ok(())
            }
        }
    };
}

handlers!(sqlite, Sqlite);
handlers!(postgres, Postgres);

async fn run<H: Handler<E::Store>, E: Engine>(engine: &E) -> Outcome {
    engine.run::<H>(delivery("r1", "ok")).await
}

/// part of it is committed, and with it the claim; the next delivery would be a duplicate.
#[tokio::test]
async fn a_commit_by_hand_is_found_out_when_the_handler_then_fails() {
    let engine = on_sqlite().await.expect("a file");
    let outcome = run::<sqlite::CommitAndFailHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Done(_));

    let Some(engine) = on_postgres().await else { return };
    let outcome = run::<postgres::CommitAndFailHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "TransactionBroken");
    assert_outcome!(engine.place("r2", "ok").await, Outcome::Done(_));
    engine.remove().await;
}

/// The driver would release the handler's savepoint in place of our commit, and report success.
#[tokio::test]
async fn a_nested_transaction_left_open_is_not_done() {
    let engine = on_sqlite().await.expect("a file");
    let outcome = run::<sqlite::ForgetANestedTransactionHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(_)));
    assert_eq!((engine.effects().await, engine.claims().await), (0, 0));

    let Some(engine) = on_postgres().await else { return };
    let outcome = run::<postgres::ForgetANestedTransactionHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotCommitted(_)));
    assert_eq!((engine.effects().await, engine.claims().await), (0, 0));
    engine.remove().await;
}

#[tokio::test]
async fn nested_transactions_that_end_are_savepoints() {
    let engine = on_sqlite().await.expect("a file");
    let outcome = run::<sqlite::UseANestedTransactionHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Done(_));
    assert_eq!((engine.effects().await, engine.claims().await), (1, 1));

    let Some(engine) = on_postgres().await else { return };
    let outcome = run::<postgres::UseANestedTransactionHandler, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Done(_));
    assert_eq!((engine.effects().await, engine.claims().await), (1, 1));
    engine.remove().await;
}

/// A level 2 handler written by hand, and wrongly: there is nothing to claim in.
struct Unprotected;

impl Definition for Unprotected {
    const SPEC: HandlerSpec =
        HandlerSpec::new("unprotected", "test.unprotected", Level::Two).with_key(&["external_ref"]);

    type Message = Named;
    type Decode = Json;
    type Work = NoTransaction;

    fn key(message: &Named, key: &mut KeyEncoder) {
        key.part(&message.external_ref);
    }

    fn call<'a>(
        _: &'a mut NoTransaction,
        _: Named,
        _: &'a Context,
    ) -> Result<Calling<'a>, Failure> {
        panic!("it must not run");
    }
}

#[tokio::test]
async fn a_claim_without_a_transaction_is_refused() {
    let engine = on_sqlite().await.expect("a file");
    let outcome = run::<Unprotected, _>(&engine).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotStarted(error)) if error.to_string().contains("nothing to claim in"));
}

#[idempotent(key = "external_ref")]
async fn deadlocked_once(
    tx: &mut Tx<Postgres>,
    message: Named,
    State(calls): State<Arc<AtomicU32>>,
) -> Result<(), sqlx::Error> {
    const DEADLOCK: &str = "DO $$ BEGIN RAISE EXCEPTION 'deadlock' USING ERRCODE = '40P01'; END $$";
    sqlx::query(EFFECT).bind(message.external_ref).execute(&mut **tx).await?;
    if calls.fetch_add(1, Ordering::SeqCst) == 0 {
        sqlx::raw_sql(DEADLOCK).execute(&mut **tx).await?;
    }
    Ok(())
}

#[idempotent(key = "external_ref")]
async fn deadlocked_once_behind_anyhow(
    tx: &mut Tx<Postgres>,
    message: Named,
    calls: State<Arc<AtomicU32>>,
) -> anyhow::Result<()> {
    Ok(deadlocked_once(tx, message, calls).await?)
}

/// `anyhow` hides the driver's error, and yet a lost race is tried again at once.
#[tokio::test]
async fn a_lost_race_is_seen_behind_whatever_error_type() {
    let Some(engine) = on_postgres().await else { return };
    let calls = Arc::new(AtomicU32::new(0));
    let context = |delivery: Delivery| {
        calls.store(0, Ordering::SeqCst);
        let mut states = States::default();
        states.insert(Arc::clone(&calls));
        Context::new(delivery, states)
    };
    let plain = context(delivery("r1", "ok"));
    let outcome = execute::<DeadlockedOnceHandler, _>(engine.store(), &plain).await;
    assert_outcome!(outcome, Outcome::Done(_));
    let hidden = context(delivery("r2", "ok"));
    let outcome = execute::<DeadlockedOnceBehindAnyhowHandler, _>(engine.store(), &hidden).await;
    assert_outcome!(outcome, Outcome::Done(_));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    engine.remove().await;
}
