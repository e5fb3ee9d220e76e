//! What all tests start with.

use std::time::Duration;

use crate::Settlement;
use crate::broker::servicebus::{LinkReceiver, ServiceBus};
use crate::broker::{BrokerError, LockId, Locked, OutgoingMessage, Receiver, Settler, Told};
use crate::execute::Proof;
use idem_emulator::{Emulator, QueueOptions};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Nothing here takes this long unless it hangs.
pub(super) const HANG: Duration = Duration::from_secs(30);

/// A lock that is short enough to wait for.
pub(super) const SHORT_LOCK: Duration = Duration::from_millis(500);

pub(super) async fn start(queue: QueueOptions) -> (Emulator, ServiceBus) {
    let emulator = Emulator::builder().queue(queue).start().await.expect("the emulator starts");
    let bus = ServiceBus::connect(&emulator.connection_string()).expect("a good connection string");
    (emulator, bus)
}

pub(super) async fn start_with_orders() -> (Emulator, ServiceBus) {
    start(QueueOptions::new("orders")).await
}

/// Sends messages with the bodies and ids `0` to `count - 1`.
pub(super) async fn send(bus: &ServiceBus, count: usize) {
    let sender = bus.sender("orders").await.expect("the sender opens");
    let messages = (0..count).map(|number| {
        let message = OutgoingMessage::json(&number).expect("a number is JSON");
        message.with_message_id(number.to_string())
    });
    sender.send_all(messages.collect()).await.expect("the messages are sent");
}

pub(super) async fn receive(receiver: &mut LinkReceiver) -> Locked {
    let received = timeout(HANG, receiver.receive()).await;
    received.expect("a message comes").expect("receiving works")
}

/// Settling as tests do it: they wait until the broker was told.
pub(super) trait SettleAndWait: Settler {
    async fn settled(&self, lock: LockId, settlement: Settlement) -> Result<(), BrokerError> {
        let (told, is_told) = oneshot::channel();
        let told = Told::new(|result| drop(told.send(result)));
        self.settle(lock, settlement, told).await;
        is_told.await.expect("one is told in any case")
    }
}

impl<L: Settler> SettleAndWait for L {}

pub(super) fn complete() -> Settlement {
    Settlement::Complete(Proof::for_test())
}

/// Waits until `condition` holds.
pub(super) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG, holds).await.unwrap_or_else(|_| panic!("{what} did not come about"));
}
