//! What executing a delivery came to, and how a handler fails.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::execute::Proof;
use crate::store::{Fault, Store, StoreError};

/// A handler's failure.
///
/// Any error turns into one by `?` and means *try again*: the transaction is rolled back and the
/// message comes again. [`Failure::reject`] means *never*: the message is dead-lettered at once.
///
/// This type is deliberately no [`Error`]: that is what lets `?` convert every error type,
/// `anyhow::Error` and plain text.
pub struct Failure(Kind);

enum Kind {
    Retry(Box<dyn Error + Send + Sync>),
    Reject(Rejection),
}

impl Failure {
    /// The message can never be handled: dead-letter it now.
    ///
    /// `reason` is a short name that people and tools can match (`UnknownCurrency`); `description`
    /// says what was wrong. The broker takes at most 4,096 characters of each; the rest is cut.
    pub fn reject(reason: impl Into<String>, description: impl Into<String>) -> Self {
        Self(Kind::Reject(Rejection::new(reason, description)))
    }

    pub(crate) fn into_outcome(self) -> Outcome {
        match self.0 {
            Kind::Retry(error) => Outcome::Retry(RetryReason::Handler(error)),
            Kind::Reject(rejection) => Outcome::Reject(rejection),
        }
    }

    /// What it means that a message could not be decoded, which another attempt cannot help.
    pub(crate) fn into_rejection(self, reason: &str) -> Rejection {
        match self.0 {
            Kind::Retry(error) => Rejection::new(reason, Chain(error.as_ref()).to_string()),
            Kind::Reject(rejection) => rejection,
        }
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(Kind::Retry(error.into()))
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Retry(error) => f.debug_tuple("Retry").field(error).finish(),
            Kind::Reject(rejection) => f.debug_tuple("Reject").field(rejection).finish(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Retry(error) => error.fmt(f),
            Kind::Reject(rejection) => rejection.fmt(f),
        }
    }
}

/// Why a message can never be handled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    reason: String,
    description: String,
}

/// The broker refuses longer dead-letter texts.
const DEAD_LETTER_TEXT_MAX: usize = 4096;

impl Rejection {
    pub(crate) fn new(reason: impl Into<String>, description: impl Into<String>) -> Self {
        let cut = |text| cut(text, DEAD_LETTER_TEXT_MAX);
        Self { reason: cut(reason.into()), description: cut(description.into()) }
    }

    /// A short name that people and tools can match.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What was wrong.
    pub fn description(&self) -> &str {
        &self.description
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.description)
    }
}

/// Cuts at a character boundary.
pub(crate) fn cut(mut text: String, characters_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(characters_max) {
        text.truncate(end);
    }
    text
}

/// What executing a delivery came to.
#[derive(Debug)]
#[must_use = "the message is to be settled by what came of it"]
pub enum Outcome {
    /// Our commit succeeded.
    Done(Proof),
    /// An earlier commit of the same key is proven.
    Duplicate(Proof),
    /// An earlier commit of the same key is proven, and it was for another message: fields that
    /// must agree differ.
    Conflict(Conflict),
    /// Another delivery holds the key right now. Not a duplicate: it may yet roll back.
    Busy,
    /// The handler or the infrastructure failed, and nothing was committed.
    Retry(RetryReason),
    /// The message can never be handled.
    Reject(Rejection),
    /// The commit is neither proven nor disproven.
    Unknown(StoreError),
}

/// Fields that must agree among messages of one key, and do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    fields: Vec<&'static str>,
}

impl Conflict {
    pub(crate) fn new(fields: Vec<&'static str>) -> Self {
        Self { fields }
    }

    /// The names of the fields, in their declared order.
    pub fn fields(&self) -> &[&'static str] {
        &self.fields
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields = self.fields.join("`, `");
        write!(f, "another message with this key was handled before, and `{fields}` differed")
    }
}

/// What a handler with `replay` returned, as JSON, for the duplicates of its message.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply(Vec<u8>);

impl Reply {
    /// The most bytes of a reply: it lives in the ledger for as long as its claim.
    pub const SIZE_MAX: usize = 64 * 1024;

    /// # Errors
    ///
    /// A rejection, since the next attempt would end alike: when the value does not serialize, or
    /// to more than [`SIZE_MAX`](Self::SIZE_MAX) bytes.
    pub(crate) fn of(value: &impl Serialize) -> Result<Self, Failure> {
        let json = serde_json::to_vec(value)
            .map_err(|error| Failure::reject("ReplyNotSerializable", error.to_string()))?;
        if json.len() > Self::SIZE_MAX {
            let (found, most) = (json.len(), Self::SIZE_MAX);
            let problem = format!("the reply to replay has {found} bytes, at most {most} are kept");
            return Err(Failure::reject("ReplyTooLarge", problem));
        }
        Ok(Self(json))
    }

    pub(crate) fn from_stored(json: Vec<u8>) -> Self {
        Self(json)
    }

    /// The JSON text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The value that the handler returned.
    ///
    /// # Errors
    ///
    /// When the JSON does not fit `T`, as after a change of the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }
}

impl fmt::Debug for Reply {
    /// Replies may be confidential: only the size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("len", &self.0.len()).finish_non_exhaustive()
    }
}

/// Why nothing was committed.
#[derive(Debug)]
pub enum RetryReason {
    /// The handler returned an error.
    Handler(Box<dyn Error + Send + Sync>),
    /// The handler, or the decoding of its message, panicked; the text is the panic's message.
    Panic(String),
    /// The handler ran for longer than this, which it may not.
    TimedOut(Duration),
    /// The transaction could not be begun, or the key not claimed in it: nothing that the message
    /// or its handler could help.
    NotStarted(StoreError),
    /// The transaction could not be committed after the handler had succeeded.
    NotCommitted(StoreError),
}

impl RetryReason {
    /// What the database's part in the failure means, if it had one.
    pub(crate) fn fault<S: Store>(&self) -> Option<Fault> {
        match self {
            Self::Handler(error) => S::fault_of(error.as_ref()),
            Self::Panic(_) | Self::TimedOut(_) => None,
            Self::NotStarted(error) | Self::NotCommitted(error) => Some(error.fault()),
        }
    }
}

impl fmt::Display for RetryReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler(error) => write!(f, "the handler failed: {}", Chain(error.as_ref())),
            Self::Panic(message) => write!(f, "the handler panicked: {message}"),
            Self::TimedOut(limit) => {
                write!(
                    f,
                    "the handler did not end within its time-out of {limit:?}, and was stopped"
                )
            }
            Self::NotStarted(error) | Self::NotCommitted(error) => Chain(error).fmt(f),
        }
    }
}

/// An error with its sources, each text once: many errors repeat their source in their own text.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_becomes_a_retry() {
        fn io() -> Result<(), Failure> {
            Err(std::io::Error::other("disk"))?;
            Ok(())
        }
        fn text() -> Result<(), Failure> {
            Err("no")?;
            Ok(())
        }
        for failure in [io().unwrap_err(), text().unwrap_err(), Failure::from("x".to_owned())] {
            assert!(matches!(failure.into_outcome(), Outcome::Retry(RetryReason::Handler(_))));
        }
    }

    #[test]
    fn long_dead_letter_texts_are_cut_at_a_character() {
        let rejection = Rejection::new("R", "é".repeat(10_000));
        assert_eq!(rejection.description().chars().count(), DEAD_LETTER_TEXT_MAX);
    }

    #[test]
    fn a_reply_comes_back_as_it_was_and_is_bounded() {
        let reply = Reply::of(&("r1", 7)).unwrap();
        assert_eq!(reply.decode::<(String, i32)>().unwrap(), ("r1".to_owned(), 7));
        assert!(!format!("{reply:?}").contains("r1"));

        let largest = "x".repeat(Reply::SIZE_MAX - 2);
        assert!(Reply::of(&largest).is_ok(), "with its quotes it just fits");
        let rejected = Reply::of(&format!("{largest}x")).unwrap_err().into_outcome();
        assert!(matches!(&rejected, Outcome::Reject(r) if r.reason() == "ReplyTooLarge"));
        let no_json = std::collections::HashMap::from([((1, 2), 3)]);
        let rejected = Reply::of(&no_json).unwrap_err().into_outcome();
        assert!(matches!(&rejected, Outcome::Reject(r) if r.reason() == "ReplyNotSerializable"));
    }
}
