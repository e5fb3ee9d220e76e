//! Receives from many sessions at once, and in order within each.
//!
//! A number of slots hold one session each. A slot accepts a session, hands over its messages one
//! after the other, each when the one before is settled, and gives it up when it has had no message
//! for a while, or has had its turn: then the next session is accepted, which may be the same one.
//!
//! Where there are fewer sessions than slots, one slot asks for sessions and the others wait until it
//! has found one: each question is a connection of its own, that lasts for some seconds.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azservicebus::ServiceBusReceivedMessage;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::broker_clock::BrokerClock;
use super::error::Place;
use super::link::CLOSE_MAX;
use super::message;
use super::receiver::{Command, Ends, Handed, LinkReceiver, Reply};
use super::session_link::SessionLink;
use super::worker::Answer;
use crate::backoff::Backoff;
use crate::broker::connection_string::ConnectionString;
use crate::broker::{BrokerError, LockId, Locked, Told};
use crate::delivery::SourceId;
use crate::outcome::Chain;
use crate::settle::Settlement;

/// How long one question for a session waits. A connection that breaks meanwhile is not noticed, so
/// this is also how long a slot may be deaf.
const ACCEPT_MAX: Duration = Duration::from_secs(10);

/// How long a session may have no message before it is given up, so that others get a turn.
const IDLE_MAX: Duration = Duration::from_secs(1);

/// How long a session is held at most where it always has messages, for the same reason.
const TURN_MAX: Duration = Duration::from_secs(30);

/// Pauses after failures of a slot that came one after the other without a message in between.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// As many of them end the receiver: the broker is away, or refuses us.
const FAILURES_MAX: u32 = 3;

/// How many commands may wait for a slot: a renewal and a settlement of its message, what those have
/// left behind who are gone, and the same of the message before.
const COMMANDS_MAX: usize = 8;

/// Opens a receiver of this many sessions.
pub(super) async fn open(
    connection_string: Arc<ConnectionString>,
    place: Place,
    source: SourceId,
    sessions_max: u32,
) -> Result<LinkReceiver, BrokerError> {
    let slots = usize::try_from(sessions_max.max(1)).unwrap_or(usize::MAX);
    let there = place.clone();
    let work = move |opened: Answer<()>, ends: Ends| async move {
        let probed = SessionLink::probe(&connection_string, there.clone()).await;
        let is_open = probed.is_ok();
        opened.send(probed).ok();
        if is_open {
            let shared = Shared {
                connection_string,
                place: there,
                source,
                clock: Mutex::default(),
                asking: AtomicUsize::new(0),
                found: Notify::new(),
                locks: AtomicU64::new(0),
            };
            receive(Arc::new(shared), slots, ends).await;
        }
    };
    LinkReceiver::start(place, slots, slots, work).await
}

/// What the slots share.
struct Shared {
    connection_string: Arc<ConnectionString>,
    place: Place,
    source: SourceId,
    clock: Mutex<BrokerClock>,
    /// How many slots ask for a session.
    asking: AtomicUsize,
    /// A session was found, so there may be others.
    found: Notify,
    /// How many locks have been given out.
    locks: AtomicU64,
}

/// Runs the slots until they are closed, or one of them fails for good.
async fn receive(shared: Arc<Shared>, slots: usize, ends: Ends) {
    let Ends { deliver, commands, closing } = ends;
    let mut running = JoinSet::new();
    let mut routes = Vec::new();
    for index in 0..slots {
        let (route, commands) = mpsc::channel(COMMANDS_MAX);
        routes.push(route);
        let slot = Slot {
            shared: Arc::clone(&shared),
            index,
            slots,
            deliver: deliver.clone(),
            commands,
            failures: 0,
        };
        running.spawn(slot.run());
    }
    let failure = tokio::select! {
        biased;
        failure = first_failure(&shared.place, &mut running) => Some(failure),
        () = route(commands, routes, closing) => None,
    };
    if let Some(error) = failure {
        deliver.try_send(Err(error)).ok();
    }
    // Without their routes, the slots come to their ends.
    let ended = async { while running.join_next().await.is_some() {} };
    if timeout(2 * CLOSE_MAX, ended).await.is_err() {
        debug!("sessions were cut off in closing");
    }
}

/// Why the first slot failed; for ever, if none does.
async fn first_failure(
    place: &Place,
    running: &mut JoinSet<Result<(), BrokerError>>,
) -> BrokerError {
    while let Some(ended) = running.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(panic) => return place.unreachable(SlotDied(panic)),
        }
    }
    std::future::pending().await
}

/// A slot's task ended before its time.
#[derive(Debug, thiserror::Error)]
#[error("the client of a session died")]
struct SlotDied(#[source] JoinError);

/// Gives each command to the slot whose message it is about, until the receiver is closed, and then
/// those that were given before.
async fn route(
    mut commands: mpsc::Receiver<Command>,
    routes: Vec<mpsc::Sender<Command>>,
    mut closing: oneshot::Receiver<()>,
) {
    loop {
        let command = tokio::select! {
            biased;
            _ = &mut closing, if !commands.is_closed() => {
                commands.close();
                continue;
            }
            command = commands.recv() => command,
        };
        let Some(command) = command else { return };
        // A slot that is gone answers by dropping the reply.
        if let Some(route) = slot_of(command.lock(), routes.len()).and_then(|slot| routes.get(slot))
        {
            route.send(command).await.ok();
        }
    }
}

impl Shared {
    /// Waits for a session. Of the slots that find none, one goes on asking.
    async fn accept(&self) -> Result<SessionLink, BrokerError> {
        loop {
            let accepted = {
                let _asking = Asking::one_more(&self.asking);
                let asked = SessionLink::accept_next(
                    &self.connection_string,
                    self.place.clone(),
                    ACCEPT_MAX,
                );
                asked.await?
            };
            if let Some(link) = accepted {
                debug!(session = link.session_id(), "session accepted");
                self.found.notify_waiters();
                return Ok(link);
            }
            if self.asking.load(Ordering::Relaxed) > 0 {
                self.found.notified().await;
            }
        }
    }
}

/// Locks are numbered so that they tell their slot.
fn slot_of(lock: LockId, slots: usize) -> Option<usize> {
    let slots = u64::try_from(slots).ok()?;
    usize::try_from(lock.0.checked_rem(slots)?).ok()
}

/// Holds one session after the other.
struct Slot {
    shared: Arc<Shared>,
    index: usize,
    slots: usize,
    deliver: mpsc::Sender<Result<Handed, BrokerError>>,
    commands: mpsc::Receiver<Command>,
    /// How many failures came one after the other.
    failures: u32,
}

/// A session that a slot holds.
struct Held {
    link: SessionLink,
    lock_ends: Instant,
}

/// Whether a session is held on.
enum After {
    HoldOn,
    GiveUp,
}

impl Slot {
    /// Works until nobody wants to receive any more.
    async fn run(mut self) -> Result<(), BrokerError> {
        loop {
            let ended = match self.accept().await {
                Ok(Some(link)) => self.hold(link).await,
                Ok(None) => return Ok(()),
                Err(error) => Err(error),
            };
            match ended {
                Ok(()) | Err(BrokerError::LockLost) => {}
                Err(error) if self.failures >= FAILURES_MAX => return Err(error),
                Err(error) => {
                    debug!(error = %Chain(&error), "a session's link broke");
                    self.failures += 1;
                    sleep(RETRY.after(self.failures)).await;
                }
            }
        }
    }

    /// Waits for a session; `None` when nobody wants to receive any more.
    async fn accept(&mut self) -> Result<Option<SessionLink>, BrokerError> {
        let mut accepted = pin!(self.shared.accept());
        loop {
            tokio::select! {
                biased;
                () = self.deliver.closed() => return Ok(None),
                command = self.commands.recv() => match command {
                    Some(command) => refuse(command),
                    None => return Ok(None),
                },
                accepted = &mut accepted => return accepted.map(Some),
            }
        }
    }

    /// Holds a session for one turn, and gives it up.
    async fn hold(&mut self, link: SessionLink) -> Result<(), BrokerError> {
        let mut held = Held { link, lock_ends: Instant::now() };
        let ended = match self.renew(&mut held).await {
            Ok(_) => self.take_turn(&mut held).await,
            Err(error) => Err(error),
        };
        debug!(session = held.link.session_id(), ok = ended.is_ok(), "session given up");
        held.link.dispose().await;
        ended
    }

    async fn take_turn(&mut self, held: &mut Held) -> Result<(), BrokerError> {
        let turn_ends = Instant::now() + TURN_MAX;
        let mut idle_ends = Instant::now() + IDLE_MAX;
        loop {
            let now = Instant::now();
            let wait = turn_ends.min(idle_ends).saturating_duration_since(now);
            if wait.is_zero() {
                return Ok(());
            }
            let lock_half = held.lock_ends.saturating_duration_since(now) / 2;
            let received = tokio::select! {
                biased;
                () = self.deliver.closed() => return Ok(()),
                command = self.commands.recv() => match command {
                    Some(command) => {
                        refuse(command);
                        continue;
                    }
                    None => return Ok(()),
                },
                received = held.link.receive(wait.min(lock_half)) => received?,
            };
            match received {
                Some(message) => match self.hand_over(held, message).await? {
                    After::HoldOn => idle_ends = Instant::now() + IDLE_MAX,
                    After::GiveUp => return Ok(()),
                },
                None => {
                    self.renew(held).await?;
                }
            }
        }
    }

    /// Hands over a message, and does what is asked about it until it is settled.
    async fn hand_over(
        &mut self,
        held: &mut Held,
        message: ServiceBusReceivedMessage,
    ) -> Result<After, BrokerError> {
        let lock = self.new_lock();
        let delivery = message::delivery(&self.shared.source, message.raw_amqp_message());
        let now = Instant::now();
        let lock_remaining = held.lock_ends.saturating_duration_since(now);
        let locked = Locked { delivery, lock, lock_remaining };
        if self.deliver.try_send(Ok(Handed { locked, at: now })).is_err() {
            return Ok(After::GiveUp);
        }
        self.failures = 0;
        // Without commands the receiver is closed.
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Settle(of, settlement, told) if of == lock => {
                    return settle(held, &message, settlement, told).await;
                }
                Command::Renew(of, reply) if of == lock => self.renew_for(held, reply).await?,
                // Messages of other sessions come whatever becomes of this one.
                Command::SetAside(_) => {}
                late @ (Command::Settle(..) | Command::Renew(..)) => refuse(late),
            }
        }
        Ok(After::GiveUp)
    }

    fn new_lock(&self) -> LockId {
        let number = self.shared.locks.fetch_add(1, Ordering::Relaxed);
        let as_u64 = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        LockId(number.saturating_mul(as_u64(self.slots)).saturating_add(as_u64(self.index)))
    }

    /// A renewal that was refused may be tried again. After one without answer, the next answer may
    /// be that of this one: the session is given up.
    async fn renew_for(&self, held: &mut Held, reply: Reply) -> Result<(), BrokerError> {
        match self.renew(held).await {
            Err(error @ BrokerError::LockLost) => {
                reply.send(Err(BrokerError::LockLost)).ok();
                Err(error)
            }
            Err(error @ BrokerError::Unreachable { .. }) => {
                reply.send(Err(BrokerError::LockLost)).ok();
                Err(error)
            }
            answered => {
                reply.send(answered).ok();
                Ok(())
            }
        }
    }

    /// Renews the session's lock, and says how long it holds.
    async fn renew(&self, held: &mut Held) -> Result<Duration, BrokerError> {
        let locked_until = held.link.renew().await?;
        let remaining = self.remaining(locked_until);
        held.lock_ends = Instant::now() + remaining;
        Ok(remaining)
    }

    fn remaining(&self, locked_until: OffsetDateTime) -> Duration {
        let mut clock = self.shared.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.new_lock_remaining(locked_until)
    }
}

/// A message that is left, or whose settlement failed, is given back with its session: without a
/// settlement no other would come.
async fn settle(
    held: &mut Held,
    message: &ServiceBusReceivedMessage,
    settlement: Settlement,
    told: Told,
) -> Result<After, BrokerError> {
    let after = match settlement {
        Settlement::Leave => After::GiveUp,
        Settlement::Complete(_) | Settlement::Abandon(_) | Settlement::DeadLetter(_) => {
            After::HoldOn
        }
    };
    // If this fails, who asked hears that the link is gone.
    held.link.settle(message, settlement).await?;
    told.tell(Ok(()));
    Ok(after)
}

/// A slot asks until this is dropped.
struct Asking<'a>(&'a AtomicUsize);

impl<'a> Asking<'a> {
    fn one_more(asking: &'a AtomicUsize) -> Self {
        asking.fetch_add(1, Ordering::Relaxed);
        Self(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Answers what is asked about a message that is settled, or was given up with its session.
fn refuse(command: Command) {
    match command {
        Command::Settle(_, _, told) => told.tell(Err(BrokerError::LockLost)),
        Command::Renew(_, reply) => {
            reply.send(Err(BrokerError::LockLost)).ok();
        }
        Command::SetAside(_) => {}
    }
}
