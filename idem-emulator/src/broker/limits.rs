//! How long the names on a message may be, and how large its properties.

use super::message::Submission;

/// How many characters a message id, a session id or a partition key may have.
const NAME_LENGTH_MAX: usize = 128;

/// The largest application property, its name included, in encoded bytes.
const PROPERTY_MAX: usize = 32 * 1024;

/// All that a message has beside its body, in encoded bytes.
pub(super) const PROPERTIES_MAX: usize = 64 * 1024;

/// How many characters the reason and the description of a dead letter may have each. Events keep the
/// reason.
pub(super) const REASON_LENGTH_MAX: usize = 4096;

/// A message is beyond a limit of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LimitError {
    #[error("The {0} has more than {NAME_LENGTH_MAX} characters.")]
    NameTooLong(&'static str),
    #[error("An application property has more than {PROPERTY_MAX} bytes.")]
    PropertyTooLarge,
    #[error("The properties of the message have more than {PROPERTIES_MAX} bytes.")]
    PropertiesTooLarge,
}

impl LimitError {
    /// The AMQP error condition.
    pub(crate) fn condition(self) -> &'static str {
        match self {
            Self::NameTooLong(_) | Self::PropertyTooLarge | Self::PropertiesTooLarge => {
                "com.microsoft:argument-out-of-range"
            }
        }
    }
}

pub(super) fn check_session_id(id: &str) -> Result<(), LimitError> {
    check_name("session id", Some(id))
}

fn check_name(what: &'static str, name: Option<&str>) -> Result<(), LimitError> {
    match name {
        Some(name) if name.chars().count() > NAME_LENGTH_MAX => Err(LimitError::NameTooLong(what)),
        Some(_) | None => Ok(()),
    }
}

impl Submission {
    pub(super) fn check_limits(&self) -> Result<(), LimitError> {
        check_name("message id", self.id.as_deref())?;
        check_name("session id", self.session_id.as_deref())?;
        check_name("partition key", self.partition_key.as_deref())?;
        if self.property_size_max > PROPERTY_MAX {
            return Err(LimitError::PropertyTooLarge);
        }
        if self.properties_size > PROPERTIES_MAX {
            return Err(LimitError::PropertiesTooLarge);
        }
        Ok(())
    }
}
