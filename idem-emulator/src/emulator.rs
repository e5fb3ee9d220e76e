//! Starting, inspecting and stopping an emulator.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::amqp;
use crate::broker::{Broker, Counts, Kind, Part, Queue, Topology};
use crate::clock::{Clock, OnAdvance};
use crate::codec;
use crate::error::{EntityError, StartError, UnknownEntity};
use crate::events::Events;
use crate::faults::Faults;
use crate::listen;
use crate::options::{QueueOptions, SubscriptionOptions, TopicOptions};

const MESSAGE_SIZE_MAX: usize = 256 * 1024;
const EVENT_CAPACITY: usize = 16 * 1024;

/// Configures an [`Emulator`].
#[derive(Debug)]
#[must_use = "nothing runs until `start` is awaited"]
pub struct EmulatorBuilder {
    topology: Topology,
    clock: Clock,
    port: u16,
    #[cfg(feature = "control")]
    http_port: Option<u16>,
    message_size_max: usize,
    idle_rules: bool,
    event_capacity: usize,
}

impl EmulatorBuilder {
    /// Adds a queue and its dead-letter queue.
    pub fn queue(mut self, queue: QueueOptions) -> Self {
        self.topology.queues.push(queue);
        self
    }

    /// Adds a topic and its subscriptions.
    pub fn topic(mut self, topic: TopicOptions) -> Self {
        self.topology.topics.push(topic);
        self
    }

    /// Adds the queues and topics of a configuration file of Microsoft's emulator, `Config.json`.
    ///
    /// What the file leaves out is as there: locks of 1 min, 3 deliveries, 1 hour to live. It may
    /// say more than there: what the setters of [`QueueOptions`] allow. Messages that are sent
    /// without an id are given one, as with [`QueueOptions::assign_message_ids`].
    ///
    /// ```
    /// # use idem_emulator::Emulator;
    /// let file = r#"{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [
    ///     {"Name": "orders", "Properties": {"LockDuration": "PT30S", "MaxDeliveryCount": 5}}
    /// ]}]}}"#;
    /// let builder = Emulator::builder().config(file)?;
    /// # Ok::<(), idem_emulator::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not such a file, or a value is outside its range; the error has its place.
    #[cfg(feature = "config")]
    pub fn config(mut self, json: &str) -> Result<Self, crate::config::ConfigError> {
        let Topology { queues, topics } = crate::config::topology(json.as_bytes())?;
        self.topology.queues.extend(queues);
        self.topology.topics.extend(topics);
        Ok(self)
    }

    /// The clock that all but network time-outs follow; the system's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The TCP port to listen on, on the loopback interface. By default 0: the system chooses one.
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Also serves `/health` and the control API over HTTP, on this TCP port of the loopback
    /// interface; 0 lets the system choose. Whoever can open the port can do what this program can.
    #[cfg(feature = "control")]
    pub fn http_port(mut self, port: u16) -> Self {
        self.http_port = Some(port);
        self
    }

    /// The largest message that is accepted, in bytes as encoded: 1 KiB to 100 MiB, by default
    /// 256 KiB as in the standard tier of the cloud. A batch may have the smaller of 1 MiB and this.
    /// Larger sends are refused with `amqp:link:message-size-exceeded`.
    pub fn message_size_max(mut self, bytes: usize) -> Self {
        self.message_size_max = bytes;
        self
    }

    /// Ends what clients leave idle, as the cloud does; off by default.
    ///
    /// A connection is closed with `amqp:connection:forced` when it sends no token within 20 seconds,
    /// attaches no link within a minute, or has no links for 5 minutes; a link that sees no frame of
    /// its own for 10 minutes is detached with `amqp:link:detach-forced`. These times follow the
    /// system's clock.
    pub fn idle_rules(mut self, apply: bool) -> Self {
        self.idle_rules = apply;
        self
    }

    /// How many events the log keeps, at least 1, by default 16,384. Totals count all.
    pub fn event_capacity(mut self, events: usize) -> Self {
        self.event_capacity = events;
        self
    }

    /// Checks the options, opens the port and starts to serve on the current tokio runtime.
    ///
    /// # Errors
    ///
    /// If an option is outside its range or the port cannot be opened; nothing is left running.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime with I/O and time enabled.
    pub async fn start(self) -> Result<Emulator, StartError> {
        self.check()?;
        let events = Events::new(self.clock.clone(), self.event_capacity);
        let broker = Arc::new(Broker::new(self.topology, self.clock.clone(), events)?);
        let (listener, port) = listen::open(self.port).await?;
        #[cfg(feature = "control")]
        let http = match self.http_port {
            Some(port) => Some(listen::open(port).await?),
            None => None,
        };
        let weak: Weak<Broker> = Arc::downgrade(&broker);
        let needs_timer = !self.clock.listen(weak as Weak<dyn OnAdvance>);

        let (stop, stopped) = watch::channel(());
        let mut server = JoinSet::new();
        if needs_timer {
            server.spawn(keep_time(Arc::clone(&broker), stopped.clone()));
        }
        #[cfg(feature = "control")]
        let http_port = http.map(|(listener, port)| {
            server.spawn(crate::control::serve(listener, Arc::clone(&broker), stopped.clone()));
            port
        });
        let service =
            amqp::Service::new(Arc::clone(&broker), self.message_size_max, self.idle_rules);
        server.spawn(listen::serve(listener, stopped, move |socket| {
            amqp::serve(socket, service.clone())
        }));
        Ok(Emulator {
            broker,
            port,
            #[cfg(feature = "control")]
            http_port,
            stop,
            server,
        })
    }

    fn check(&self) -> Result<(), StartError> {
        if !(1024..=100 * 1024 * 1024).contains(&self.message_size_max) {
            let problem = format!(
                "`message_size_max` must be 1 KiB to 100 MiB, found {} bytes",
                self.message_size_max
            );
            return Err(StartError::InvalidOption { problem });
        }
        if self.event_capacity == 0 {
            return Err(StartError::InvalidOption {
                problem: "`event_capacity` must be at least 1, found 0".to_owned(),
            });
        }
        Ok(())
    }
}

/// Sleeps from what is due to what is due next, until the emulator is shut down.
async fn keep_time(broker: Arc<Broker>, mut stopped: watch::Receiver<()>) {
    loop {
        let next = broker.sweep();
        let now = broker.context.clock.now();
        let sleep = next.map(|deadline| tokio::time::sleep(deadline.since(now)));
        tokio::select! {
            () = broker.context.alarm.changed() => {}
            () = async { match sleep { Some(sleep) => sleep.await, None => std::future::pending().await } } => {}
            _ = stopped.changed() => return,
        }
    }
}

/// An Azure Service Bus broker in this process, for tests, examples and demos.
///
/// It speaks AMQP 1.0 over TCP on the loopback interface, without TLS, and accepts any credential.
/// Everything is in memory: when it ends, by [`shutdown`](Self::shutdown), drop or a crash of the
/// process, all messages, locks and events are gone and its connections are cut.
#[derive(Debug)]
#[must_use = "the emulator stops when it is dropped"]
pub struct Emulator {
    broker: Arc<Broker>,
    port: u16,
    #[cfg(feature = "control")]
    http_port: Option<u16>,
    stop: watch::Sender<()>,
    /// Dropping it ends the tasks and all that they started.
    server: JoinSet<()>,
}

impl Emulator {
    /// Starts to configure an emulator, without queues and topics.
    pub fn builder() -> EmulatorBuilder {
        EmulatorBuilder {
            topology: Topology::default(),
            clock: Clock::system(),
            port: 0,
            #[cfg(feature = "control")]
            http_port: None,
            message_size_max: MESSAGE_SIZE_MAX,
            idle_rules: false,
            event_capacity: EVENT_CAPACITY,
        }
    }

    /// The connection string that the clients of this emulator use. The key is a constant that is
    /// not checked.
    #[must_use]
    pub fn connection_string(&self) -> String {
        format!(
            "Endpoint=sb://localhost:{};SharedAccessKeyName=RootManageSharedAccessKey;\
             SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;",
            self.port
        )
    }

    /// The TCP port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The TCP port of the control API, if it was [asked for](EmulatorBuilder::http_port).
    #[cfg(feature = "control")]
    #[must_use]
    pub fn http_port(&self) -> Option<u16> {
        self.http_port
    }

    /// Creates a queue with its dead-letter queue. Clients can use it at once.
    ///
    /// # Errors
    ///
    /// If an option is outside its range, there is an entity of that name, or what it forwards to
    /// does not exist.
    pub fn create_queue(&self, queue: QueueOptions) -> Result<(), EntityError> {
        self.broker.create(Topology { queues: vec![queue], ..Topology::default() })
    }

    /// Creates a topic with its subscriptions: all or nothing.
    ///
    /// # Errors
    ///
    /// As for [`create_queue`](Self::create_queue).
    pub fn create_topic(&self, topic: TopicOptions) -> Result<(), EntityError> {
        self.broker.create(Topology { topics: vec![topic], ..Topology::default() })
    }

    /// Creates a subscription of a topic. It gets what is sent to the topic from now on.
    ///
    /// # Errors
    ///
    /// As for [`create_queue`](Self::create_queue), or if there is no such topic.
    pub fn create_subscription(
        &self,
        topic: &str,
        subscription: SubscriptionOptions,
    ) -> Result<(), EntityError> {
        self.broker.create_subscription(topic, subscription)
    }

    /// Deletes a queue, a topic with its subscriptions, or `topic/Subscriptions/subscription`.
    ///
    /// Its messages and their locks are gone. Links of clients to it are detached with
    /// `amqp:not-found`, as by the cloud. What other entities forward to it from now on goes to their
    /// own dead-letter queues, with the reason `MessagingEntityNotFound`, until there is an entity of
    /// that name again.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn delete(&self, entity: &str) -> Result<(), UnknownEntity> {
        self.broker.delete(entity)
    }

    /// The queues, topics and subscriptions that there are, in the order of their paths.
    #[must_use]
    pub fn entities(&self) -> Vec<EntitySnapshot> {
        self.broker.entities().iter().map(|entity| EntitySnapshot::of(entity)).collect()
    }

    /// How many messages an entity holds at this moment: a queue, a topic, or
    /// `topic/Subscriptions/subscription`. A topic holds only messages that are scheduled.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn counts(&self, queue: &str) -> Result<Counts, UnknownEntity> {
        Ok(self.broker.entity(queue)?.counts())
    }

    /// The messages of a queue, locked ones too, in order of sequence number.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn peek(&self, queue: &str) -> Result<Vec<MessageSnapshot>, UnknownEntity> {
        Ok(snapshots(&*self.broker.entity(queue)?, Part::Main))
    }

    /// The messages of a queue's dead-letter queue, locked ones too, in order of sequence number.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn dead_letters(&self, queue: &str) -> Result<Vec<MessageSnapshot>, UnknownEntity> {
        Ok(snapshots(&*self.broker.entity(queue)?, Part::DeadLetter))
    }

    /// The messages that an entity could not forward, locked ones too, in order of sequence number.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn failed_transfers(&self, entity: &str) -> Result<Vec<MessageSnapshot>, UnknownEntity> {
        Ok(snapshots(&*self.broker.entity(entity)?, Part::Transfer))
    }

    /// The rules that make things go wrong.
    #[must_use]
    pub fn faults(&self) -> Faults {
        self.broker.context.faults.clone()
    }

    /// What has happened.
    #[must_use]
    pub fn events(&self) -> Events {
        self.broker.context.events.clone()
    }

    /// Removes all messages of an entity and of its dead-letter queue, and the states of its sessions.
    ///
    /// Deliveries that receivers hold lose their locks. Connections stay, receivers keep their
    /// sessions, and the message ids remembered for duplicate detection stay too.
    ///
    /// # Errors
    ///
    /// If there is no such entity.
    pub fn purge(&self, queue: &str) -> Result<(), UnknownEntity> {
        self.broker.entity(queue)?.purge();
        Ok(())
    }

    /// Goes back to the start: [purges](Self::purge) every entity, restores the rules of
    /// subscriptions, and forgets the message ids of duplicate detection, the fault rules, the events
    /// and their totals.
    ///
    /// Connections stay, receivers keep their sessions, and entities that were created meanwhile stay
    /// too. Sequence numbers of messages and events go on counting.
    pub fn reset(&self) {
        self.broker.reset();
    }

    /// Cuts all connections and stops listening. When it returns, the port is free.
    pub async fn shutdown(self) {
        let Self { stop, mut server, .. } = self;
        drop(stop);
        // A task fails only if the runtime ended it first, which is what we wait for.
        while let Some(_ended) = server.join_next().await {}
    }
}

/// An entity, and how many messages it held at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntitySnapshot {
    /// The name of a queue or topic, or `topic/Subscriptions/subscription`.
    pub path: String,
    /// What it is to clients.
    pub kind: Kind,
    /// Its messages.
    pub counts: Counts,
}

impl EntitySnapshot {
    fn of(entity: &Queue) -> Self {
        Self { path: entity.path().to_owned(), kind: entity.kind(), counts: entity.counts() }
    }
}

/// A copy of what is known of a message at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageSnapshot {
    /// The message id as text, if the sender gave one.
    pub message_id: Option<String>,
    /// The session that it belongs to, if the sender gave one.
    pub session_id: Option<String>,
    /// Given by the queue, counted from 1.
    pub sequence_number: i64,
    /// How many deliveries have failed: 0 for a message that was delivered at most once.
    pub delivery_count: u32,
    /// Whether a receiver holds it.
    pub locked: bool,
    /// Why it was dead-lettered, if it was and a reason was given.
    pub dead_letter_reason: Option<String>,
    /// More on why it was dead-lettered, if that was given.
    pub dead_letter_description: Option<String>,
    /// The bytes of the body. For a body that is neither binary nor a string, its AMQP encoding.
    pub body: Bytes,
}

fn snapshots(queue: &Queue, part: Part) -> Vec<MessageSnapshot> {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let messages = queue.peek(part, None, 0, usize::MAX);
    messages
        .into_iter()
        .map(|(message, locked)| MessageSnapshot {
            message_id: text(&message.id),
            session_id: text(&message.session_id),
            sequence_number: message.sequence_number,
            delivery_count: message.delivery_count,
            locked,
            dead_letter_reason: message
                .dead_letter()
                .and_then(|dead_letter| text(&dead_letter.reason)),
            dead_letter_description: message
                .dead_letter()
                .and_then(|dead_letter| text(&dead_letter.description)),
            body: codec::message::body(&message.content),
        })
        .collect()
}
