//! A consumer in a process of its own, whose handlers can stop after they have written: for a test
//! that kills it then.

use std::future::pending;
use std::time::Duration;

use clap::Parser;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::Postgres;
use idem_runtime::{Consumer, Failure, State, Tx, idempotent, shutdown_signal};
use serde::Deserialize;
use sqlx::postgres::PgPoolOptions;

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: String,
    #[arg(long, env = "SERVICEBUS_CONNECTION_STRING", hide_env_values = true)]
    bus: String,
    /// Stops for ever, and says so, in the handler of each message that asks for it.
    #[arg(long)]
    hold: bool,
}

/// Fewer than messages are in flight, so that some of them have not begun.
const CONNECTIONS: u32 = 6;

#[derive(Clone, Copy, Debug)]
struct MayHold(bool);

#[derive(Debug, Deserialize)]
struct Order {
    number: i64,
    holds: bool,
}

#[idempotent(key = "number", level = 2, scope = "test.holding")]
async fn place(
    tx: &mut Tx<Postgres>,
    order: Order,
    State(MayHold(may_hold)): State<MayHold>,
) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects (number) VALUES ($1)")
        .bind(order.number)
        .execute(&mut **tx)
        .await?;
    if order.holds && may_hold {
        println!("held");
        return pending().await;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { database_url, bus, hold } = Arguments::parse();
    // Those that wait for a connection do so for as long as the process lives.
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
    let pool = pool.acquire_timeout(Duration::from_secs(600)).connect_lazy(&database_url)?;
    let bus = ServiceBus::connect(&bus)?;
    let consumer = Consumer::builder(bus.queue("orders"), Postgres::from_pool(pool))
        .handler(PlaceHandler)
        .state(MayHold(hold))
        .in_flight_max(16)
        .build()?;
    Ok(consumer.run_until(shutdown_signal()).await?)
}
