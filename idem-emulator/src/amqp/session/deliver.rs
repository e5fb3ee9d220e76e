//! What is sent to a peer, as far as it lets us.

use super::{Link, Outgoing, Session, Unsettled, WINDOW, schedule};
use crate::amqp::Shared;
use crate::amqp::error::AmqpError;
use crate::amqp::outgoing::{Late, Origin, Parcel, Taken};
use crate::amqp::performative::{Role, TRANSFER_OVERHEAD, write_disposition, write_transfer};

/// Output that waits for the socket; with more than this, no further deliveries are taken.
pub(in crate::amqp) const DELIVERY_OUTPUT_MAX: usize = 256 * 1024;

/// How many deliveries are taken from a queue in one step.
const TAKE_MAX: u32 = 64;

/// Deliveries that await settlement. Beyond this the oldest are forgotten: they can only be that
/// old if their locks are gone, or were settled through the management node.
const UNSETTLED_MAX: usize = 100_000;

impl Session {
    /// Sends what a link has, as far as its credit, the window and the socket allow.
    pub(in crate::amqp) fn pump(&mut self, handle: u32, shared: &mut Shared) {
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
