//! Handlers, pools and how many of what there are.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use idem_runtime::consumer::RunError;
use idem_runtime::outcome::RetryReason;
use idem_runtime::store::{Fault, Store};
use idem_runtime::{Outcome, execute};
use idem_tests::log::Log;
use tokio::time::timeout;

use super::assert_counts;
use super::start::start;
use crate::engines::{Engine, delivery};

/// as many handlers as connections, and each wants one more. Those that wait in vain roll back,
/// which is what the others wait for.
pub(crate) async fn handlers_that_wait_for_their_own_pool_are_tried_again<E: Engine>(engine: &E) {
    const CONNECTIONS: u8 = 4;
    const MESSAGES: i64 = 12;
    if E::SERVER.is_none() {
        return a_handler_cannot_wait_for_its_own_connection(engine).await;
    }
    let store =
        engine.with_few_connections(u32::from(CONNECTIONS), Duration::from_millis(300)).await;
    let until_done = async |name: String| {
        let mut waited_in_vain = 0;
        loop {
            let context = engine.context_on(&store, delivery(&name, "read_elsewhere"));
            match execute::<E::ByKey, _>(&store, &context).await {
                Outcome::Done(_) => break waited_in_vain,
                Outcome::Retry(RetryReason::Handler(error)) => {
                    let fault = E::Store::fault_of(error.as_ref());
                    assert!(matches!(fault, Some(Fault::Unavailable | Fault::Contention)));
                }
                Outcome::Retry(RetryReason::NotStarted(error)) => {
                    assert!(matches!(error.fault(), Fault::Unavailable | Fault::Contention));
                }
                outcome => panic!("{outcome:?}"),
            }
            waited_in_vain += 1;
        }
    };
    let pruner = async {
        for _ in 0..10 {
            match store.prune("test.place", 10).await {
                Ok(_) => {}
                Err(error) => {
                    assert!(matches!(error.fault(), Fault::Unavailable | Fault::Contention));
                }
            }
        }
    };
    let all = stream::iter(0..MESSAGES).map(|number| until_done(format!("r{number}")));
    let all = all.buffer_unordered(usize::from(CONNECTIONS)).collect::<Vec<_>>();
    let all = async { tokio::join!(all, pruner).0 };
    let waited = timeout(Duration::from_secs(60), all).await.expect("no standstill");
    if E::HAS_OWN_CONNECTIONS {
        assert_eq!(waited.iter().sum::<u32>(), 0, "their transactions leave the pool alone");
    }
    assert_counts(engine, MESSAGES, MESSAGES).await;
}

/// SQLite has one writer, and its pool one connection.
async fn a_handler_cannot_wait_for_its_own_connection<E: Engine>(engine: &E) {
    let store = engine.with_few_connections(1, Duration::from_millis(100)).await;
    let context = engine.context_on(&store, delivery("r1", "read_elsewhere"));
    let Outcome::Retry(RetryReason::Handler(error)) =
        execute::<E::ByKey, _>(&store, &context).await
    else {
        panic!("it waits for a connection that it holds itself");
    };
    assert_eq!(E::Store::fault_of(error.as_ref()), Some(Fault::Unavailable));
    assert_counts(engine, 0, 0).await;
    let context = engine.context_on(&store, delivery("r1", "ok"));
    let Outcome::Done(_) = execute::<E::ByKey, _>(&store, &context).await else {
        panic!("the connection is free again");
    };
}

/// R-15's warning. SQLite has one writer, however many connections and messages there are.
pub(crate) async fn too_few_connections_are_said_at_start<E: Engine>(engine: &E) {
    let store = engine.with_few_connections(4, Duration::from_secs(10)).await;
    for (in_flight_max, are_too_few) in [(3, false), (4, E::SERVER.is_some())] {
        let log = Log::listen("idem_runtime=warn");
        let started = start(engine, &store, E::HANDLER, in_flight_max);
        let ended = timeout(Duration::from_secs(60), started).await.expect("nobody is there");
        assert!(matches!(ended, Err(RunError::Broker(_))), "{ended:?}");
        let text = log.text();
        assert_eq!(text.contains("no more connections"), are_too_few, "{in_flight_max}: {text}");
    }
}
