//! What makes a key of a message as it comes in.

use std::hash::BuildHasher;
use std::process::Command;

use idem_runtime::store::Sqlite;
use idem_runtime::{Failure, Handler, KeyPart, Outcome, State, Tx, idempotent};
use rust_decimal::Decimal;
use serde::Deserialize;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::bench::{Bench, Log};

/// A handler that writes down each run, keyed on all of its message.
macro_rules! handler {
    ($handler:ident($message:ident { $($field:ident: $ty:ty),* }) $($attribute:tt)*) => {
        #[derive(Deserialize)]
        $($attribute)*
        struct $message {
            $($field: $ty),*
        }

        #[idempotent(key($($field),*))]
        async fn $handler(
            _: &mut Tx<Sqlite>,
            _: $message,
            State(log): State<Log>,
        ) -> Result<(), Failure> {
            log.add("ran");
            Ok(())
        }
    };
}

handler!(by_texts(Texts { left: String, right: String }));
handler!(by_amount(Amount { amount: Decimal }));
handler!(by_uuid(ById { id: Uuid }));
handler!(by_text(ByText { id: String }));

/// Delivers bodies under `MessageId`s of their own, and says which of them were duplicates.
async fn duplicates<H: Handler<Sqlite>>(bench: &Bench, bodies: &[String]) -> Vec<bool> {
    let mut duplicates = Vec::new();
    for (number, body) in bodies.iter().enumerate() {
        match bench.deliver::<H>(&format!("m-{number}"), body.clone()).await {
            Outcome::Done(_) => duplicates.push(false),
            Outcome::Duplicate(_) => duplicates.push(true),
            outcome => panic!("{body}: {outcome:?}"),
        }
    }
    let ran = bench.log.take().len();
    assert_eq!(ran, duplicates.iter().filter(|duplicate| !**duplicate).count());
    duplicates
}

/// M-01.
#[tokio::test]
async fn texts_that_split_in_two_ways_are_two_keys() {
    let bench = Bench::new().await;
    for separator in [",", "|", ":", "/", "\\", "\n", "\0", "\u{3}", "%"] {
        let body = |left: &str, right: &str| {
            serde_json::json!({ "left": left, "right": right }).to_string()
        };
        let (joined, tail) = (format!("a{separator}b"), format!("b{separator}c"));
        let bodies = [body(&joined, "c"), body("a", &tail), body(&joined, "c"), body("a", &tail)];
        let expected = [false, false, true, true];
        assert_eq!(duplicates::<ByTextsHandler>(&bench, &bodies).await, expected, "{separator:?}");
    }
    let bodies = [r#"{"left":"","right":"x"}"#, r#"{"left":"x","right":""}"#].map(str::to_owned);
    assert_eq!(duplicates::<ByTextsHandler>(&bench, &bodies).await, [false, false]);
}

/// M-02. That a field may be absent is refused by the compiler: `key_field_optional` in `tests/ui`.
#[tokio::test]
async fn a_message_without_its_key_field_is_refused_by_name() {
    let bench = Bench::new().await;
    for body in ["{}", r#"{"id":null}"#, r#"{"other":"id"}"#] {
        let outcome = bench.deliver::<ByTextHandler>("m-1", body).await;
        let Outcome::Reject(reject) = outcome else { panic!("{body}: {outcome:?}") };
        let text = format!("{reject:?}");
        assert!(text.contains("id"), "{text}");
    }
    let bodies = [r#"{"id":""}"#, r#"{"id":"null"}"#, r#"{"id":""}"#].map(str::to_owned);
    assert_eq!(duplicates::<ByTextHandler>(&bench, &bodies).await, [false, false, true]);
}

/// M-03. That a float is refused is `key_field_float` in `tests/ui`.
#[tokio::test]
async fn one_amount_is_one_key_however_it_is_spelt() {
    let bench = Bench::new().await;
    let bodies = ["10", "10.0", "10.00", "1e1", "\"10.00\"", "10.01", "\"10.01\"", "100", "-10"];
    let bodies = bodies.map(|amount| format!(r#"{{"amount":{amount}}}"#));
    let expected = [false, true, true, true, true, false, true, false, false];
    assert_eq!(duplicates::<ByAmountHandler>(&bench, &bodies).await, expected);
}

/// M-12.
#[tokio::test]
async fn a_uuid_is_one_key_in_every_form_and_as_text_its_very_bytes() {
    let bench = Bench::new().await;
    let forms = [
        "67e55044-10b1-426f-9247-bb680e5fe0c8",
        "67E55044-10B1-426F-9247-BB680E5FE0C8",
        "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
        "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
        "67e5504410b1426f9247bb680e5fe0c8",
    ];
    let bodies = forms.map(|id| format!(r#"{{"id":"{id}"}}"#));
    let expected = [false, true, true, true, true];
    assert_eq!(duplicates::<ByUuidHandler>(&bench, &bodies).await, expected);
    assert_eq!(duplicates::<ByTextHandler>(&bench, &bodies).await, [false; 5]);

    for bad in ["", "67e55044", "67e55044-10b1-426f-9247-bb680e5fe0cg", "{}"] {
        let outcome = bench.deliver::<ByUuidHandler>("m", format!(r#"{{"id":"{bad}"}}"#)).await;
        assert!(matches!(outcome, Outcome::Reject(_)), "{bad}: {outcome:?}");
    }
}

#[derive(Deserialize)]
struct Booking {
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
}

#[idempotent(key = "at")]
async fn by_instant(_: &mut Tx<Sqlite>, _: Booking, State(log): State<Log>) -> Result<(), Failure> {
    log.add("ran");
    Ok(())
}

/// M-10. A time without an offset is refused: `key_field_time_without_offset` in `tests/ui`.
#[tokio::test]
async fn an_instant_is_one_key_with_every_offset_and_number_of_digits() {
    let bench = Bench::new().await;
    let bodies = [
        "2026-10-25T10:00:00+02:00",
        "2026-10-25T08:00:00Z",
        "2026-10-25T08:00:00.000Z",
        "2026-10-25T08:00:00.000000001Z",
        // The two that a clock on the wall shows as 02:30 in that night.
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:30:00+01:00",
    ];
    let bodies = bodies.map(|at| format!(r#"{{"at":"{at}"}}"#));
    let expected = [false, true, true, false, false, false];
    assert_eq!(duplicates::<ByInstantHandler>(&bench, &bodies).await, expected);
}

mod before {
    use super::*;

    #[idempotent(key = "left, right", scope = "texts")]
    pub(super) async fn store(_: &mut Tx<Sqlite>, _: Texts) -> Result<(), Failure> {
        Ok(())
    }
}

mod after {
    use super::*;

    #[idempotent(key = "left, right", scope = "texts")]
    pub(super) async fn store_texts(_: &mut Tx<Sqlite>, _: Texts) -> Result<(), Failure> {
        Ok(())
    }

    #[idempotent(key = "left, right")]
    pub(super) async fn store_anew(_: &mut Tx<Sqlite>, _: Texts) -> Result<(), Failure> {
        Ok(())
    }
}

/// M-05. That a scope with another key is refused at start is tested with the consumer.
#[tokio::test]
async fn a_handler_with_a_scope_may_be_renamed_and_moved() {
    let bench = Bench::new().await;
    let body = r#"{"left":"a","right":"b"}"#;
    let first = bench.deliver::<before::StoreHandler>("m-1", body).await;
    assert!(matches!(first, Outcome::Done(_)), "{first:?}");
    let again = bench.deliver::<after::StoreTextsHandler>("m-2", body).await;
    assert!(matches!(again, Outcome::Duplicate(_)), "{again:?}");
    let elsewhere = bench.deliver::<after::StoreAnewHandler>("m-3", body).await;
    assert!(matches!(elsewhere, Outcome::Done(_)), "{elsewhere:?}");
}

#[derive(Deserialize, KeyPart)]
struct Address {
    country: String,
    postcode: String,
}

#[derive(Deserialize, KeyPart)]
struct CustomerId(i64);

#[derive(Deserialize)]
struct Shipment {
    customer: CustomerId,
    to: Address,
    #[serde(flatten)]
    rest: std::collections::HashMap<String, serde_json::Value>,
}

#[idempotent(key = "customer, to")]
async fn ship(_: &mut Tx<Sqlite>, shipment: Shipment) -> Result<(), Failure> {
    assert_eq!(shipment.rest.len(), 2);
    Ok(())
}

const SHIPMENTS: [&str; 3] = [
    r#"{"customer":7,"to":{"country":"DK","postcode":"2100"},"a":1,"b":2}"#,
    r#"{ "b": 2, "to": { "postcode": "2100", "country": "DK" }, "a": 1, "customer": 7 }"#,
    r#"{"to":{"country":"\u0044K","postcode":"21\u00300"},"a":1,"customer":7,"b":2}"#,
];

/// Where a test of another process finds the database of this one.
const DATABASE: &str = "IDEM_TEST_DATABASE_OF_PARENT";

/// What a hash map of this process goes by.
fn hash_seed() -> String {
    let seed = std::collections::hash_map::RandomState::new().hash_one("seed");
    format!("seed {seed}")
}

/// M-04: other order, white space and escapes, in another process with other hash seeds.
#[tokio::test]
async fn one_content_is_one_key_however_it_is_written_and_in_every_process() {
    let bench = Bench::new().await;
    let first = bench.deliver::<ShipHandler>("m-1", SHIPMENTS[0]).await;
    assert!(matches!(first, Outcome::Done(_)), "{first:?}");
    for body in SHIPMENTS {
        let again = bench.deliver::<ShipHandler>("m-2", body).await;
        assert!(matches!(again, Outcome::Duplicate(_)), "{body}: {again:?}");
    }

    let program = std::env::current_exe().expect("the test has a path");
    let mut child = Command::new(program);
    child.args(["--exact", "contents::in_another_process", "--ignored", "--nocapture"]);
    let output = child.env(DATABASE, &bench.url).output().expect("the test runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("3 duplicates"), "{text}");
    assert!(text.contains("seed ") && !text.contains(&hash_seed()), "{text}");
}

#[tokio::test]
#[ignore = "a part of the test above, which runs it"]
async fn in_another_process() {
    let Ok(url) = std::env::var(DATABASE) else { return };
    let bench = Bench::at(&url).await;
    let mut duplicates = 0;
    for body in SHIPMENTS {
        let again = bench.deliver::<ShipHandler>("m-3", body).await;
        assert!(matches!(again, Outcome::Duplicate(_)), "{body}: {again:?}");
        duplicates += 1;
    }
    println!("{duplicates} duplicates, {}", hash_seed());
}
