//! Commits whose answer is lost: the outcome is what the server did, never a guess.

use std::time::Duration;

use idem_runtime::store::{Fault, Mysql, Postgres, SqlServer};
use idem_runtime::{Outcome, execute};
use idem_tests::proxy::{Cut, Proxy};
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
    proxy.cut_next(Cut::BeforeTheServer);
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
    proxy.cut_next(Cut::BeforeTheAnswer);
    let context = engine.context(delivery("r1", "ok"));
    let outcome = execute::<E::ByKey, _>(store, &context).await;
    assert_eq!(proxy.cuts(), 1, "the fault has fired");
    assert_outcome!(outcome, Outcome::Done(_));
    assert_counts(engine, 1, 1).await;

    assert_outcome!(execute::<E::ByKey, _>(store, &context).await, Outcome::Duplicate(_));
    assert_counts(engine, 1, 1).await;
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

through_a_proxy!(on_postgres_server, on_postgres, Postgres);
through_a_proxy!(on_mariadb_server, on_mariadb, Mysql);
through_a_proxy!(on_sqlserver_server, on_sqlserver, SqlServer);
