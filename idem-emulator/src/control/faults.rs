//! The rules that make things go wrong.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::exchange::{Answer, Body, Failure, InPath, answer, no_content};
use crate::broker::Broker;
use crate::faults::{Fault, FaultKind};

/// How many rules may be armed: each is asked at each event.
const ARMED_MAX: usize = 1000;

/// A rule: the fault by its name, and the conditions by the names of their setters.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Written {
    kind: FaultKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    /// How long a delay is; only delays have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    by_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nth: Option<NonZeroU64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<Probability>,
    #[serde(default)]
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    times: Option<NonZeroU64>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(try_from = "f64")]
struct Probability(f64);

impl TryFrom<f64> for Probability {
    type Error = String;

    fn try_from(value: f64) -> Result<Self, String> {
        let is_allowed = (0.0..=1.0).contains(&value);
        is_allowed.then_some(Self(value)).ok_or_else(|| format!("must be 0 to 1, found {value}"))
    }
}

impl From<Written> for Fault {
    fn from(written: Written) -> Self {
        Self {
            kind: written.kind,
            by: Duration::from_millis(written.by_ms.unwrap_or_default()),
            entity: written.on,
            message: written.message,
            operation: written.operation,
            nth: written.nth.map(NonZeroU64::get),
            probability: written.probability.map(|probability| probability.0),
            seed: written.seed,
            times: written.times.map(NonZeroU64::get),
        }
    }
}

impl From<Fault> for Written {
    fn from(fault: Fault) -> Self {
        Self {
            kind: fault.kind,
            by_ms: fault
                .kind
                .is_delay()
                .then(|| u64::try_from(fault.by.as_millis()).unwrap_or(u64::MAX)),
            on: fault.entity,
            message: fault.message,
            operation: fault.operation,
            nth: fault.nth.and_then(NonZeroU64::new),
            probability: fault.probability.map(Probability),
            seed: fault.seed,
            times: fault.times.and_then(NonZeroU64::new),
        }
    }
}

/// An armed rule.
#[derive(Debug, Serialize)]
struct Shown {
    id: u64,
    fired: u64,
    #[serde(flatten)]
    rule: Written,
}

#[derive(Debug, Serialize)]
struct Added {
    id: u64,
}

pub(super) async fn list(State(broker): State<Arc<Broker>>) -> Answer {
    let armed = broker.context.faults.armed().into_iter();
    let shown: Vec<_> =
        armed.map(|(id, fault, fired)| Shown { id, fired, rule: fault.into() }).collect();
    answer(StatusCode::OK, &shown)
}

pub(super) async fn add(State(broker): State<Arc<Broker>>, Body(rule): Body<Written>) -> Answer {
    if rule.by_ms.is_some() != rule.kind.is_delay() {
        let problem = "`by_ms` must be given for the kinds that delay, and only for them";
        return Err(Failure::new(StatusCode::BAD_REQUEST, problem));
    }
    let faults = &broker.context.faults;
    if faults.armed().len() >= ARMED_MAX {
        let problem = format!("{ARMED_MAX} faults are armed already; delete some first");
        return Err(Failure::new(StatusCode::CONFLICT, problem));
    }
    answer(StatusCode::CREATED, &Added { id: faults.add(rule.into()).id() })
}

pub(super) async fn remove(State(broker): State<Arc<Broker>>, InPath(id): InPath<u64>) -> Answer {
    if broker.context.faults.remove(id) {
        return no_content();
    }
    Err(Failure::new(StatusCode::NOT_FOUND, format!("there is no fault with the id {id}")))
}
