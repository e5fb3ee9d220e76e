//! Sessions of the Rust client, and of the one that it is made with for transactions, each over one
//! connection.

use std::time::Duration;

use anyhow::{Context, Result};
use azservicebus::administration::{CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter};
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::core::BasicRetryPolicy;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage, ServiceBusReceiver,
    ServiceBusReceiverOptions, SubQueue,
};
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::ReceiverSettleMode;
use fe2o3_amqp::types::messaging::Body;
use fe2o3_amqp::types::primitives::Value;
use fe2o3_amqp::{Connection, Receiver, Sender, Session};
use time::OffsetDateTime;
use time::macros::datetime;

/// The replay's clock must not have come to it.
const FAR: OffsetDateTime = datetime!(2150-01-01 00:00 UTC);

type Client = ServiceBusClient<BasicRetryPolicy>;

pub(super) async fn connect(port: u16) -> Result<Client> {
    let credential = AzureNamedKeyCredential::new("RootManageSharedAccessKey", "SAS_KEY_VALUE");
    let mut options = ServiceBusClientOptions::default();
    options.retry_options.max_retries = 0;
    Ok(ServiceBusClient::unsecured()
        .new_from_named_key_credential(format!("localhost:{port}"), credential, options)
        .await?)
}

pub(super) async fn session(port: u16) -> Result<()> {
    for session in [0, 1, 2, 3] {
        let mut client = connect(port).await?;
        match session {
            0 => send(&mut client).await?,
            1 => receive(&mut client).await?,
            2 => sessions(&mut client).await?,
            _ => rules(&mut client).await?,
        }
        client.dispose().await?;
    }
    transactions(port).await
}

fn message(id: &str) -> Result<ServiceBusMessage> {
    let mut message = ServiceBusMessage::new(format!("body of {id}"));
    message.set_message_id(id)?;
    Ok(message)
}

async fn send(client: &mut Client) -> Result<()> {
    let mut sender = client.create_sender("orders", Default::default()).await?;
    let mut one = message("m-1")?;
    one.set_subject("subject".to_owned());
    one.set_time_to_live(Duration::from_secs(3600))?;
    let properties = one.application_properties_mut().get_or_insert_default();
    properties.0.insert("colour".to_owned(), "red".to_owned().into());
    sender.send_message(one).await?;
    let mut batch = sender.create_message_batch(Default::default())?;
    for number in 0..5 {
        batch.try_add_message(message(&format!("b-{number}"))?).ok().context("it has room")?;
    }
    sender.send_message_batch(batch).await?;
    let number = sender.schedule_message(message("later")?, FAR).await?;
    sender.cancel_scheduled_message(number).await?;
    sender.schedule_messages([message("later-1")?, message("later-2")?], FAR).await?;
    sender.dispose().await?;

    let mut once = client.create_sender("once", Default::default()).await?;
    for _ in 0..2 {
        once.send_message(message("same")?).await?;
    }
    once.dispose().await?;
    let mut through = client.create_sender("through", Default::default()).await?;
    let mut red = message("m-2")?;
    red.set_subject("all".to_owned());
    through.send_message(red).await?;
    Ok(through.dispose().await?)
}

async fn receive(client: &mut Client) -> Result<()> {
    let options = ServiceBusReceiverOptions { prefetch_count: 3, ..Default::default() };
    let mut receiver = client.create_receiver_for_queue("orders", options).await?;
    receiver.peek_messages(10, None).await?;
    let mut held = next(&mut receiver).await?;
    receiver.renew_message_lock(&mut held).await?;
    receiver.complete_message(&held).await?;
    let held = next(&mut receiver).await?;
    receiver.abandon_message(&held, None).await?;
    let held = next(&mut receiver).await?;
    receiver.dead_letter_message(&held, Default::default()).await?;
    let held = next(&mut receiver).await?;
    let number = held.sequence_number();
    receiver.defer_message(&held, None).await?;
    let deferred = receiver.receive_deferred_message(number).await?.context("it was deferred")?;
    receiver.complete_message(&deferred).await?;
    receiver.dispose().await?;

    let options =
        ServiceBusReceiverOptions { sub_queue: SubQueue::DeadLetter, ..Default::default() };
    let mut dead = client.create_receiver_for_queue("orders", options).await?;
    let held = next(&mut dead).await?;
    dead.complete_message(&held).await?;
    dead.dispose().await?;

    let options = ServiceBusReceiverOptions::default();
    let mut all = client.create_receiver_for_subscription("events", "all", options).await?;
    let held = next(&mut all).await?;
    all.complete_message(&held).await?;
    Ok(all.dispose().await?)
}

async fn next(
    receiver: &mut ServiceBusReceiver,
) -> Result<azservicebus::ServiceBusReceivedMessage> {
    let received = receiver.receive_message_with_max_wait_time(Duration::from_secs(10)).await?;
    received.context("a message comes")
}

async fn sessions(client: &mut Client) -> Result<()> {
    let mut sender = client.create_sender("sessions", Default::default()).await?;
    let mut message = message("m-1")?;
    message.set_session_id("s-2".to_owned())?;
    sender.send_message(message).await?;
    sender.dispose().await?;
    let mut next = client.accept_next_session_for_queue("sessions", Default::default()).await?;
    let held = next.receive_message().await?;
    next.complete_message(&held).await?;
    next.renew_session_lock().await?;
    next.set_session_state(b"half done".to_vec()).await?;
    next.session_state().await?;
    let mut named = client.accept_session_for_queue("sessions", "s-2", Default::default()).await?;
    let held = named.receive_message().await?;
    named.abandon_message(&held, None).await?;
    named.dispose().await?;
    Ok(next.dispose().await?)
}

async fn rules(client: &mut Client) -> Result<()> {
    let mut rules = client.create_rule_manager("events", "all").await?;
    rules.get_rules().await?;
    rules.delete_rule("$Default").await?;
    let filter = SqlRuleFilter::new("colour = 'red' AND weight > 2");
    let action = SqlRuleAction::new("SET colour = 'blue'");
    rules.create_rule("sql", (filter, action)).await?;
    let correlation = CorrelationRuleFilter::builder().subject("blue").build();
    rules.create_rule("correlation", correlation).await?;
    rules.get_rules().await?;
    Ok(rules.dispose().await?)
}

async fn transactions(port: u16) -> Result<()> {
    let url = format!("amqp://localhost:{port}");
    let mut connection = Connection::open("transactions", url.as_str()).await?;
    let mut session = Session::begin(&mut connection).await?;
    let controller = Controller::attach(&mut session, "controller").await?;
    let mut sender = Sender::attach(&mut session, "sender", "orders").await?;
    let mut receiver = Receiver::builder()
        .name("receiver")
        .source("orders")
        .receiver_settle_mode(ReceiverSettleMode::Second)
        .attach(&mut session)
        .await?;
    for commits in [true, false] {
        let held = receiver.recv::<Body<Value>>().await?;
        let transaction = Transaction::declare(&controller, None).await?;
        transaction.post(&mut sender, "body").await?;
        transaction.accept(&mut receiver, &held).await?;
        if commits { transaction.commit().await? } else { transaction.rollback().await? }
    }
    sender.close().await?;
    receiver.close().await?;
    controller.close().await?;
    session.end().await?;
    Ok(connection.close().await?)
}
