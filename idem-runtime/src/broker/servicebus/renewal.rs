//! Renews locks on a link of its own.
//!
//! Renewing is a request that waits for the broker's answer, and the client gives an answer to
//! whoever asked next if the one who asked has gone: a request must never be dropped. So requests
//! are made one after the other, and a link on which one has failed is not used again. The link is
//! opened with the first renewal: with quick handlers there never is one.

use std::sync::Arc;

use azservicebus::ServiceBusReceivedMessage;
use tokio::sync::mpsc;

use super::error::Place;
use super::link::ReceiverLink;
use crate::broker::connection_string::ConnectionString;
use crate::broker::{BrokerError, LockId};

/// The renewals' link never receives.
const NO_PREFETCH: u32 = 0;

/// A lock to be renewed. The message goes with it, since the client wants it whole, and back.
pub(super) struct Renewal {
    pub(super) lock: LockId,
    pub(super) message: ServiceBusReceivedMessage,
}

/// What became of a renewal.
pub(super) struct Renewed {
    pub(super) lock: LockId,
    pub(super) message: ServiceBusReceivedMessage,
    pub(super) result: Result<(), BrokerError>,
}

/// Renews locks, one after the other.
pub(super) struct Renewer {
    connection_string: Arc<ConnectionString>,
    place: Place,
    link: Option<ReceiverLink>,
    renewals: mpsc::Receiver<Renewal>,
    renewed: mpsc::Sender<Renewed>,
}

impl Renewer {
    /// A renewer that up to `limit` messages can be with at once, and the ways to and from it.
    pub(super) fn new(
        connection_string: Arc<ConnectionString>,
        place: Place,
        limit: usize,
    ) -> (mpsc::Sender<Renewal>, Self, mpsc::Receiver<Renewed>) {
        let (ask, renewals) = mpsc::channel(limit);
        let (renewed, returned) = mpsc::channel(limit);
        let renewer = Self { connection_string, place, link: None, renewals, renewed };
        (ask, renewer, returned)
    }

    /// Renews as long as it is asked to.
    pub(super) async fn run(&mut self) {
        while let Some(renewal) = self.renewals.recv().await {
            let Renewal { lock, mut message } = renewal;
            let result = self.renew(&mut message).await;
            // There is a place for each message that is here.
            self.renewed.try_send(Renewed { lock, message, result }).ok();
        }
    }

    pub(super) async fn close(self) {
        if let Some(link) = self.link {
            link.dispose().await;
        }
    }

    /// Tries a link that was used before, which the broker may have closed for idleness, and then
    /// a new one.
    async fn renew(&mut self, message: &mut ServiceBusReceivedMessage) -> Result<(), BrokerError> {
        if let Some(link) = self.link.take() {
            match self.renew_on(link, message).await {
                Err(BrokerError::Unreachable { .. }) => {}
                renewed => return renewed,
            }
        }
        let link = ReceiverLink::open(&self.connection_string, self.place.clone(), NO_PREFETCH);
        let link = link.await?;
        self.renew_on(link, message).await
    }

    /// Keeps the link if the broker answered on it.
    async fn renew_on(
        &mut self,
        mut link: ReceiverLink,
        message: &mut ServiceBusReceivedMessage,
    ) -> Result<(), BrokerError> {
        match link.renew(message).await {
            Err(error @ BrokerError::Unreachable { .. }) => {
                link.dispose().await;
                Err(error)
            }
            answered => {
                self.link = Some(link);
                answered
            }
        }
    }
}
