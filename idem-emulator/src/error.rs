//! Errors of the public interface.

use std::io;

/// Why an emulator did not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Another program listens on the port.
    #[error(
        "port {port} is in use; stop the program that listens on it, or use port 0 to let the system choose a free one"
    )]
    PortInUse {
        /// The port that was asked for.
        port: u16,
    },
    /// The port could not be opened for another reason.
    #[error(
        "cannot listen on port {port}; use another port, such as 0 to let the system choose one"
    )]
    Listen {
        /// The port that was asked for.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// An entity cannot be created.
    #[error(transparent)]
    Entity(#[from] EntityError),
    /// An option of the emulator itself is outside its range.
    #[error("{problem}")]
    InvalidOption {
        /// Which option is wrong, what it may be and what it was.
        problem: String,
    },
}

/// Why an entity was not created. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// An option of an entity is outside its range.
    #[error("`{entity}`: {problem}")]
    Invalid {
        /// The name of the queue or topic, or `topic/Subscriptions/subscription`.
        entity: String,
        /// Which option is wrong, what it may be and what it was.
        problem: String,
    },
    /// There is an entity of the same name, apart from case, or it is to be created twice.
    #[error("`{entity}` exists already; names do not depend on case")]
    Exists {
        /// The name of the second one.
        entity: String,
    },
    /// There is no such topic to subscribe to.
    #[error("there is no topic `{topic}` in this emulator; create it first")]
    UnknownTopic {
        /// The name that was given.
        topic: String,
    },
}

/// The emulator has no such entity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no entity `{name}` in this emulator; an entity is a queue, a topic, or `topic/Subscriptions/subscription`"
)]
pub struct UnknownEntity {
    /// The name that was asked for.
    pub name: String,
}
