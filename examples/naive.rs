//! What people write without a library: look whether it was done, do it, remember that it was
//! done. The same job as `place_order`, and the same faults; the table shows what it costs.
//!
//! `cargo run --release --example naive`

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use harness::{Chaos, Database, Job, Options, PlaceOrder};
use idem_runtime::{Failure, State, idempotent};

// ANCHOR: handler
/// Level 0 adds nothing to a handler: this is the function as it would run by itself.
#[idempotent(level = 0)]
pub(crate) async fn place_order(
    order: PlaceOrder,
    State(database): State<Database>,
    State(chaos): State<Chaos>,
) -> Result<(), Failure> {
    if database.is_remembered(&order).await? {
        return Ok(());
    }
    // The concurrency window: a second delivery looks now, and finds nothing either.
    tokio::time::sleep(Duration::from_millis(5)).await; // such as a call to a price service
    database.insert_order(&order).await?;
    // The crash window: the order is there, and nobody will remember.
    chaos.may_crash(&order)?;
    database.remember(&order).await?;
    Ok(())
}
// ANCHOR_END: handler

/// The job with this handler; the end-to-end tests run it too.
pub(crate) fn job() -> Job<PlaceOrderHandler, PlaceOrderHandler> {
    Job { sqlite: PlaceOrderHandler, postgres: PlaceOrderHandler }
}

#[tokio::main]
async fn main() -> ExitCode {
    harness::main(async {
        let report = job().run(&Options::parse()).await?;
        println!("{report}");
        println!("  lost to the crash window: {}", report.crash_window);
        println!("  lost to the concurrency window: {}", report.concurrency_window);
        println!("double effects: {}", report.double_effects());
        Ok(true)
    })
    .await
}
