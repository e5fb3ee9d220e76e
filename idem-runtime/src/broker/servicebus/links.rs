//! The links of one receiver: the main one, and a spare one that receives where the main one cannot.
//!
//! The client grants credit only for what was settled. Messages that were set aside are not settled
//! for a while, and may come to have all the credit of the main link, with others behind them. The
//! spare link asks for one message after the other, whatever became of those before. Each answer
//! takes a round trip, but nothing waits in the client.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;

use azservicebus::ServiceBusReceivedMessage;

use super::error::Place;
use super::link::ReceiverLink;
use crate::broker::connection_string::ConnectionString;
use crate::broker::{BrokerError, LockId};
use crate::settle::Settlement;

/// A link that asks for each message.
const NO_PREFETCH: u32 = 0;

pub(super) struct Links {
    connection_string: Arc<ConnectionString>,
    place: Place,
    main: ReceiverLink,
    spare: Spare,
    /// The locks of messages that came by the spare link: they can be settled only on it.
    by_spare: HashSet<LockId>,
}

/// A message, and the link that it came by.
pub(super) struct Received {
    pub(super) message: ServiceBusReceivedMessage,
    by_spare: bool,
}

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

enum Spare {
    None,
    Opening(Work<Result<ReceiverLink, BrokerError>>),
    Open(Box<ReceiverLink>),
    Closing(Work<()>),
}

impl Links {
    pub(super) async fn open(
        connection_string: Arc<ConnectionString>,
        place: Place,
        prefetch: u32,
    ) -> Result<Self, BrokerError> {
        let main = ReceiverLink::open(&connection_string, place.clone(), prefetch).await?;
        Ok(Self { connection_string, place, main, spare: Spare::None, by_spare: HashSet::new() })
    }

    /// Waits for a message; `None` when there was none for a while, or none that can be decoded.
    ///
    /// The spare link is used where messages `are_aside` and the main link can have no more. Dropping
    /// the future loses nothing.
    pub(super) async fn receive(
        &mut self,
        are_aside: bool,
    ) -> Result<Option<Received>, BrokerError> {
        let is_needed = are_aside && self.main.has_no_credit();
        if is_needed && matches!(self.spare, Spare::None) {
            let (connection_string, place) = (self.connection_string.clone(), self.place.clone());
            let opening =
                async move { ReceiverLink::open(&connection_string, place, NO_PREFETCH).await };
            self.spare = Spare::Opening(Box::pin(opening));
        }
        tokio::select! {
            received = self.main.receive() => {
                Ok(received?.map(|message| Received { message, by_spare: false }))
            }
            received = self.spare.next() => {
                let received = received?;
                if received.is_none() && !is_needed && self.by_spare.is_empty() {
                    self.spare.close();
                }
                Ok(received.map(|message| Received { message, by_spare: true }))
            }
        }
    }

    /// Notes by which link a message came that is held under this lock from now on.
    pub(super) fn hold(&mut self, lock: LockId, received: Received) -> ServiceBusReceivedMessage {
        if received.by_spare {
            self.by_spare.insert(lock);
        }
        received.message
    }

    /// Sends the settlement, see [`ReceiverLink::settle`].
    pub(super) async fn settle(
        &mut self,
        lock: LockId,
        message: &ServiceBusReceivedMessage,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        match &mut self.spare {
            Spare::Open(spare) if self.by_spare.remove(&lock) => {
                spare.settle(message, settlement).await
            }
            Spare::Open(_) | Spare::None | Spare::Opening(_) | Spare::Closing(_) => {
                self.main.settle(message, settlement).await
            }
        }
    }

    pub(super) async fn dispose(self) {
        self.main.dispose().await;
        match self.spare {
            Spare::Open(spare) => spare.dispose().await,
            Spare::Closing(closing) => closing.await,
            // Dropped, the connection is cut.
            Spare::None | Spare::Opening(_) => {}
        }
    }
}

impl Spare {
    /// What the link receives, once it is open; nothing for ever, if there is none.
    async fn next(&mut self) -> Result<Option<ServiceBusReceivedMessage>, BrokerError> {
        loop {
            match self {
                Self::None => std::future::pending().await,
                Self::Opening(opening) => *self = Self::Open(Box::new(opening.await?)),
                Self::Open(link) => return link.receive().await,
                Self::Closing(closing) => {
                    closing.await;
                    *self = Self::None;
                }
            }
        }
    }

    /// Closes the link in the background of what is received.
    fn close(&mut self) {
        if let Self::Open(link) = std::mem::replace(self, Self::None) {
            *self = Self::Closing(Box::pin(link.dispose()));
        }
    }
}
