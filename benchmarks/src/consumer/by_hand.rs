//! What a careful engineer writes without idem: the client's receiver on a thread of its own, so many
//! messages in flight, and for each one a transaction with a claim, the row, the guard and the commit.
//!
//! It renews no locks, holds nothing back, and knows no outcome but success.

use std::collections::HashMap;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusReceivedMessage, ServiceBusReceiver,
    ServiceBusReceiverOptions,
};
use idem_runtime::store::Postgres;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{IN_FLIGHT_MAX, QUEUE};
use crate::execute::{Order, on_postgres};

/// A loop that runs until it is asked to stop.
pub(super) struct ByHand {
    stop: oneshot::Sender<()>,
    ended: oneshot::Receiver<Result<()>>,
}

impl ByHand {
    /// Starts the thread; handlers run on this runtime.
    pub(super) fn start(port: u16, store: Postgres) -> Result<Self> {
        let handlers = Handle::current();
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        thread::Builder::new().name("by hand".to_owned()).spawn(move || {
            end.send(consume(port, store, handlers, stopped)).ok();
        })?;
        Ok(Self { stop, ended })
    }

    pub(super) async fn stop(self) -> Result<()> {
        self.stop.send(()).ok();
        self.ended.await.context("its thread has died")?
    }
}

fn consume(
    port: u16,
    store: Postgres,
    handlers: Handle,
    mut stopped: oneshot::Receiver<()>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let credential = AzureNamedKeyCredential::new("RootManageSharedAccessKey", "SAS_KEY_VALUE");
        let mut client = ServiceBusClient::unsecured()
            .new_from_named_key_credential(
                format!("localhost:{port}"),
                credential,
                ServiceBusClientOptions::default(),
            )
            .await?;
        let options =
            ServiceBusReceiverOptions { prefetch_count: IN_FLIGHT_MAX, ..Default::default() };
        let receiver = client.create_receiver_for_queue(QUEUE, options).await?;
        let (done, dones) = mpsc::channel(usize::try_from(IN_FLIGHT_MAX)?);
        let mut actor =
            Actor { receiver, held: HashMap::new(), received: 0, tasks: JoinSet::new(), dones };
        let outcome = tokio::select! {
            outcome = actor.run(&store, &handlers, &done) => outcome,
            _ = &mut stopped => Ok(()),
        };
        actor.receiver.dispose().await?;
        client.dispose().await?;
        outcome
    })
}

struct Actor {
    receiver: ServiceBusReceiver,
    held: HashMap<u64, ServiceBusReceivedMessage>,
    received: u64,
    tasks: JoinSet<()>,
    dones: mpsc::Receiver<Result<u64>>,
}

impl Actor {
    async fn run(
        &mut self,
        store: &Postgres,
        handlers: &Handle,
        done: &mpsc::Sender<Result<u64>>,
    ) -> Result<()> {
        loop {
            let room = self.held.len() < usize::try_from(IN_FLIGHT_MAX)?;
            let wait = Duration::from_secs(2);
            tokio::select! {
                biased;
                Some(number) = self.dones.recv() => self.complete(number?).await?,
                Some(_) = self.tasks.join_next() => {}
                message = self.receiver.receive_message_with_max_wait_time(wait), if room => {
                    if let Some(message) = message? {
                        self.handle(message, store, handlers, done)?;
                    }
                }
            }
        }
    }

    async fn complete(&mut self, number: u64) -> Result<()> {
        let message = self.held.remove(&number).context("it is held")?;
        self.receiver.complete_message(&message).await?;
        Ok(())
    }

    fn handle(
        &mut self,
        message: ServiceBusReceivedMessage,
        store: &Postgres,
        handlers: &Handle,
        done: &mpsc::Sender<Result<u64>>,
    ) -> Result<()> {
        let number = self.received;
        self.received += 1;
        let body = message.body()?.to_vec();
        let id = message.message_id().context("it has an id")?.into_owned();
        self.held.insert(number, message);
        let (store, done) = (store.clone(), done.clone());
        self.tasks.spawn_on(
            async move {
                let handled = handle(&store, &id, &body).await;
                done.send(handled.map(|()| number)).await.ok();
            },
            handlers,
        );
        Ok(())
    }
}

/// The claim is on the MessageId, which is a UUID here and needs no hash.
async fn handle(store: &Postgres, id: &str, body: &[u8]) -> Result<()> {
    let order: Order = serde_json::from_slice(body)?;
    on_postgres::protocol_for(store, id.parse()?, order).await
}
