//! The link to one session.
//!
//! What is said of [other links](super::link) holds here too. When the lock of a session is lost,
//! the broker ends the link, and what the client then says about it ends the whole AMQP session of
//! its connection: so each session has a connection of its own, and ends alone.

use std::time::Duration;

use azservicebus::{
    ServiceBusReceivedMessage, ServiceBusSessionReceiver, ServiceBusSessionReceiverOptions,
};
use time::OffsetDateTime;
use tokio::time::timeout;
use uuid::Uuid;

use super::error::{Place, is_no_session};
use super::link::{
    ATTACH_MAX, Client, close, connect, dead_letter_options, last_failure, not_attached, within,
};
use crate::broker::BrokerError;
use crate::broker::connection_string::ConnectionString;
use crate::settle::Settlement;

/// The next message of a session is asked for only when the one before is settled. So one that is
/// given back comes again before those behind it.
const PREFETCH: u32 = 1;

/// A link that receives the messages of one session, under its lock.
pub(super) struct SessionLink {
    place: Place,
    client: Client,
    receiver: ServiceBusSessionReceiver,
}

impl SessionLink {
    /// Waits for a session that has messages and that nobody holds; `None` when there was none.
    pub(super) async fn accept_next(
        connection_string: &ConnectionString,
        place: Place,
        wait: Duration,
    ) -> Result<Option<Self>, BrokerError> {
        let mut client = connect(connection_string, &place).await?;
        let accepted = client.accept_next_session_for_queue(place.entity.as_str(), options());
        let error = match timeout(wait, accepted).await {
            Ok(Ok(receiver)) => return Ok(Some(Self { place, client, receiver })),
            Ok(Err(error)) if !is_no_session(&error) => place.failed("accept a session", error),
            // The client gives up nothing that it waits for, so its connection goes.
            Ok(Err(_)) | Err(_) => {
                close(&place, async { client.dispose().await.map_err(drop) }).await;
                return Ok(None);
            }
        };
        Err(not_attached(&place, client, error).await)
    }

    /// Finds out whether there are sessions to be had, without waiting for one that has messages: it
    /// accepts, and gives up, one that is nobody's.
    pub(super) async fn probe(
        connection_string: &ConnectionString,
        place: Place,
    ) -> Result<(), BrokerError> {
        let mut client = connect(connection_string, &place).await?;
        let session = Uuid::from_u128(fastrand::u128(..)).to_string();
        let accepted = client.accept_session_for_queue(place.entity.as_str(), session, options());
        match within(ATTACH_MAX, &place, "accept a session", accepted).await {
            Ok(receiver) => {
                Self { place, client, receiver }.dispose().await;
                Ok(())
            }
            Err(error) => Err(not_attached(&place, client, error).await),
        }
    }

    pub(super) fn session_id(&self) -> &str {
        self.receiver.session_id()
    }

    /// Waits for a message; `None` when there was none for this time.
    pub(super) async fn receive(
        &mut self,
        wait: Duration,
    ) -> Result<Option<ServiceBusReceivedMessage>, BrokerError> {
        let received = self.receiver.receive_message_with_max_wait_time(wait).await;
        received.map_err(|error| self.place.failed("receive", error))
    }

    /// Sends the settlement, and lets the next message come. As with other links, the client does
    /// not wait for the broker's answer.
    pub(super) async fn settle(
        &mut self,
        message: &ServiceBusReceivedMessage,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        let receiver = &mut self.receiver;
        let told = match settlement {
            Settlement::Complete(_) => receiver.complete_message(message).await,
            Settlement::Abandon(failure) => {
                receiver.abandon_message(message, failure.map(last_failure)).await
            }
            Settlement::DeadLetter(rejection) => {
                receiver.dead_letter_message(message, dead_letter_options(&rejection)).await
            }
            Settlement::Leave => return Ok(()),
        };
        told.map_err(|error| self.place.failed("settle", error))
    }

    /// Renews the session's lock, and says until when it holds by the broker's clock.
    pub(super) async fn renew(&mut self) -> Result<OffsetDateTime, BrokerError> {
        let renewed = self.receiver.renew_session_lock().await;
        renewed.map_err(|error| self.place.failed("renew a session's lock", error))?;
        Ok(self.receiver.session_locked_until())
    }

    /// Gives up the session. A message that was not settled comes again at once, uncounted.
    pub(super) async fn dispose(self) {
        let Self { place, client, receiver } = self;
        close(&place, async {
            receiver.dispose().await.map_err(drop).and(client.dispose().await.map_err(drop))
        })
        .await;
    }
}

fn options() -> ServiceBusSessionReceiverOptions {
    ServiceBusSessionReceiverOptions {
        prefetch_count: PREFETCH,
        ..ServiceBusSessionReceiverOptions::default()
    }
}
