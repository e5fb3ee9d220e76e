//! Handlers as people write them: the attribute keeps out of their way.
//!
//! The lints are part of the test: nothing that is generated may warn.

#![deny(warnings, clippy::pedantic)]

mod bench;
mod contents;
mod decoding;
mod renaming;

use idem_runtime::key::KeyEncoder;
use idem_runtime::store::Sqlite;
use idem_runtime::{
    Delivery, Failure, Handler, HandlerSpec, Level, Outcome, State, Tx, idempotent,
};
use serde::Deserialize;

use bench::{Bench, Log};

/// Another name for the runtime, as in a crate that renames its dependency.
extern crate idem_runtime as renamed;

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

/// M-06: names that generated code might use, as arguments, as items and as types.
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

    mod named {
        use super::super::*;

        #[derive(Deserialize)]
        pub(super) struct Named {
            customer_id: i64,
            external_ref: String,
        }

        /// Each body sees its own values; the message can neither be cloned nor debugged.
        macro_rules! named {
            ($(fn $handler:ident($tx:ident, $message:ident, $log:ident, $delivery:ident);)+) => {
                $(#[idempotent(key = "customer_id, external_ref")]
                pub(super) async fn $handler(
                    $tx: &mut Tx<Sqlite>,
                    $message: Named,
                    State($log): State<Log>,
                    $delivery: &Delivery,
                ) -> Result<(), Failure> {
                    let _: &mut Tx<Sqlite> = $tx;
                    let moved = move || $message.external_ref;
                    $log.add(format!("{} {}", moved(), $delivery.message_id().unwrap_or_default()));
                    Ok(())
                })+
            };
        }

        named! {
            fn result(key, tx, conn, msg);
            fn execute(message, result, claim, pool);
            fn handler(ctx, outcome, key, message);
            fn state(context, work, call, require);
            fn store(__key, __message, __work, __context);
            fn transaction(__context, __work, __message, __key);
        }
    }

    #[tokio::test]
    async fn arguments_may_have_any_name() {
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<named::ResultHandler>().await, ["a m-1"]);
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<named::ExecuteHandler>().await, ["a m-1"]);
        assert_eq!(bench.deliver_twice::<named::HandlerHandler>().await, ["a m-1"]);
        assert_eq!(bench.deliver_twice::<named::StateHandler>().await, ["a m-1"]);
        assert_eq!(bench.deliver_twice::<named::StoreHandler>().await, ["a m-1"]);
        assert_eq!(bench.deliver_twice::<named::TransactionHandler>().await, ["a m-1"]);
        assert_eq!(bench.deliver_twice::<KeyHandler>().await, ["a", "m-1"]);
        assert_eq!(bench.deliver_twice::<CallHandler>().await, ["a"]);
    }

    /// Types of the user's that hide those of the prelude and of the runtime.
    mod shadowed {
        use super::super::{Order, Sqlite, State, Tx, idempotent};

        pub(super) struct Error;
        pub(super) struct Claim;
        pub(super) struct KeyEncoder;
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
            let _ = (Error, Claim, KeyEncoder, Context, Handler, Level, Failure, Option, Clone);
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

    #[derive(Deserialize)]
    struct Wrapped(Order);

    #[idempotent(key = "0.customer_id, 0.external_ref")]
    async fn tuple_pattern(
        tx: &mut Tx<Sqlite>,
        Wrapped(Order { external_ref, .. }): Wrapped,
        State(ref log): State<Log>,
        _: &Delivery,
    ) -> Result<(), Failure> {
        let _ = tx;
        log.add(external_ref);
        Ok(())
    }

    #[idempotent(key(customer_id, external_ref))]
    async fn mutable(
        _: &mut Tx<Sqlite>,
        mut order: Order,
        State(mut log): State<Log>,
        delivery: &Delivery,
    ) -> Result<(), Failure> {
        order.external_ref.push_str(delivery.message_id().unwrap_or_default());
        log = log.clone();
        log.add(order.external_ref);
        Ok(())
    }

    /// M-08. The key's fields are the message's, whatever the pattern takes from it.
    #[tokio::test]
    async fn arguments_may_be_patterns() {
        let bench = Bench::new().await;
        assert_eq!(bench.deliver_twice::<PatternsHandler>().await, ["a7"]);
        assert_eq!(bench.deliver_twice::<MutableHandler>().await, ["am-1"]);
        assert_eq!(bench.deliver_twice::<TuplePatternHandler>().await, ["a"]);
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

/// M-11: the body is there once, and whatever way it ends by, the transaction ends with it.
mod bodies {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    type Ended = Result<(), Failure>;

    /// Its reference says by which way it ends.
    #[idempotent(key = "customer_id, external_ref")]
    async fn ends(tx: &mut Tx<Sqlite>, order: Order, State(log): State<Log>) -> Ended {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        fn number(text: &str) -> Result<i64, std::num::ParseIntError> {
            text.parse()
        }

        sqlx::query("CREATE TABLE IF NOT EXISTS effects (way TEXT)").execute(&mut **tx).await?;
        let insert = sqlx::query("INSERT INTO effects VALUES ($1)").bind(&order.external_ref);
        insert.execute(&mut **tx).await?;
        log.add(format!("run {}", RUNS.fetch_add(1, Ordering::Relaxed)));
        let way = order.external_ref.as_str();
        let inner = || {
            if way == "closure" {
                return Err(Failure::from("from the closure"));
            }
            Ok(())
        };
        let block = async {
            if way == "block" {
                return Err("from the block");
            }
            Ok(())
        };
        let found = 'search: {
            for step in 0.. {
                if step == 3 {
                    break 'search step;
                }
            }
            unreachable!("the loop ends by the label")
        };
        assert_eq!(found, 3);
        match way {
            "early" => return Ok(()),
            "error" => return Err(Failure::from("an early error")),
            "question" => {
                number(way)?;
            }
            _ => {}
        }
        block.await?;
        inner()
    }

    #[tokio::test]
    async fn a_body_is_there_once_and_each_of_its_ends_counts() {
        let bench = Bench::new().await;
        for (run, way) in
            ["last", "early", "error", "question", "closure", "block"].iter().enumerate()
        {
            let body = format!(r#"{{"customer_id":7,"external_ref":"{way}"}}"#);
            let outcome = bench.deliver::<EndsHandler>(way, body).await;
            match *way {
                "last" | "early" => {
                    assert!(matches!(outcome, Outcome::Done(_)), "{way}: {outcome:?}");
                }
                _ => assert!(matches!(outcome, Outcome::Retry(_)), "{way}: {outcome:?}"),
            }
            // One counter, of one body.
            assert_eq!(bench.log.take(), [format!("run {run}")]);
        }
        let effects = sqlx::query_scalar::<_, String>("SELECT way FROM effects ORDER BY way");
        let effects = effects.fetch_all(bench.store.pool()).await.expect("the table is there");
        assert_eq!(effects, ["early", "last"]);
    }
}
