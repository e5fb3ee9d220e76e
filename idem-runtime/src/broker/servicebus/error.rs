//! What an error of the client means.

use std::error::Error;
use std::time::Duration;

use crate::broker::BrokerError;

/// Where something was being done: what an error is told with.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The namespace's host, and its port if that is not the usual one.
    pub(super) namespace: String,
    /// The entity's path.
    pub(super) entity: String,
}

/// Neither the broker nor the network answered.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", .0.as_secs())]
pub(super) struct NoAnswer(pub(super) Duration);

/// What an error comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    LockLost,
    /// The broker has waited for a session that has messages, and there was none.
    NoSession,
    NotFound,
    Unauthorized,
    /// The broker answered, and the answer was no.
    Refused,
    /// The client cannot make a message of what it received.
    Undecodable,
    /// The broker did not answer: the link is of no more use.
    Broken,
}

/// What the words in an error mean; the first that is found counts.
///
/// The client hides most errors in private types, of which only the text is left: names of its
/// variants, AMQP's and Service Bus's names of error conditions, and the status codes of replies.
/// Whatever has none of these words is a broken connection.
const WORDS: [(&str, Meaning); 18] = [
    ("MessageDecode(", Meaning::Undecodable),
    ("LockTokenNotFound", Meaning::Undecodable),
    ("message-lock-lost", Meaning::LockLost),
    ("session-lock-lost", Meaning::LockLost),
    ("StatusCode(410)", Meaning::LockLost),
    ("com.microsoft:timeout", Meaning::NoSession),
    ("AmqpError(NotFound)", Meaning::NotFound),
    ("StatusCode(404)", Meaning::NotFound),
    ("AmqpError(UnauthorizedAccess)", Meaning::Unauthorized),
    ("com.microsoft:auth-failed", Meaning::Unauthorized),
    ("StatusCode(401)", Meaning::Unauthorized),
    ("StatusCode(403)", Meaning::Unauthorized),
    ("SaslError", Meaning::Unauthorized),
    ("StatusCode(", Meaning::Refused),
    ("NotAccepted(", Meaning::Refused),
    ("MessageSizeExceeded", Meaning::Refused),
    ("AmqpError(NotAllowed)", Meaning::Refused),
    ("AmqpError(NotImplemented)", Meaning::Refused),
];

impl Place {
    /// Tells an error of the client.
    pub(super) fn failed(
        &self,
        operation: &'static str,
        error: impl Error + Send + Sync + 'static,
    ) -> BrokerError {
        let namespace = self.namespace.clone();
        match meaning(&format!("{error:?}")) {
            Meaning::LockLost => BrokerError::LockLost,
            Meaning::NotFound => BrokerError::NotFound { namespace, entity: self.entity.clone() },
            Meaning::Unauthorized => BrokerError::Unauthorized { namespace, source: error.into() },
            Meaning::Refused | Meaning::Undecodable | Meaning::NoSession => {
                self.refused(operation, error)
            }
            Meaning::Broken => self.unreachable(error),
        }
    }

    pub(super) fn unreachable(
        &self,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> BrokerError {
        BrokerError::Unreachable { namespace: self.namespace.clone(), source: source.into() }
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
}

/// Whether a message came that the client could not decode. The link is good all the same.
pub(super) fn is_undecodable(error: &impl Error) -> bool {
    meaning(&format!("{error:?}")) == Meaning::Undecodable
}

/// Whether the broker had no session to give. That is nothing out of the ordinary.
pub(super) fn is_no_session(error: &impl Error) -> bool {
    meaning(&format!("{error:?}")) == Meaning::NoSession
}

fn meaning(error: &str) -> Meaning {
    let known = WORDS.into_iter().find(|(word, _)| error.contains(word));
    known.map_or(Meaning::Broken, |(_, meaning)| meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_what_an_error_means() {
        // As the client prints them.
        let cases = [
            (
                r#"Operation(RequestResponse(Status(StatusError { code: StatusCode(410), description: Some("com.microsoft:message-lock-lost") })))"#,
                Meaning::LockLost,
            ),
            (
                r#"RemoteClosedWithError(Error { condition: Custom(Symbol("com.microsoft:session-lock-lost")), description: None, info: None })"#,
                Meaning::LockLost,
            ),
            (
                r#"RemoteClosedWithError(Error { condition: Custom(Symbol("com.microsoft:timeout")), description: None, info: None })"#,
                Meaning::NoSession,
            ),
            (
                r#"RemoteClosedWithError(Error { condition: AmqpError(NotFound), description: None, info: None })"#,
                Meaning::NotFound,
            ),
            (
                r#"Status(StatusError { code: StatusCode(401), description: Some("InvalidSignature") })"#,
                Meaning::Unauthorized,
            ),
            (
                r#"RemoteClosedWithError(Error { condition: AmqpError(UnauthorizedAccess), description: None, info: None })"#,
                Meaning::Unauthorized,
            ),
            (
                r#"Status(StatusError { code: StatusCode(503), description: None })"#,
                Meaning::Refused,
            ),
            (r#"Operation(NotAccepted(Rejected(Rejected { error: None })))"#, Meaning::Refused),
            (r#"Operation(Recv(LinkStateError(IllegalSessionState)))"#, Meaning::Broken),
            (r#"Os { code: 111, kind: ConnectionRefused }"#, Meaning::Broken),
        ];
        for (error, expected) in cases {
            assert_eq!(meaning(error), expected, "{error}");
        }
    }
}
