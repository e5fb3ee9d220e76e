//! Runs an emulator for clients in other processes, until the end of its standard input.
//!
//! `cargo run -p idem-emulator --example serve -- 5672 orders invoices`

use std::error::Error;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use idem_emulator::{Emulator, QueueOptions};

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().unwrap_or_else(|| "5672".to_owned());
    let port =
        port.parse().map_err(|_| format!("`{port}` is no port; give it before the queues"))?;
    let mut builder = Emulator::builder().port(port);
    for queue in arguments {
        let queue = QueueOptions::new(queue).lock_duration(Duration::from_secs(5));
        builder = builder.queue(queue.assign_message_ids(true));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let emulator = runtime.block_on(builder.start())?;
    println!("{}", emulator.connection_string());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    runtime.block_on(emulator.shutdown());
    Ok(())
}
