//! A server that falls silent, on tokio's paused clock.

use std::error::Error;
use std::future::pending;

use tokio::time::Instant;

use super::*;

/// Answers everything but one step, for which it waits for ever.
#[derive(Clone)]
struct SilentAt(&'static str);

/// The transaction knows where its server falls silent.
struct Open {
    silent_at: &'static str,
    connection: (),
}

impl Deref for Open {
    type Target = ();

    fn deref(&self) -> &() {
        &self.connection
    }
}

impl DerefMut for Open {
    fn deref_mut(&mut self) -> &mut () {
        &mut self.connection
    }
}

async fn answer<T>(silent_at: &str, step: &str, answer: T) -> Result<T, StoreError> {
    if silent_at == step { pending().await } else { Ok(answer) }
}

impl Store for SilentAt {
    type Connection = ();
    type Transaction = Open;

    const MIGRATIONS: &'static [&'static str] = &[];

    async fn begin(&self) -> Result<Open, StoreError> {
        answer(self.0, "begin", Open { silent_at: self.0, connection: () }).await
    }

    async fn claim(open: &mut Open, _: Claim) -> Result<Claimed, StoreError> {
        answer(open.silent_at, "claim", Claimed::Ours).await
    }

    async fn guard(open: &mut Open) -> Result<(), StoreError> {
        answer(open.silent_at, "guard", ()).await
    }

    async fn was_ended(_: &mut Open) -> bool {
        false
    }

    async fn commit(open: Open) -> Result<(), StoreError> {
        answer(open.silent_at, "commit", ()).await
    }

    async fn rollback(open: Open) {
        answer(open.silent_at, "rollback", ()).await.ok();
    }

    async fn is_claimed(&self, _: Digest) -> Result<bool, StoreError> {
        answer(self.0, "read the claim", self.0 == "commit").await
    }

    fn fault_of(_: &(dyn Error + 'static)) -> Option<Fault> {
        None
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn claim() -> Claim {
    let mut key = crate::key::KeyEncoder::default();
    key.part("r1");
    let digest = Digest::of_fields("test", &key).expect("a key");
    Claim { scope: "test", digest }
}

#[tokio::test(start_paused = true)]
async fn a_begin_or_claim_without_answer_makes_the_database_unavailable() {
    let started = Instant::now();
    let begun = Tx::begin(&SilentAt("begin")).await;
    assert_eq!(begun.expect_err("no answer").fault(), Fault::Unavailable);

    let mut tx = Tx::begin(&SilentAt("claim")).await.expect("begun");
    let claimed = tx.claim(claim()).await;
    assert_eq!(claimed.expect_err("no answer").fault(), Fault::Unavailable);
    assert_eq!(started.elapsed().as_secs(), 2 * ANSWER_MAX.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_answer_is_in_doubt_unless_its_claim_proves_it() {
    let guarded = SilentAt("guard");
    let mut tx = Tx::begin(&guarded).await.expect("begun");
    tx.claim(claim()).await.expect("claimed");
    let committed = tx.commit(&guarded).await;
    assert_eq!(committed.expect_err("no answer").fault(), Fault::InDoubt);

    let committing = SilentAt("commit");
    let mut tx = Tx::begin(&committing).await.expect("begun");
    tx.claim(claim()).await.expect("claimed");
    tx.commit(&committing).await.expect("the claim is there");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_without_answer_is_waited_for_no_longer_than_that() {
    let started = Instant::now();
    let tx = Tx::begin(&SilentAt("rollback")).await.expect("begun");
    tx.rollback().await.expect("it is left to the server");
    assert_eq!(started.elapsed(), ANSWER_MAX);
}
