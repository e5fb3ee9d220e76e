//! A measurement, run by hand:
//! `cargo test --release -p idem-runtime --lib -- --ignored --nocapture speed`.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::support::{SettleAndWait, complete, receive, send, start_with_orders};
use crate::broker::{Receiver, Source};

const MESSAGES: u32 = 20_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement; run it in release"]
async fn receive_and_complete() {
    for in_flight_max in [16, 200] {
        for handler in [Duration::ZERO, Duration::from_millis(5)] {
            let rate = rate(in_flight_max, handler).await;
            println!("{in_flight_max} in flight, handlers of {handler:?}: {rate:.0}/s");
        }
    }
}

async fn rate(in_flight_max: u32, handler: Duration) -> f64 {
    let (emulator, bus) = start_with_orders().await;
    send(&bus, usize::try_from(MESSAGES).unwrap()).await;
    let mut receiver = bus.queue("orders").open(in_flight_max).await.unwrap();
    let mut tasks = JoinSet::new();
    let started = Instant::now();
    for _ in 0..MESSAGES {
        let locked = receive(&mut receiver).await;
        let settler = receiver.settler();
        tasks.spawn(async move {
            if !handler.is_zero() {
                tokio::time::sleep(handler).await;
            }
            settler.settled(locked.lock, complete()).await.unwrap();
        });
        while tasks.try_join_next().is_some() {}
    }
    tasks.join_all().await;
    let took = started.elapsed();
    receiver.close().await;
    emulator.shutdown().await;
    f64::from(MESSAGES) / took.as_secs_f64()
}
