//! Runs an emulator for clients in other processes, until Ctrl-C or the end of its standard input.
//!
//! `cargo run -p idem-emulator --example serve -- 5672 orders invoices`

use std::io::Read;
use std::time::Duration;

use idem_emulator::{Emulator, QueueOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().map_or(Ok(5672), |port| port.parse())?;
    let mut builder = Emulator::builder().port(port);
    for queue in arguments {
        builder = builder.queue(
            QueueOptions::new(queue).lock_duration(Duration::from_secs(5)).assign_message_ids(true),
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let emulator = runtime.block_on(builder.start())?;
    println!("{}", emulator.connection_string());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    runtime.block_on(emulator.shutdown());
    Ok(())
}
