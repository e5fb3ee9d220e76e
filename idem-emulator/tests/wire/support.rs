//! An emulator on its own runtime, and clients on the test's thread.
//!
//! The client must run on a `current_thread` runtime: on several threads its sends can hang.

use std::time::Duration;

use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::core::BasicRetryPolicy;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage, ServiceBusReceivedMessage,
    ServiceBusReceiver, ServiceBusReceiverOptions, ServiceBusSender, ServiceBusSenderOptions,
    SubQueue,
};
use idem_emulator::{Clock, Emulator, EmulatorBuilder, Event, EventKind, QueueOptions};

pub(crate) type Client = ServiceBusClient<BasicRetryPolicy>;

/// Far beyond what anything here takes, for machines under load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test against an emulator.
pub(crate) fn run(builder: EmulatorBuilder, test: impl AsyncFnOnce(&Emulator)) {
    let server =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let emulator = server.block_on(builder.start()).unwrap();
    let client = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    client.block_on(async {
        tokio::time::timeout(PATIENCE, test(&emulator)).await.expect("the test takes too long")
    });
    server.block_on(emulator.shutdown());
}

/// Runs a test against an emulator with the queue `orders`.
pub(crate) fn with_orders(
    adjust: impl FnOnce(QueueOptions) -> QueueOptions,
    test: impl AsyncFnOnce(&Emulator),
) {
    run(Emulator::builder().queue(adjust(QueueOptions::new("orders"))), test);
}

pub(crate) async fn connect(emulator: &Emulator) -> Client {
    connect_with(emulator, ServiceBusClientOptions::default()).await
}

/// For what is refused: by default this client asks again, and again later.
pub(crate) async fn connect_without_retries(emulator: &Emulator) -> Client {
    let mut options = ServiceBusClientOptions::default();
    options.retry_options.max_retries = 0;
    connect_with(emulator, options).await
}

pub(crate) async fn connect_with(emulator: &Emulator, options: ServiceBusClientOptions) -> Client {
    let host = format!("localhost:{}", emulator.port());
    let credential = AzureNamedKeyCredential::new("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    ServiceBusClient::unsecured()
        .new_from_named_key_credential(host, credential, options)
        .await
        .unwrap()
}

pub(crate) async fn sender(client: &mut Client) -> ServiceBusSender {
    client.create_sender("orders", ServiceBusSenderOptions::default()).await.unwrap()
}

pub(crate) async fn receiver(client: &mut Client) -> ServiceBusReceiver {
    client.create_receiver_for_queue("orders", ServiceBusReceiverOptions::default()).await.unwrap()
}

pub(crate) async fn prefetching_receiver(
    client: &mut Client,
    prefetch_count: u32,
) -> ServiceBusReceiver {
    let options = ServiceBusReceiverOptions { prefetch_count, ..Default::default() };
    client.create_receiver_for_queue("orders", options).await.unwrap()
}

pub(crate) async fn dead_letter_receiver(client: &mut Client) -> ServiceBusReceiver {
    let options =
        ServiceBusReceiverOptions { sub_queue: SubQueue::DeadLetter, ..Default::default() };
    client.create_receiver_for_queue("orders", options).await.unwrap()
}

pub(crate) fn message(id: &str) -> ServiceBusMessage {
    let mut message = ServiceBusMessage::new(format!("body of {id}"));
    message.set_message_id(id).unwrap();
    message
}

pub(crate) async fn send(sender: &mut ServiceBusSender, id: &str) {
    sender.send_message(message(id)).await.unwrap();
}

/// Sends one message on its own link. A link that is dropped without this takes the links of the
/// whole client with it.
pub(crate) async fn send_once(client: &mut Client, message: ServiceBusMessage) {
    let mut sender = sender(client).await;
    sender.send_message(message).await.unwrap();
    sender.dispose().await.unwrap();
}

/// The next message; it has to come.
pub(crate) async fn next(receiver: &mut ServiceBusReceiver) -> ServiceBusReceivedMessage {
    receiver.receive_message_with_max_wait_time(PATIENCE).await.unwrap().expect("a message comes")
}

pub(crate) fn id(message: &ServiceBusReceivedMessage) -> String {
    message.message_id().expect("the message has an id").into_owned()
}

/// The delivery count as on the wire; this client reports one more.
pub(crate) fn count(message: &ServiceBusReceivedMessage) -> u32 {
    message.delivery_count().expect("the message has a delivery count") - 1
}

pub(crate) async fn event(emulator: &Emulator, matches: impl Fn(&Event) -> bool) -> Event {
    tokio::time::timeout(PATIENCE, emulator.events().wait_for(matches))
        .await
        .expect("the event comes")
}

/// Waits for an event of this kind about this message.
pub(crate) async fn event_of(emulator: &Emulator, id: &str, kind: EventKind) -> Event {
    event(emulator, |event| event.message_id.as_deref() == Some(id) && event.kind == kind).await
}

/// Active, locked and dead-lettered messages of `orders`.
pub(crate) fn counts(emulator: &Emulator) -> (usize, usize, usize) {
    let counts = emulator.counts("orders").unwrap();
    (counts.active, counts.locked, counts.dead_lettered)
}

pub(crate) const LOCK_LOST: EventKind =
    EventKind::SettlementRejected { condition: "com.microsoft:message-lock-lost" };

/// The lock duration under [`with_manual_clock`].
pub(crate) const LOCK: Duration = Duration::from_secs(30);

/// Runs a test against an emulator with the queue `orders`, in time that the test moves.
pub(crate) fn with_manual_clock(test: impl AsyncFnOnce(&Emulator, Clock)) {
    let clock = Clock::manual();
    let queue = QueueOptions::new("orders").lock_duration(LOCK);
    let builder = Emulator::builder().queue(queue).clock(clock.clone());
    run(builder, async |emulator| test(emulator, clock).await);
}
