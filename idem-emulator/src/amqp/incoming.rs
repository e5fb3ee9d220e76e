//! Links on which a peer sends: messages for a queue, or requests.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Limits;
use super::error::{AmqpError, Violation};
use super::performative::{BATCH_FORMAT, Enlisted, Outcome, Transfer};
use crate::broker::{Acknowledgement, Kind, Node, Part, Queue, Submission, Transaction};
use crate::codec::message::{Sections, submission};
use crate::codec::{DecodeError, encode};
use crate::management::RequestNode;

/// How many deliveries a peer may send ahead on one link.
const CREDIT: u32 = 1000;

/// Where what a peer sends goes.
#[derive(Debug, Clone)]
pub(super) enum Destination {
    Queue(Outlet),
    Requests(RequestNode),
    /// It declares transactions and discharges them.
    Coordinator,
}

/// A queue or topic that is sent to.
#[derive(Debug, Clone)]
pub(super) struct Outlet {
    pub(super) queue: Arc<Queue>,
    /// The entity to which it is to send the messages on.
    pub(super) transfer_to: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct IncomingLink {
    pub(super) destination: Destination,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    partial: Option<Partial>,
}

/// A delivery of which more frames are to come.
#[derive(Debug)]
struct Partial {
    delivery_id: u32,
    format: u32,
    settled: bool,
    transaction: Option<Enlisted>,
    payload: BytesMut,
    /// What the payload takes of the connection's share.
    room: Option<OwnedSemaphorePermit>,
    /// Why the payload was dropped.
    refusal: Option<AmqpError>,
}

/// A delivery that has arrived in full.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    pub(super) delivery_id: u32,
    pub(super) settled: bool,
    /// The transaction that it belongs to.
    pub(super) transaction: Option<Enlisted>,
    format: u32,
    /// Empty if it could not be kept.
    payload: Cow<'a, [u8]>,
    refusal: Option<AmqpError>,
}

impl IncomingLink {
    pub(super) fn new(destination: Destination, initial_delivery_count: u32) -> Self {
        Self { destination, delivery_count: initial_delivery_count, credit: CREDIT, partial: None }
    }

    /// Takes one frame; returns the delivery if this was its last.
    pub(super) fn take<'a>(
        &mut self,
        transfer: &Transfer,
        payload: &'a [u8],
        limits: Limits,
        share: &Arc<Semaphore>,
    ) -> Result<Option<Arrived<'a>>, Violation> {
        let mut partial = match self.partial.take() {
            // The delivery id of the frames after the first is ignored: a client that we know gives
            // them others.
            Some(partial) => partial,
            None => self.begin(transfer)?,
        };
        if transfer.aborted {
            return Ok(None);
        }
        partial.settled |= transfer.settled;
        let limit = if partial.format == BATCH_FORMAT {
            limits.batch_size_max
        } else {
            limits.message_size_max
        };
        if partial.payload.len() + payload.len() > limit {
            partial.refuse(too_large());
        }
        if transfer.more {
            partial.extend(payload, share);
            self.partial = Some(partial);
            return Ok(None);
        }
        Ok(Some(partial.finish(payload)))
    }

    fn begin(&mut self, transfer: &Transfer) -> Result<Partial, Violation> {
        let delivery_id = transfer.delivery_id.ok_or(DecodeError::Field("delivery-id"))?;
        let Some(credit) = self.credit.checked_sub(1) else {
            let error = AmqpError::new(
                "amqp:link:transfer-limit-exceeded",
                "a transfer came without credit",
            );
            return Err(Violation::Link(transfer.handle, error));
        };
        self.credit = credit;
        self.delivery_count = self.delivery_count.wrapping_add(1);
        let format = transfer.format.unwrap_or(0);
        Ok(Partial {
            delivery_id,
            format,
            settled: false,
            transaction: transfer.transaction,
            payload: BytesMut::new(),
            room: None,
            refusal: None,
        })
    }

    /// Grants new credit once half of it is used; `true` if the peer has to be told.
    pub(super) fn replenish(&mut self) -> bool {
        let due = self.credit < CREDIT / 2;
        if due {
            self.credit = CREDIT;
        }
        due
    }
}

impl Partial {
    /// The rest is read and dropped, so that the link lives on and the sender is told why.
    fn refuse(&mut self, error: AmqpError) {
        self.refusal = Some(error);
        self.payload = BytesMut::new();
        self.room = None;
    }

    fn extend(&mut self, payload: &[u8], share: &Arc<Semaphore>) {
        if self.refusal.is_some() {
            return;
        }
        let permits = encode::length(payload.len());
        match (Arc::clone(share).try_acquire_many_owned(permits), &mut self.room) {
            (Ok(more), Some(room)) => room.merge(more),
            (Ok(room), none) => *none = Some(room),
            (Err(_), _) => return self.refuse(too_many_partial()),
        }
        self.payload.extend_from_slice(payload);
    }

    fn finish(mut self, last: &[u8]) -> Arrived<'_> {
        let payload = if self.refusal.is_some() {
            Cow::Borrowed(&[][..])
        } else if self.payload.is_empty() {
            Cow::Borrowed(last)
        } else {
            self.payload.extend_from_slice(last);
            Cow::Owned(self.payload.into())
        };
        Arrived {
            delivery_id: self.delivery_id,
            settled: self.settled,
            transaction: self.transaction,
            format: self.format,
            payload,
            refusal: self.refusal,
        }
    }
}

impl Arrived<'_> {
    pub(super) fn sections(&self) -> Result<Sections<'_>, AmqpError> {
        if let Some(error) = &self.refusal {
            return Err(error.clone());
        }
        Ok(Sections::split(&self.payload)?)
    }

    /// Stores the messages in the queue; the outcome tells the sender.
    pub(super) fn send_to(&self, outlet: &Outlet, limits: Limits) -> (Outcome, Acknowledgement) {
        let stored = self.submissions(outlet, limits).and_then(|submissions| {
            outlet
                .queue
                .take(submissions)
                .map_err(|error| AmqpError::new(error.condition(), error.to_string()))
        });
        match stored {
            Ok(acknowledgement) => (Outcome::Accepted, acknowledgement),
            Err(error) => {
                outlet.queue.note_rejected_send(error.condition);
                (Outcome::Rejected(Some(error)), Acknowledgement::Now)
            }
        }
    }

    /// Stores the messages once their transaction is committed.
    pub(super) fn send_within(
        &self,
        transaction: &mut Transaction,
        outlet: &Outlet,
        limits: Limits,
    ) -> Result<(), AmqpError> {
        let submissions = self.submissions(outlet, limits)?;
        transaction.send(&outlet.queue, submissions).map_err(|error| {
            outlet.queue.note_rejected_send(error.condition());
            error.into()
        })
    }

    fn submissions(&self, outlet: &Outlet, limits: Limits) -> Result<Vec<Submission>, AmqpError> {
        let assigns_ids = outlet.queue.assigns_message_ids();
        let read = |sections: &Sections<'_>| Submission {
            destination: outlet.transfer_to.clone(),
            ..submission(sections, assigns_ids)
        };
        let sections = self.sections()?;
        if self.format != BATCH_FORMAT {
            return Ok(vec![read(&sections)]);
        }
        let messages = sections.data().map(|message| {
            if message.len() > limits.message_size_max {
                return Err(too_large());
            }
            Ok(read(&Sections::split(message)?))
        });
        messages.collect()
    }
}

fn too_large() -> AmqpError {
    AmqpError::new(
        "amqp:link:message-size-exceeded",
        "the message is larger than the link's max-message-size; send less, or raise the emulator's `message_size_max`",
    )
}

fn too_many_partial() -> AmqpError {
    AmqpError::new(
        "amqp:resource-limit-exceeded",
        "the connection has too many deliveries of which more is to come; finish some first",
    )
}

impl Destination {
    /// The entity that takes it in, if it is one.
    pub(super) fn entity(&self) -> Option<&Queue> {
        match self {
            Self::Queue(outlet) => Some(&outlet.queue),
            Self::Requests(node) => node.entity(),
            Self::Coordinator => None,
        }
    }

    /// What a sender that names this node may send to, if anything.
    pub(super) fn of(node: &Node, transfer_to: Option<&Node>) -> Result<Self, AmqpError> {
        check_target(node)?;
        if let Some(target) = transfer_to {
            check_target(target)?;
        }
        let transfer_to = transfer_to.map(|target| Arc::clone(target.name()));
        Ok(Self::Queue(Outlet { queue: Arc::clone(&node.queue), transfer_to }))
    }
}

fn check_target(node: &Node) -> Result<(), AmqpError> {
    let text = match (node.part, node.queue.kind()) {
        (Part::Main, Kind::Queue | Kind::Topic) => return Ok(()),
        (Part::DeadLetter | Part::Transfer, _) => "messages cannot be sent to a dead-letter queue",
        (Part::Main, Kind::Subscription) => {
            "messages cannot be sent to a subscription; send to its topic"
        }
    };
    Err(AmqpError::new("amqp:not-allowed", text))
}
