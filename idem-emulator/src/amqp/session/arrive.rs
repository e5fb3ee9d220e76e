//! What a peer sends: messages, requests and commands.

use super::{Link, Session, WINDOW, schedule, unattached};
use crate::amqp::Shared;
use crate::amqp::error::{AmqpError, Violation};
use crate::amqp::incoming::{Arrived, Destination};
use crate::amqp::outgoing::{Late, Origin, OutgoingLink, Responses};
use crate::amqp::performative::{Outcome, Role, Transfer, write_disposition};
use crate::amqp::transactions::{coordinate, send_within};
use crate::broker::Acknowledgement;
use crate::management::{Answer, RequestNode};

impl Session {
    pub(in crate::amqp) fn transfer(
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
            (Destination::Queue(outlet), None) => {
                Ok(arrived.send_to(&outlet, shared.service.limits()))
            }
            (Destination::Queue(outlet), Some(enlisted)) => {
                send_within(enlisted, &outlet, arrived, shared).map(at_once)
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
}

fn at_once(outcome: Outcome) -> (Outcome, Acknowledgement) {
    (outcome, Acknowledgement::Now)
}

fn forced_detach() -> AmqpError {
    let text = "a fault rule of the emulator detaches the link; attach again";
    AmqpError::new("amqp:link:detach-forced", text)
}

fn responses(link: &Link) -> Option<&Responses> {
    match link {
        Link::Outgoing(OutgoingLink { origin: Origin::Responses(responses), .. }) => {
            Some(responses)
        }
        Link::Outgoing(_) | Link::Incoming(_) | Link::Detached => None,
    }
}
