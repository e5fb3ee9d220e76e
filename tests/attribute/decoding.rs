//! Bodies that are no JSON.

use std::str::Utf8Error;

use idem_runtime::store::Sqlite;
use idem_runtime::{Context, Delivery, Failure, Outcome, SourceId, State, Tx, execute, idempotent};

use crate::bench::{Bench, Log};

/// Lines of text. It implements nothing.
struct Note {
    number: i64,
    text: String,
}

impl Note {
    fn read(delivery: &Delivery) -> Result<Self, Failure> {
        let text = std::str::from_utf8(delivery.body())?;
        let (number, text) = text
            .split_once('\n')
            .ok_or_else(|| Failure::reject("NoNote", "a note has a number and a text"))?;
        Ok(Self { number: number.parse()?, text: text.to_owned() })
    }
}

#[idempotent(key = "number", decode = Note::read)]
async fn take_note(_: &mut Tx<Sqlite>, note: Note, State(log): State<Log>) -> Result<(), Failure> {
    log.add(note.text);
    Ok(())
}

/// A function for messages of any type.
fn utf8<M: for<'a> From<&'a str>>(delivery: &Delivery) -> Result<M, Utf8Error> {
    Ok(M::from(std::str::from_utf8(delivery.body())?))
}

#[idempotent(level = 1, batch, decode = utf8)]
async fn take_texts(
    _: &mut Tx<Sqlite>,
    texts: Vec<String>,
    State(log): State<Log>,
) -> Result<(), Failure> {
    for text in texts {
        log.add(text);
    }
    Ok(())
}

#[tokio::test]
async fn a_function_decodes_what_is_no_json() {
    let bench = Bench::new().await;
    let outcome = bench.deliver::<TakeNoteHandler>("m-1", "7\nmilk").await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    let outcome = bench.deliver::<TakeNoteHandler>("m-2", "7\nbread").await;
    assert!(matches!(outcome, Outcome::Duplicate(_)), "{outcome:?}");
    let outcome = bench.deliver::<TakeTextsHandler>("m-3", "eggs").await;
    assert!(matches!(outcome, Outcome::Done(_)), "{outcome:?}");
    assert_eq!(bench.log.take(), ["milk", "eggs"]);
}

#[tokio::test]
async fn what_a_function_cannot_decode_is_rejected_for_its_reason() {
    let bench = Bench::new().await;
    let cases: [(&[u8], &str, &str); 3] = [
        (b"seven\nmilk", "UndecodableBody", "invalid digit found in string"),
        (b"milk", "NoNote", "a note has a number and a text"),
        (b"\xff", "UndecodableBody", "invalid utf-8"),
    ];
    for (body, reason, description) in cases {
        let outcome = bench.deliver::<TakeNoteHandler>("m-1", body).await;
        let Outcome::Reject(rejection) = outcome else { panic!("{outcome:?}") };
        assert_eq!(rejection.reason(), reason);
        assert!(rejection.description().contains(description), "{rejection}");
    }
    let source = SourceId::new("bus.example.net", "notes");
    let unreadable = Delivery::new(source, "7\nmilk").with_unreadable_body("it has a hole");
    let outcome = execute::<TakeNoteHandler, _>(&bench.store, &Context::of(unreadable)).await;
    let Outcome::Reject(rejection) = outcome else { panic!("{outcome:?}") };
    assert_eq!(rejection.reason(), "UnreadableBody");
    assert!(bench.log.take().is_empty());
}
