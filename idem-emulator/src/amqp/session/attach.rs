//! Attaching: what a peer asks for, and whether it gets it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Link, Session, schedule};
use crate::amqp::Shared;
use crate::amqp::address::{self, Place};
use crate::amqp::error::{AmqpError, Violation};
use crate::amqp::incoming::{Destination, IncomingLink};
use crate::amqp::outgoing::{Awaiting, Consumer, Origin, OutgoingLink, Responses};
use crate::amqp::performative::{Attach, HANDLE_MAX, Role};
use crate::amqp::wake::LinkKey;
use crate::broker::{Broker, Kind, Node, Part, ReceiveMode, SessionGrant, SessionWish};

/// How long a receiver waits for a session if it does not say.
const SESSION_TIME_OUT: Duration = Duration::from_secs(65);

impl Session {
    pub(in crate::amqp) fn attach(
        &mut self,
        attach: Attach,
        shared: &mut Shared,
    ) -> Result<(), Violation> {
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
        let (link, wish) = match self.asked_for(&attach, shared) {
            Ok(asked_for) => asked_for,
            Err(error) => {
                attach.write_refusal(&mut shared.out, self.channel);
                return Err(Violation::Link(attach.handle, error));
            }
        };
        let handle = attach.handle;
        let link = match (link, wish) {
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
    pub(super) fn accept_session(&mut self, handle: u32, shared: &mut Shared) {
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

    /// The link that a peer asks for, and the session, or why it cannot have them.
    fn asked_for(
        &self,
        attach: &Attach,
        shared: &Shared,
    ) -> Result<(Link, Option<SessionWish>), AmqpError> {
        let wish = attach.session_wish()?;
        Ok((self.link(attach, wish.is_some(), shared)?, wish))
    }

    fn link(
        &self,
        attach: &Attach,
        names_session: bool,
        shared: &Shared,
    ) -> Result<Link, AmqpError> {
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
                let transfer_to = attach.transfer_destination.as_deref();
                let transfer_to = transfer_to.map(|address| messages_at(broker, address));
                let destination = Destination::of(&node, transfer_to.transpose()?.as_ref())?;
                Ok(Link::Incoming(IncomingLink::new(destination, attach.initial_delivery_count)))
            }
            (Role::Sender, Place::Requests(node)) => Ok(Link::Incoming(IncomingLink::new(
                Destination::Requests(node),
                attach.initial_delivery_count,
            ))),
            (Role::Receiver, Place::Messages(node)) => {
                check_source(&node)?;
                check_session_use(&node, names_session)?;
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
}

/// The node with messages that an address names.
fn messages_at(broker: &Broker, address: &str) -> Result<Node, AmqpError> {
    match address::resolve(broker, address) {
        Some(Place::Messages(node)) => Ok(node),
        Some(Place::Requests(_)) | None => Err(AmqpError::not_found(address)),
    }
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
