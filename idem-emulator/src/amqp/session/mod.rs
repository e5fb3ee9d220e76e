//! An AMQP session: its windows, its links and the deliveries that await settlement.

mod arrive;
mod attach;
mod deliver;
mod settle;

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use super::error::{AmqpError, Violation};
use super::incoming::IncomingLink;
use super::outgoing::{Awaiting, Origin, OutgoingLink, serial_difference};
use super::performative::{Begin, Detach, Flow, LinkFlow};
use super::wake::LinkKey;
use crate::broker::Queue;
pub(super) use deliver::DELIVERY_OUTPUT_MAX;

/// How many transfer frames each side may send ahead.
pub(super) const WINDOW: u32 = 5000;

#[derive(Debug)]
pub(super) struct Session {
    channel: u16,
    next_incoming_id: u32,
    /// Frames that the peer may still send.
    incoming_window: u32,
    next_outgoing_id: u32,
    /// Frames that we may still send.
    outgoing_window: u32,
    /// Deliveries wait for the peer's window.
    blocked: bool,
    next_delivery_id: u32,
    links: HashMap<u32, Link>,
    outbox: VecDeque<Outgoing>,
    unsettled: BTreeMap<u32, Unsettled>,
}

#[derive(Debug)]
enum Link {
    Incoming(IncomingLink),
    Outgoing(OutgoingLink),
    /// We have detached it, and the peer has not yet. Whatever still comes for it is ignored.
    Detached,
}

impl Link {
    /// The entity at the other end, if it is one.
    fn entity(&self) -> Option<&Queue> {
        match self {
            Self::Incoming(link) => link.destination.entity(),
            Self::Outgoing(link) => link.origin.entity(),
            Self::Detached => None,
        }
    }
}

/// A delivery on its way to the peer.
#[derive(Debug)]
struct Outgoing {
    handle: u32,
    delivery_id: u32,
    tag: [u8; 16],
    settled: bool,
    started: bool,
    payload: Bytes,
}

#[derive(Debug, Clone, Copy)]
struct Unsettled {
    handle: u32,
    token: Uuid,
}

impl Session {
    pub(super) fn new(channel: u16, begin: &Begin) -> Self {
        Self {
            channel,
            next_incoming_id: begin.next_outgoing_id,
            incoming_window: WINDOW,
            next_outgoing_id: 0,
            outgoing_window: begin.incoming_window,
            blocked: false,
            next_delivery_id: 0,
            links: HashMap::new(),
            outbox: VecDeque::new(),
            unsettled: BTreeMap::new(),
        }
    }

    /// Links that are attached, or were until the peer knows better.
    pub(super) fn link_count(&self) -> usize {
        self.links.len()
    }

    pub(super) fn flow(&mut self, flow: &Flow, shared: &mut Shared) -> Result<(), Violation> {
        let limit = flow.next_incoming_id.unwrap_or(0).wrapping_add(flow.incoming_window);
        self.outgoing_window = serial_difference(limit, self.next_outgoing_id);
        if self.blocked && self.outgoing_window > 0 {
            self.blocked = false;
            self.schedule_all(shared);
        }
        if let Some(link_flow) = flow.link {
            self.link_flow(link_flow, shared)?;
        }
        if flow.echo {
            self.write_flow(flow.link.map(|link| link.handle), shared);
        }
        Ok(())
    }

    fn link_flow(&mut self, flow: LinkFlow, shared: &mut Shared) -> Result<(), Violation> {
        match self.links.get_mut(&flow.handle) {
            Some(Link::Outgoing(link)) => {
                if let Some(credit) = flow.credit {
                    link.set_credit(flow.delivery_count, credit);
                }
                link.drain = flow.drain;
                schedule(link, self.channel, flow.handle, shared);
                shared.link_used(self.channel, flow.handle);
            }
            Some(Link::Incoming(link)) => {
                if let Some(delivery_count) = flow.delivery_count {
                    link.delivery_count = delivery_count;
                }
                shared.link_used(self.channel, flow.handle);
            }
            // It may have crossed our detach.
            Some(Link::Detached) => {}
            None => {
                return Err(unattached(format!("no link is attached to handle {}", flow.handle)));
            }
        }
        Ok(())
    }

    fn schedule_all(&mut self, shared: &mut Shared) {
        for (handle, link) in &mut self.links {
            if let Link::Outgoing(link) = link {
                schedule(link, self.channel, *handle, shared);
            }
        }
    }

    /// The broker has woken a link.
    pub(super) fn woken(&mut self, key: LinkKey, shared: &mut Shared) {
        if let Some(Link::Outgoing(link)) = self.links.get_mut(&key.handle)
            && link.key() == key
        {
            schedule(link, self.channel, key.handle, shared);
        }
    }

    fn write_flow(&self, handle: Option<u32>, shared: &mut Shared) {
        let link = handle.and_then(|handle| self.link_flow_state(handle, false));
        self.flow_state(link).write(&mut shared.out, self.channel, WINDOW);
    }

    fn link_flow_state(&self, handle: u32, drain: bool) -> Option<LinkFlow> {
        let (delivery_count, credit) = match self.links.get(&handle)? {
            Link::Incoming(link) => (link.delivery_count, link.credit),
            Link::Outgoing(link) => (link.delivery_count, link.credit),
            Link::Detached => return None,
        };
        Some(LinkFlow { handle, delivery_count: Some(delivery_count), credit: Some(credit), drain })
    }

    fn flow_state(&self, link: Option<LinkFlow>) -> Flow {
        Flow {
            next_incoming_id: Some(self.next_incoming_id),
            incoming_window: self.incoming_window,
            next_outgoing_id: self.next_outgoing_id,
            link,
            echo: false,
        }
    }

    pub(super) fn detach(&mut self, detach: &Detach, shared: &mut Shared) {
        let known = self.remove_link(detach.handle, shared);
        if known.is_some_and(|link| !matches!(link, Link::Detached)) {
            detach.write(&mut shared.out, self.channel, None);
        }
    }

    /// Ends the links to entities that are gone.
    pub(super) fn detach_deleted(&mut self, shared: &mut Shared) {
        let entities =
            self.links.iter().filter_map(|(handle, link)| Some((*handle, link.entity()?)));
        let deleted = entities.filter(|(_, entity)| entity.is_deleted());
        let errors = deleted.map(|(handle, entity)| (handle, AmqpError::not_found(entity.path())));
        for (handle, error) in errors.collect::<Vec<_>>() {
            self.detach_with(handle, &error, shared);
        }
    }

    /// Ends a link because of an error.
    pub(super) fn detach_with(&mut self, handle: u32, error: &AmqpError, shared: &mut Shared) {
        self.remove_link(handle, shared);
        self.links.insert(handle, Link::Detached);
        Detach { handle, closed: true }.write(&mut shared.out, self.channel, Some(error));
    }

    /// Locks of messages stay with the broker until they expire; only the way to settle them here is
    /// gone. Sessions are given up.
    fn remove_link(&mut self, handle: u32, shared: &mut Shared) -> Option<Link> {
        let link = self.links.remove(&handle);
        shared.link_ended(self.channel, handle);
        shared.transactions.coordinator_ended((self.channel, handle));
        self.unsettled.retain(|_, unsettled| unsettled.handle != handle);
        self.outbox.retain(|outgoing| outgoing.handle != handle);
        if let Some(awaiting) = link.as_ref().and_then(awaiting) {
            shared.time_outs.remove(&(awaiting.until, awaiting.consumer.key()));
            // A link is attached before it is detached.
            awaiting.attach.write_refusal(&mut shared.out, self.channel);
        }
        link
    }

    /// The AMQP session ends, and its links with it.
    pub(super) fn end(self, shared: &mut Shared) {
        shared.transactions.session_ended(self.channel);
        if let Some(idle) = &mut shared.idle {
            idle.session_ended(self.channel, Instant::now());
        }
        for awaiting in self.links.values().filter_map(awaiting) {
            shared.time_outs.remove(&(awaiting.until, awaiting.consumer.key()));
        }
    }
}

fn unattached(text: String) -> Violation {
    Violation::Session(AmqpError::new("amqp:session:unattached-handle", text))
}

fn awaiting(link: &Link) -> Option<&Awaiting> {
    match link {
        Link::Outgoing(OutgoingLink { origin: Origin::Session(awaiting), .. }) => Some(awaiting),
        Link::Outgoing(_) | Link::Incoming(_) | Link::Detached => None,
    }
}

fn schedule(link: &mut OutgoingLink, channel: u16, handle: u32, shared: &mut Shared) {
    if !link.scheduled {
        link.scheduled = true;
        shared.work.push_back((channel, handle));
    }
}
