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
    /// An option of an entity is outside its range.
    #[error("`{entity}`: {problem}")]
    InvalidEntity {
        /// The name of the queue or topic, or `topic/Subscriptions/subscription`.
        entity: String,
        /// Which option is wrong, what it may be and what it was.
        problem: String,
    },
    /// Two entities have the same name, apart from case.
    #[error("`{entity}` is declared twice; names do not depend on case")]
    DuplicateEntity {
        /// The name of the second one.
        entity: String,
    },
    /// An option of the emulator itself is outside its range.
    #[error("{problem}")]
    InvalidOption {
        /// Which option is wrong, what it may be and what it was.
        problem: String,
    },
}

/// The emulator has no such entity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no entity `{name}` in this emulator; declare it with `Emulator::builder().queue(..)` or `.topic(..)`"
)]
pub struct UnknownEntity {
    /// The name that was asked for.
    pub name: String,
}
