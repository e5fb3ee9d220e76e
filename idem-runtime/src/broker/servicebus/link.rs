//! Links of the client, opened and disposed of within bounds.
//!
//! Each link has a client, and so a connection, of its own: a link that is dropped without being
//! disposed of ends the session that all links of its client share.
//!
//! The client never retries (`max_retries: 0`): its recovery holds the link for seconds, settles
//! messages of the old connection in silence, and retries what cannot succeed, such as renewing a
//! lost lock. It also takes a message that the broker has refused for sent when it tries again. So
//! the first error ends a link, and whoever owns it opens a new one.

use std::error::Error;
use std::time::Duration;

use azservicebus::authorization::{AzureNamedKeyCredential, AzureSasCredential};
use azservicebus::core::BasicRetryPolicy;
use azservicebus::primitives::service_bus_peeked_message::ServiceBusPeekedMessage;
use azservicebus::receiver::DeadLetterOptions;
use azservicebus::{
    CreateMessageBatchOptions, ServiceBusClient, ServiceBusClientOptions, ServiceBusMessage,
    ServiceBusReceivedMessage, ServiceBusReceiver, ServiceBusReceiverOptions,
    ServiceBusRetryOptions, ServiceBusSender, ServiceBusSenderOptions,
};
use azservicebus_amqp_types::primitives::{OrderedMap, Value};
use tokio::time::timeout;
use tracing::{debug, error};

use super::credit::Credit;
use super::error::{NoAnswer, Place, is_undecodable};
use crate::broker::BrokerError;
use crate::broker::connection_string::{ConnectionString, Credential, Endpoint};
use crate::outcome::Rejection;
use crate::settle::{LAST_FAILURE, Settlement};

/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// How long attaching may take. It takes all of this time when the connection breaks meanwhile,
/// since the client does not tell those who wait for an answer.
pub(super) const ATTACH_MAX: Duration = Duration::from_secs(3);

/// How long the client waits for the broker's answer to one operation; here too, a connection that
/// breaks meanwhile does not end the wait.
const OPERATION_MAX: Duration = Duration::from_secs(5);

/// How long one call waits for a message before it is made again. It must be shorter than
/// [`OPERATION_MAX`]: the client would take a longer wait for an operation without answer.
const RECEIVE_WAIT: Duration = Duration::from_secs(2);

/// How long closing in order may take. Then the connection is cut.
pub(super) const CLOSE_MAX: Duration = Duration::from_secs(5);

pub(super) type Client = ServiceBusClient<BasicRetryPolicy>;

/// A link that receives.
pub(super) struct ReceiverLink {
    place: Place,
    client: Client,
    receiver: ServiceBusReceiver,
    credit: Credit,
}

/// Messages that the client cannot decode have used up the link's credit.
#[derive(Debug, thiserror::Error)]
#[error("too many messages came that the client cannot decode, the link has to be opened again")]
struct CreditLost;

/// A link that sends.
pub(super) struct SenderLink {
    place: Place,
    client: Client,
    sender: ServiceBusSender,
}

impl ReceiverLink {
    /// The broker may lock `prefetch` messages ahead of [`receive`](Self::receive).
    pub(super) async fn open(
        connection_string: &ConnectionString,
        place: Place,
        prefetch: u32,
    ) -> Result<Self, BrokerError> {
        let mut client = connect(connection_string, &place).await?;
        let options = ServiceBusReceiverOptions {
            prefetch_count: prefetch,
            ..ServiceBusReceiverOptions::default()
        };
        let attached = client.create_receiver_for_queue(place.entity.as_str(), options);
        match within(ATTACH_MAX, &place, "open a receiver", attached).await {
            Ok(receiver) => Ok(Self { place, client, receiver, credit: Credit::new(prefetch) }),
            Err(error) => Err(not_attached(&place, client, error).await),
        }
    }

    /// Waits for a message; `None` when there was none for a while, or none that can be decoded.
    ///
    /// Dropping the future loses nothing: the client takes a message out of its buffer only in the
    /// poll that returns it.
    pub(super) async fn receive(
        &mut self,
    ) -> Result<Option<ServiceBusReceivedMessage>, BrokerError> {
        let received = self.receiver.receive_message_with_max_wait_time(RECEIVE_WAIT).await;
        match received {
            Ok(Some(message)) => {
                self.credit.use_one();
                Ok(Some(message))
            }
            Ok(None) => Ok(None),
            Err(error) if is_undecodable(&error) => self.pass_over().map(|()| None),
            Err(error) => Err(self.place.failed("receive", error)),
        }
    }

    /// Whether no message comes by this link before others are settled on it.
    pub(super) fn has_no_credit(&self) -> bool {
        self.credit.is_used_up()
    }

    /// Goes on after a message that the client cannot decode. The client does not say which one it
    /// was, so it can neither be settled nor told by its id.
    fn pass_over(&mut self) -> Result<(), BrokerError> {
        error!(
            entity = self.place.entity,
            "a message came that the client cannot decode, as with a list or map among its \
             application properties; it comes again when its lock has run out, until the broker \
             dead-letters it"
        );
        self.credit.lose_one();
        if self.credit.is_lost() {
            return Err(self.place.refused("receive", CreditLost));
        }
        Ok(())
    }

    /// Sends the settlement. The client does not wait for the broker's answer: when the lock was
    /// lost, this is `Ok` all the same, and the message comes again.
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
        told.map_err(|error| self.place.failed("settle", error))?;
        self.credit.settle_one();
        Ok(())
    }

    /// Renews a message's lock and notes in the message until when it holds.
    pub(super) async fn renew(
        &mut self,
        message: &mut ServiceBusReceivedMessage,
    ) -> Result<(), BrokerError> {
        let renewed = self.receiver.renew_message_lock(message).await;
        renewed.map_err(|error| self.place.failed("renew", error))
    }

    /// Up to `at_most` messages from a sequence number on, also those that are locked.
    pub(super) async fn peek(
        &mut self,
        from: i64,
        at_most: u32,
    ) -> Result<Vec<ServiceBusPeekedMessage>, BrokerError> {
        let peeked = self.receiver.peek_messages(at_most, Some(from)).await;
        peeked.map_err(|error| self.place.failed("peek", error))
    }

    /// Ends link and connection in order, or cuts them after [`CLOSE_MAX`].
    pub(super) async fn dispose(self) {
        let Self { place, client, receiver, .. } = self;
        close(&place, async {
            receiver.dispose().await.map_err(drop).and(client.dispose().await.map_err(drop))
        })
        .await;
    }
}

impl SenderLink {
    pub(super) async fn open(
        connection_string: &ConnectionString,
        place: Place,
    ) -> Result<Self, BrokerError> {
        let mut client = connect(connection_string, &place).await?;
        let options = ServiceBusSenderOptions::default();
        let attached = client.create_sender(place.entity.as_str(), options);
        match within(ATTACH_MAX, &place, "open a sender", attached).await {
            Ok(sender) => Ok(Self { place, client, sender }),
            Err(error) => Err(not_attached(&place, client, error).await),
        }
    }

    /// How large a message, and so a batch, the broker takes.
    pub(super) fn size_max(&self) -> u64 {
        let batch = self.sender.create_message_batch(CreateMessageBatchOptions::default());
        batch.map_or(u64::MAX, |batch| batch.max_size_in_bytes())
    }

    /// Sends messages as one, and waits until the broker has accepted them.
    pub(super) async fn send(
        &mut self,
        messages: Vec<ServiceBusMessage>,
    ) -> Result<(), BrokerError> {
        let sent = self.sender.send_messages(messages).await;
        sent.map_err(|error| self.place.failed("send", error))
    }

    /// Ends link and connection in order, or cuts them after [`CLOSE_MAX`].
    pub(super) async fn dispose(self) {
        let Self { place, client, sender } = self;
        close(&place, async {
            sender.dispose().await.map_err(drop).and(client.dispose().await.map_err(drop))
        })
        .await;
    }
}

/// The property that the broker is told with a message that failed.
pub(super) fn last_failure(failure: String) -> OrderedMap<String, Value> {
    [(LAST_FAILURE.to_owned(), Value::from(failure))].into_iter().collect()
}

/// What the broker is told with a dead letter.
pub(super) fn dead_letter_options(rejection: &Rejection) -> DeadLetterOptions {
    DeadLetterOptions {
        dead_letter_reason: Some(rejection.reason().to_owned()),
        dead_letter_error_description: Some(rejection.description().to_owned()),
        properties_to_modify: None,
    }
}

pub(super) async fn connect(
    connection_string: &ConnectionString,
    place: &Place,
) -> Result<Client, BrokerError> {
    let options = ServiceBusClientOptions {
        retry_options: ServiceBusRetryOptions {
            max_retries: 0,
            try_timeout: OPERATION_MAX,
            ..ServiceBusRetryOptions::default()
        },
        ..ServiceBusClientOptions::default()
    };
    let host = connection_string.endpoint.to_string();
    let connected = async {
        match (&connection_string.endpoint, &connection_string.credential) {
            (Endpoint::Tls { .. }, Credential::Key { name, key }) => {
                let credential = AzureNamedKeyCredential::new(name, key);
                Client::new_from_named_key_credential(host, credential, options).await
            }
            (Endpoint::Tls { .. }, Credential::Signature(signature)) => {
                let credential = AzureSasCredential::new(signature);
                Client::new_from_sas_credential(host, credential, options).await
            }
            (Endpoint::Plain { .. }, Credential::Key { name, key }) => {
                let credential = AzureNamedKeyCredential::new(name, key);
                Client::unsecured().new_from_named_key_credential(host, credential, options).await
            }
            (Endpoint::Plain { .. }, Credential::Signature(signature)) => {
                let credential = AzureSasCredential::new(signature);
                Client::unsecured().new_from_sas_credential(host, credential, options).await
            }
        }
    };
    within(CONNECT_MAX, place, "connect", connected).await
}

/// Takes leave of a broker that said no. A connection that broke is cut: on it, leaving in order
/// would wait for an answer as well.
pub(super) async fn not_attached(place: &Place, client: Client, error: BrokerError) -> BrokerError {
    if !matches!(error, BrokerError::Unreachable { .. }) {
        close(place, async { client.dispose().await.map_err(drop) }).await;
    }
    error
}

pub(super) async fn within<T, E: Error + Send + Sync + 'static>(
    bound: Duration,
    place: &Place,
    operation: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, BrokerError> {
    match timeout(bound, work).await {
        Ok(result) => result.map_err(|error| place.failed(operation, error)),
        Err(_) => Err(place.unreachable(NoAnswer(bound))),
    }
}

/// Errors while closing change nothing for anyone: the connection goes either way.
pub(super) async fn close(place: &Place, in_order: impl Future<Output = Result<(), ()>>) {
    match timeout(CLOSE_MAX, in_order).await {
        Ok(Ok(())) => {}
        Ok(Err(())) | Err(_) => debug!(?place, "the connection did not end in order"),
    }
}
