//! What a disposition of a receiver asks for, and how it is answered.

use std::sync::Arc;

use uuid::Uuid;

use super::error::AmqpError;
use super::performative::{Enlisted, Outcome};
use crate::broker::{SettleError, Settlement};
use crate::codec::Raw;
use crate::codec::message::properties;

const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";

/// What a receiver decided.
#[derive(Debug, Clone)]
pub(super) struct Decision {
    pub(super) settlement: Settlement,
    /// What the receiver expects to be told on success.
    pub(super) success: Outcome,
    /// The transaction with which this takes place.
    pub(super) transaction: Option<Uuid>,
}

/// Reads a delivery state.
pub(super) fn read(state: &Raw<'_>) -> Result<Decision, AmqpError> {
    match Enlisted::read(state) {
        None => {
            let (settlement, success) = read_outcome(state)?;
            Ok(Decision { settlement, success, transaction: None })
        }
        Some((enlisted, outcome)) => {
            let id = enlisted.id()?;
            let text = "the emulator settles within transactions; name an outcome";
            let outcome = outcome.ok_or_else(|| AmqpError::not_implemented(text))?;
            let (settlement, success) = read_outcome(&outcome)?;
            let success = Outcome::InTransaction(id, Box::new(success));
            Ok(Decision { settlement, success, transaction: Some(id) })
        }
    }
}

fn read_outcome(state: &Raw<'_>) -> Result<(Settlement, Outcome), AmqpError> {
    let (code, fields) = state
        .as_described()
        .ok_or_else(|| AmqpError::new("amqp:decode-error", "not a delivery state"))?;
    match code {
        0x24 => Ok((Settlement::Complete, Outcome::Accepted)),
        0x25 => Ok((dead_letter(&fields), Outcome::Rejected(None))),
        0x26 => Ok((Settlement::Release, Outcome::Released)),
        0x27 => Ok((modified(&fields), Outcome::Modified)),
        _ => Err(AmqpError::new("amqp:not-allowed", "the delivery state is not an outcome")),
    }
}

/// `rejected(error(condition, description, info))`; what the broker needs is in `info`.
fn dead_letter(fields: &Raw<'_>) -> Settlement {
    let error = fields.items().next().and_then(|error| error.as_described());
    let info = error.and_then(|(_, error)| error.items().nth(2));
    let text = |name| info.and_then(|info: Raw<'_>| info.get(name)?.as_text()).map(Arc::from);
    let mut properties = info.map(|info| properties(&info)).unwrap_or_default();
    properties.retain(|property| property.name != REASON && property.name != DESCRIPTION);
    Settlement::DeadLetter { reason: text(REASON), description: text(DESCRIPTION), properties }
}

/// `modified(delivery-failed, undeliverable-here, message-annotations)`.
fn modified(fields: &Raw<'_>) -> Settlement {
    let field = |index| fields.items().nth(index);
    let properties = field(2).map(|annotations| properties(&annotations)).unwrap_or_default();
    if field(1).and_then(|value| value.as_bool()).unwrap_or(false) {
        Settlement::Defer { properties }
    } else {
        Settlement::Abandon { properties }
    }
}

pub(super) fn refusal(error: SettleError) -> Outcome {
    Outcome::Rejected(Some(AmqpError::new(error.condition(), error.to_string())))
}

/// Answers to neighbouring deliveries with the same outcome, to be sent as one.
#[derive(Debug, Default)]
pub(super) struct Answers {
    runs: Vec<(u32, u32, Outcome)>,
}

impl Answers {
    /// Adds an answer; deliveries come in ascending order.
    pub(super) fn push(&mut self, delivery_id: u32, outcome: Outcome) {
        match self.runs.last_mut() {
            Some((_, last, same)) if last.wrapping_add(1) == delivery_id && *same == outcome => {
                *last = delivery_id
            }
            Some(_) | None => self.runs.push((delivery_id, delivery_id, outcome)),
        }
    }

    pub(super) fn into_runs(self) -> Vec<(u32, u32, Outcome)> {
        self.runs
    }
}
