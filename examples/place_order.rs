//! The level 2 handler under fire: 1,000 orders, a fifth of them published twice, with
//! redeliveries, lost settlements, expired locks, dropped connections and crashes in mid-handler.
//! At the end the orders table must hold each order exactly once.
//!
//! Needs nothing but Rust: `cargo run --release --example place_order`. With
//! `SERVICEBUS_CONNECTION_STRING` and `DATABASE_URL` set, it runs against a real namespace and a
//! real PostgreSQL.

use std::process::ExitCode;

use clap::Parser;
use harness::{Job, Options};

// ANCHOR: handler
/// The handler for SQLite.
mod sqlite {
    use harness::{Chaos, PlaceOrder};
    use idem_runtime::store::Sqlite;
    use idem_runtime::{Failure, State, Tx, idempotent};

    #[idempotent(key = "customer_id, external_ref", level = 2, scope = "orders.place")]
    pub(crate) async fn place_order(
        tx: &mut Tx<Sqlite>,
        order: PlaceOrder,
        State(chaos): State<Chaos>,
    ) -> Result<(), Failure> {
        sqlx::query(
            "INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)",
        )
        .bind(order.customer_id)
        .bind(&order.external_ref)
        .bind(order.amount_cents)
        .execute(&mut **tx)
        .await?;
        chaos.may_crash(&order)?; // only here so that the example can fail on purpose
        Ok(())
    }
}
// ANCHOR_END: handler

/// The same for PostgreSQL: only the transaction's type differs.
mod postgres {
    use harness::{Chaos, PlaceOrder};
    use idem_runtime::store::Postgres;
    use idem_runtime::{Failure, State, Tx, idempotent};

    #[idempotent(key = "customer_id, external_ref", level = 2, scope = "orders.place")]
    pub(crate) async fn place_order(
        tx: &mut Tx<Postgres>,
        order: PlaceOrder,
        State(chaos): State<Chaos>,
    ) -> Result<(), Failure> {
        sqlx::query(
            "INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)",
        )
        .bind(order.customer_id)
        .bind(&order.external_ref)
        .bind(order.amount_cents)
        .execute(&mut **tx)
        .await?;
        chaos.may_crash(&order)?;
        Ok(())
    }
}

/// The job with these handlers; the end-to-end tests run it too.
pub(crate) fn job() -> Job<sqlite::PlaceOrderHandler, postgres::PlaceOrderHandler> {
    Job { sqlite: sqlite::PlaceOrderHandler, postgres: postgres::PlaceOrderHandler }
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main(async {
        let report = job().run(&Options::parse()).await?;
        println!("{report}");
        Ok(report.is_exactly_once())
    })
    .await
}
