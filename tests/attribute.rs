//! Handlers as people write them: the attribute keeps out of their way.
//!
//! The lints are part of the test: nothing that is generated may warn.

#![deny(warnings, clippy::pedantic)]

use std::sync::{Arc, Mutex};

use idem_runtime::handler::States;
use idem_runtime::key::KeyEncoder;
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{
    Context, Delivery, Failure, Handler, HandlerSpec, Level, Outcome, SourceId, State, Tx, execute,
    idempotent,
};
use serde::Deserialize;

/// Another name for the runtime, as in a crate that renames its dependency.
extern crate idem_runtime as renamed;

/// What the handlers did.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, entry: impl Into<String>) {
        self.0.lock().expect("no handler panics").push(entry.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no handler panics"))
    }
}

/// A store and what the handlers are called with.
struct Bench {
    store: Sqlite,
    log: Log,
    _folder: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("ledger.db").display());
        let store = Sqlite::connect(&url).await.expect("a database");
        store.migrate().await.expect("a ledger");
        Self { store, log: Log::default(), _folder: folder }
    }

    async fn deliver<H: Handler<Sqlite>>(&self, id: &str, body: &'static str) -> Outcome {
        let source = SourceId::new("bus.example.net", "orders");
        let delivery = Delivery::new(source, body).with_message_id(id);
        let mut states = States::default();
        states.insert(self.log.clone());
        execute::<H, Sqlite>(&self.store, &Context::new(delivery, states)).await
    }

    /// Delivers one order twice, the second time under another `MessageId`, and says what was done.
    async fn deliver_twice<H: Handler<Sqlite>>(&self) -> Vec<String> {
        const ORDER: &str = r#"{"customer_id":7,"external_ref":"a"}"#;
        let first = self.deliver::<H>("m-1", ORDER).await;
        assert!(matches!(first, Outcome::Done(_)), "{first:?}");
        let second = self.deliver::<H>("m-2", ORDER).await;
        assert!(matches!(second, Outcome::Duplicate(_)), "{second:?}");
        self.log.take()
    }
}

fn spec<H: Handler<Sqlite>>(_: H) -> HandlerSpec {
    H::SPEC
}

fn key<H: Handler<Sqlite>>(_: H, message: &H::Message) -> String {
    let mut key = KeyEncoder::default();
    H::key(message, &mut key);
    format!("{key:?}")
}

#[derive(Deserialize)]
struct Order {
    customer_id: i64,
    external_ref: String,
}

mod levels {
    use super::*;

    #[idempotent(level = 0)]
    async fn zero(order: Order, State(log): State<Log>) -> Result<(), Failure> {
        log.add(order.external_ref);
        Ok(())
    }

    #[idempotent(level = 0)]
    async fn zero_with_transaction(
        _tx: &mut Tx<Sqlite>,
        order: Order,
        State(log): State<Log>,
    ) -> Result<(), Failure> {
        log.add(order.external_ref);
        Ok(())
    }

    #[idempotent]
    async fn one(_: &mut Tx<Sqlite>, order: Order, log: State<Log>) -> Result<(), Failure> {
        log.0.add(order.external_ref);
        Ok(())
    }

    #[idempotent(key = "customer_id, external_ref")]
    async fn two(_: &mut Tx<Sqlite>, order: Order, log: State<Log>) -> Result<(), Failure> {
        log.0.add(order.external_ref);
        Ok(())
    }

    #[idempotent(level = 2, key(customer_id), scope = "orders.place")]
    async fn named(_: &mut Tx<Sqlite>, _: Order) -> Result<(), Failure> {
        Ok(())
    }

    const ORDER: &str = r#"{"customer_id":7,"external_ref":"a"}"#;

    #[tokio::test]
    async fn level_zero_runs_whenever_it_is_called() {
        let bench = Bench::new().await;
        for _ in 0..2 {
            let outcome = bench.deliver::<ZeroHandler>("m-1", ORDER).await;
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
            let outcome = bench.deliver::<ZeroWithTransactionHandler>("m-1", ORDER).await;
            assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
        }
        assert_eq!(bench.log.take().len(), 4);
    }

    #[tokio::test]
    async fn level_one_runs_once_for_a_message_id() {
        let bench = Bench::new().await;
        let first = bench.deliver::<OneHandler>("m-1", ORDER).await;
        assert!(matches!(first, Outcome::Done(_)), "{first:?}");
        let second = bench.deliver::<OneHandler>("m-1", ORDER).await;
        assert!(matches!(second, Outcome::Duplicate(_)), "{second:?}");
        let other = bench.deliver::<OneHandler>("m-2", ORDER).await;
        assert!(matches!(other, Outcome::Done(_)), "{other:?}");
        assert_eq!(bench.log.take().len(), 2);
    }

    #[tokio::test]
    async fn level_two_runs_once_for_a_key() {
        assert_eq!(Bench::new().await.deliver_twice::<TwoHandler>().await, ["a"]);
    }

    #[test]
    fn the_specification_says_what_was_written() {
        let one = spec(OneHandler);
        assert_eq!((one.name, one.scope), ("one", "idem-tests::one"));
        assert_eq!((one.level, one.key), (Level::One, [].as_slice()));
        assert_eq!(spec(ZeroHandler).level, Level::Zero);
        let named = spec(NamedHandler);
        assert_eq!((named.name, named.scope), ("named", "orders.place"));
        assert_eq!((named.level, named.key), (Level::Two, ["customer_id"].as_slice()));
        assert_eq!(spec(TwoHandler).key, ["customer_id", "external_ref"]);
    }
}

mod keys {
    use super::*;

    #[derive(Deserialize)]
    struct Line(u32, (String, bool));

    #[derive(Deserialize)]
    struct Shipment {
        r#type: String,
        line: Line,
        order: Order,
    }

    #[idempotent(key = "type, line.0, line.1.0, order.customer_id")]
    async fn by_text(_: &mut Tx<Sqlite>, _: Shipment) -> Result<(), Failure> {
        Ok(())
    }

    #[idempotent(key(r#type, line.0, line.1.0, order.customer_id))]
    async fn by_paths(_: &mut Tx<Sqlite>, _: Shipment) -> Result<(), Failure> {
        Ok(())
    }

    #[test]
    fn both_forms_make_one_key_of_nested_fields() {
        let shipment = Shipment {
            r#type: "parcel".to_owned(),
            line: Line(3, ("b".to_owned(), true)),
            order: Order { customer_id: 7, external_ref: "a".to_owned() },
        };
        assert!(shipment.line.1.1 && shipment.order.external_ref == "a");
        let mut expected = KeyEncoder::default();
        expected.part("parcel");
        expected.part(&3_u32);
        expected.part("b");
        expected.part(&7_i64);
        assert_eq!(key(ByTextHandler, &shipment), format!("{expected:?}"));
        assert_eq!(key(ByPathsHandler, &shipment), format!("{expected:?}"));
        assert_eq!(spec(ByTextHandler).key, ["type", "line.0", "line.1.0", "order.customer_id"]);
        assert_eq!(spec(ByPathsHandler).key, spec(ByTextHandler).key);
    }
}

/// Names that generated code might use, as arguments, as items and as types.
mod hygiene {
    use super::*;

    #[expect(
        non_upper_case_globals,
        reason = "a static that a generated argument could clash with"
    )]
    static message: &str = "static";

    #[idempotent(key = "customer_id, external_ref")]
    async fn key(
        tx: &mut Tx<Sqlite>,
        msg: Order,
        State(context): State<Log>,
        outcome: &Delivery,
        State(work): State<Log>,
    ) -> Result<(), Failure> {
        let conn: &mut Tx<Sqlite> = tx;
        let _ = conn;
        context.add(msg.external_ref);
        work.add(outcome.message_id().unwrap_or(message));
        Ok(())
    }

    #[idempotent(key = "customer_id, external_ref")]
    async fn call(key: &mut Tx<Sqlite>, tx: Order, finish: State<Log>) -> Result<(), Failure> {
        let _ = key;
        finish.0.add(tx.external_ref);
        Ok(())
    }

    #[tokio::test]
    async fn arguments_may_have_any_name() {
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<KeyHandler>().await, ["a", "m-1"]);
        assert_eq!(bench.deliver_twice::<CallHandler>().await, ["a"]);
    }

    /// Types of the user's that hide those of the prelude and of the runtime.
    mod shadowed {
        use super::super::{Order, Sqlite, State, Tx, idempotent};

        pub(super) struct Error;
        pub(super) struct Context;
        pub(super) struct Handler;
        pub(super) struct Level;
        pub(super) struct Failure;
        pub(super) struct Option;
        pub(super) struct Clone;
        pub(super) type Result = ::std::result::Result<(), idem_runtime::Failure>;

        #[idempotent(key = "customer_id, external_ref")]
        pub(super) async fn ship(
            _tx: &mut Tx<Sqlite>,
            order: Order,
            State(log): State<super::super::Log>,
        ) -> Result {
            let _ = (Error, Context, Handler, Level, Failure, Option, Clone);
            log.add(order.external_ref);
            Ok(())
        }
    }

    mod bare {
        #![no_implicit_prelude]

        use ::idem_runtime::{Failure, State, Tx, idempotent};

        type Database = ::idem_runtime::store::Sqlite;

        #[idempotent(key = "customer_id, external_ref")]
        pub(super) async fn ship(
            _tx: &mut Tx<Database>,
            order: super::super::Order,
            State(log): State<super::super::Log>,
        ) -> ::std::result::Result<(), Failure> {
            log.add(order.external_ref);
            ::std::result::Result::Ok(())
        }
    }

    #[tokio::test]
    async fn types_may_have_any_name() {
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<shadowed::ShipHandler>().await, ["a"]);
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<bare::ShipHandler>().await, ["a"]);
    }
}

/// Signatures and bodies of every shape.
mod shapes {
    use super::*;

    type Transaction = Tx<Sqlite>;
    type Placed = Order;
    type Handled<T = ()> = Result<T, Failure>;
    type Logged = State<Log>;

    #[idempotent(key = "customer_id, external_ref")]
    async fn aliased(tx: &mut Transaction, order: Placed, State(log): Logged) -> Handled {
        let _ = tx;
        log.add(order.external_ref);
        Ok(())
    }

    #[idempotent(key = "customer_id, external_ref")]
    async fn patterns(
        mut _tx: &mut Tx<Sqlite>,
        Order { customer_id, external_ref: mut reference }: Order,
        State(Log(log)): State<Log>,
    ) -> Result<(), Failure> {
        reference.push_str(&customer_id.to_string());
        log.lock().expect("no handler panics").push(reference);
        Ok(())
    }

    /// Its value is dropped, and its error is one of the user's.
    #[idempotent(key = "customer_id, external_ref")]
    async fn early(
        _tx: &mut Tx<Sqlite>,
        order: Order,
        log: State<Log>,
    ) -> Result<usize, std::num::ParseIntError> {
        if order.external_ref != "a" {
            let number = order.external_ref.parse()?;
            return Ok(number);
        }
        log.0.add(order.external_ref);
        Ok(1)
    }

    #[idempotent(key = "customer_id, external_ref")]
    #[deprecated = "there is a newer one"]
    async fn old(_: &mut Tx<Sqlite>, order: Order, log: State<Log>) -> Result<(), Failure> {
        log.0.add(order.external_ref);
        Ok(())
    }

    #[idempotent(key = "customer_id, external_ref", crate = ::renamed)]
    async fn renamed(_: &mut Tx<Sqlite>, order: Order, log: State<Log>) -> Result<(), Failure> {
        log.0.add(order.external_ref);
        Ok(())
    }

    #[idempotent]
    #[cfg(any())]
    async fn absent(_: &mut Tx<Sqlite>, _: Order) -> Result<(), Failure> {
        Ok(())
    }

    /// There is no handler of this name, so there is no marker of it either.
    struct AbsentHandler;

    #[tokio::test]
    async fn each_shape_runs() {
        let _ = AbsentHandler;
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<AliasedHandler>().await, ["a"]);
        assert_eq!(bench.deliver_twice::<PatternsHandler>().await, ["a7"]);
        assert_eq!(bench.deliver_twice::<EarlyHandler>().await, ["a"]);
        assert_eq!(bench.deliver_twice::<OldHandler>().await, ["a"]);
        assert_eq!(bench.deliver_twice::<RenamedHandler>().await, ["a"]);
    }

    #[tokio::test]
    async fn an_error_by_question_mark_is_a_retry() {
        let bench = Bench::new().await;
        let body = r#"{"customer_id":7,"external_ref":"b"}"#;
        let outcome = bench.deliver::<EarlyHandler>("m-1", body).await;
        assert!(matches!(outcome, Outcome::Retry(_)), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_handler_may_live_in_a_function() {
        #[idempotent(key = "customer_id, external_ref")]
        async fn inner(_: &mut Tx<Sqlite>, order: Order, log: State<Log>) -> Result<(), Failure> {
            log.0.add(order.external_ref);
            Ok(())
        }
        assert_eq!(Bench::new().await.deliver_twice::<InnerHandler>().await, ["a"]);
    }
}

/// Handlers that a `macro_rules!` emits: what it passes on arrives in invisible groups.
mod emitted {
    use super::*;

    macro_rules! handler {
        ($name:ident, $level:expr, $key:literal, $tx:ty, $message:ty, $output:ty) => {
            #[idempotent(level = $level, key = $key, crate = $crate::emitted::runtime)]
            async fn $name(
                tx: &mut $tx,
                order: $message,
                State(log): State<$crate::Log>,
            ) -> $output {
                let _ = tx;
                log.add(order.external_ref);
                Ok(())
            }
        };
        ($vis:vis $name:ident by $($field:ident).+ in $scope:literal: $tx:ty) => {
            #[idempotent(key($($field).+), scope = $scope)]
            $vis async fn $name(tx: $tx, order: $crate::Order) -> Result<(), Failure> {
                let _ = (tx, order);
                Ok(())
            }
        };
    }

    pub(crate) use idem_runtime as runtime;

    handler!(by_text, 2, "customer_id, external_ref", Tx<Sqlite>, Order, Result<(), Failure>);
    handler!(pub(super) by_paths by customer_id in "emitted": &mut Tx<Sqlite>);

    #[tokio::test]
    async fn they_run_like_any_other() {
        assert_eq!(Bench::new().await.deliver_twice::<ByTextHandler>().await, ["a"]);
        assert_eq!(spec(ByPathsHandler).scope, "emitted");
        assert_eq!(spec(ByPathsHandler).key, ["customer_id"]);
    }
}
