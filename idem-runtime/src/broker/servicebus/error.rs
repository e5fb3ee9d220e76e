//! What an error of the client means.

use std::error::Error;
use std::time::Duration;

use crate::broker::BrokerError;

/// What was being done, and where: what an error is told with.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The namespace's host, and its port if that is not the usual one.
    pub(super) namespace: String,
    /// The entity's path.
    pub(super) entity: String,
}

/// The broker or the network did not answer.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub(super) struct NoAnswer(pub(super) Duration);

/// What an error says, by the words in it.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    NotFound,
    Unauthorized,
    LockLost,
    Refused,
    Broken,
}

/// Words of an error, and what they mean; the first that is found counts.
///
/// The client hides its errors in private types behind `azure_core::Error`, where only the text
/// is left. The words are AMQP's and Service Bus's own condition names, the status codes of
/// management replies, and the names of the client's variants.
const WORDS: &[(&str, Meaning)] = &[];

impl Place {
    pub(super) fn unreachable(
        &self,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> BrokerError {
        BrokerError::Unreachable {
            namespace: self.namespace.clone(),
            source: source.into(),
        }
    }

    pub(super) fn refused(
        &self,
        operation: &'static str,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> BrokerError {
        BrokerError::Operation {
            operation,
            namespace: self.namespace.clone(),
            source: source.into(),
        }
    }

    pub(super) fn error(
        &self,
        operation: &'static str,
        error: impl Error + Send + Sync + 'static,
    ) -> BrokerError {
        eprintln!("ERR {operation}: {error} || {error:?}");
        self.unreachable(error)
    }
}
