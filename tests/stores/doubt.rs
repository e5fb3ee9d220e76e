//! Connections that break: of a commit whose answer is lost the outcome is what the server did, never
//! a guess, and of everything before it nothing is left.

use std::time::Duration;

use idem_runtime::outcome::RetryReason;
use idem_runtime::store::{Fault, Mysql, Postgres, SqlServer};
use idem_runtime::{Outcome, execute};
use idem_tests::proxy::{Cut, Moment, Proxy};
use serde_json::json;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use tokio::time::timeout;

use crate::bodies::{assert_counts, assert_outcome};
use crate::engines::mysql::on_mariadb;
use crate::engines::postgres::on_postgres;
use crate::engines::sqlserver::on_sqlserver;
use crate::engines::{Engine, delivery};

/// A proxy, and the database's URL by way of it.
async fn through_proxy(url: &str) -> (Proxy, String) {
    let (head, tail) = url.split_once('@').expect("user@host:port/database");
    let (server, name) = tail.split_once('/').expect("host:port/database");
    let proxy = Proxy::new(server.to_owned()).await;
    let url = format!("{head}@{}/{name}", proxy.address());
    (proxy, url)
}

/// R-07 (a): the server never saw the `COMMIT`. Where the server can be asked for the transaction's
/// fate, it proves that it was rolled back, and another attempt is free of doubt. Elsewhere nothing
/// proves either way, so the message is left; when it comes again it runs.
async fn a_commit_that_never_arrives<E: Engine>(engine: &E, proxy: &Proxy, store: &E::Store) {
    proxy.cut_next(Moment::Commit, Cut::BeforeTheServer);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<E::ByKey, _>(store, &context).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired");
    if E::KNOWS_FATES {
        assert_outcome!(outcome, Outcome::Done(_));
        assert_counts(engine, 1, 1).await;
        return;
    }
    assert_outcome!(outcome, Outcome::Unknown(error) if error.fault() == Fault::InDoubt);
    assert_counts(engine, 0, 0).await;

    let again = timeout(Duration::from_secs(5), execute::<E::ByKey, _>(store, &context)).await;
    assert_outcome!(again.expect("the pool has recovered"), Outcome::Done(_));
    assert_counts(engine, 1, 1).await;
}

/// R-07 (b): the server committed and its answer was lost. The claim proves it.
async fn a_commit_without_answer<E: Engine>(engine: &E, proxy: &Proxy, store: &E::Store) {
    proxy.cut_next(Moment::Commit, Cut::BeforeTheAnswer);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<E::ByKey, _>(store, &context).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired");
    assert_outcome!(outcome, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;

    assert_outcome!(execute::<E::ByKey, _>(store, &context).await, Outcome::Duplicate(_));
    assert_counts(engine, 1, 1).await;
}

/// whatever the moment, effect and claim are there together or not at all, and in the end once.
async fn a_connection_cut_at<E: Engine>(
    engine: &E,
    proxy: &Proxy,
    store: &E::Store,
    moment: Moment,
    cut: Cut,
) {
    proxy.cut_next(moment, cut);
    let then = json!({ "run": "UPDATE balances SET amount = amount + 1 WHERE id = 1" });
    let first = engine.context(delivery("r1", then.clone()));
    let outcome = execute::<E::ByKey, _>(store, &first).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired: {moment:?}, {cut:?}");
    let done = i64::from(matches!(outcome, Outcome::Done(_)));
    assert_counts(engine, done, done).await;

    // The process ends between the commit and the settlement.
    let again = engine.context(delivery("r1", then).with_delivery_count(2));
    match execute::<E::ByKey, _>(store, &again).await {
        Outcome::Done(_) => assert_eq!(done, 0),
        Outcome::Duplicate(_) => assert_eq!(done, 1),
        other => panic!("{moment:?}, {cut:?}: {other:?}"),
    }
    assert_counts(engine, 1, 1).await;
    assert_eq!(engine.count("SELECT amount FROM balances WHERE id = 1").await, 1);
}

const MOMENTS: [(Moment, Cut); 8] = [
    (Moment::Statement("READ COMMITTED"), Cut::BeforeTheAnswer),
    (Moment::Statement("INTO idem_claim"), Cut::BeforeTheServer),
    (Moment::Statement("INTO idem_claim"), Cut::BeforeTheAnswer),
    (Moment::Statement("INTO effects"), Cut::BeforeTheServer),
    (Moment::Statement("UPDATE balances"), Cut::BeforeTheServer),
    (Moment::Statement("UPDATE balances"), Cut::BeforeTheAnswer),
    (Moment::Commit, Cut::BeforeTheServer),
    (Moment::Commit, Cut::BeforeTheAnswer),
];

/// the database is away in the first delivery, before and in the middle of it, and then back.
async fn a_database_that_was_away<E: Engine>(engine: &E, proxy: &Proxy, store: &E::Store) {
    proxy.set_down(true);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<E::ByKey, _>(store, &context).await;
    assert_outcome!(outcome, Outcome::Retry(RetryReason::NotStarted(error)) if error.fault() == Fault::Unavailable);
    proxy.set_down(false);
    assert_outcome!(execute::<E::ByKey, _>(store, &context).await, Outcome::Done(_));
    assert_outcome!(execute::<E::ByKey, _>(store, &context).await, Outcome::Duplicate(_));

    let context = engine.context(delivery("r2", "wait"));
    let first = execute::<E::ByKey, _>(store, &context);
    let outage = async {
        engine.gate().until_arrived().await;
        proxy.set_down(true);
        engine.gate().open();
    };
    let (outcome, ()) = tokio::join!(first, outage);
    // Where the server could tell what became of the commit, it is away.
    assert_outcome!(outcome, Outcome::Retry(_) | Outcome::Unknown(_));
    assert_counts(engine, 1, 1).await;
    proxy.set_down(false);
    let context = engine.context(delivery("r2", "ok").with_delivery_count(2));
    assert_outcome!(execute::<E::ByKey, _>(store, &context).await, Outcome::Done(_));
    assert_counts(engine, 2, 2).await;
}

macro_rules! through_a_proxy {
    ($module:ident, $engine:ident, $store:ident) => {
        mod $module {
            use super::*;

            #[tokio::test]
            async fn a_commit_that_never_arrived_runs_again() {
                let Some(engine) = $engine().await else { return };
                let (proxy, url) = through_proxy(&engine.database.url).await;
                let store = $store::connect(&url).await.expect("the proxy passes it on");
                a_commit_that_never_arrives(&engine, &proxy, &store).await;
                engine.remove().await;
            }

            #[tokio::test]
            async fn a_commit_whose_answer_was_lost_is_proven_by_its_claim() {
                let Some(engine) = $engine().await else { return };
                let (proxy, url) = through_proxy(&engine.database.url).await;
                let store = $store::connect(&url).await.expect("the proxy passes it on");
                a_commit_without_answer(&engine, &proxy, &store).await;
                engine.remove().await;
            }
        }
    };
}

macro_rules! with_outages {
    ($module:ident, $engine:ident, $store:ident, $pool:ident) => {
        mod $module {
            use super::*;

            #[tokio::test]
            async fn a_connection_may_be_cut_at_any_moment() {
                for (moment, cut) in MOMENTS {
                    let Some(engine) = $engine().await else { return };
                    let (proxy, url) = through_proxy(&engine.database.url).await;
                    let store = $store::connect(&url).await.expect("the proxy passes it on");
                    a_connection_cut_at(&engine, &proxy, &store, moment, cut).await;
                    engine.remove().await;
                }
            }

            #[tokio::test]
            async fn a_database_may_be_away_for_a_while() {
                let Some(engine) = $engine().await else { return };
                let (proxy, url) = through_proxy(&engine.database.url).await;
                let options = url.parse().expect("a readable URL");
                let pool = $pool::new().acquire_timeout(Duration::from_secs(1));
                let store = $store::from_pool(pool.connect_lazy_with(options));
                a_database_that_was_away(&engine, &proxy, &store).await;
                engine.remove().await;
            }
        }
    };
}

through_a_proxy!(on_postgres_server, on_postgres, Postgres);
through_a_proxy!(on_mariadb_server, on_mariadb, Mysql);
through_a_proxy!(on_sqlserver_server, on_sqlserver, SqlServer);

with_outages!(outages_on_postgres, on_postgres, Postgres, PgPoolOptions);
with_outages!(outages_on_mariadb, on_mariadb, Mysql, MySqlPoolOptions);
