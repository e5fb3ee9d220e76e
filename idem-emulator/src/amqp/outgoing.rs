//! Links on which a peer receives: messages of a queue, or responses.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use uuid::Uuid;

use super::performative::{Attach, Outcome};
use super::wake::LinkKey;
use crate::broker::{
    Broker, Delivery, Node, Queue, ReceiveMode, SessionError, SessionGrant, SessionWish,
};
use crate::clock::Timestamp;
use crate::codec::message::render;
use crate::faults::Ending;
use crate::management::RequestNode;

/// How many responses may wait on one link for credit, or for a time that a fault has set.
const RESPONSES_MAX: usize = 256;

/// How many bytes of them; the last may go beyond.
const RESPONSES_BYTES_MAX: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct OutgoingLink {
    key: LinkKey,
    waker: Waker,
    pub(super) origin: Origin,
    /// What faults have put off, with the time at which it is due.
    pub(super) late: Vec<(Timestamp, Late)>,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    pub(super) drain: bool,
    /// It is on the connection's list of links to pump.
    pub(super) scheduled: bool,
}

/// An answer that is not given yet.
#[derive(Debug)]
pub(super) enum Late {
    /// To the settlement of a delivery.
    Settlement(u32, Outcome),
    /// To a request.
    Response(Bytes),
}

/// Where what a peer receives comes from.
#[derive(Debug)]
pub(super) enum Origin {
    Messages(Consumer),
    /// Messages of a session that the peer does not have yet: its attach is not answered.
    Session(Box<Awaiting>),
    Responses(Responses),
}

impl OutgoingLink {
    pub(super) fn new(key: LinkKey, waker: Waker, origin: Origin) -> Self {
        Self {
            key,
            waker,
            origin,
            late: Vec::new(),
            delivery_count: 0,
            credit: 0,
            drain: false,
            scheduled: false,
        }
    }

    pub(super) fn key(&self) -> LinkKey {
        self.key
    }

    /// Puts an answer off.
    pub(super) fn put_off(&mut self, broker: &Broker, at: Timestamp, late: Late) {
        self.late.push((at, late));
        broker.context.wake_at(at, self.waker.clone());
    }

    /// Takes the answers whose time has come.
    pub(super) fn take_late(&mut self, broker: &Broker) -> Vec<Late> {
        if self.late.is_empty() {
            return Vec::new();
        }
        let now = broker.context.clock.now();
        self.late.extract_if(.., |(at, _)| *at <= now).map(|(_, late)| late).collect()
    }

    /// Credit as the peer sees it: what it grants, counted from the deliveries that it has seen.
    pub(super) fn set_credit(&mut self, peer_delivery_count: Option<u32>, credit: u32) {
        let limit = peer_delivery_count.unwrap_or(0).wrapping_add(credit);
        self.credit = serial_difference(limit, self.delivery_count);
    }

    pub(super) fn use_credit(&mut self, deliveries: u32) {
        self.credit = self.credit.saturating_sub(deliveries);
        self.delivery_count = self.delivery_count.wrapping_add(deliveries);
    }

    /// The node whose messages this link delivers.
    pub(super) fn node(&self) -> Option<&Node> {
        self.consumer().map(|consumer| &consumer.node)
    }

    fn consumer(&self) -> Option<&Consumer> {
        match &self.origin {
            Origin::Messages(consumer) => Some(consumer),
            Origin::Session(awaiting) => Some(&awaiting.consumer),
            Origin::Responses(_) => None,
        }
    }
}

/// How far `later` is ahead in serial-number arithmetic; 0 if it is behind.
pub(super) fn serial_difference(later: u32, earlier: u32) -> u32 {
    let difference = later.wrapping_sub(earlier);
    if difference > u32::MAX / 2 { 0 } else { difference }
}

/// A receiver that waits for a session.
#[derive(Debug)]
pub(super) struct Awaiting {
    pub(super) consumer: Consumer,
    pub(super) wish: SessionWish,
    pub(super) attach: Attach,
    pub(super) until: Instant,
}

/// A receiver of a queue. Dropping it takes it off the broker's list of those who wait, and gives
/// its session up.
#[derive(Debug)]
pub(super) struct Consumer {
    node: Node,
    key: LinkKey,
    mode: ReceiveMode,
    waker: Waker,
}

impl Consumer {
    pub(super) fn new(node: Node, mode: ReceiveMode, key: LinkKey, waker: Waker) -> Self {
        Self { node, key, mode, waker }
    }

    pub(super) fn key(&self) -> LinkKey {
        self.key
    }

    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub(super) fn accept_session(
        &self,
        wish: &SessionWish,
    ) -> Result<Option<SessionGrant>, SessionError> {
        self.node.queue.accept_session(wish, self.key.consumer, &self.waker)
    }

    fn receive(&self, max: usize) -> Result<Taken, SessionError> {
        let mut deliveries = Vec::new();
        let is_all = self.node.queue.receive(
            self.node.part,
            self.mode,
            max,
            self.key.consumer,
            &self.waker,
            &mut deliveries,
        )?;
        let parcels = deliveries.into_iter().map(Parcel::of_delivery).collect();
        Ok(Taken { parcels, is_all })
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.node.queue.forget(self.node.part, self.key.consumer);
    }
}

/// Responses that wait for the peer's credit.
#[derive(Debug)]
pub(super) struct Responses {
    pub(super) node: RequestNode,
    /// What the peer calls its end of the link.
    pub(super) address: Option<String>,
    pending: VecDeque<Bytes>,
}

impl Responses {
    pub(super) fn new(node: RequestNode, address: Option<String>) -> Self {
        Self { node, address, pending: VecDeque::new() }
    }

    /// Whether no more may wait, beside so many that are put off.
    pub(super) fn is_full(&self, late: usize) -> bool {
        let bytes: usize = self.pending.iter().map(Bytes::len).sum();
        self.pending.len() + late >= RESPONSES_MAX || bytes >= RESPONSES_BYTES_MAX
    }

    pub(super) fn push(&mut self, response: Bytes) {
        self.pending.push_back(response);
    }
}

/// Something to write to the peer, encoded.
#[derive(Debug)]
pub(super) struct Parcel {
    /// The lock token, with its first three groups in little-endian order.
    pub(super) tag: [u8; 16],
    /// The lock token, if the delivery is to be settled by the peer.
    pub(super) token: Option<Uuid>,
    pub(super) payload: Bytes,
    pub(super) ending: Option<Ending>,
}

/// What a link has been given to write.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) parcels: Vec<Parcel>,
    /// There is no more for now; the link is woken when there is.
    pub(super) is_all: bool,
}

impl Origin {
    /// The entity that it comes from, if it is one.
    pub(super) fn entity(&self) -> Option<&Queue> {
        match self {
            Self::Messages(consumer) => Some(&consumer.node.queue),
            Self::Session(awaiting) => Some(&awaiting.consumer.node.queue),
            Self::Responses(responses) => responses.node.entity(),
        }
    }

    /// Takes up to `max` parcels, fewer if they are large.
    pub(super) fn take(&mut self, max: usize) -> Result<Taken, SessionError> {
        match self {
            Self::Messages(consumer) => consumer.receive(max),
            Self::Session(_) => Ok(Taken { parcels: Vec::new(), is_all: true }),
            Self::Responses(responses) => {
                let count = responses.pending.len().min(max);
                let parcels = responses.pending.drain(..count).map(Parcel::of_response).collect();
                Ok(Taken { parcels, is_all: responses.pending.is_empty() })
            }
        }
    }
}

/// The broker's own clients write a lock token as .NET keeps it in memory.
fn tag_of(token: Uuid) -> [u8; 16] {
    token.to_bytes_le()
}

impl Parcel {
    fn of_delivery(delivery: Delivery) -> Self {
        let lock = delivery.lock();
        let mut payload = BytesMut::with_capacity(delivery.message.content.len() + 320);
        render(&mut payload, &delivery.message, lock);
        Self {
            tag: tag_of(delivery.token),
            token: lock.map(|(token, _)| token),
            payload: payload.freeze(),
            ending: delivery.ending,
        }
    }

    fn of_response(payload: Bytes) -> Self {
        Self { tag: tag_of(Uuid::new_v4()), token: None, payload, ending: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::encode;

    /// C-21: the same token, as a delivery tag and where it is an AMQP UUID.
    #[test]
    fn a_lock_token_is_written_in_its_two_orders() {
        let token = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        let tag = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].map(|place| place * 0x11);
        assert_eq!(tag_of(token), tag);
        let mut encoded = BytesMut::new();
        encode::uuid(&mut encoded, token);
        let in_order = (0..16).map(|place| place * 0x11);
        assert!(encoded.iter().copied().eq([0x98].into_iter().chain(in_order)), "{encoded:?}");
    }
}
