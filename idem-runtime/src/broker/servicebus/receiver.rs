//! Receives under lock: one actor owns the link, and everything else asks it.
//!
//! The client takes `&mut` for every call, so that receiving would block settling. The actor
//! therefore waits for whichever comes first, a command or one message, and lets go of the wait
//! for a message when a command comes. Renewals need the broker's answer, and waiting for it must
//! hold up neither: they have a link of their own, see [`renewal`](super::renewal).
//!
//! A message may have waited in the client for so long that its lock has run out. Such a message is
//! renewed before it is handed over, and passed over if its lock is lost: clocks may differ, so that
//! only the broker knows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azservicebus::ServiceBusReceivedMessage;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::broker_clock::BrokerClock;
use super::error::Place;
use super::link::CLOSE_MAX;
use super::links::{Links, Received};
use super::message;
use super::renewal::{Renewal, Renewed, Renewer};
use super::worker::{Answer, Worker};
use crate::broker::connection_string::ConnectionString;
use crate::broker::{ASIDE_MAX, BrokerError, LockId, Locked, Receiver, Settler, Told};
use crate::delivery::SourceId;
use crate::settle::Settlement;

pub(super) type Reply = oneshot::Sender<Result<Duration, BrokerError>>;

/// An open receiver of Azure Service Bus, on a thread of its own.
///
/// The first error of the connection ends it: [`receive`](Receiver::receive) tells the error, and
/// whoever consumes opens a new one. What was not settled comes again when its lock has run out.
/// Dropping it is as good as [`close`](Receiver::close), only that nobody waits.
///
/// At most `prefetch` messages are held by whoever received them, and [`ASIDE_MAX`] that were set
/// aside. As many of those that were left hold up no others while their locks run out. As many as `prefetch` again may wait in the
/// client, under locks that nobody renews: where handlers run longer than a lock holds, they run
/// out, and each time that costs the message a delivery. So it is with those that are there at the
/// end: by giving them back, the client would ask for as many others.
///
/// The client asks for more messages each time half of `prefetch` has been settled, so slow
/// handlers leave up to half of the room unused. With half of `prefetch` in the client, fewer
/// would wait, but no more than half would be in flight where handlers end together: 16 in flight
/// were measured to do half of the work.
pub struct LinkReceiver {
    deliveries: mpsc::Receiver<Result<Handed, BrokerError>>,
    settler: LinkSettler,
    /// Taking it asks the actor to close.
    open: Option<oneshot::Sender<()>>,
    worker: Worker,
    place: Place,
}

/// A delivery on its way to whoever receives.
pub(super) struct Handed {
    pub(super) locked: Locked,
    pub(super) at: Instant,
}

/// Settles and renews what a [`LinkReceiver`] received.
#[derive(Clone)]
pub struct LinkSettler {
    commands: mpsc::Sender<Command>,
}

pub(super) enum Command {
    Settle(LockId, Settlement, Told),
    Renew(LockId, Reply),
    SetAside(LockId),
}

impl Command {
    /// The lock that it is about.
    pub(super) fn lock(&self) -> LockId {
        match self {
            Self::Settle(lock, ..) | Self::Renew(lock, _) | Self::SetAside(lock) => *lock,
        }
    }
}

/// What the work on the thread has of a receiver.
pub(super) struct Ends {
    pub(super) deliver: mpsc::Sender<Result<Handed, BrokerError>>,
    pub(super) commands: mpsc::Receiver<Command>,
    /// Completes when the receiver is to be closed.
    pub(super) closing: oneshot::Receiver<()>,
}

impl LinkReceiver {
    pub(super) async fn open(
        connection_string: Arc<ConnectionString>,
        place: Place,
        source: SourceId,
        prefetch: u32,
    ) -> Result<Self, BrokerError> {
        let prefetch = prefetch.max(1);
        let limit = usize::try_from(prefetch).unwrap_or(usize::MAX);
        let held_max = limit.saturating_add(ASIDE_MAX);
        let there = place.clone();
        let work = move |opened: Answer<()>, ends: Ends| async move {
            let opening = Links::open(Arc::clone(&connection_string), there.clone(), prefetch);
            let links = match opening.await {
                Ok(links) => links,
                Err(error) => {
                    opened.send(Err(error)).ok();
                    return;
                }
            };
            opened.send(Ok(())).ok();
            let (renewals, mut renewer, renewed) =
                Renewer::new(connection_string, there.clone(), held_max);
            let actor = Actor {
                place: there,
                source,
                links,
                limit,
                clock: BrokerClock::default(),
                held: HashMap::new(),
                aside: HashSet::new(),
                left: BTreeMap::new(),
                locks: 0,
                commands: ends.commands,
                deliveries: ends.deliver,
                renewals,
                renewed,
            };
            tokio::select! {
                () = actor.run(ends.closing) => {}
                () = renewer.run() => {}
            }
            renewer.close().await;
        };
        Self::start(place, limit, held_max, work).await
    }

    /// Starts the work that receives, with room for `limit` deliveries on their way and for what is
    /// to be done with `held_max`.
    pub(super) async fn start<F: Future<Output = ()>>(
        place: Place,
        limit: usize,
        held_max: usize,
        work: impl FnOnce(Answer<()>, Ends) -> F + Send + 'static,
    ) -> Result<Self, BrokerError> {
        // One more than can be held: the last one is the error that ends the receiver.
        let (deliver, deliveries) = mpsc::channel(limit.saturating_add(1));
        // For each message held: one who waits for a renewal or a settlement, one who is gone, and
        // that it is set aside.
        let (commands, commanded) = mpsc::channel(held_max.saturating_mul(3));
        let (open, closing) = oneshot::channel();
        let ends = Ends { deliver, commands: commanded, closing };
        let (worker, ()) = Worker::start(&place, |opened| work(opened, ends)).await?;
        let settler = LinkSettler { commands };
        Ok(Self { deliveries, settler, open: Some(open), worker, place })
    }
}

impl Drop for LinkReceiver {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Receiver for LinkReceiver {
    type Settler = LinkSettler;

    fn settler(&self) -> LinkSettler {
        self.settler.clone()
    }

    async fn receive(&mut self) -> Result<Locked, BrokerError> {
        match self.deliveries.recv().await {
            Some(Ok(Handed { mut locked, at })) => {
                locked.lock_remaining = locked.lock_remaining.saturating_sub(at.elapsed());
                Ok(locked)
            }
            Some(Err(error)) => Err(error),
            None => Err(self.worker.ended(&self.place).await),
        }
    }

    fn stop(&mut self) {
        self.deliveries.close();
        while let Ok(received) = self.deliveries.try_recv() {
            if let Ok(Handed { locked, .. }) = received {
                self.settler.give_back(locked.lock);
            }
        }
    }

    async fn close(mut self) {
        self.stop();
        self.open.take();
        self.worker.ended(&self.place).await;
    }
}

impl Settler for LinkSettler {
    async fn renew(&self, lock: LockId) -> Result<Duration, BrokerError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(Command::Renew(lock, reply)).await;
        sent.map_err(|_| BrokerError::Closed)?;
        answer.await.unwrap_or(Err(BrokerError::Closed))
    }

    /// Of completing, the client does not give the broker's answer.
    async fn settle(&self, lock: LockId, settlement: Settlement, told: Told) {
        // What the receiver does not take any more tells so when it is dropped.
        self.commands.send(Command::Settle(lock, settlement, told)).await.ok();
    }

    fn give_back(&self, lock: LockId) {
        // There is a place for it beside the renewal that its owner may have left behind. After
        // the receiver has gone, the lock runs out by itself.
        self.commands
            .try_send(Command::Settle(lock, Settlement::Abandon(None), Told::nobody()))
            .ok();
    }

    fn set_aside(&self, lock: LockId) {
        // Where there is no place for it, it counts as it did.
        self.commands.try_send(Command::SetAside(lock)).ok();
    }
}

impl fmt::Debug for LinkReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkReceiver").field("place", &self.place).finish_non_exhaustive()
    }
}

impl fmt::Debug for LinkSettler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkSettler").finish_non_exhaustive()
    }
}

/// Owns the links and the messages that are under lock.
struct Actor {
    place: Place,
    source: SourceId,
    links: Links,
    /// How many messages may be held, beside those that were set aside.
    limit: usize,
    clock: BrokerClock,
    held: HashMap<LockId, Held>,
    /// Those of the messages held that were set aside.
    aside: HashSet<LockId>,
    /// Messages that were left, by the time at which their lock has run out; no more than
    /// [`ASIDE_MAX`].
    left: BTreeMap<(Instant, LockId), ServiceBusReceivedMessage>,
    /// How many locks have been given out.
    locks: u64,
    commands: mpsc::Receiver<Command>,
    deliveries: mpsc::Sender<Result<Handed, BrokerError>>,
    renewals: mpsc::Sender<Renewal>,
    renewed: mpsc::Receiver<Renewed>,
}

/// A message under lock.
#[expect(clippy::large_enum_variant, reason = "nearly all messages are here")]
enum Held {
    Here(ServiceBusReceivedMessage),
    /// The renewer has it.
    Renewing {
        asked_by: AskedBy,
        /// What it is to be settled with as soon as the renewer has given it back.
        awaiting: Option<(Settlement, Told)>,
    },
}

/// Who wants a lock renewed.
enum AskedBy {
    /// Whoever holds the message.
    Holder(Reply),
    /// We do, before the message is handed over.
    Ourselves,
}

/// What the actor waited for.
enum Event {
    Closing,
    Command(Command),
    Renewed(Renewed),
    LockEnded(Instant, LockId),
    /// Nobody wants to receive any more.
    Stopped,
    Received(Option<Received>),
    Failed(BrokerError),
}

impl Actor {
    /// Works until it is asked to close or the link fails, and leaves no link behind.
    async fn run(mut self, mut closing: oneshot::Receiver<()>) {
        let failure = loop {
            let handled = match self.next(&mut closing).await {
                Event::Closing => break None,
                Event::Command(command) => self.obey_all(command).await,
                Event::Renewed(renewed) => self.take_back(renewed).await,
                Event::LockEnded(at, lock) => self.let_go(at, lock).await,
                Event::Stopped => Ok(()),
                Event::Received(Some(received)) => self.receive(received).await,
                Event::Received(None) => Ok(()),
                Event::Failed(error) => Err(error),
            };
            if let Err(error) = handled {
                break Some(error);
            }
        };
        match failure {
            Some(error) => {
                self.deliveries.try_send(Err(error)).ok();
            }
            None => self.flush().await,
        }
        // Whoever still waits for an answer, and whoever asks from now on, is told at once.
        let Self { links, commands, held, .. } = self;
        drop((commands, held));
        links.dispose().await;
    }

    /// Receiving comes last. Nothing starves it, since there is less than one command and one
    /// renewal for each message held. A message that was renewed is taken back before the one who
    /// asked for it can ask for more.
    async fn next(&mut self, closing: &mut oneshot::Receiver<()>) -> Event {
        let counting = self.held.len() - self.aside.len();
        let has_room = counting < self.limit && self.left.len() < ASIDE_MAX;
        let room = has_room && !self.deliveries.is_closed();
        let are_aside = !(self.aside.is_empty() && self.left.is_empty());
        let lock_ends = self.left.first_key_value().map(|(key, _)| *key);
        tokio::select! {
            biased;
            _ = closing => Event::Closing,
            Some(renewed) = self.renewed.recv() => Event::Renewed(renewed),
            Some(command) = self.commands.recv() => Event::Command(command),
            (at, lock) = passed(lock_ends) => Event::LockEnded(at, lock),
            () = self.deliveries.closed(), if room => Event::Stopped,
            received = self.links.receive(are_aside), if room => match received {
                Ok(received) => Event::Received(received),
                Err(error) => Event::Failed(error),
            },
        }
    }

    async fn receive(&mut self, received: Received) -> Result<(), BrokerError> {
        self.locks += 1;
        let lock = LockId(self.locks);
        let message = self.links.hold(lock, received);
        match self.clock.lock_remaining(message.raw_amqp_message()) {
            Some(remaining) => self.hand_over(lock, message, remaining).await,
            None => {
                self.start_renewal(lock, message, AskedBy::Ourselves);
                Ok(())
            }
        }
    }

    async fn hand_over(
        &mut self,
        lock: LockId,
        message: ServiceBusReceivedMessage,
        lock_remaining: Duration,
    ) -> Result<(), BrokerError> {
        let delivery = message::delivery(&self.source, message.raw_amqp_message());
        let locked = Locked { delivery, lock, lock_remaining };
        // There is a place for each message held.
        if self.deliveries.try_send(Ok(Handed { locked, at: Instant::now() })).is_err() {
            // It came at the moment of the stop.
            return self.links.settle(lock, &message, Settlement::Abandon(None)).await;
        }
        self.held.insert(lock, Held::Here(message));
        Ok(())
    }

    /// Obeys also what has been asked for meanwhile: those of a batch settle together, and to turn to
    /// everything else between any two of them costs more than they do.
    async fn obey_all(&mut self, first: Command) -> Result<(), BrokerError> {
        self.obey(first).await?;
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command).await?;
        }
        Ok(())
    }

    /// An error means that the link has failed.
    async fn obey(&mut self, command: Command) -> Result<(), BrokerError> {
        match command {
            Command::Settle(lock, settlement, told) => self.settle(lock, settlement, told).await,
            Command::Renew(lock, reply) => {
                self.renew(lock, reply);
                Ok(())
            }
            Command::SetAside(lock) => {
                self.set_aside(lock);
                Ok(())
            }
        }
    }

    fn set_aside(&mut self, lock: LockId) {
        if self.held.contains_key(&lock) && self.aside.len() < ASIDE_MAX {
            self.aside.insert(lock);
        }
    }

    async fn settle(
        &mut self,
        lock: LockId,
        settlement: Settlement,
        told: Told,
    ) -> Result<(), BrokerError> {
        let Some(message) = self.take(lock) else {
            match self.held.get_mut(&lock) {
                Some(Held::Renewing { awaiting: awaiting @ None, .. }) => {
                    *awaiting = Some((settlement, told));
                }
                Some(Held::Renewing { .. } | Held::Here(_)) | None => {
                    told.tell(Err(BrokerError::LockLost));
                }
            }
            return Ok(());
        };
        self.aside.remove(&lock);
        // If this fails, who asked hears that the link is gone, and the receiver hears why.
        self.tell(lock, message, settlement).await?;
        told.tell(Ok(()));
        Ok(())
    }

    async fn tell(
        &mut self,
        lock: LockId,
        message: ServiceBusReceivedMessage,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        if let Settlement::Leave = settlement {
            let remaining = self.clock.lock_remaining(message.raw_amqp_message());
            self.left.insert((Instant::now() + remaining.unwrap_or_default(), lock), message);
            return Ok(());
        }
        self.links.settle(lock, &message, settlement).await
    }

    async fn let_go(&mut self, at: Instant, lock: LockId) -> Result<(), BrokerError> {
        match self.left.remove(&(at, lock)) {
            Some(message) => self.forget(lock, &message).await,
            None => Ok(()),
        }
    }

    /// A message whose lock has run out is given back.
    ///
    /// The broker has taken it back by then, and the message is not ours to settle. But the client
    /// asks the broker for more messages only by what was settled: without this, each message
    /// forgotten would make room for one less, until none comes any more.
    async fn forget(
        &mut self,
        lock: LockId,
        message: &ServiceBusReceivedMessage,
    ) -> Result<(), BrokerError> {
        self.links.settle(lock, message, Settlement::Abandon(None)).await
    }

    fn renew(&mut self, lock: LockId, reply: Reply) {
        if let Some(message) = self.take(lock) {
            self.start_renewal(lock, message, AskedBy::Holder(reply));
            return;
        }
        let error = match self.held.get(&lock) {
            Some(Held::Renewing { awaiting: None, .. }) => {
                self.place.refused("renew", "it is being renewed already")
            }
            Some(Held::Renewing { .. } | Held::Here(_)) | None => BrokerError::LockLost,
        };
        reply.send(Err(error)).ok();
    }

    fn start_renewal(&mut self, lock: LockId, message: ServiceBusReceivedMessage, by: AskedBy) {
        self.held.insert(lock, Held::Renewing { asked_by: by, awaiting: None });
        // There is a place for each message held.
        self.renewals.try_send(Renewal { lock, message }).ok();
    }

    async fn take_back(&mut self, renewed: Renewed) -> Result<(), BrokerError> {
        let Renewed { lock, message, result } = renewed;
        let Some(Held::Renewing { asked_by, awaiting }) = self.held.remove(&lock) else {
            return Ok(());
        };
        let raw = message.raw_amqp_message();
        let remaining = result.map(|()| self.clock.renewed_lock_remaining(raw));
        let reply = match asked_by {
            AskedBy::Holder(reply) => reply,
            AskedBy::Ourselves => return self.receive_renewed(lock, message, remaining).await,
        };
        self.held.insert(lock, Held::Here(message));
        reply.send(remaining).ok();
        match awaiting {
            Some((settlement, told)) => self.settle(lock, settlement, told).await,
            None => Ok(()),
        }
    }

    async fn receive_renewed(
        &mut self,
        lock: LockId,
        message: ServiceBusReceivedMessage,
        remaining: Result<Duration, BrokerError>,
    ) -> Result<(), BrokerError> {
        match remaining {
            Ok(remaining) => self.hand_over(lock, message, remaining).await,
            Err(BrokerError::LockLost) => self.forget(lock, &message).await,
            // The broker did not say, so the lock may hold.
            Err(error) => {
                debug!(%error, "a lock that has run out by our clock could not be renewed");
                self.hand_over(lock, message, Duration::ZERO).await
            }
        }
    }

    /// Takes the message under this lock, if it is here.
    fn take(&mut self, lock: LockId) -> Option<ServiceBusReceivedMessage> {
        match self.held.remove(&lock)? {
            Held::Here(message) => Some(message),
            renewing @ Held::Renewing { .. } => {
                self.held.insert(lock, renewing);
                None
            }
        }
    }

    /// Obeys what was asked before the closing began.
    async fn flush(&mut self) {
        self.commands.close();
        let flushed = async {
            while let Some(command) = self.commands.recv().await {
                self.obey(command).await?;
            }
            while self.held.values().any(Held::is_awaited) {
                let Some(renewed) = self.renewed.recv().await else { break };
                self.take_back(renewed).await?;
            }
            Ok::<(), BrokerError>(())
        };
        match timeout(CLOSE_MAX, flushed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => debug!(%error, "settlements were lost in closing"),
            Err(_) => debug!("settlements were lost in closing: it took too long"),
        }
    }
}

impl Held {
    /// Whether somebody waits until the renewer has given it back.
    fn is_awaited(&self) -> bool {
        match self {
            Self::Here(_) => false,
            Self::Renewing { asked_by: AskedBy::Ourselves, .. } => true,
            Self::Renewing { asked_by: AskedBy::Holder(_), awaiting } => awaiting.is_some(),
        }
    }
}

/// Waits until a lock has run out; for ever if there is none.
async fn passed(lock_ends: Option<(Instant, LockId)>) -> (Instant, LockId) {
    match lock_ends {
        Some((at, lock)) => {
            sleep_until(at).await;
            (at, lock)
        }
        None => std::future::pending().await,
    }
}
