//! Commits whose answer is lost: the outcome is what the server did, never a guess.

use std::time::Duration;

use idem_runtime::store::{Fault, Postgres};
use idem_runtime::{Outcome, execute};
use idem_tests::proxy::{Cut, Proxy};
use tokio::time::timeout;

use crate::bodies::assert_outcome;
use crate::engines::postgres::{ByKeyHandler, OnPostgres};
use crate::engines::{Engine, delivery};

async fn through_proxy(engine: &OnPostgres) -> (Proxy, Postgres) {
    let url = &engine.database.url;
    let (head, tail) = url.split_once('@').expect("user@host:port/database");
    let (server, name) = tail.split_once('/').expect("host:port/database");
    let proxy = Proxy::new(server.to_owned()).await;
    let store = Postgres::connect(&format!("{head}@{}/{name}", proxy.address())).await;
    (proxy, store.expect("the proxy passes connections on"))
}

/// R-07 (a): the server never saw the `COMMIT`. Nothing proves either way, so the message is left;
/// when it comes again it runs.
#[tokio::test]
async fn a_commit_that_never_arrived_is_left_and_runs_again() {
    let Some(engine) = OnPostgres::new().await else {
        return;
    };
    let (proxy, store) = through_proxy(&engine).await;

    proxy.cut_next(Cut::BeforeTheServer);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<ByKeyHandler, _>(&store, &context).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired");
    assert_outcome!(outcome, Outcome::Unknown(error) if error.fault() == Fault::InDoubt);
    assert_eq!((engine.effects().await, engine.claims().await), (0, 0));

    let again = timeout(Duration::from_secs(5), execute::<ByKeyHandler, _>(&store, &context)).await;
    assert_outcome!(again.expect("the pool has recovered"), Outcome::Done(_));
    assert_eq!((engine.effects().await, engine.claims().await), (1, 1));
    engine.remove().await;
}

/// R-07 (b): the server committed and its answer was lost. The claim proves it.
#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_proven_by_its_claim() {
    let Some(engine) = OnPostgres::new().await else {
        return;
    };
    let (proxy, store) = through_proxy(&engine).await;

    proxy.cut_next(Cut::BeforeTheAnswer);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<ByKeyHandler, _>(&store, &context).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired");
    assert_outcome!(outcome, Outcome::Done(_));
    assert_eq!((engine.effects().await, engine.claims().await), (1, 1));

    let again = execute::<ByKeyHandler, _>(&store, &context).await;
    assert_outcome!(again, Outcome::Duplicate(_));
    assert_eq!((engine.effects().await, engine.claims().await), (1, 1));
    engine.remove().await;
}
