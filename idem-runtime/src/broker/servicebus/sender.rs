//! Sends, on a thread of its own.

use std::fmt;
use std::sync::Arc;

use azservicebus::ServiceBusMessage;
use tokio::sync::{mpsc, oneshot};

use super::error::Place;
use super::link::SenderLink;
use super::message;
use super::worker::{Worker, caught};
use crate::broker::connection_string::ConnectionString;
use crate::broker::{BrokerError, OutgoingMessage};

/// How many calls may wait for their turn. More of them wait to be let in.
const CALLS_MAX: usize = 64;

/// How large a batch is made, whatever the broker allows: Service Bus takes no larger one.
const BATCH_SIZE_MAX: u64 = 1024 * 1024;

/// Sends messages to one entity of Azure Service Bus. Cheap to clone; the connection ends with the
/// last clone.
#[derive(Clone)]
pub struct Sender {
    calls: mpsc::Sender<Call>,
    place: Place,
}

struct Call {
    messages: Vec<Weighed>,
    reply: oneshot::Sender<Result<(), BrokerError>>,
}

/// A message, and at most how large it is on the wire.
struct Weighed {
    message: ServiceBusMessage,
    size_max: u64,
}

impl Sender {
    pub(super) async fn open(
        connection_string: Arc<ConnectionString>,
        place: Place,
    ) -> Result<Self, BrokerError> {
        let (calls, called) = mpsc::channel(CALLS_MAX);
        let there = place.clone();
        Worker::start(&place, move |opened| async move {
            match SenderLink::open(&connection_string, there.clone()).await {
                Ok(link) => {
                    opened.send(Ok(())).ok();
                    let actor = Actor { connection_string, place: there, link: Some(link) };
                    actor.run(called).await;
                }
                Err(error) => {
                    opened.send(Err(error)).ok();
                }
            }
        })
        .await?;
        Ok(Self { calls, place })
    }

    /// Sends a message, and returns when the broker has accepted it.
    ///
    /// If the connection breaks meanwhile, the message is sent once more on a new one, so the
    /// broker may get it twice: a MessageId lets it, or a level 1 handler, see that.
    ///
    /// # Errors
    ///
    /// When the broker refuses the message, as it does when it is too large or the queue is full:
    /// nothing of it has arrived. Or when the broker cannot be reached, or the client panics: the
    /// message may have arrived all the same. The sender stays good, and connects again with the
    /// next call.
    pub async fn send(&self, message: OutgoingMessage) -> Result<(), BrokerError> {
        self.send_all(vec![message]).await
    }

    /// Sends messages in as few batches as their sizes allow, and returns when the broker has
    /// accepted all of them.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send). Batches before the one that failed have been accepted.
    pub async fn send_all(&self, messages: Vec<OutgoingMessage>) -> Result<(), BrokerError> {
        let messages = messages.into_iter().map(|message| self.weighed(message));
        let messages = messages.collect::<Result<_, _>>()?;
        let (reply, answer) = oneshot::channel();
        let call = self.calls.send(Call { messages, reply }).await;
        call.map_err(|_| BrokerError::Closed)?;
        answer.await.unwrap_or(Err(BrokerError::Closed))
    }

    fn weighed(&self, message: OutgoingMessage) -> Result<Weighed, BrokerError> {
        let size_max = u64::try_from(message::size_max(&message)).unwrap_or(u64::MAX);
        match message::outgoing(message) {
            Ok(message) => Ok(Weighed { message, size_max }),
            Err(error) => Err(self.place.refused("send", error)),
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Owns the link, and opens a new one when it broke.
struct Actor {
    connection_string: Arc<ConnectionString>,
    place: Place,
    link: Option<SenderLink>,
}

impl Actor {
    /// Sends for as long as there is anyone who could ask for it.
    async fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        while let Some(Call { messages, reply }) = calls.recv().await {
            let sent = caught(self.send_all(messages)).await.unwrap_or_else(|panic| {
                self.link = None;
                Err(self.place.unreachable(panic))
            });
            reply.send(sent).ok();
        }
        if let Some(link) = self.link {
            link.dispose().await;
        }
    }

    async fn send_all(&mut self, messages: Vec<Weighed>) -> Result<(), BrokerError> {
        let size_max = self.connected().await?.size_max().min(BATCH_SIZE_MAX);
        for batch in batches(messages, size_max) {
            self.send(batch).await?;
        }
        Ok(())
    }

    /// Tries the link at hand, which the broker may have closed for idleness, and then a new one.
    async fn send(&mut self, batch: Vec<ServiceBusMessage>) -> Result<(), BrokerError> {
        match self.send_on_link(batch.clone()).await {
            Err(BrokerError::Unreachable { .. }) => self.send_on_link(batch).await,
            sent => sent,
        }
    }

    /// Keeps the link if the broker answered on it.
    async fn send_on_link(&mut self, batch: Vec<ServiceBusMessage>) -> Result<(), BrokerError> {
        let sent = self.connected().await?.send(batch).await;
        if let Err(BrokerError::Unreachable { .. }) = sent
            && let Some(broken) = self.link.take()
        {
            broken.dispose().await;
        }
        sent
    }

    async fn connected(&mut self) -> Result<&mut SenderLink, BrokerError> {
        let link = match self.link.take() {
            Some(link) => link,
            None => SenderLink::open(&self.connection_string, self.place.clone()).await?,
        };
        Ok(self.link.insert(link))
    }
}

/// Groups messages so that no group is larger than `size_max`. A message that is larger by itself
/// goes alone: it is for the broker to refuse it.
fn batches(messages: Vec<Weighed>, size_max: u64) -> Vec<Vec<ServiceBusMessage>> {
    let mut batches: Vec<Vec<ServiceBusMessage>> = Vec::new();
    let mut room = 0;
    for Weighed { message, size_max: size } in messages {
        match batches.last_mut() {
            Some(batch) if size <= room => {
                room -= size;
                batch.push(message);
            }
            Some(_) | None => {
                room = size_max.saturating_sub(size);
                batches.push(vec![message]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(sizes: &[u64], size_max: u64) -> Vec<usize> {
        let weighed =
            |size: &u64| Weighed { message: ServiceBusMessage::new("{}"), size_max: *size };
        let batches = batches(sizes.iter().map(weighed).collect(), size_max);
        batches.iter().map(Vec::len).collect()
    }

    #[test]
    fn batches_are_filled_up_to_the_size_and_no_further() {
        assert!(sizes(&[], 10).is_empty());
        assert_eq!(sizes(&[4, 3, 3, 1], 10), [3, 1]);
        assert_eq!(sizes(&[11, 1, 1, 11, 11], 10), [1, 2, 1, 1]);
        assert_eq!(sizes(&[10, 10], 10), [1, 1]);
    }
}
