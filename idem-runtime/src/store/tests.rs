//! A server that falls silent, on tokio's paused clock.

use std::collections::VecDeque;
use std::error::Error;
use std::future::pending;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::calls::ANSWER_MAX;
use super::*;

/// Answers everything but one step, for which it waits for ever.
#[derive(Clone)]
struct Silent {
    at: &'static str,
    /// The keys whose claims are committed.
    committed: Vec<Digest>,
    /// What is said of the transaction, each time that somebody asks. If nothing ever is, it has
    /// no id.
    fates: Arc<Mutex<VecDeque<Fate>>>,
}

impl Silent {
    fn at(step: &'static str) -> Self {
        Self { at: step, committed: vec![], fates: Arc::default() }
    }

    fn at_commit(fates: impl IntoIterator<Item = Fate>) -> Self {
        Self { fates: Arc::new(Mutex::new(fates.into_iter().collect())), ..Self::at("commit") }
    }

    /// The same where claims of these keys are committed.
    fn with_committed(self, keys: &[&str]) -> Self {
        Self { committed: keys.iter().map(|key| claim_of(key).digest).collect(), ..self }
    }

    /// Claims and commits, and says how long the commit took.
    async fn commit(&self) -> (Result<(), StoreError>, Duration) {
        self.commit_many(&["r1"]).await
    }

    async fn commit_many(&self, keys: &[&str]) -> (Result<(), StoreError>, Duration) {
        let mut tx = Tx::begin(self).await.expect("begun");
        let claims: Vec<Claim> = keys.iter().map(|key| claim_of(key)).collect();
        match claims.as_slice() {
            [claim] => drop(tx.claim(claim).await.expect("claimed")),
            claims => {
                drop(tx.claim_many(&claims.iter().collect::<Vec<_>>()).await.expect("claimed"))
            }
        }
        let started = Instant::now();
        let committed = tx.commit(self).await;
        (committed, started.elapsed())
    }
}

/// The transaction knows where its server falls silent.
struct Open {
    silent_at: &'static str,
    id: Option<TransactionId>,
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

impl Store for Silent {
    type Connection = ();
    type Transaction = Open;

    const MIGRATIONS: &'static [&'static str] = &[];

    fn with_names(self, _: Names) -> Result<Self, StoreError> {
        Ok(self)
    }

    async fn begin(&self) -> Result<Open, StoreError> {
        let id = (!self.fates.lock().unwrap().is_empty()).then_some(TransactionId(7));
        answer(self.at, "begin", Open { silent_at: self.at, id, connection: () }).await
    }

    async fn claim(open: &mut Open, _: &Claim) -> Result<Claimed, StoreError> {
        answer(open.silent_at, "claim", Claimed::Ours).await
    }

    async fn claim_many(_: &mut Open, claims: &[&Claim]) -> Result<Vec<Claimed>, StoreError> {
        Ok(claims.iter().map(|_| Claimed::Ours).collect())
    }

    async fn keep(_: &mut Open, _: &[(Digest, &Reply)]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn was_ended(_: &mut Open) -> bool {
        false
    }

    async fn commit(open: Open) -> Result<(), StoreError> {
        answer(open.silent_at, "commit", ()).await
    }

    fn id(open: &Open) -> Option<TransactionId> {
        open.id
    }

    async fn fate(&self, id: TransactionId, claimed: Option<Digest>) -> Result<Fate, StoreError> {
        assert_eq!((id, claimed), (TransactionId(7), Some(claim().digest)));
        Ok(self.fates.lock().unwrap().pop_front().expect("asked no more than so often"))
    }

    async fn rollback(open: Open) {
        answer(open.silent_at, "rollback", ()).await.ok();
    }

    async fn find(&self, digest: Digest) -> Result<Option<Earlier>, StoreError> {
        let earlier = Earlier { claimed_at: OffsetDateTime::UNIX_EPOCH, same: vec![], reply: None };
        answer(self.at, "read the claim", self.committed.contains(&digest).then_some(earlier)).await
    }

    fn fault_of(_: &(dyn Error + 'static)) -> Option<Fault> {
        None
    }

    async fn register(&self, scope: &ScopeKeys) -> Result<ScopeKeys, StoreError> {
        Ok(scope.clone())
    }

    async fn keep_alive(&self, _: &str, _: Retention) -> Result<(), StoreError> {
        Ok(())
    }

    async fn oldest_claim_age(&self, _: &str) -> Result<Option<i64>, StoreError> {
        Ok(None)
    }

    async fn scopes(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn prune(&self, _: &str, _: u32) -> Result<Option<u64>, StoreError> {
        Ok(Some(0))
    }

    async fn pruned_before(_: &mut Open, _: &str) -> Result<i64, StoreError> {
        Ok(0)
    }

    async fn mark(_: &mut Open) -> Result<(), StoreError> {
        Ok(())
    }

    async fn constraint(&self, name: &'static str) -> Result<Constraint, StoreError> {
        let (schema, table, columns, table_columns) = Default::default();
        Ok(Constraint { name: name.to_owned(), schema, table, columns, table_columns })
    }

    fn violates(_: &(dyn std::error::Error + 'static), _: &Constraint) -> bool {
        false
    }

    async fn agreement(
        &self,
        _: &Constraint,
        _: &[KeyValue],
        _: &[(&'static str, &KeyValue)],
    ) -> Result<Option<Vec<bool>>, StoreError> {
        Ok(None)
    }

    async fn migrate(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn claim() -> Claim {
    claim_of("r1")
}

fn claim_of(part: &str) -> Claim {
    let mut key = crate::key::KeyEncoder::default();
    key.part(part);
    let digest = Digest::of_fields("test", &key).expect("a key");
    Claim { scope: "test", digest, same: Fingerprint::default() }
}

#[tokio::test(start_paused = true)]
async fn a_begin_or_claim_without_answer_makes_the_database_unavailable() {
    let started = Instant::now();
    let begun = Tx::begin(&Silent::at("begin")).await;
    assert_eq!(begun.expect_err("no answer").fault(), Fault::Unavailable);

    let mut tx = Tx::begin(&Silent::at("claim")).await.expect("begun");
    let claimed = tx.claim(&claim()).await;
    assert_eq!(claimed.expect_err("no answer").fault(), Fault::Unavailable);
    assert_eq!(started.elapsed().as_secs(), 2 * ANSWER_MAX.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_commit_without_answer_is_in_doubt_unless_its_claim_proves_it() {
    let (committed, _) = Silent::at("commit").commit().await;
    assert_eq!(committed.expect_err("no answer").fault(), Fault::InDoubt);

    let proven = Silent::at("commit").with_committed(&["r1"]);
    proven.commit().await.0.expect("the claim is there");
}

/// Other deliveries may have committed the claims of some since ours was rolled back.
#[tokio::test(start_paused = true)]
async fn a_batch_without_answer_is_in_doubt_unless_all_its_claims_are_there() {
    let some = Silent::at("commit").with_committed(&["r1"]);
    let (committed, _) = some.commit_many(&["r1", "r2"]).await;
    assert_eq!(committed.expect_err("one is missing").fault(), Fault::InDoubt);

    let all = Silent::at("commit").with_committed(&["r1", "r2"]);
    all.commit_many(&["r1", "r2"]).await.0.expect("both are there");
}

/// After a crash the server may give the number of a transaction that was lost to another one.
#[tokio::test(start_paused = true)]
async fn a_server_that_says_committed_is_not_believed_without_the_claim() {
    let (committed, _) = Silent::at_commit([Fate::Committed]).commit().await;
    assert_eq!(committed.expect_err("it was another").fault(), Fault::Unavailable);

    let some = Silent::at_commit([Fate::Committed]).with_committed(&["r1"]);
    let (committed, _) = some.commit_many(&["r1", "r2"]).await;
    assert_eq!(committed.expect_err("it was another").fault(), Fault::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_knows_transactions_is_asked_until_it_knows_the_fate() {
    let known = Silent::at_commit([Fate::Unknown, Fate::Committed]).with_committed(&["r1"]);
    known.commit().await.0.expect("the server says so, and the claim is there");

    let (committed, _) = Silent::at_commit([Fate::Unknown, Fate::RolledBack]).commit().await;
    assert_eq!(committed.expect_err("rolled back").fault(), Fault::Unavailable);

    let undecided = Silent::at_commit([Fate::Unknown; 4]);
    let (committed, took) = undecided.commit().await;
    assert_eq!(committed.expect_err("still open").fault(), Fault::InDoubt);
    assert!(undecided.fates.lock().unwrap().is_empty(), "it was asked four times");
    assert!(took < ANSWER_MAX + Duration::from_secs(1), "{took:?}");
}

/// A claim that another delivery of the same message has committed since proves nothing about ours:
/// the server's own word does.
#[tokio::test(start_paused = true)]
async fn where_the_server_knows_the_transaction_the_claim_is_not_asked() {
    let rolled_back = Silent::at_commit([Fate::RolledBack]).with_committed(&["r1"]);
    let (committed, _) = rolled_back.commit().await;
    assert_eq!(committed.expect_err("rolled back").fault(), Fault::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_without_answer_is_waited_for_no_longer_than_that() {
    let started = Instant::now();
    let tx = Tx::begin(&Silent::at("rollback")).await.expect("begun");
    tx.rollback().await.expect("it is left to the server");
    assert_eq!(started.elapsed(), ANSWER_MAX);
}
