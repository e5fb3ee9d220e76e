//! Measurements, run by hand:
//! `cargo test --release -p idem-emulator --test wire -- --ignored --nocapture speed`.

use std::time::Instant;

use crate::support::*;

const MESSAGES: u64 = 100_000;

#[test]
#[ignore = "a measurement; run it in release"]
fn receive_and_complete_with_prefetch() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            let started = Instant::now();
            let mut sent = 0;
            while sent < MESSAGES {
                let mut batch = sender.create_message_batch(Default::default()).unwrap();
                while sent < MESSAGES
                    && batch.try_add_message(message(&format!("m-{sent}"))).is_ok()
                {
                    sent += 1;
                }
                sender.send_message_batch(batch).await.unwrap();
            }
            println!("sent in batches: {:.0}/s", rate(started));

            let mut receiver = prefetching_receiver(&mut client, 200).await;
            let started = Instant::now();
            for _ in 0..MESSAGES {
                let received = next(&mut receiver).await;
                receiver.complete_message(&received).await.unwrap();
            }
            event(emulator, |_| emulator.events().totals().completed == MESSAGES).await;
            println!("received and completed: {:.0}/s", rate(started));
            client.dispose().await.unwrap();
        },
    );
}

#[test]
#[ignore = "a measurement; run it in release"]
fn start_to_first_message() {
    let started = Instant::now();
    with_orders(
        |queue| queue,
        async |emulator| {
            println!("start: {:?}", started.elapsed());
            let mut client = connect(emulator).await;
            println!("start and connect: {:?}", started.elapsed());
            send_once(&mut client, message("m-1")).await;
            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            println!("start to first message: {:?}", started.elapsed());
            receiver.complete_message(&received).await.unwrap();
            client.dispose().await.unwrap();
        },
    );
}

fn rate(started: Instant) -> f64 {
    f64::from(u32::try_from(MESSAGES).unwrap()) / started.elapsed().as_secs_f64()
}
