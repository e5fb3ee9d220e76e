//! An AMQP session: its windows, its links and the deliveries that await settlement.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use super::address::{self, Place};
use super::error::{AmqpError, Violation};
use super::incoming::{Arrived, Destination, IncomingLink};
use super::outgoing::{
    Awaiting, Consumer, Late, Origin, OutgoingLink, Parcel, Responses, Taken, serial_difference,
};
use super::performative::{
    Attach, Begin, Detach, Disposition, Flow, HANDLE_MAX, LinkFlow, Outcome, Role,
    TRANSFER_OVERHEAD, Transfer, write_disposition, write_transfer,
};
use super::settlement::{self, Answers, Decision};
use super::transactions::{coordinate, send_within};
use super::wake::LinkKey;
use crate::broker::{
    Acknowledgement, Kind, Node, Part, Queue, ReceiveMode, SessionGrant, SessionWish,
};
use crate::management::{Answer, RequestNode};

/// How many transfer frames each side may send ahead.
pub(super) const WINDOW: u32 = 5000;

/// How long a receiver waits for a session if it does not say.
const SESSION_TIME_OUT: Duration = Duration::from_secs(65);

/// Output that waits for the socket; with more than this, no further deliveries are taken.
pub(super) const DELIVERY_OUTPUT_MAX: usize = 256 * 1024;

/// How many deliveries are taken from a queue in one step.
const TAKE_MAX: u32 = 64;

/// Deliveries that await settlement. Beyond this the oldest are forgotten: they can only be that
/// old if their locks are gone, or were settled through the management node.
const UNSETTLED_MAX: usize = 100_000;

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

    pub(super) fn attach(&mut self, attach: Attach, shared: &mut Shared) -> Result<(), Violation> {
        if attach.handle > HANDLE_MAX {
            return Err(AmqpError::framing(format!(
                "handle {} exceeds {HANDLE_MAX}",
                attach.handle
            ))
            .into());
        }
        if self.links.contains_key(&attach.handle) {
            let text = format!("handle {} is attached already", attach.handle);
            return Err(Violation::Session(AmqpError::new("amqp:session:handle-in-use", text)));
        }
        let link = match self.link(&attach, shared) {
            Ok(link) => link,
            Err(error) => {
                attach.write_refusal(&mut shared.out, self.channel);
                return Err(Violation::Link(attach.handle, error));
            }
        };
        let handle = attach.handle;
        let link = match (link, attach.session_wish()) {
            (
                Link::Outgoing(OutgoingLink { origin: Origin::Messages(consumer), .. }),
                Some(wish),
            ) => {
                self.await_session(consumer, wish, attach, shared);
                return Ok(());
            }
            (link, _) => link,
        };
        attach.write_answer(&mut shared.out, self.channel, shared.service.limits(), None);
        let grants_credit = matches!(link, Link::Incoming(_));
        self.links.insert(handle, link);
        shared.link_used(self.channel, handle);
        if grants_credit {
            self.write_flow(Some(handle), shared);
        }
        Ok(())
    }

    /// Attaches a receiver once it has a session, which may be at once.
    fn await_session(
        &mut self,
        consumer: Consumer,
        wish: SessionWish,
        attach: Attach,
        shared: &mut Shared,
    ) {
        let handle = attach.handle;
        let until = Instant::now() + attach.session_time_out.unwrap_or(SESSION_TIME_OUT);
        shared.time_outs.insert((until, consumer.key()));
        let (key, waker) = (consumer.key(), consumer.waker());
        let awaiting = Origin::Session(Box::new(Awaiting { consumer, wish, attach, until }));
        self.links.insert(handle, Link::Outgoing(OutgoingLink::new(key, waker, awaiting)));
        shared.link_used(self.channel, handle);
        self.accept_session(handle, shared);
    }

    /// Answers the attach of a receiver that waits for a session, if the session is there, or if it
    /// has waited long enough.
    fn accept_session(&mut self, handle: u32, shared: &mut Shared) {
        let Some(Link::Outgoing(OutgoingLink { origin: Origin::Session(awaiting), .. })) =
            self.links.get(&handle)
        else {
            return;
        };
        let outcome = match awaiting.consumer.accept_session(&awaiting.wish) {
            Ok(Some(grant)) => Ok(grant),
            Ok(None) if Instant::now() < awaiting.until => return,
            Ok(None) => Err(AmqpError::new(
                "com.microsoft:timeout",
                "no session became available within the time that the receiver allowed",
            )),
            Err(error) => Err(AmqpError::new(error.condition(), error.to_string())),
        };
        match outcome {
            Ok(grant) => self.grant_session(handle, &grant, shared),
            Err(error) => self.detach_with(handle, &error, shared),
        }
    }

    fn grant_session(&mut self, handle: u32, grant: &SessionGrant, shared: &mut Shared) {
        let Some(Link::Outgoing(mut link)) = self.links.remove(&handle) else {
            return;
        };
        let Origin::Session(awaiting) = link.origin else {
            return;
        };
        let Awaiting { consumer, attach, until, .. } = *awaiting;
        shared.time_outs.remove(&(until, consumer.key()));
        attach.write_answer(&mut shared.out, self.channel, shared.service.limits(), Some(grant));
        // Credit may have come before the session.
        link.origin = Origin::Messages(consumer);
        schedule(&mut link, self.channel, handle, shared);
        self.links.insert(handle, Link::Outgoing(link));
    }

    /// The link that a peer asks for, or why it cannot have it.
    fn link(&self, attach: &Attach, shared: &Shared) -> Result<Link, AmqpError> {
        if attach.is_coordinator() {
            return coordinator(attach);
        }
        let address = attach.address().unwrap_or_default();
        let broker = shared.service.broker_ref();
        let place =
            address::resolve(broker, address).ok_or_else(|| AmqpError::not_found(address))?;
        let key = LinkKey {
            channel: self.channel,
            handle: attach.handle,
            consumer: broker.new_consumer(),
        };
        let waker = shared.wakes.waker(key);
        match (attach.role, place) {
            (Role::Sender, Place::Messages(node)) => {
                let destination = Destination::of(&node)?;
                Ok(Link::Incoming(IncomingLink::new(destination, attach.initial_delivery_count)))
            }
            (Role::Sender, Place::Requests(node)) => Ok(Link::Incoming(IncomingLink::new(
                Destination::Requests(node),
                attach.initial_delivery_count,
            ))),
            (Role::Receiver, Place::Messages(node)) => {
                check_source(&node)?;
                check_session_use(&node, attach.session_wish().is_some())?;
                let mode = if attach.wants_settled() {
                    ReceiveMode::ReceiveAndDelete
                } else {
                    ReceiveMode::PeekLock
                };
                let consumer = Consumer::new(node, mode, key, waker.clone());
                Ok(Link::Outgoing(OutgoingLink::new(key, waker, Origin::Messages(consumer))))
            }
            (Role::Receiver, Place::Requests(node)) => {
                let responses = Responses::new(node, attach.reply_address().map(str::to_owned));
                Ok(Link::Outgoing(OutgoingLink::new(key, waker, Origin::Responses(responses))))
            }
        }
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

    pub(super) fn transfer(
        &mut self,
        transfer: &Transfer,
        payload: &[u8],
        shared: &mut Shared,
    ) -> Result<(), Violation> {
        let Some(window) = self.incoming_window.checked_sub(1) else {
            let error = AmqpError::new(
                "amqp:session:window-violation",
                "a transfer came outside the window",
            );
            return Err(Violation::Session(error));
        };
        self.incoming_window = window;
        self.next_incoming_id = self.next_incoming_id.wrapping_add(1);
        let limits = shared.service.limits();
        let arrived = match self.links.get_mut(&transfer.handle) {
            Some(Link::Incoming(link)) => link.take(transfer, payload, limits, &shared.partial)?,
            Some(Link::Detached) => None,
            Some(Link::Outgoing(_)) | None => {
                let text = format!("no sender is attached to handle {}", transfer.handle);
                return Err(unattached(text));
            }
        };
        if let Some(arrived) = arrived {
            self.arrived(transfer.handle, &arrived, shared);
        }
        self.replenish(transfer.handle, shared);
        Ok(())
    }

    fn arrived(&mut self, handle: u32, arrived: &Arrived<'_>, shared: &mut Shared) {
        shared.link_used(self.channel, handle);
        let Some(Link::Incoming(link)) = self.links.get(&handle) else {
            return;
        };
        let destination = link.destination.clone();
        let answered = match (destination, arrived.transaction) {
            (Destination::Queue(queue), None) => {
                Ok(arrived.send_to(&queue, shared.service.limits()))
            }
            (Destination::Queue(queue), Some(enlisted)) => {
                send_within(enlisted, &queue, arrived, shared).map(at_once)
            }
            (Destination::Requests(node), _) => {
                self.answer(&node, arrived, shared).map(|()| at_once(Outcome::Accepted))
            }
            (Destination::Coordinator, _) => {
                coordinate((self.channel, handle), arrived, shared).map(at_once)
            }
        };
        let (outcome, acknowledgement) =
            answered.unwrap_or_else(|error| at_once(Outcome::Rejected(Some(error))));
        match acknowledgement {
            Acknowledgement::Now if arrived.settled => {}
            Acknowledgement::Now => {
                let id = arrived.delivery_id;
                write_disposition(&mut shared.out, self.channel, Role::Receiver, id, id, &outcome);
            }
            // Only answers to settlements are put off.
            Acknowledgement::At(_) | Acknowledgement::Never => {}
            Acknowledgement::LinkEnds => self.detach_with(handle, &forced_detach(), shared),
            Acknowledgement::ConnectionEnds(how) => shared.ending = Some(how),
        }
    }

    /// Answers a request over a receiver link of this session to the same node: the one with the
    /// reply address if there is one, because reply addresses are not always unique or even sent.
    fn answer(
        &mut self,
        node: &RequestNode,
        arrived: &Arrived<'_>,
        shared: &mut Shared,
    ) -> Result<(), AmqpError> {
        let request = arrived.sections()?;
        if let (RequestNode::Cbs, Some(idle)) = (node, &mut shared.idle) {
            idle.token_came();
        }
        let reply_to = request.reply_to();
        let candidates =
            || self.links.iter().filter_map(|(handle, link)| Some((*handle, responses(link)?)));
        let same_node = |responses: &Responses| responses.node.is_same(node);
        let handle = candidates()
            .find(|(_, responses)| same_node(responses) && responses.address.as_deref() == reply_to)
            .or_else(|| candidates().find(|(_, responses)| same_node(responses)))
            .map(|(handle, _)| handle)
            .ok_or_else(|| {
                AmqpError::new(
                    "amqp:not-allowed",
                    "attach a receiver for responses before sending requests",
                )
            })?;
        let Some(Link::Outgoing(link)) = self.links.get_mut(&handle) else {
            return Ok(());
        };
        let Origin::Responses(responses) = &mut link.origin else {
            return Ok(());
        };
        if responses.is_full(link.late.len()) {
            let text = "too many responses wait for credit on the response link";
            return Err(AmqpError::new("amqp:resource-limit-exceeded", text));
        }
        let Answer { response, acknowledgement } = node.answer(&request);
        match acknowledgement {
            Acknowledgement::Now => responses.push(response),
            Acknowledgement::At(at) => {
                link.put_off(shared.service.broker_ref(), at, Late::Response(response));
            }
            Acknowledgement::Never | Acknowledgement::LinkEnds => {}
            Acknowledgement::ConnectionEnds(how) => shared.ending = Some(how),
        }
        schedule(link, self.channel, handle, shared);
        Ok(())
    }

    /// Opens the windows again once half of them is used.
    fn replenish(&mut self, handle: u32, shared: &mut Shared) {
        let link_due = match self.links.get_mut(&handle) {
            Some(Link::Incoming(link)) => link.replenish(),
            Some(Link::Outgoing(_) | Link::Detached) | None => false,
        };
        let session_due = self.incoming_window < WINDOW / 2;
        if session_due {
            self.incoming_window = WINDOW;
        }
        if link_due || session_due {
            self.write_flow(link_due.then_some(handle), shared);
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

    /// Applies what a receiver decided, and answers what it has not settled itself.
    pub(super) fn disposition(&mut self, disposition: &Disposition<'_>, shared: &mut Shared) {
        if disposition.role == Role::Sender {
            // Our own messages are settled by us; a sender has nothing more to say about its own.
            return;
        }
        if disposition.state.is_none() && !disposition.settled {
            // There is nothing to apply, and only settling ends a delivery.
            return;
        }
        let decision = disposition.state.as_ref().map(settlement::read);
        let mut answers = Answers::default();
        for delivery_id in self.unsettled_between(disposition.first, disposition.last) {
            let outcome = match &decision {
                None => None,
                Some(Err(error)) => Some(Outcome::Rejected(Some(error.clone()))),
                Some(Ok(decision)) => {
                    match self.settle(delivery_id, decision, shared) {
                        Some(outcome) => Some(outcome),
                        // Lost on purpose: not answered, and the delivery stays unsettled.
                        None => continue,
                    }
                }
            };
            match outcome {
                Some(outcome) if !disposition.settled => answers.push(delivery_id, outcome),
                Some(_) => {}
                // Without a state there is nothing to apply: only settling ends the delivery.
                None if !disposition.settled => continue,
                None => {}
            }
            self.unsettled.remove(&delivery_id);
        }
        for (first, last, outcome) in answers.into_runs() {
            write_disposition(&mut shared.out, self.channel, Role::Sender, first, last, &outcome);
        }
    }

    fn settle(
        &mut self,
        delivery_id: u32,
        decision: &Decision,
        shared: &mut Shared,
    ) -> Option<Outcome> {
        let Decision { settlement, success, transaction } = decision;
        let unsettled = self.unsettled.get(&delivery_id)?;
        shared.link_used(self.channel, unsettled.handle);
        let Some(Link::Outgoing(link)) = self.links.get_mut(&unsettled.handle) else {
            return None;
        };
        let node = link.node()?;
        if let Some(id) = transaction {
            let settled = shared.transactions.find(*id).and_then(|transaction| {
                let settlement = settlement.clone();
                Ok(transaction.settle(&node.queue, node.part, unsettled.token, settlement)?)
            });
            return Some(match settled {
                Ok(()) => success.clone(),
                Err(error) => Outcome::Rejected(Some(error)),
            });
        }
        match node.queue.settle(node.part, unsettled.token, settlement.clone()) {
            Ok(Acknowledgement::Now) => Some(success.clone()),
            Ok(Acknowledgement::Never | Acknowledgement::LinkEnds) => None,
            Ok(Acknowledgement::At(at)) => {
                let late = Late::Settlement(delivery_id, success.clone());
                link.put_off(shared.service.broker_ref(), at, late);
                None
            }
            Ok(Acknowledgement::ConnectionEnds(how)) => {
                shared.ending = Some(how);
                None
            }
            Err(error) => Some(settlement::refusal(error)),
        }
    }

    /// The unsettled deliveries of a range, which may wrap around.
    fn unsettled_between(&self, first: u32, last: u32) -> Vec<u32> {
        if first <= last {
            return self.unsettled.range(first..=last).map(|(id, _)| *id).collect();
        }
        self.unsettled
            .range(first..)
            .chain(self.unsettled.range(..=last))
            .map(|(id, _)| *id)
            .collect()
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

    /// Sends what a link has, as far as its credit, the window and the socket allow.
    pub(super) fn pump(&mut self, handle: u32, shared: &mut Shared) {
        if let Some(Link::Outgoing(link)) = self.links.get_mut(&handle) {
            link.scheduled = false;
        }
        self.accept_session(handle, shared);
        self.give_late_answers(handle, shared);
        self.write_outbox(shared);
        let exhausted = loop {
            let Some(Link::Outgoing(link)) = self.links.get_mut(&handle) else {
                return;
            };
            if matches!(link.origin, Origin::Session(_)) {
                return;
            }
            if shared.out.len() >= DELIVERY_OUTPUT_MAX {
                schedule(link, self.channel, handle, shared);
                break false;
            }
            let window = if self.outbox.is_empty() { self.outgoing_window } else { 0 };
            let room = link.credit.min(window).min(TAKE_MAX);
            self.blocked |= link.credit > 0 && window == 0;
            // Even without room: a wake-up that cannot be used goes to another receiver.
            let max = usize::try_from(room).unwrap_or(0);
            let Taken { parcels, is_all } = match link.origin.take(max) {
                Ok(taken) => taken,
                Err(error) => {
                    let error = AmqpError::new(error.condition(), error.to_string());
                    return self.detach_with(handle, &error, shared);
                }
            };
            let taken = u32::try_from(parcels.len()).unwrap_or(room);
            link.use_credit(taken);
            for parcel in parcels {
                self.dispatch(handle, parcel, shared);
            }
            if is_all || room == 0 || shared.ending.is_some() {
                break is_all;
            }
        };
        self.finish_drain(handle, exhausted, shared);
    }

    /// Gives the answers that faults had put off, once it is time.
    fn give_late_answers(&mut self, handle: u32, shared: &mut Shared) {
        let Some(Link::Outgoing(link)) = self.links.get_mut(&handle) else {
            return;
        };
        for late in link.take_late(shared.service.broker_ref()) {
            match (late, &mut link.origin) {
                (Late::Settlement(id, outcome), _) => {
                    self.unsettled.remove(&id);
                    let out = &mut shared.out;
                    write_disposition(out, self.channel, Role::Sender, id, id, &outcome);
                }
                (Late::Response(response), Origin::Responses(responses)) => {
                    responses.push(response);
                }
                (Late::Response(_), Origin::Messages(_) | Origin::Session(_)) => {}
            }
        }
    }

    fn dispatch(&mut self, handle: u32, parcel: Parcel, shared: &mut Shared) {
        shared.link_used(self.channel, handle);
        let delivery_id = self.next_delivery_id;
        self.next_delivery_id = self.next_delivery_id.wrapping_add(1);
        if let Some(token) = parcel.token {
            if self.unsettled.len() >= UNSETTLED_MAX {
                self.unsettled.pop_first();
            }
            self.unsettled.insert(delivery_id, Unsettled { handle, token });
        }
        self.outbox.push_back(Outgoing {
            handle,
            delivery_id,
            tag: parcel.tag,
            settled: parcel.token.is_none(),
            started: false,
            payload: parcel.payload,
        });
        self.write_outbox(shared);
        shared.ending = shared.ending.or(parcel.ending);
    }

    /// Writes frames as far as the peer's window and the output have room.
    fn write_outbox(&mut self, shared: &mut Shared) {
        let chunk_max = shared.peer_frame_max.saturating_sub(TRANSFER_OVERHEAD);
        while let Some(outgoing) = self.outbox.front_mut() {
            if self.outgoing_window == 0 {
                self.blocked = true;
                return;
            }
            if shared.out.len() >= DELIVERY_OUTPUT_MAX {
                return;
            }
            let chunk = outgoing.payload.split_to(outgoing.payload.len().min(chunk_max));
            let more = !outgoing.payload.is_empty();
            let first = (!outgoing.started).then_some((outgoing.delivery_id, &outgoing.tag));
            let out = &mut shared.out;
            write_transfer(
                out,
                self.channel,
                outgoing.handle,
                first,
                outgoing.settled,
                more,
                &chunk,
            );
            outgoing.started = true;
            self.outgoing_window -= 1;
            self.next_outgoing_id = self.next_outgoing_id.wrapping_add(1);
            if !more {
                self.outbox.pop_front();
            }
        }
    }

    /// A drained link gives back the credit that it cannot use, once nothing is left to send.
    fn finish_drain(&mut self, handle: u32, exhausted: bool, shared: &mut Shared) {
        let Some(Link::Outgoing(link)) = self.links.get_mut(&handle) else {
            return;
        };
        if !link.drain || !(exhausted || link.credit == 0) || !self.outbox.is_empty() {
            return;
        }
        link.drain = false;
        let unused = link.credit;
        link.use_credit(unused);
        let state = self.link_flow_state(handle, true);
        self.flow_state(state).write(&mut shared.out, self.channel, WINDOW);
    }
}

fn at_once(outcome: Outcome) -> (Outcome, Acknowledgement) {
    (outcome, Acknowledgement::Now)
}

fn coordinator(attach: &Attach) -> Result<Link, AmqpError> {
    match attach.role {
        Role::Sender => Ok(Link::Incoming(IncomingLink::new(
            Destination::Coordinator,
            attach.initial_delivery_count,
        ))),
        Role::Receiver => Err(AmqpError::new(
            "amqp:not-allowed",
            "nothing can be received from a coordinator; attach a sender to it",
        )),
    }
}

fn forced_detach() -> AmqpError {
    let text = "a fault rule of the emulator detaches the link; attach again";
    AmqpError::new("amqp:link:detach-forced", text)
}

/// Only where messages stay can they be received.
fn check_source(node: &Node) -> Result<(), AmqpError> {
    let text = match node.queue.kind() {
        Kind::Topic => "messages cannot be received from a topic; receive from a subscription",
        Kind::Queue | Kind::Subscription => {
            "the entity forwards its messages; receive from where they go"
        }
    };
    let keeps = node.part != Part::Main || node.queue.keeps_messages();
    if keeps { Ok(()) } else { Err(AmqpError::new("amqp:not-allowed", text)) }
}

/// Queues with sessions are received from through sessions, and others are not.
fn check_session_use(node: &Node, names_session: bool) -> Result<(), AmqpError> {
    match (node.queue.requires_sessions(node.part), names_session) {
        (true, true) | (false, false) => Ok(()),
        (true, false) => Err(AmqpError::new(
            "amqp:not-allowed",
            format!("`{}` requires sessions: accept one to receive from it", node.name()),
        )),
        (false, true) => Err(AmqpError::new(
            "amqp:not-allowed",
            format!("`{}` does not require sessions: receive without one", node.name()),
        )),
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

fn responses(link: &Link) -> Option<&Responses> {
    match link {
        Link::Outgoing(OutgoingLink { origin: Origin::Responses(responses), .. }) => {
            Some(responses)
        }
        Link::Outgoing(_) | Link::Incoming(_) | Link::Detached => None,
    }
}

fn schedule(link: &mut OutgoingLink, channel: u16, handle: u32, shared: &mut Shared) {
    if !link.scheduled {
        link.scheduled = true;
        shared.work.push_back((channel, handle));
    }
}
