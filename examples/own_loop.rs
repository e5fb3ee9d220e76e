//! A loop of one's own: this program receives and settles by the Azure client itself, one message
//! after the other, and an executor sees to it that each order is placed once.
//!
//! Needs nothing but Rust: `cargo run --release --example own_loop`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::receiver::DeadLetterOptions;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusReceivedMessage, ServiceBusReceiver,
    ServiceBusReceiverOptions,
};
use harness::{Orders, PlaceOrder};
use idem_emulator::{Emulator, QueueOptions};
use idem_runtime::broker::OutgoingMessage;
use idem_runtime::broker::servicebus::ServiceBus;
use idem_runtime::store::{Sqlite, Store};
use idem_runtime::{Delivery, Executor, Failure, Outcome, Settlement, SourceId, Tx, idempotent};

#[idempotent(key = "customer_id, external_ref", scope = "orders.place")]
async fn place_order(tx: &mut Tx<Sqlite>, order: PlaceOrder) -> Result<(), Failure> {
    sqlx::query("INSERT INTO orders (customer_id, external_ref, amount_cents) VALUES ($1, $2, $3)")
        .bind(order.customer_id)
        .bind(&order.external_ref)
        .bind(order.amount_cents)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// What became of the messages.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) done: u32,
    pub(crate) duplicates: u32,
    pub(crate) dead_letters: u32,
    pub(crate) rows: i64,
}

// ANCHOR: loop
/// Receives and settles until the queue stays empty.
async fn receive_all(
    mut receiver: ServiceBusReceiver,
    orders: &Executor<PlaceOrderHandler, Sqlite>,
) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    let patience = Duration::from_secs(2);
    while let Some(message) = receiver.receive_message_with_max_wait_time(patience).await? {
        let executed = orders.execute_once(delivery(&message)).await;
        match executed.outcome() {
            Outcome::Done(_) => tally.done += 1,
            Outcome::Duplicate(_) => tally.duplicates += 1,
            other => println!("{other:?}"),
        }
        match executed.into_settlement() {
            Settlement::Complete(_) => receiver.complete_message(&message).await?,
            Settlement::Abandon(_) => receiver.abandon_message(&message, None).await?,
            Settlement::DeadLetter(why) => {
                tally.dead_letters += 1;
                let options = DeadLetterOptions {
                    dead_letter_reason: Some(why.reason().to_owned()),
                    dead_letter_error_description: Some(why.description().to_owned()),
                    properties_to_modify: None,
                };
                receiver.dead_letter_message(&message, options).await?;
            }
            Settlement::Leave => {}
        }
    }
    receiver.dispose().await?;
    Ok(tally)
}

/// The message as the executor takes it. The source is part of the keys of level 1; the delivery
/// count says which delivery is the last.
fn delivery(message: &ServiceBusReceivedMessage) -> Delivery {
    let source = SourceId::new("shop.servicebus.windows.net", "orders");
    let delivery = match message.body() {
        Ok(body) => Delivery::new(source, body.to_vec()),
        Err(_) => Delivery::new(source, "").with_unreadable_body("the body is not of bytes"),
    };
    delivery
        .with_message_id(message.message_id().unwrap_or_default())
        .with_delivery_count(message.delivery_count().unwrap_or(1))
        .with_enqueued_at(message.enqueued_time())
}
// ANCHOR_END: loop

/// Sends 50 orders, ten of them twice, and one message that is none, and receives them all.
pub(crate) async fn run() -> anyhow::Result<Tally> {
    let emulator = Emulator::builder().queue(QueueOptions::new("orders")).start().await?;
    let bus = ServiceBus::connect(&emulator.connection_string())?;
    let sender = bus.sender("orders").await?;
    sender.send_all(Orders::new(1, 50).messages()?).await?;
    let nonsense = OutgoingMessage { body: "no order".into(), ..OutgoingMessage::default() };
    sender.send_all(vec![nonsense]).await?;

    let folder = tempfile::tempdir()?;
    let file = format!("sqlite://{}", folder.path().join("orders.db").display());
    let store = Sqlite::connect(&file).await?;
    store.migrate().await?;
    sqlx::query("CREATE TABLE orders (customer_id bigint, external_ref text, amount_cents bigint)")
        .execute(store.pool())
        .await?;
    // ANCHOR: start
    let orders = Executor::builder(store.clone(), PlaceOrderHandler)
        .patience(Duration::from_secs(10)) // shorter than the queue's lock
        .start()
        .await?;
    // ANCHOR_END: start

    let mut tally = receive_all(receiver(&emulator).await?, &orders).await?;
    tally.rows = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(store.pool()).await?;
    emulator.shutdown().await;
    Ok(tally)
}

async fn receiver(emulator: &Emulator) -> anyhow::Result<ServiceBusReceiver> {
    let mut client = ServiceBusClient::unsecured()
        .new_from_named_key_credential(
            format!("localhost:{}", emulator.port()),
            AzureNamedKeyCredential::new("RootManageSharedAccessKey", "not checked"),
            ServiceBusClientOptions::default(),
        )
        .await?;
    let options = ServiceBusReceiverOptions::default();
    Ok(client.create_receiver_for_queue("orders", options).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    harness::main(async {
        let tally = run().await?;
        println!("{tally:?}");
        let expected = Tally { done: 50, duplicates: 10, dead_letters: 1, rows: 50 };
        ensure!(tally == expected, "expected {expected:?}");
        Ok(true)
    })
    .await
}
