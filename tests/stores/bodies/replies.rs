//! What is kept with a claim, and what a later message of the same key gets of it.

use std::time::{Duration, SystemTime};

use idem_runtime::{Outcome, Proof};

use super::{assert_counts, assert_outcome};
use crate::engines::{Engine, priced};

/// looking the stored reply up works in the transaction whose claim met the row, and, for a
/// delivery that was counted before, outside of any.
pub(crate) async fn a_reply_is_given_to_duplicates<E: Engine>(engine: &E) {
    let Outcome::Done(first) = engine.run::<E::Receipt>(priced("r1", 100, "EUR")).await else {
        panic!("it is the first");
    };
    for delivery_count in [1, 2] {
        let again = priced("r1", 100, "EUR").with_delivery_count(delivery_count);
        let outcome = engine.run::<E::Receipt>(again).await;
        assert_outcome!(outcome, Outcome::Duplicate(proof) if number(&proof) == number(&first));
    }
    let Outcome::Done(other) = engine.run::<E::Receipt>(priced("r2", 100, "EUR")).await else {
        panic!("it is another");
    };
    assert_ne!(number(&other), number(&first));
    assert_counts(engine, 2, 2).await;

    let without = engine.place("r3", "ok").await;
    assert_outcome!(without, Outcome::Done(proof) if proof.reply().is_none());
    let without = engine.place("r3", "ok").await;
    assert_outcome!(without, Outcome::Duplicate(proof) if proof.reply().is_none());
}

fn number(proof: &Proof) -> i64 {
    proof.reply().expect("it replays").decode().expect("it is a number")
}

pub(crate) async fn a_message_that_says_something_else_under_the_same_key_is_a_conflict<
    E: Engine,
>(
    engine: &E,
) {
    assert_outcome!(engine.run::<E::Receipt>(priced("r1", 100, "EUR")).await, Outcome::Done(_));
    for delivery_count in [1, 2] {
        let run = async |amount_cents, currency| {
            let other = priced("r1", amount_cents, currency).with_delivery_count(delivery_count);
            engine.run::<E::Receipt>(other).await
        };
        assert_outcome!(run(100, "EUR").await, Outcome::Duplicate(_));
        let outcome = run(999, "EUR").await;
        assert_outcome!(outcome, Outcome::Conflict(conflict) if conflict.fields() == ["amount_cents"]);
        let outcome = run(999, "CHF").await;
        let Outcome::Conflict(conflict) = outcome else { panic!("{outcome:?}") };
        assert_eq!(conflict.fields(), ["amount_cents", "currency"]);
        assert!(!conflict.to_string().contains("999"), "values are nobody's business: {conflict}");
    }
    assert_counts(engine, 1, 1).await;
}

pub(crate) async fn a_duplicate_tells_when_its_key_was_claimed(engine: &impl Engine) {
    assert_outcome!(engine.place("r1", "ok").await, Outcome::Done(proof) if proof.claimed_at().is_none());
    let outcome = engine.place("r1", "ok").await;
    let Outcome::Duplicate(proof) = outcome else { panic!("{outcome:?}") };
    let claimed_at = SystemTime::from(proof.claimed_at().expect("the row has it"));
    // The servers run here. SQLite keeps whole seconds.
    #[expect(clippy::disallowed_methods, reason = "the database's clock is not ours to move")]
    let now = SystemTime::now();
    let age = now.duration_since(claimed_at).expect("it is past");
    assert!(age < Duration::from_secs(60), "{age:?}");
}

pub(crate) async fn a_reply_that_is_too_large_is_rejected_and_nothing_done<E: Engine>(engine: &E) {
    let outcome = engine.run::<E::Verbose>(priced("r1", 100, "EUR")).await;
    assert_outcome!(outcome, Outcome::Reject(rejection) if rejection.reason() == "ReplyTooLarge");
    assert_counts(engine, 0, 0).await;
}
