//! What the store makes of a server's answers.

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use server::{Answer, Server, Value};

use super::*;
use crate::key::{Fingerprint, KeyEncoder};
use crate::outcome::Chain;
use crate::store::{Tx, Work};

const ID: i64 = 815;
const HOME: i32 = 5;

/// Begins and ends transactions as a database does, and claims what is asked for.
fn agreeable(text: &str) -> Answer {
    if text.contains("BEGIN TRANSACTION; SET IMPLICIT_TRANSACTIONS ON") {
        return Answer::row([Value::Big(ID), Value::Int(HOME)]);
    }
    if text.contains("SELECT @met") {
        return Answer::row([Value::Int(0)]);
    }
    ended(text, i32::from(text.contains("COMMIT TRANSACTION")), HOME)
}

/// The answer to a batch that ends a transaction, with the number that the batch asks for.
fn ended(text: &str, found: i32, database: i32) -> Answer {
    let mark = text.split("SELECT CAST(").nth(1).and_then(|rest| rest.split(" AS").next());
    let mark = mark.and_then(|mark| mark.parse().ok()).expect("a batch that ends a transaction");
    Answer::row([Value::Big(mark), Value::Int(found), Value::Int(database)])
}

async fn store(script: impl Fn(&str) -> Answer + Send + Sync + 'static) -> (Server, SqlServer) {
    let server = Server::new(script).await;
    let store = SqlServer::from_config(server.config(), 2);
    (server, store)
}

fn claim(name: &str) -> Claim {
    let mut key = KeyEncoder::default();
    key.part(name);
    let digest = Digest::of_fields("test", &key).expect("a key");
    Claim { scope: "test", digest, same: Fingerprint::default() }
}

fn text(error: &StoreError) -> String {
    Chain(error).to_string()
}

/// Hides an error as `anyhow` does.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Opaque(Error);

/// Begins, claims and commits, as deliveries do.
async fn commit(store: &SqlServer) -> Result<(), StoreError> {
    let mut tx = Tx::begin(store).await.expect("begun");
    let claimed = tx.claim(&claim("r1")).await.expect("claimed");
    assert!(matches!(claimed, Claimed::Ours), "{claimed:?}");
    tx.commit(store).await
}

#[tokio::test]
async fn a_connection_is_used_again_after_a_commit_and_after_a_rollback() {
    let (server, store) = store(agreeable).await;
    commit(&store).await.expect("committed");
    let tx = Tx::begin(&store).await.expect("begun");
    Work::<SqlServer>::rollback(tx).await.expect("rolled back");
    commit(&store).await.expect("committed");
    assert_eq!(server.connections(), 1);
    assert_eq!(server.asked("IF @found = 1 BEGIN COMMIT TRANSACTION").len(), 2);
}

#[tokio::test]
async fn no_more_connections_are_made_than_are_allowed() {
    let (server, store) = store(agreeable).await;
    let begun = (Tx::begin(&store).await.expect("begun"), Tx::begin(&store).await.expect("begun"));
    let third = commit(&store);
    let first_ends = async {
        tokio::task::yield_now().await;
        Work::<SqlServer>::rollback(begun.0).await.expect("rolled back");
    };
    let (third, ()) = tokio::join!(third, first_ends);
    third.expect("its turn has come");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_transaction_that_is_dropped_closes_its_connection() {
    let (server, store) = store(agreeable).await;
    drop(Tx::begin(&store).await.expect("begun"));
    server.until_closed().await;
    commit(&store).await.expect("on another");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_is_left_in_another_database_is_closed() {
    let (server, store) = store(|text| match agreeable(text) {
        Answer::Rows(_) if text.contains("@found") => ended(text, found::COMMITTED, HOME + 1),
        answer => answer,
    })
    .await;
    commit(&store).await.expect("committed all the same");
    server.until_closed().await;
    commit(&store).await.expect("on another");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_connection_that_died_while_it_was_idle_costs_one_attempt() {
    let died = Arc::new(AtomicBool::new(false));
    let dies = Arc::clone(&died);
    let (server, store) = store(move |text| {
        if text.contains("SET IMPLICIT_TRANSACTIONS ON") && dies.swap(false, Ordering::SeqCst) {
            return Answer::Close;
        }
        agreeable(text)
    })
    .await;
    let both = (Tx::begin(&store).await.expect("begun"), Tx::begin(&store).await.expect("begun"));
    Work::<SqlServer>::rollback(both.0).await.expect("rolled back");
    Work::<SqlServer>::rollback(both.1).await.expect("rolled back");
    died.store(true, Ordering::SeqCst);
    let error = Tx::begin(&store).await.expect_err("it has died");
    commit(&store).await.expect("on a new one");
    assert_eq!(error.fault(), Fault::Unavailable);
    assert_eq!(server.connections(), 3, "the other idle one was not trusted either");
}

#[tokio::test]
async fn what_a_claim_meets_is_told_by_the_number_of_the_error() {
    let row = [Value::Big(1_000_000), Value::Bytes(vec![7]), Value::Null];
    let met =
        |number, rows: Vec<Vec<Value>>| Answer::Rows(vec![vec![vec![Value::Int(number)]], rows]);
    for (answer, expected) in [
        (met(0, vec![]), "Ok(Ours)"),
        (met(1222, vec![]), "Ok(Busy)"),
        (met(2627, vec![row.to_vec()]), "Ok(Before(Earlier { claimed_at: 1970-01-01 0:00:01.0"),
        (met(2601, vec![row.to_vec()]), "Ok(Before(Earlier { claimed_at: 1970-01-01 0:00:01.0"),
        (met(2627, vec![]), "Err(StoreError { operation: \"the claim that was there has just gone"),
        (Answer::Error(1222, 16), "Err(StoreError { operation: \"claim\", fault: Contention"),
        (Answer::Error(1205, 13), "Err(StoreError { operation: \"claim\", fault: Contention"),
        (Answer::Error(2627, 14), "Err(StoreError { operation: \"claim\", fault: Refused"),
        (Answer::Close, "Err(StoreError { operation: \"claim\", fault: Unavailable"),
    ] {
        let (_server, store) = store(move |text| match agreeable(text) {
            Answer::Rows(_) if text.contains("INSERT INTO idem_claim") => answer.clone(),
            answer => answer,
        })
        .await;
        let mut tx = Tx::begin(&store).await.expect("begun");
        let claimed = format!("{:?}", tx.claim(&claim("r1")).await);
        assert!(claimed.starts_with(expected), "expected {expected}, found {claimed}");
    }
}

#[tokio::test]
async fn claims_of_many_are_answered_in_their_order() {
    let claims = [claim("r1"), claim("r2"), claim("r3")];
    let digest = |index: usize| Value::Bytes(claims[index].digest.as_bytes().to_vec());
    let before = vec![digest(1), Value::Big(0), Value::Bytes(vec![7]), Value::Bytes(vec![8])];
    let answer = Answer::Rows(vec![vec![vec![digest(2)], vec![digest(0)]], vec![before]]);
    let (server, store) = store(move |text| match text.contains("OUTPUT inserted.digest") {
        true => answer.clone(),
        false => agreeable(text),
    })
    .await;
    let mut tx = Tx::begin(&store).await.expect("begun");
    let claimed = tx.claim_many(&claims.iter().collect::<Vec<_>>()).await.expect("claimed");
    let [Claimed::Ours, Claimed::Before(earlier), Claimed::Ours] = &claimed[..] else {
        panic!("{claimed:?}");
    };
    assert_eq!((&earlier.same[..], earlier.reply.as_deref()), (&[7][..], Some(&[8][..])));
    let asked = server.asked("OUTPUT inserted.digest").concat();
    for claim in &claims {
        let row = format!(r#"{{"digest":"{}","same":""}}"#, sql::hex(claim.digest.as_bytes()));
        assert!(asked.contains(&row), "{asked}");
    }
}

#[tokio::test]
async fn a_key_that_others_take_while_many_are_claimed_is_a_lost_race() {
    for number in [1222, 2627, 2601, 1205] {
        let (_server, store) = store(move |text| match text.contains("OUTPUT inserted.digest") {
            true => Answer::Error(number, 14),
            false => agreeable(text),
        })
        .await;
        let mut tx = Tx::begin(&store).await.expect("begun");
        let error = tx.claim_many(&[&claim("r1"), &claim("r2")]).await.expect_err("refused");
        assert_eq!(error.fault(), Fault::Contention, "{number}");
    }
}

/// The guard's findings, and what is known of the claim then.
async fn refused(at_guard: i32, committed: i32) -> (Server, StoreError) {
    let (server, store) = store(move |text| {
        if text.contains("@found") {
            return ended(text, at_guard, HOME);
        }
        if text.contains("@committed") {
            return ended(text, committed, HOME);
        }
        agreeable(text)
    })
    .await;
    let error = commit(&store).await.expect_err("it is not committed");
    (server, error)
}

#[tokio::test]
async fn a_transaction_that_is_not_the_one_that_was_begun_is_not_committed() {
    let (server, error) = refused(found::LOST, 0).await;
    assert_eq!(error.fault(), Fault::Refused);
    assert!(text(&error).contains("ignored an error"), "{error}");
    let rolled_back = server.asked("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION; SET IMPLICIT");
    assert!(!rolled_back.is_empty(), "it is rolled back");

    let (_, error) = refused(found::LOST, 1).await;
    assert_eq!(error.fault(), Fault::Broken);
    let (_, error) = refused(found::NESTED, 0).await;
    assert_eq!(error.fault(), Fault::Refused);
    assert!(text(&error).contains("left a transaction open"), "{error}");
}

#[tokio::test]
async fn a_handler_that_failed_after_it_committed_is_found_out() {
    for (committed, is_broken) in [(0, false), (1, true)] {
        let (_server, store) = store(move |text| match text.contains("@committed") {
            true => ended(text, committed, HOME),
            false => agreeable(text),
        })
        .await;
        let mut tx = Tx::begin(&store).await.expect("begun");
        tx.claim(&claim("r1")).await.expect("claimed");
        let rolled_back = Work::<SqlServer>::rollback(tx).await;
        let found = rolled_back.is_err_and(|error| error.fault() == Fault::Broken);
        assert_eq!(found, is_broken);
    }
}

/// What is said of the claim's holder after the answer to a commit was lost.
async fn after_lost_answer(
    holder: impl Fn(i64) -> Answer + Send + Sync + 'static,
) -> (Server, Result<(), StoreError>) {
    let ours = Arc::new(AtomicI64::new(0));
    let (server, store) = store(move |text| {
        if text.contains("@found") {
            let Answer::Rows(rows) = ended(text, 1, HOME) else { return Answer::Close };
            if let Value::Big(mark) = rows[0][0][0] {
                ours.store(mark, Ordering::SeqCst);
            }
            return Answer::Close;
        }
        if text.contains("SELECT holder FROM") {
            return holder(ours.load(Ordering::SeqCst));
        }
        if text.contains(sql::FIND) {
            return Answer::row([Value::Big(1_000_000), Value::Bytes(vec![]), Value::Null]);
        }
        agreeable(text)
    })
    .await;
    let committed = commit(&store).await;
    assert_eq!(server.asked("@found").len(), 1, "the answer was lost");
    (server, committed)
}

#[tokio::test]
async fn a_commit_without_answer_is_settled_by_the_holder_of_its_claim() {
    let (_, committed) = after_lost_answer(|ours| Answer::row([Value::Big(ours)])).await;
    committed.expect("its claim is there");

    let (_, committed) = after_lost_answer(|_| Answer::nothing()).await;
    assert_eq!(committed.expect_err("rolled back").fault(), Fault::Unavailable);
    let (_, committed) = after_lost_answer(|ours| Answer::row([Value::Big(ours ^ 1)])).await;
    assert_eq!(committed.expect_err("somebody else's").fault(), Fault::Unavailable);
}

/// The server has not noticed yet that the connection is gone.
#[tokio::test]
async fn while_the_claim_is_locked_a_commit_without_answer_is_in_doubt() {
    let (server, committed) = after_lost_answer(|_| Answer::Error(1222, 16)).await;
    assert_eq!(committed.expect_err("nobody knows").fault(), Fault::InDoubt);
    assert_eq!(server.asked("SELECT holder FROM").len(), 4);

    let asked = AtomicUsize::new(0);
    let (_, committed) =
        after_lost_answer(move |ours| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::Error(1222, 16),
            _ => Answer::row([Value::Big(ours)]),
        })
        .await;
    committed.expect("it was committed in the meantime");
}

/// As after a statement of the handler's whose answer nobody has read.
#[tokio::test]
async fn an_answer_to_something_else_is_not_believed() {
    let (server, store) = store(|text| {
        if text.contains("SELECT holder FROM") {
            return Answer::nothing();
        }
        match text.contains("@found") {
            true => Answer::row([Value::Big(-1), Value::Int(found::COMMITTED), Value::Int(HOME)]),
            false => agreeable(text),
        }
    })
    .await;
    let error = commit(&store).await.expect_err("the mark is wrong");
    assert_eq!(error.fault(), Fault::Unavailable, "the claim is not there");
    server.until_closed().await;
}

#[tokio::test]
async fn replies_are_kept_with_claims_that_are_ours() {
    let kept = Arc::new(AtomicI64::new(2));
    let rows = Arc::clone(&kept);
    let (server, store) = store(move |text| match text.contains("SET reply") {
        true => Answer::row([Value::Int(i32::try_from(rows.load(Ordering::SeqCst)).unwrap())]),
        false => agreeable(text),
    })
    .await;
    let reply = Reply::from_stored(b"17".to_vec());
    let replies = [(claim("r1").digest, &reply), (claim("r2").digest, &reply)];
    let mut tx = Tx::begin(&store).await.expect("begun");
    Work::<SqlServer>::keep(&mut tx, &replies).await.expect("kept");
    assert!(server.asked("SET reply").concat().contains(r#""reply":"3137"}]"#));
    kept.store(1, Ordering::SeqCst);
    let error = Work::<SqlServer>::keep(&mut tx, &replies).await.expect_err("one is not there");
    assert_eq!(error.fault(), Fault::Refused);
}

#[tokio::test]
async fn a_migration_applies_what_is_missing_and_commits_it() {
    for (version, expected) in [(0, 3), (1, 2), (3, 0)] {
        let (server, store) = store(move |text| {
            if text.contains("idem_migration'") && text.contains("SELECT @lock") {
                return Answer::row([Value::Int(1)]);
            }
            match text.contains("OBJECT_ID") {
                true => Answer::row([Value::Int(version)]),
                false => Answer::nothing(),
            }
        })
        .await;
        store.migrate().await.expect("migrated");
        assert_eq!(server.asked("INSERT INTO idem_migration").len(), expected);
        let (claims, scopes) = ("CREATE TABLE idem_claim", "CREATE TABLE idem_scope");
        assert_eq!(server.asked(claims).len(), usize::from(version < 1));
        assert_eq!(server.asked(scopes).len(), usize::from(version < 3));
        assert_eq!(server.asked(sql::COMMIT_MIGRATION).len(), 1);
    }
    let (server, store) = store(|_| Answer::row([Value::Int(-1)])).await;
    let error = store.migrate().await.expect_err("another one runs");
    assert_eq!(error.fault(), Fault::Contention);
    assert!(server.asked("CREATE TABLE").is_empty());
}

#[tokio::test]
async fn a_ledger_or_a_database_that_is_too_old_is_refused_with_what_to_do() {
    let found = |version, level| Answer::row([Value::Int(version), Value::Int(level)]);
    for (answer, advice) in [
        (Answer::Error(208, 16), "run `idem migrate`"),
        (found(2, 150), "run `idem migrate`"),
        (found(4, 150), "update idem"),
        (found(3, 120), "ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL"),
    ] {
        let (_server, store) = store(move |_| answer.clone()).await;
        let error = store.check().await.expect_err("it is too old");
        assert!(error.to_string().contains(advice), "{error}");
    }
    let (_server, store) = store(move |_| found(3, 130)).await;
    store.check().await.expect("it fits");
}

#[tokio::test]
async fn what_the_ledger_says_of_scopes_is_read() {
    let (_server, store) = store(|text| {
        if text.contains("INSERT INTO idem_scope") {
            return Answer::row([Value::Small(2), Value::Text("customer_id")]);
        }
        if text.contains("SELECT scope") {
            return Answer::Rows(vec![vec![vec![Value::Text("a")], vec![Value::Text("b")]]]);
        }
        if text.contains("sp_getapplock") {
            return Answer::row([Value::Int(if text.contains("busy") { -1 } else { 7 })]);
        }
        Answer::Rows(vec![])
    })
    .await;
    let keys = ScopeKeys { scope: "a".to_owned(), level: 1, key: String::new() };
    let there = store.register(&keys).await.expect("registered");
    assert_eq!((there.level, there.key.as_str()), (2, "customer_id"));
    assert_eq!(store.scopes().await.expect("read"), ["a", "b"]);
    assert_eq!(store.prune("a", 10).await.expect("pruned"), Some(7));
    assert_eq!(store.prune("busy", 10).await.expect("asked"), None);
    let hour = Duration::from_secs(3600);
    store.keep_alive("a", Retention { horizon: hour, kept: hour }).await.expect("kept alive");
    assert!(store.find(claim("r1").digest).await.expect("asked").is_none());
}

#[tokio::test]
async fn errors_of_handlers_are_told_by_their_numbers() {
    let (_server, store) = store(|text| match text.contains("UPDATE stock") {
        true => Answer::Error(1205, 13),
        false => agreeable(text),
    })
    .await;
    let mut tx = Tx::begin(&store).await.expect("begun");
    let error = tx.execute("UPDATE stock SET n = @P1", &[&7]).await.expect_err("a deadlock");
    assert_eq!(SqlServer::fault_of(&error), Some(Fault::Contention));
    assert_eq!(SqlServer::fault_of(&Opaque(error)), Some(Fault::Contention));
    let like_it = std::io::Error::other("Token error: 'no' on server, but (code: 1205)");
    assert_eq!(SqlServer::fault_of(&like_it), None);
}

#[tokio::test]
async fn a_server_that_is_down_is_said_without_the_password() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("sqlserver://shop:hunter2@{free}/orders");
    let error = SqlServer::connect(&url).await.expect_err("nobody listens there");
    assert_eq!(error.fault(), Fault::Unavailable);
    let text = text(&error);
    assert!(text.contains("`orders`") && text.contains(&free.to_string()), "{text}");
    let store = SqlServer::from_config(SqlServer::read_url(&url).unwrap(), 1);
    assert!(!format!("{text}{error:?}{store:?}").contains("hunter2"));
}

const TAKEN: &str = "INSERT INTO orders";

/// The catalogue's row of a column: unique, disabled, filtered, ignoring duplicates, nullable.
fn part(column: &'static str, flags: [bool; 5]) -> Vec<Value> {
    let mut row = vec![Value::Text("dbo"), Value::Text("orders"), Value::Text(column)];
    row.extend(flags.map(Value::Bit));
    row.push(Value::Int(7));
    row
}

const SOUND: [bool; 5] = [true, false, false, false, false];

/// The catalogue of one table, and its rows.
fn with_constraint(parts: Vec<Vec<Value>>, row: Answer) -> impl Fn(&str) -> Answer {
    move |text| {
        if text.contains("sys.indexes") {
            return Answer::Rows(vec![parts.clone()]);
        }
        if text.contains("OBJECT_ID(@P1)") {
            let column = |name, in_code_page| vec![Value::Text(name), Value::Bit(in_code_page)];
            return Answer::Rows(vec![vec![column("id", false), column("reference", true)]]);
        }
        if text.contains("FROM [dbo].[orders]") {
            return row.clone();
        }
        match text.contains(TAKEN) {
            true => Answer::Error(2627, 14),
            false => agreeable(text),
        }
    }
}

#[tokio::test]
async fn a_constraint_is_found_in_the_catalogue_and_refused_where_it_proves_nothing() {
    let sound = vec![part("id", SOUND), part("reference", SOUND)];
    let (_server, found) = store(with_constraint(sound, Answer::nothing())).await;
    let found = found.constraint("orders_uq").await.expect("it proves it");
    assert_eq!(found.columns, ["id", "reference"]);
    assert_eq!(found.table_columns, ["id", "reference"]);
    for (flags, problem) in [
        ([false, false, false, false, false], "is not unique"),
        ([true, true, false, false, false], "is disabled"),
        ([true, false, true, false, false], "is for a part of the rows"),
        ([true, false, false, true, false], "has IGNORE_DUP_KEY"),
        ([true, false, false, false, true], "has a column that may be null"),
    ] {
        let parts = vec![part("id", SOUND), part("reference", flags)];
        let (_server, store) = store(with_constraint(parts, Answer::nothing())).await;
        let refused = store.constraint("orders_uq").await.expect_err("it proves nothing");
        assert!(refused.to_string().contains(problem), "{refused}");
    }
    let (_server, store) = store(with_constraint(vec![], Answer::nothing())).await;
    let refused = store.constraint("orders_uq").await.expect_err("there is none");
    assert!(refused.to_string().contains("there is no unique constraint"), "{refused}");
}

#[tokio::test]
async fn the_row_of_a_constraint_is_compared_by_the_server() {
    let parts = vec![part("id", SOUND), part("reference", SOUND)];
    let key = [KeyValue::Integer(7), KeyValue::Text("r1".to_owned())];
    let amount = KeyValue::Integer(100);
    let same = [("amount", &amount), ("price", &amount)];
    let row = Answer::row([Value::Bit(true), Value::Bit(false), Value::Int(1)]);
    for (row, expected) in [(row, Some(vec![true, false])), (Answer::nothing(), None)] {
        let (server, store) = store(with_constraint(parts.clone(), row)).await;
        let constraint = store.constraint("orders_uq").await.expect("it proves it");
        let agreement = store.agreement(&constraint, &key, &same).await.expect("read");
        assert_eq!(agreement, expected);
        assert_eq!(server.asked("[reference] = CAST(@P4 AS varchar(8000))").len(), 1);
    }
    let (_server, store) = store(with_constraint(parts, Answer::Error(1222, 16))).await;
    let constraint = store.constraint("orders_uq").await.expect("it proves it");
    let error = store.agreement(&constraint, &key, &same).await.expect_err("it is locked");
    assert_eq!(error.fault(), Fault::Contention);
}

#[tokio::test]
async fn only_a_value_that_is_taken_violates_a_constraint() {
    let constraint = Constraint {
        name: "orders_uq".to_owned(),
        schema: Some("dbo".to_owned()),
        table: "orders".to_owned(),
        columns: vec![],
        table_columns: vec![],
    };
    for (number, violates) in [(2627, true), (2601, true), (547, false), (1205, false)] {
        let (_server, store) = store(move |text| match text.contains(TAKEN) {
            true => Answer::Error(number, 14),
            false => agreeable(text),
        })
        .await;
        let mut tx = Tx::begin(&store).await.expect("begun");
        let error = tx.execute(TAKEN, &[]).await.expect_err("refused");
        assert_eq!(SqlServer::violates(&error, &constraint), violates, "{number}");
        assert_eq!(SqlServer::violates(&Opaque(error), &constraint), violates, "{number}");
    }
}

/// Level 0, and handlers whose constraint stands in place of a claim.
#[tokio::test]
async fn without_a_claim_a_transaction_that_has_ended_is_broken() {
    let (_server, store) = store(|text| match text.contains("@found") {
        true => ended(text, found::LOST, HOME),
        false => agreeable(text),
    })
    .await;
    let mut tx = Tx::begin(&store).await.expect("begun");
    Work::<SqlServer>::mark(&mut tx).await.expect("marked");
    let error = tx.commit(&store).await.expect_err("it has ended");
    assert_eq!(error.fault(), Fault::Broken);
}

#[tokio::test]
async fn a_ledger_in_a_schema_is_made_and_used_there() {
    let (server, store) = store(|text| {
        if text.contains("SELECT @lock") || text.contains("OBJECT_ID") {
            return Answer::row([Value::Int(0)]);
        }
        let is_delivery = ["IMPLICIT_TRANSACTIONS ON", "@met", "@found"];
        match is_delivery.iter().any(|part| text.contains(part)) {
            true => agreeable(text),
            false => Answer::nothing(),
        }
    })
    .await;
    let names = Names::schema("shop").expect("a name");
    let store = store.with_names(names).expect("there are schemas");
    store.migrate().await.expect("migrated");
    assert_eq!(server.asked("EXEC(N'CREATE SCHEMA [shop]')").len(), 1);
    assert_eq!(server.asked("CREATE TABLE \"shop\".idem_scope").len(), 1);
    assert_eq!(server.asked("INSERT INTO \"shop\".idem_migration").len(), 3);
    commit(&store).await.expect("committed");
    assert_eq!(server.asked("INSERT INTO \"shop\".idem_claim WITH").len(), 1);
}
