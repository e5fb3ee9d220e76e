//! M-05: what a handler is called is part of its keys, unless it says otherwise.

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, Outcome, State, Tx, idempotent};

use crate::bench::{Bench, Log};
use crate::{Order, spec};

mod before {
    use super::*;

    #[idempotent(key = "customer_id, external_ref")]
    pub(super) async fn place(
        _: &mut Tx<Sqlite>,
        _: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add("before");
        Ok(())
    }

    #[idempotent(scope = "stable")]
    pub(super) async fn scoped(
        _: &mut Tx<Sqlite>,
        _: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add("before");
        Ok(())
    }
}

mod after {
    use super::*;

    #[idempotent(key = "customer_id, external_ref", was = "idem-tests::place")]
    pub(super) async fn place_order(
        _: &mut Tx<Sqlite>,
        _: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add("after");
        Ok(())
    }

    #[idempotent(scope = "stable")]
    pub(super) async fn scoped_and_moved(
        _: &mut Tx<Sqlite>,
        _: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add("after");
        Ok(())
    }

    /// An earlier scope that is the present one is as good as none.
    #[idempotent(was = " idem-tests::unmoved, , older ,")]
    pub(super) async fn unmoved(
        _: &mut Tx<Sqlite>,
        _: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add("unmoved");
        Ok(())
    }
}

const ORDER: &str = r#"{"customer_id":7,"external_ref":"a"}"#;

#[tokio::test]
async fn a_renamed_handler_meets_what_it_did_before() {
    let bench = Bench::new().await;
    let outcome = bench.deliver::<before::PlaceHandler>("m-1", ORDER).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let outcome = bench.deliver::<after::PlaceOrderHandler>("m-2", ORDER).await;
    assert!(matches!(outcome, Outcome::Duplicate(_)), "{outcome:?}");
    let outcome = bench.deliver::<before::ScopedHandler>("m-3", ORDER).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let outcome = bench.deliver::<after::ScopedAndMovedHandler>("m-3", ORDER).await;
    assert!(matches!(outcome, Outcome::Duplicate(_)), "{outcome:?}");
    assert_eq!(bench.log.take(), ["before", "before"]);
}

#[tokio::test]
async fn the_own_scope_is_the_last_and_there_once() {
    let scopes: Vec<_> = spec(after::PlaceOrderHandler).scopes().collect();
    assert_eq!(scopes, ["idem-tests::place", "idem-tests::place_order"]);
    let scopes: Vec<_> = spec(after::UnmovedHandler).scopes().collect();
    assert_eq!(scopes, ["older", "idem-tests::unmoved"]);
    let bench = Bench::new().await;
    let outcome = bench.deliver::<after::UnmovedHandler>("m-1", ORDER).await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
}
