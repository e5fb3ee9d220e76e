//! `entity/$management`: operations beside the message links.

use super::arguments::Arguments;
use super::{Reply, locks, messages, operation, rules, sessions};
use crate::broker::{
    Acknowledgement, DeferredError, MessageNotFound, Node, SendError, SessionError, SettleError,
};
use crate::codec::DecodeError;
use crate::codec::message::Sections;
use crate::faults::{Ending, RequestFault};
use crate::rules::RuleError;

pub(super) fn reply(node: &Node, request: &Sections<'_>) -> (Reply, Acknowledgement) {
    match node.queue.request_fault(node.part, operation(request)) {
        None => {
            perform(node, request).unwrap_or_else(|problem| (problem.reply(), Acknowledgement::Now))
        }
        Some(fault) => faulty(fault),
    }
}

/// What becomes of a request that a fault keeps from being done.
fn faulty(fault: RequestFault) -> (Reply, Acknowledgement) {
    let text = "A fault rule of the emulator says so. Try again later.";
    let time_out = || Reply::error(408, "com.microsoft:timeout", text);
    match fault {
        RequestFault::Lose => (time_out(), Acknowledgement::Never),
        RequestFault::LoseAndCut => (time_out(), Acknowledgement::ConnectionEnds(Ending::Cut)),
        RequestFault::Refuse => {
            (Reply::error(503, "com.microsoft:server-busy", text), Acknowledgement::Now)
        }
        RequestFault::TimeOut => (time_out(), Acknowledgement::Now),
    }
}

fn perform(node: &Node, request: &Sections<'_>) -> Result<(Reply, Acknowledgement), Problem> {
    let operation = operation(request);
    let body = Arguments::of(request)?;
    let reply = match operation {
        "renew-lock" => locks::renew(node, &body)?,
        "update-disposition" => return locks::update_disposition(node, &body),
        "peek-message" => messages::peek(node, &body)?,
        "schedule-message" => messages::schedule(node, &body)?,
        "cancel-scheduled-message" => messages::cancel(node, &body)?,
        "receive-by-sequence-number" => messages::receive_by_number(node, &body)?,
        "renew-session-lock" => sessions::renew(node, &body)?,
        "get-session-state" => sessions::state(node, &body)?,
        "set-session-state" => sessions::set_state(node, &body)?,
        "add-rule" => rules::add(node, &body)?,
        "remove-rule" => rules::remove(node, &body)?,
        "enumerate-rules" => rules::list(node, &body)?,
        "get-message-sessions" => sessions::list(node, &body)?,
        "batch-delete-messages" => messages::delete(node, &body)?,
        "" => return Err(Problem::Malformed("The request must have the property `operation`.")),
        _ => Reply::error(
            501,
            "amqp:not-implemented",
            format!("The emulator does not implement `{operation}`."),
        ),
    };
    Ok((reply, Acknowledgement::Now))
}

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("`{name}` must be {expected}.")]
    Argument { name: &'static str, expected: &'static str },
    #[error("{0}")]
    Malformed(&'static str),
    #[error("{0}")]
    NotAllowed(&'static str),
    #[error("A message in the request is not an encoded message: {0}.")]
    Message(#[from] DecodeError),
    #[error(transparent)]
    Send(#[from] SendError),
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error("{0}.")]
    Rule(#[from] RuleError),
    #[error(transparent)]
    NotFound(#[from] MessageNotFound),
}

impl From<DeferredError> for Problem {
    fn from(error: DeferredError) -> Self {
        match error {
            DeferredError::NotFound(error) => error.into(),
            DeferredError::Session(error) => error.into(),
        }
    }
}

impl Problem {
    fn reply(&self) -> Reply {
        let (status, condition) = match self {
            Self::Argument { .. } | Self::Malformed(_) | Self::Message(_) => {
                (400, "com.microsoft:argument-error")
            }
            Self::NotAllowed(_) => (400, "amqp:not-allowed"),
            Self::Send(error) => (send_status(error), error.condition()),
            Self::Settle(error) => (settle_status(*error), error.condition()),
            Self::Session(error) => (session_status(error), error.condition()),
            Self::Rule(error) => rule_status(error),
            Self::NotFound(_) => (404, "com.microsoft:message-not-found"),
        };
        Reply::error(status, condition, self.to_string())
    }
}

fn send_status(error: &SendError) -> i32 {
    match error {
        SendError::Full { .. } => 403,
        SendError::Deleted { .. } => 404,
        SendError::SessionIdMissing { .. }
        | SendError::Limit(_)
        | SendError::PartitionKeyDiffers => 400,
        SendError::Busy => 503,
    }
}

fn settle_status(error: SettleError) -> i32 {
    match error {
        SettleError::LockLost | SettleError::SessionLockLost => 410,
        SettleError::AlreadyDeadLettered
        | SettleError::LockedBySession
        | SettleError::InTransaction
        | SettleError::PropertiesTooLarge
        | SettleError::ReasonTooLong => 400,
    }
}

fn rule_status(error: &RuleError) -> (i32, &'static str) {
    match error {
        RuleError::Exists(_) => (409, "com.microsoft:entity-already-exists"),
        RuleError::TooMany => (403, "amqp:resource-limit-exceeded"),
        RuleError::Name(_) | RuleError::Sql { .. } => (400, "com.microsoft:argument-error"),
    }
}

fn session_status(error: &SessionError) -> i32 {
    match error {
        SessionError::CannotBeLocked | SessionError::LockLost => 410,
        SessionError::NoRoom(error) => send_status(error),
        SessionError::Limit(_) => 400,
    }
}
