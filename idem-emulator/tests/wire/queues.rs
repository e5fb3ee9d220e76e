//! Sending, receiving and settling.

use idem_emulator::{Counts, EventKind};

use crate::support::*;

#[test]
fn a_completed_message_is_gone() {
    with_orders(
        |queue| queue,
        async |emulator| {
            let mut client = connect(emulator).await;
            let mut sender = sender(&mut client).await;
            send(&mut sender, "m-1").await;
            assert_eq!(
                emulator.counts("orders").unwrap(),
                Counts { active: 1, locked: 0, dead_lettered: 0 }
            );

            let mut receiver = receiver(&mut client).await;
            let received = next(&mut receiver).await;
            assert_eq!(received.body().unwrap(), b"body of m-1");
            assert_eq!(
                (id(&received).as_str(), received.sequence_number(), count(&received)),
                ("m-1", 1, 0)
            );
            assert_eq!(
                emulator.counts("orders").unwrap(),
                Counts { active: 0, locked: 1, dead_lettered: 0 }
            );

            receiver.complete_message(&received).await.unwrap();
            event_of(emulator, "m-1", EventKind::Completed).await;
            assert_eq!(emulator.counts("orders").unwrap(), Counts::default());
            client.dispose().await.unwrap();
        },
    );
}
