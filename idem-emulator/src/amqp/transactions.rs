//! The transactions of a connection: its coordinator links and what they have declared.

use std::collections::HashMap;

use uuid::Uuid;

use super::Shared;
use super::error::AmqpError;
use super::incoming::{Arrived, Outlet};
use super::performative::{Enlisted, Outcome};
use crate::broker::{Broker, Transaction, TransactionError};
use crate::codec::{DecodeError, Raw};

/// How many transactions one connection may have open.
const OPEN_MAX: usize = 100;

const DECLARE: (u64, &str) = (0x31, "amqp:declare:list");
const DISCHARGE: (u64, &str) = (0x32, "amqp:discharge:list");

/// A coordinator link, by its channel and handle.
type Coordinator = (u16, u32);

/// Those that are open. Without its coordinator link a transaction is rolled back.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    open: HashMap<Uuid, (Coordinator, Transaction)>,
}

/// What a controller asks a coordinator for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Declare,
    Discharge { id: Uuid, fail: bool },
}

impl Command {
    /// Reads the value of a message to a coordinator.
    pub(super) fn read(value: &Raw<'_>) -> Result<Self, AmqpError> {
        let descriptor = value.descriptor();
        // Some clients describe commands by number, and some by name.
        let is = |(code, name): (u64, &str)| {
            descriptor.is_some_and(|it| it.as_u64() == Some(code) || it.as_text() == Some(name))
        };
        let fields = value.undescribed();
        let field = |index| fields.items().nth(index).filter(|value: &Raw<'_>| !value.is_null());
        if is(DECLARE) {
            return match field(0) {
                None => Ok(Self::Declare),
                Some(_) => {
                    Err(AmqpError::not_implemented("the emulator has no distributed transactions"))
                }
            };
        }
        if is(DISCHARGE) {
            let id = field(0).and_then(|id| read_id(&id)).ok_or_else(unknown_id)?;
            let fail = field(1).and_then(|fail| fail.as_bool()).unwrap_or(false);
            return Ok(Self::Discharge { id, fail });
        }
        Err(AmqpError::not_implemented("a coordinator takes declare and discharge"))
    }
}

/// The id of a transaction as it is on the wire; none of ours is of another form.
pub(super) fn read_id(id: &Raw<'_>) -> Option<Uuid> {
    Uuid::from_slice(id.as_binary()?).ok()
}

pub(super) fn unknown_id() -> AmqpError {
    AmqpError::new(
        "amqp:transaction:unknown-id",
        "the connection has no such transaction; it may have ended already",
    )
}

impl From<TransactionError> for AmqpError {
    fn from(error: TransactionError) -> Self {
        Self::new(error.condition(), error.to_string())
    }
}

impl Transactions {
    pub(super) fn declare(
        &mut self,
        broker: &Broker,
        coordinator: Coordinator,
    ) -> Result<Uuid, AmqpError> {
        self.open.retain(|_, (_, transaction)| !transaction.has_timed_out());
        if self.open.len() >= OPEN_MAX {
            let text = format!("a connection has at most {OPEN_MAX} open transactions");
            return Err(AmqpError::new("amqp:resource-limit-exceeded", text));
        }
        let id = broker.new_token();
        self.open.insert(id, (coordinator, Transaction::declare(broker)));
        Ok(id)
    }

    pub(super) fn discharge(&mut self, id: Uuid, fail: bool) -> Result<(), AmqpError> {
        let (_, transaction) = self.open.remove(&id).ok_or_else(unknown_id)?;
        // Dropping it rolls it back.
        if fail { Ok(()) } else { Ok(transaction.commit()?) }
    }

    pub(super) fn find(&mut self, id: Uuid) -> Result<&mut Transaction, AmqpError> {
        self.open.get_mut(&id).map(|(_, transaction)| transaction).ok_or_else(unknown_id)
    }

    pub(super) fn coordinator_ended(&mut self, coordinator: Coordinator) {
        self.open.retain(|_, (of, _)| *of != coordinator);
    }

    pub(super) fn session_ended(&mut self, channel: u16) {
        self.open.retain(|_, ((of, _), _)| *of != channel);
    }
}

/// Sends once a transaction is committed.
pub(super) fn send_within(
    enlisted: Enlisted,
    outlet: &Outlet,
    arrived: &Arrived<'_>,
    shared: &mut Shared,
) -> Result<Outcome, AmqpError> {
    let id = enlisted.id()?;
    let limits = shared.service.limits();
    arrived.send_within(shared.transactions.find(id)?, outlet, limits)?;
    Ok(Outcome::InTransaction(id, Box::new(Outcome::Accepted)))
}

/// Does what a controller asks for over its link to the coordinator.
pub(super) fn coordinate(
    link: Coordinator,
    arrived: &Arrived<'_>,
    shared: &mut Shared,
) -> Result<Outcome, AmqpError> {
    let value = arrived.sections()?.body_value().ok_or(DecodeError::Section("not a value"))?;
    match Command::read(&value)? {
        Command::Declare => {
            let id = shared.transactions.declare(shared.service.broker_ref(), link)?;
            Ok(Outcome::Declared(id))
        }
        Command::Discharge { id, fail } => {
            shared.transactions.discharge(id, fail)?;
            Ok(Outcome::Accepted)
        }
    }
}
