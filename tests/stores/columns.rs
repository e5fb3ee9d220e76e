//! Keys of every type, compared with the columns of a constraint.

use idem_runtime::store::Sqlite;
use idem_runtime::{Delivery, Failure, Handler, KeyPart, Outcome, SourceId, Tx, idempotent};
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::bodies::assert_outcome;
use crate::engines::Engine;
use crate::engines::mysql::on_mariadb;
use crate::engines::postgres::on_postgres;
use crate::engines::sqlite::on_sqlite;

#[derive(Debug, Deserialize, KeyPart)]
struct CustomerId(i64);

#[derive(Debug, Deserialize)]
struct Payment {
    customer: CustomerId,
    amount: Decimal,
    #[serde(with = "time::serde::rfc3339")]
    at: OffsetDateTime,
}

macro_rules! pays {
    ($module:ident, $store:ident, $insert:literal) => {
        mod $module {
            use idem_runtime::store::$store;
            use idem_runtime::{Failure, Tx, idempotent};

            use super::Payment;

            #[idempotent(key = "customer, amount, at", constraint = "payments_uq")]
            pub(super) async fn pay(tx: &mut Tx<$store>, payment: Payment) -> Result<(), Failure> {
                let insert = sqlx::query($insert).bind(payment.customer.0);
                let insert = insert.bind(payment.amount.to_string());
                insert.bind(payment.at.unix_timestamp()).execute(&mut **tx).await?;
                Ok(())
            }
        }
    };
}

pays!(
    to_postgres,
    Postgres,
    "INSERT INTO payments VALUES ($1, CAST($2 AS numeric), to_timestamp($3))"
);
pays!(
    to_mysql,
    Mysql,
    "INSERT INTO payments VALUES (?, CAST(? AS DECIMAL(20, 4)), from_unixtime(?))"
);

fn delivery(body: &Value) -> Delivery {
    Delivery::new(SourceId::new("bus.example.net", "payments"), body.to_string())
}

async fn numbers_and_instants_find_their_row<E: Engine, H: Handler<E::Store>>(
    engine: &E,
    create: &str,
) {
    engine.execute(create).await;
    let pay = async |customer: i64, amount: &str, at: &str| {
        let body = json!({ "customer": customer, "amount": amount, "at": at });
        engine.run::<H>(delivery(&body)).await
    };
    assert_outcome!(pay(7, "10.5", "2026-11-30T10:00:00+02:00").await, Outcome::Done(_));
    assert_outcome!(pay(7, "10.500", "2026-11-30T08:00:00Z").await, Outcome::Duplicate(_));
    assert_outcome!(pay(7, "10.05", "2026-11-30T08:00:00Z").await, Outcome::Done(_));
    assert_outcome!(pay(7, "-0.0001", "2026-11-30T08:00:00Z").await, Outcome::Done(_));
    assert_outcome!(pay(7, "-0.0001", "2026-11-30T08:00:00Z").await, Outcome::Duplicate(_));
    assert_outcome!(pay(8, "10.5", "2026-11-30T08:00:00Z").await, Outcome::Done(_));
    assert_eq!(engine.count("SELECT count(*) FROM payments").await, 4);
}

#[tokio::test]
async fn decimals_newtypes_and_instants_find_their_row_on_postgres() {
    let Some(engine) = on_postgres().await else { return };
    let create = "CREATE TABLE payments (customer bigint NOT NULL, amount numeric NOT NULL, \
        at timestamptz NOT NULL, CONSTRAINT payments_uq UNIQUE (customer, amount, at))";
    numbers_and_instants_find_their_row::<_, to_postgres::PayHandler>(&engine, create).await;
    engine.remove().await;
}

#[tokio::test]
async fn decimals_newtypes_and_instants_find_their_row_on_mariadb() {
    let Some(engine) = on_mariadb().await else { return };
    let create = "CREATE TABLE payments (customer bigint NOT NULL, \
        amount decimal(20, 4) NOT NULL, at datetime(6) NOT NULL, \
        CONSTRAINT payments_uq UNIQUE (customer, amount, at))";
    numbers_and_instants_find_their_row::<_, to_mysql::PayHandler>(&engine, create).await;
    engine.remove().await;
}

#[derive(Deserialize, KeyPart)]
struct Line {
    order: i64,
    number: i64,
}

#[derive(Deserialize)]
struct Added {
    line: Line,
}

/// Its constraint has one column, and its key one field, with two values.
#[idempotent(key = "line", constraint = "lines_uq")]
async fn add(tx: &mut Tx<Sqlite>, Added { line }: Added) -> Result<(), Failure> {
    let insert = sqlx::query("INSERT INTO lines VALUES ($1, $2)").bind(line.order);
    insert.bind(line.number).execute(&mut **tx).await?;
    Ok(())
}

/// The row of another line of the order would pass for that of this one.
#[tokio::test]
async fn a_struct_is_not_compared_with_one_column() {
    let Some(engine) = on_sqlite().await else { return };
    engine.execute("CREATE TABLE lines (\"order\" bigint NOT NULL, number bigint NOT NULL)").await;
    engine.execute("CREATE UNIQUE INDEX lines_uq ON lines (\"order\")").await;
    let add = async |number: i64| {
        let body = json!({ "line": { "order": 7, "number": number } });
        engine.run::<AddHandler>(delivery(&body)).await
    };
    assert_outcome!(add(1).await, Outcome::Done(_));
    let outcome = add(2).await;
    let Outcome::Retry(reason) = &outcome else { panic!("{outcome:?}") };
    let text = format!("{reason:?}");
    assert!(text.contains("`line` of a handler with a `constraint`"), "{text}");
    engine.remove().await;
}
