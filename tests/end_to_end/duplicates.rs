//! Duplicates are no failures, and nobody is to be woken up for them.

use std::time::Duration;

use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::{Mysql, Postgres, Sqlite, Store};
use idem_runtime::{Consumer, Failure, Handler, Tx, idempotent};
use idem_tests::database::{MARIADB_URL, MysqlDatabase, PostgresDatabase, SqliteFile};
use idem_tests::log::Log;
use idem_tests::until;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

const COPIES: u64 = 1001;

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    account: i64,
}

macro_rules! handler {
    ($module:ident, $store:ty) => {
        mod $module {
            use super::*;

            #[idempotent(key = "account", scope = "test.append")]
            pub(super) async fn append(tx: &mut Tx<$store>, entry: Entry) -> Result<(), Failure> {
                assert_eq!(entry.account, 7);
                sqlx::query("INSERT INTO entries VALUES (7)").execute(&mut **tx).await?;
                Ok(())
            }
        }
    };
}

handler!(sqlite, Sqlite);
handler!(postgres, Postgres);
handler!(mariadb, Mysql);

const TABLE: &str = "CREATE TABLE entries (account bigint NOT NULL)";
const COUNT: &str = "SELECT count(*) FROM entries";

/// of what the servers say, the driver logs the warnings, such as that of a `ROLLBACK` outside
/// of any transaction. Their errors would be failures of ours.
async fn a_thousand_duplicates_raise_no_alarm<S: Store>(store: S, handler: impl Handler<S>) {
    let queue = QueueOptions::new("entries").lock_duration(Duration::from_secs(300));
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a valid string");
    let copies = (0..COPIES).map(|_| OutgoingMessage::json(&Entry { account: 7 }));
    let copies = copies.collect::<Result<Vec<_>, _>>().expect("messages");
    bus.sender("entries").await.expect("a sender").send_all(copies).await.expect("sent");

    let log = Log::listen("idem=info,sqlx::postgres=warn,sqlx::mysql=warn");
    let consumer = Consumer::builder(bus.queue("entries"), store).handler(handler).build();
    let consumer = consumer.expect("a valid consumer");
    let counters = consumer.counters();
    let (stop, stopped) = oneshot::channel::<()>();
    let run = consumer.run_until(async {
        stopped.await.ok();
    });
    let watch = async {
        until("all are settled", async || {
            let summary = counters.summary();
            summary.done + summary.duplicates == COPIES
        })
        .await;
        stop.send(()).expect("the consumer is running");
    };
    let (ran, ()) = tokio::join!(run, watch);
    ran.expect("the consumer starts");
    let summary = counters.summary();
    assert_eq!((summary.done, summary.duplicates), (1, COPIES - 1), "{summary:?}");
    assert_eq!((summary.retries, summary.dead_letters, summary.held), (0, 0, 0), "{summary:?}");
    let text = log.text();
    let ignored = text.lines().filter(|line| line.contains("duplicate ignored")).count();
    assert_eq!(u64::try_from(ignored), Ok(COPIES - 1), "each is said, and no more than said");
    let alarm = text.lines().find(|line| line.contains(" WARN ") || line.contains("ERROR "));
    assert_eq!(alarm, None);
    emulator.shutdown().await;
}

#[tokio::test]
async fn a_thousand_duplicates_raise_no_alarm_on_sqlite() {
    let file = SqliteFile::new().await;
    sqlx::query(TABLE).execute(file.store.pool()).await.expect("a valid table");
    a_thousand_duplicates_raise_no_alarm(file.store.clone(), sqlite::AppendHandler).await;
    let entries: i64 = sqlx::query_scalar(COUNT).fetch_one(file.store.pool()).await.expect("read");
    assert_eq!(entries, 1);
}

#[tokio::test]
async fn a_thousand_duplicates_raise_no_alarm_on_postgres() {
    let Some(database) = PostgresDatabase::new().await else { return };
    sqlx::query(TABLE).execute(database.store.pool()).await.expect("a valid table");
    a_thousand_duplicates_raise_no_alarm(database.store.clone(), postgres::AppendHandler).await;
    let pool = database.store.pool();
    let entries: i64 = sqlx::query_scalar(COUNT).fetch_one(pool).await.expect("read");
    assert_eq!(entries, 1);
    database.remove().await;
}

#[tokio::test]
async fn a_thousand_duplicates_raise_no_alarm_on_mariadb() {
    let Some(database) = MysqlDatabase::new(MARIADB_URL).await else { return };
    sqlx::query(TABLE).execute(database.store.pool()).await.expect("a valid table");
    a_thousand_duplicates_raise_no_alarm(database.store.clone(), mariadb::AppendHandler).await;
    let pool = database.store.pool();
    let entries: i64 = sqlx::query_scalar(COUNT).fetch_one(pool).await.expect("read");
    assert_eq!(entries, 1);
    database.remove().await;
}
