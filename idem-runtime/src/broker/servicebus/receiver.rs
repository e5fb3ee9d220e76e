//! Receives under lock: one actor owns the link, and everything else asks it.
//!
//! The client takes `&mut` for every call, so that receiving would block settling. The actor
//! therefore waits for whichever comes first, a command or one message, and lets go of the wait
//! for a message when a command comes. Renewals need the broker's answer, and waiting for it must
//! hold up neither: they have a link of their own, see [`renewal`](super::renewal).

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azservicebus::ServiceBusReceivedMessage;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::error::Place;
use super::link::{CLOSE_MAX, ReceiverLink};
use super::message;
use super::renewal::{Renewal, Renewer};
use super::worker::{Answer, Worker};
use crate::broker::connection_string::ConnectionString;
use crate::broker::{BrokerError, LockId, Locked, Receiver, Settler};
use crate::delivery::SourceId;
use crate::settle::Settlement;

/// The longest lock that Service Bus knows, and so the longest that a message is left.
const LOCK_MAX: Duration = Duration::from_secs(5 * 60);

type Reply<T> = oneshot::Sender<Result<T, BrokerError>>;

/// An open receiver of Azure Service Bus, on a thread of its own.
///
/// The first error of the connection ends it: [`receive`](Receiver::receive) tells the error, and
/// whoever consumes opens a new one. What was not settled comes again when its lock has run out.
/// Dropping it is as good as [`close`](Receiver::close), only that nobody waits.
///
/// At most `prefetch` messages are held by whoever received them. As many again may wait in the
/// client, under locks that nobody renews: where handlers run longer than a lock holds, a message
/// can come whose lock has run out, with a [`lock_remaining`](Locked::lock_remaining) of zero and
/// a delivery wasted. The client asks for more messages each time half of `prefetch` has been
/// settled, so slow handlers leave up to half of the room unused.
pub struct LinkReceiver {
    deliveries: mpsc::Receiver<Result<Locked, BrokerError>>,
    settler: LinkSettler,
    /// Dropping it asks the actor to close.
    open: oneshot::Sender<()>,
    worker: Worker,
    place: Place,
}

/// Settles and renews what a [`LinkReceiver`] received.
#[derive(Clone)]
pub struct LinkSettler {
    commands: mpsc::Sender<Command>,
}

enum Command {
    Settle(LockId, Settlement, Reply<()>),
    Renew(LockId, Reply<Duration>),
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
        // One more than can be held: the last one is the error that ends the receiver.
        let (deliver, deliveries) = mpsc::channel(limit.saturating_add(1));
        // For each message held: one who waits for a renewal or a settlement, and one who is gone.
        let (commands, commanded) = mpsc::channel(limit.saturating_mul(2));
        let (open, closing) = oneshot::channel();

        let there = place.clone();
        let work = move |opened: Answer<()>| async move {
            let link = match ReceiverLink::open(&connection_string, there.clone(), prefetch).await {
                Ok(link) => link,
                Err(error) => {
                    opened.send(Err(error)).ok();
                    return;
                }
            };
            opened.send(Ok(())).ok();
            let (renewals, mut renewer, renewed) =
                Renewer::new(connection_string, there.clone(), limit);
            let actor = Actor {
                place: there,
                source,
                link,
                limit,
                held: HashMap::new(),
                left: BTreeMap::new(),
                locks: 0,
                commands: commanded,
                deliveries: deliver,
                renewals,
                renewed,
            };
            tokio::select! {
                () = actor.run(closing) => {}
                () = renewer.run() => {}
            }
            renewer.close().await;
        };
        let (worker, ()) = Worker::start(&place, work).await?;
        Ok(Self { deliveries, settler: LinkSettler { commands }, open, worker, place })
    }
}

impl Receiver for LinkReceiver {
    type Settler = LinkSettler;

    fn settler(&self) -> LinkSettler {
        self.settler.clone()
    }

    async fn receive(&mut self) -> Result<Locked, BrokerError> {
        match self.deliveries.recv().await {
            Some(received) => received,
            None => Err(self.worker.ended(&self.place).await),
        }
    }

    fn stop(&mut self) {
        self.deliveries.close();
        while let Ok(received) = self.deliveries.try_recv() {
            if let Ok(locked) = received {
                self.settler.give_back(locked.lock);
            }
        }
    }

    async fn close(mut self) {
        self.stop();
        drop(self.open);
        self.worker.ended(&self.place).await;
    }
}

impl Settler for LinkSettler {
    async fn renew(&self, lock: LockId) -> Result<Duration, BrokerError> {
        self.ask(|reply| Command::Renew(lock, reply)).await
    }

    /// Completing does not wait for the broker's answer, which the client does not give.
    async fn settle(&self, lock: LockId, settlement: Settlement) -> Result<(), BrokerError> {
        self.ask(|reply| Command::Settle(lock, settlement, reply)).await
    }

    fn give_back(&self, lock: LockId) {
        let (reply, _) = oneshot::channel();
        // There is a place for it beside the renewal that its owner may have left behind. After
        // the receiver has gone, the lock runs out by itself.
        self.commands.try_send(Command::Settle(lock, Settlement::Abandon, reply)).ok();
    }
}

impl LinkSettler {
    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, BrokerError> {
        let (reply, answer) = oneshot::channel();
        let sent = self.commands.send(command(reply)).await;
        sent.map_err(|_| BrokerError::Closed)?;
        answer.await.unwrap_or(Err(BrokerError::Closed))
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

/// Owns the link and the messages that are under lock.
struct Actor {
    place: Place,
    source: SourceId,
    link: ReceiverLink,
    /// How many messages may be held and left.
    limit: usize,
    held: HashMap<LockId, Held>,
    /// Messages that were left, by the time at which their lock has run out.
    left: BTreeMap<(Instant, LockId), ServiceBusReceivedMessage>,
    /// How many locks have been given out.
    locks: u64,
    commands: mpsc::Receiver<Command>,
    deliveries: mpsc::Sender<Result<Locked, BrokerError>>,
    renewals: mpsc::Sender<Renewal>,
    renewed: mpsc::Receiver<(LockId, ServiceBusReceivedMessage)>,
}

/// A message under lock.
struct Held {
    /// The message, unless the renewer has it.
    message: Option<ServiceBusReceivedMessage>,
    /// What it is to be settled with as soon as the renewer has given it back.
    awaiting: Option<(Settlement, Reply<()>)>,
}

/// What the actor waited for.
enum Event {
    Closing,
    Command(Command),
    Renewed(LockId, ServiceBusReceivedMessage),
    LockEnded(Instant, LockId),
    /// Nobody wants to receive any more.
    Stopped,
    Received(Option<ServiceBusReceivedMessage>),
    Failed(BrokerError),
}

impl Actor {
    /// Works until it is asked to close or the link fails, and leaves no link behind.
    async fn run(mut self, mut closing: oneshot::Receiver<()>) {
        let failure = loop {
            let handled = match self.next(&mut closing).await {
                Event::Closing => break None,
                Event::Command(command) => self.obey(command).await,
                Event::Renewed(lock, message) => self.take_back(lock, message).await,
                Event::LockEnded(at, lock) => self.let_go(at, lock).await,
                Event::Stopped => Ok(()),
                Event::Received(Some(message)) => self.deliver(message).await,
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
        let Self { link, commands, held, .. } = self;
        drop((commands, held));
        link.dispose().await;
    }

    /// Receiving comes last. Nothing starves it, since there is less than one command and one
    /// renewal for each message held. A message that was renewed is taken back before the one who
    /// asked for it can ask for more.
    async fn next(&mut self, closing: &mut oneshot::Receiver<()>) -> Event {
        let room = self.held.len() + self.left.len() < self.limit && !self.deliveries.is_closed();
        let lock_ends = self.left.first_key_value().map(|(key, _)| *key);
        tokio::select! {
            biased;
            _ = closing => Event::Closing,
            Some((lock, message)) = self.renewed.recv() => Event::Renewed(lock, message),
            Some(command) = self.commands.recv() => Event::Command(command),
            (at, lock) = passed(lock_ends) => Event::LockEnded(at, lock),
            () = self.deliveries.closed(), if room => Event::Stopped,
            received = self.link.receive(), if room => match received {
                Ok(message) => Event::Received(message),
                Err(error) => Event::Failed(error),
            },
        }
    }

    async fn deliver(&mut self, message: ServiceBusReceivedMessage) -> Result<(), BrokerError> {
        self.locks += 1;
        let lock = LockId(self.locks);
        let raw = message.raw_amqp_message();
        let locked = Locked {
            delivery: message::delivery(&self.source, raw),
            lock,
            lock_remaining: message::lock_remaining(raw),
        };
        // There is a place for each message held.
        if self.deliveries.try_send(Ok(locked)).is_err() {
            // It came at the moment of the stop.
            return self.link.settle(&message, Settlement::Abandon).await;
        }
        self.held.insert(lock, Held { message: Some(message), awaiting: None });
        Ok(())
    }

    /// An error means that the link has failed.
    async fn obey(&mut self, command: Command) -> Result<(), BrokerError> {
        match command {
            Command::Settle(lock, settlement, reply) => self.settle(lock, settlement, reply).await,
            Command::Renew(lock, reply) => {
                self.renew(lock, reply);
                Ok(())
            }
        }
    }

    async fn settle(
        &mut self,
        lock: LockId,
        settlement: Settlement,
        reply: Reply<()>,
    ) -> Result<(), BrokerError> {
        let Some(held) = self.unsettled(lock) else {
            reply.send(Err(BrokerError::LockLost)).ok();
            return Ok(());
        };
        let Some(message) = held.message.take() else {
            held.awaiting = Some((settlement, reply));
            return Ok(());
        };
        self.held.remove(&lock);
        let told = self.tell(lock, message, settlement).await;
        // Who asked hears that the link is gone, and the receiver hears why.
        let answer = if told.is_ok() { Ok(()) } else { Err(BrokerError::Closed) };
        reply.send(answer).ok();
        told
    }

    async fn tell(
        &mut self,
        lock: LockId,
        message: ServiceBusReceivedMessage,
        settlement: Settlement,
    ) -> Result<(), BrokerError> {
        if let Settlement::Leave = settlement {
            let remaining = message::lock_remaining(message.raw_amqp_message()).min(LOCK_MAX);
            self.left.insert((Instant::now() + remaining, lock), message);
            return Ok(());
        }
        self.link.settle(&message, settlement).await
    }

    /// A message that was left is given back once its lock has run out.
    ///
    /// The broker has taken it back by then, and the message is not ours to settle. But the client
    /// asks the broker for more messages only by what was settled: without this, each message
    /// left would make room for one less, until none comes any more.
    async fn let_go(&mut self, at: Instant, lock: LockId) -> Result<(), BrokerError> {
        match self.left.remove(&(at, lock)) {
            Some(message) => self.link.settle(&message, Settlement::Abandon).await,
            None => Ok(()),
        }
    }

    fn renew(&mut self, lock: LockId, reply: Reply<Duration>) {
        let Some(held) = self.unsettled(lock) else {
            reply.send(Err(BrokerError::LockLost)).ok();
            return;
        };
        let Some(message) = held.message.take() else {
            reply.send(Err(self.place.refused("renew", "it is being renewed already"))).ok();
            return;
        };
        // There is a place for each message held.
        self.renewals.try_send(Renewal { lock, message, reply }).ok();
    }

    async fn take_back(
        &mut self,
        lock: LockId,
        message: ServiceBusReceivedMessage,
    ) -> Result<(), BrokerError> {
        let Some(held) = self.held.get_mut(&lock) else {
            return Ok(());
        };
        held.message = Some(message);
        match held.awaiting.take() {
            Some((settlement, reply)) => self.settle(lock, settlement, reply).await,
            None => Ok(()),
        }
    }

    /// The message under this lock, unless there is none or it is as good as settled.
    fn unsettled(&mut self, lock: LockId) -> Option<&mut Held> {
        self.held.get_mut(&lock).filter(|held| held.awaiting.is_none())
    }

    /// Obeys what was asked before the closing began.
    async fn flush(&mut self) {
        self.commands.close();
        let flushed = async {
            while let Some(command) = self.commands.recv().await {
                self.obey(command).await?;
            }
            while self.held.values().any(|held| held.awaiting.is_some()) {
                let Some((lock, message)) = self.renewed.recv().await else { break };
                self.take_back(lock, message).await?;
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
