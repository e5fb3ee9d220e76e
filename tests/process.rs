//! A delivery, or a pruning, in a process of its own, for tests that start two of them or kill one.

use std::future::pending;
use std::time::Duration;

use clap::Parser;
use idem_runtime::handler::States;
use idem_runtime::store::{Mysql, Postgres, Sqlite, Store};
use idem_runtime::{Context, Delivery, Handler, Outcome, SourceId, execute};
use serde::Deserialize;
use serde_json::json;
use tokio::time::sleep;

#[derive(Debug, Parser)]
struct Arguments {
    what: What,
    database_url: String,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum What {
    /// Says `held` when the handler has written its row, and never commits.
    Hold,
    /// Delivers messages, and says how many were done, duplicates, and busy on the way.
    Deliver,
    /// Prunes again and again.
    Prune,
}

/// How many messages are delivered.
const MESSAGES: u32 = 500;

#[derive(Debug, Deserialize)]
struct Order {
    customer_id: i64,
    external_ref: String,
}

macro_rules! handler {
    ($module:ident, $store:ty, $insert:literal) => {
        mod $module {
            use idem_runtime::{Failure, State, Tx, idempotent};

            use super::*;

            #[idempotent(key = "customer_id, external_ref", scope = "test.place")]
            pub(super) async fn place(
                tx: &mut Tx<$store>,
                order: Order,
                State(what): State<What>,
            ) -> Result<(), Failure> {
                sqlx::query($insert)
                    .bind(order.customer_id)
                    .bind(order.external_ref)
                    .execute(&mut **tx)
                    .await?;
                if matches!(what, What::Hold) {
                    println!("held");
                    return pending().await;
                }
                sleep(Duration::from_millis(5)).await;
                Ok(())
            }
        }
    };
}

handler!(sqlite, Sqlite, "INSERT INTO effects (customer_id, external_ref) VALUES (?, ?)");
handler!(mysql, Mysql, "INSERT INTO effects (customer_id, external_ref) VALUES (?, ?)");
handler!(postgres, Postgres, "INSERT INTO effects (customer_id, external_ref) VALUES ($1, $2)");

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { what, database_url } = Arguments::parse();
    match database_url.split(':').next() {
        Some("postgres") => {
            run::<postgres::PlaceHandler, _>(what, &Postgres::connect(&database_url).await?).await
        }
        Some("mysql") => {
            run::<mysql::PlaceHandler, _>(what, &Mysql::connect(&database_url).await?).await
        }
        _ => run::<sqlite::PlaceHandler, _>(what, &Sqlite::connect(&database_url).await?).await,
    }
}

async fn run<H: Handler<S>, S: Store>(what: What, store: &S) -> anyhow::Result<()> {
    match what {
        What::Hold => anyhow::bail!("not held: {:?}", deliver::<H, S>(what, store, 0).await),
        What::Deliver => deliver_all::<H, S>(what, store).await,
        What::Prune => loop {
            store.prune("test.place", 20).await?;
        },
    }
}

async fn deliver_all<H: Handler<S>, S: Store>(what: What, store: &S) -> anyhow::Result<()> {
    let (mut done, mut duplicates, mut busy) = (0, 0, 0);
    for number in 0..MESSAGES {
        loop {
            match deliver::<H, S>(what, store, number).await {
                Outcome::Done(_) => done += 1,
                Outcome::Duplicate(_) => duplicates += 1,
                Outcome::Busy => {
                    busy += 1;
                    sleep(Duration::from_millis(1)).await;
                    continue;
                }
                outcome => anyhow::bail!("message {number}: {outcome:?}"),
            }
            break;
        }
    }
    println!("{done} {duplicates} {busy}");
    Ok(())
}

async fn deliver<H: Handler<S>, S: Store>(what: What, store: &S, number: u32) -> Outcome {
    let body = json!({ "customer_id": 7, "external_ref": format!("r{number}") });
    let source = SourceId::new("bus.example.net", "orders");
    let mut states = States::default();
    states.insert(what);
    execute::<H, S>(store, &Context::new(Delivery::new(source, body.to_string()), states)).await
}
