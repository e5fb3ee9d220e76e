//! Transactions, with a client that has them.

use fe2o3_amqp::connection::ConnectionHandle;
use fe2o3_amqp::link::delivery::Delivery;
use fe2o3_amqp::session::SessionHandle;
use fe2o3_amqp::transaction::{
    Controller, Transaction, TransactionDischarge, TransactionPosting, TransactionRetirement,
};
use fe2o3_amqp::types::definitions::ReceiverSettleMode;
use fe2o3_amqp::types::messaging::{AmqpValue, Message, Outcome, Properties};
use fe2o3_amqp::{Connection, Receiver, Sendable, Sender, Session};
use idem_emulator::{Emulator, EventKind};

use crate::support::*;

/// One connection with a controller and links to `orders`.
struct Links {
    connection: ConnectionHandle<()>,
    session: SessionHandle<()>,
    controller: Controller,
    sender: Sender,
    receiver: Receiver,
}

impl Links {
    async fn open(emulator: &Emulator) -> Self {
        let url = format!("amqp://localhost:{}", emulator.port());
        let mut connection = Connection::open("transactions", url.as_str()).await.unwrap();
        let mut session = Session::begin(&mut connection).await.unwrap();
        let controller = Controller::attach(&mut session, "controller").await.unwrap();
        let sender = Sender::attach(&mut session, "sender", "orders").await.unwrap();
        let receiver = Receiver::builder()
            .name("receiver")
            .source("orders")
            .receiver_settle_mode(ReceiverSettleMode::Second)
            .attach(&mut session)
            .await
            .unwrap();
        Self { connection, session, controller, sender, receiver }
    }

    async fn receive(&mut self) -> Delivery<AmqpValue<String>> {
        self.receiver.recv().await.unwrap()
    }

    async fn close(mut self) {
        self.sender.close().await.unwrap();
        self.receiver.close().await.unwrap();
        self.controller.close().await.unwrap();
        self.session.end().await.unwrap();
        self.connection.close().await.unwrap();
    }
}

fn named(id: &str) -> Sendable<AmqpValue<String>> {
    let properties = Properties { message_id: Some(id.to_owned().into()), ..Default::default() };
    Message::builder().properties(properties).value(format!("body of {id}")).build().into()
}

async fn post(transaction: &Transaction<'_>, sender: &mut Sender, id: &str) {
    let outcome = transaction.post(sender, named(id)).await.unwrap();
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}

#[test]
fn a_message_is_completed_and_another_sent_as_one() {
    with_manual_clock(async |emulator, _clock| {
        let mut links = Links::open(emulator).await;
        links.sender.send(named("m-1")).await.unwrap();
        let held = links.receive().await;
        let transaction = Transaction::declare(&links.controller, None).await.unwrap();
        transaction.accept(&mut links.receiver, &held).await.unwrap();
        post(&transaction, &mut links.sender, "m-2").await;
        assert_eq!((counts(emulator), emulator.events().totals().completed), ((0, 1, 0), 0));
        transaction.commit().await.unwrap();
        event_of(emulator, "m-1", EventKind::Completed).await;
        let sent = links.receive().await;
        assert_eq!(sent.body().0, "body of m-2");
        assert_eq!(counts(emulator), (0, 1, 0));
        links.close().await;
    });
}

#[test]
fn a_rollback_leaves_the_message_under_its_lock() {
    with_manual_clock(async |emulator, clock| {
        let mut links = Links::open(emulator).await;
        links.sender.send(named("m-1")).await.unwrap();
        let held = links.receive().await;
        let transaction = Transaction::declare(&links.controller, None).await.unwrap();
        transaction.accept(&mut links.receiver, &held).await.unwrap();
        post(&transaction, &mut links.sender, "m-2").await;
        transaction.rollback().await.unwrap();
        event(emulator, |event| event.kind == EventKind::TransactionRolledBack).await;
        assert_eq!(counts(emulator), (0, 1, 0));
        clock.advance(LOCK);
        let again = links.receive().await;
        assert_eq!(again.body().0, "body of m-1");
        assert_eq!(again.message().header.as_ref().unwrap().delivery_count, 1);
        assert_eq!(emulator.events().totals().enqueued, 1);
        links.close().await;
    });
}

#[test]
fn a_client_that_is_gone_has_committed_nothing() {
    with_manual_clock(async |emulator, _clock| {
        let mut links = Links::open(emulator).await;
        links.sender.send(named("m-1")).await.unwrap();
        let held = links.receive().await;
        let transaction = Transaction::declare(&links.controller, None).await.unwrap();
        transaction.accept(&mut links.receiver, &held).await.unwrap();
        post(&transaction, &mut links.sender, "m-2").await;
        links.connection.close().await.unwrap();
        event(emulator, |event| event.kind == EventKind::TransactionRolledBack).await;
        assert_eq!(counts(emulator), (0, 1, 0));
        assert!(transaction.commit().await.is_err());
        assert_eq!(emulator.events().totals().transaction_committed, 0);
    });
}
