//! An Azure Service Bus broker in the test's own process.
//!
//! It speaks AMQP 1.0 over loopback TCP to unmodified Service Bus clients, has the cloud's rules for
//! locks, delivery counts, dead-lettering and duplicate detection, and makes things go wrong on
//! request.
//!
//! ```no_run
//! use std::time::Duration;
//! use idem_emulator::{Clock, Emulator, EventKind, Fault, QueueOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::manual();
//! let emulator = Emulator::builder()
//!     .queue(QueueOptions::new("orders").lock_duration(Duration::from_secs(30)))
//!     .clock(clock.clone())
//!     .start()
//!     .await?;
//! let lost = emulator.faults().add(Fault::lose_settlement().on("orders").times(1));
//!
//! // Run a consumer against `emulator.connection_string()` here; its first settlement is lost.
//!
//! clock.advance(Duration::from_secs(30));
//! emulator.events().wait_for(|event| event.kind == EventKind::Completed).await;
//! assert_eq!(lost.fired(), 1);
//! emulator.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//!
//! - **Entities**: queues, topics and subscriptions, with their dead-letter queues and the queues of
//!   what could not be forwarded, `entity/$Transfer/$DeadLetterQueue`. They can be created and deleted
//!   while it runs.
//! - **Sending**: single and batch sends; scheduled messages; duplicate detection; rules with
//!   correlation and SQL filters and actions; forwarding of messages and of dead letters, and through
//!   one entity to another.
//! - **Receiving**: peek-lock against link credit, and receive-and-delete; complete, abandon, defer,
//!   dead-letter and release; lock renewal and expiry; deferred messages by sequence number; peek; time
//!   to live, with dead-lettering or without; sessions, by name or the next available one, with their
//!   locks and states.
//! - **Transactions** about one entity: send, complete, abandon, defer and dead-letter.
//! - **Management**: renew-lock, update-disposition, peek-message, schedule-message,
//!   cancel-scheduled-message, receive-by-sequence-number, batch-delete-messages, renew-session-lock,
//!   get-session-state, set-session-state, get-message-sessions, add-rule, remove-rule and
//!   enumerate-rules.
//! - **Limits** of the cloud on names, properties, rules, subscriptions and transactions, and its rules
//!   for idle connections on request, see [`EmulatorBuilder::idle_rules`].
//! - **Faults** at sends, deliveries, settlements and requests, see [`Fault`].
//!
//! # What it does not do
//!
//! There is no TLS, no check of credentials and no AMQP over WebSockets, and nothing is persistent. There
//! are no partitioned entities, and no entity can be disabled. A transaction cannot be about a topic and
//! its subscription together, faults do not happen within transactions, and a delivery that was settled
//! within a transaction that was rolled back can be settled again only by its lock token, through the
//! management node. The states of sessions are limited to 256 KiB, whatever the limit on messages is.
//!
//! # Bounds
//!
//! Whatever peers send, it keeps to these: a frame has at most 64 KiB; a connection has at most 4,096
//! sessions, 5,000 links, 100 open transactions, and 16 MiB of messages that have arrived in part; 256
//! responses or 1 MiB of them wait on a link that takes none. A peer that does not read is sent no more
//! than its sockets and 256 KiB hold. What queues hold is limited by their `size_max`.
//!
//! # Features
//!
//! Both are off by default; the `idem emulator` command has them.
//!
//! - `config`: reads the configuration file of Microsoft's emulator.
//! - `control`: serves `/health` and a control API over HTTP, for tests in other languages.

mod amqp;
mod broker;
mod clock;
mod codec;
#[cfg(feature = "config")]
mod config;
#[cfg(feature = "control")]
mod control;
mod emulator;
mod error;
mod events;
mod faults;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod listen;
mod management;
mod options;
mod rules;

pub use broker::{Counts, Kind as EntityKind};
pub use clock::Clock;
#[cfg(feature = "config")]
pub use config::ConfigError;
pub use emulator::{Emulator, EmulatorBuilder, EntitySnapshot, MessageSnapshot};
pub use error::{EntityError, StartError, UnknownEntity};
pub use events::{Event, EventKind, EventTotals, Events};
pub use faults::{Fault, FaultHandle, FaultKind, Faults};
pub use options::{QueueOptions, SubscriptionOptions, TopicOptions};
pub use rules::{CorrelationFilter, Filter, PropertyValue, Rule};
