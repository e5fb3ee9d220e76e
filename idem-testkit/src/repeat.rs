//! The same message, delivered again.

use std::fmt::Debug;

use idem_runtime::{Context, Handler, Level, Outcome, execute, store::Store};

/// Runs the handler for a delivery and then twice more, and checks that the repetitions change
/// nothing of what `watch` reads.
///
/// At level 1 and 2 the repetitions must end as duplicates. At level 0 nothing is claimed, and the
/// handler itself must come to the same result each time. Gives what `watch` read in the end, so
/// that the test can also check the effect itself.
///
/// # Errors
///
/// When a delivery does not end as it should, or a repetition changes something.
pub async fn repeat<H: Handler<S>, S: Store, T: PartialEq + Debug>(
    store: &S,
    context: &Context,
    watch: impl AsyncFn() -> T,
) -> Result<T, Unrepeatable<T>> {
    let first = execute::<H, S>(store, context).await;
    if !matches!(first, Outcome::Done(_)) {
        return Err(Unrepeatable::NotDone(first));
    }
    let after_first = watch().await;
    for _ in 0..2 {
        let again = execute::<H, S>(store, context).await;
        let as_expected = match H::SPEC.level {
            Level::Zero => matches!(again, Outcome::Done(_)),
            Level::One | Level::Two => matches!(again, Outcome::Duplicate(_)),
        };
        if !as_expected {
            return Err(Unrepeatable::EndedOtherwise(again));
        }
        let after_again = watch().await;
        if after_again != after_first {
            return Err(Unrepeatable::Changed { after_first, after_again });
        }
    }
    Ok(after_first)
}

/// Why a handler is not idempotent.
#[derive(Debug, thiserror::Error)]
pub enum Unrepeatable<T: Debug> {
    /// The first delivery did not succeed.
    #[error("the first delivery was not done: {0:?}")]
    NotDone(Outcome),
    /// A repetition was neither done again, at level 0, nor a duplicate.
    #[error("a repetition ended otherwise: {0:?}")]
    EndedOtherwise(Outcome),
    /// A repetition changed what was watched.
    #[error("a repetition changed {after_first:?} into {after_again:?}")]
    Changed {
        /// What was read after the first delivery.
        after_first: T,
        /// What was read after the repetition.
        after_again: T,
    },
}

#[cfg(test)]
mod tests {
    use idem_runtime::store::Sqlite;
    use idem_runtime::{Delivery, Failure, SourceId, Tx, idempotent};
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Pay {
        payment: i64,
    }

    async fn insert(tx: &mut Tx<Sqlite>, pay: &Pay) -> Result<(), Failure> {
        sqlx::query("INSERT INTO payments VALUES ($1)")
            .bind(pay.payment)
            .execute(&mut **tx)
            .await?;
        Ok(())
    }

    #[idempotent(key = "payment")]
    async fn claimed(tx: &mut Tx<Sqlite>, pay: Pay) -> Result<(), Failure> {
        insert(tx, &pay).await
    }

    #[idempotent(level = 0)]
    async fn careless(tx: &mut Tx<Sqlite>, pay: Pay) -> Result<(), Failure> {
        insert(tx, &pay).await
    }

    #[idempotent(level = 0)]
    async fn failing(_: &mut Tx<Sqlite>, _: Pay) -> Result<(), Failure> {
        Err("no".into())
    }

    // ANCHOR: example
    async fn run<H: Handler<Sqlite>>() -> Result<i64, Unrepeatable<i64>> {
        let store = Sqlite::connect("sqlite::memory:").await.unwrap();
        store.migrate().await.unwrap();
        let table = "CREATE TABLE payments (payment INTEGER)";
        sqlx::query(table).execute(store.pool()).await.unwrap();
        let delivery = Delivery::new(SourceId::new("h", "q"), r#"{"payment": 7}"#);
        repeat::<H, _, _>(&store, &Context::of(delivery), async || {
            let count = "SELECT count(*) FROM payments";
            sqlx::query_scalar(count).fetch_one(store.pool()).await.unwrap()
        })
        .await
    }

    #[tokio::test]
    async fn a_claimed_handler_passes() {
        assert_eq!(run::<ClaimedHandler>().await.unwrap(), 1);
    }

    // ANCHOR_END: example

    #[tokio::test]
    async fn a_handler_that_only_says_level_zero_is_found_out() {
        let found = run::<CarelessHandler>().await.unwrap_err();
        assert!(
            matches!(found, Unrepeatable::Changed { after_first: 1, after_again: 2 }),
            "{found}"
        );
    }

    #[tokio::test]
    async fn a_handler_that_fails_is_no_proof() {
        let found = run::<FailingHandler>().await.unwrap_err();
        assert!(matches!(found, Unrepeatable::NotDone(_)), "{found}");
    }
}
