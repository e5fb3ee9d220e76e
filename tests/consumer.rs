//! The example's consumer in a process of its own, for tests that kill it.

#[expect(dead_code, reason = "only the handlers are used here")]
#[path = "../examples/place_order.rs"]
mod place_order;

use clap::Parser;
use harness::{Chaos, Database, Options};
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::Store;
use idem_runtime::{Consumer, Handler, shutdown_signal};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let job = place_order::job();
    match Database::open(options.database.as_deref().unwrap_or_default()).await? {
        Database::Sqlite(store) => consume(&options, store, job.sqlite).await,
        Database::Postgres(store) => consume(&options, store, job.postgres).await,
    }
}

// ANCHOR: consume
async fn consume<S: Store>(
    options: &Options,
    store: S,
    handler: impl Handler<S>,
) -> anyhow::Result<()> {
    let bus = ServiceBus::connect(options.bus.as_deref().unwrap_or_default())?;
    let consumer = Consumer::builder(bus.queue(&options.queue), store)
        .handler(handler)
        .state(Chaos::quiet())
        .build()?;
    Ok(consumer.run_until(shutdown_signal()).await?)
}
// ANCHOR_END: consume
