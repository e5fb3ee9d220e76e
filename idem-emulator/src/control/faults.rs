//! The rules that make things go wrong.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;

use super::exchange::{Answer, Body, Failure, InPath, answer, no_content};
use crate::broker::Broker;
use crate::faults::{Fault, WrittenFault};

/// How many rules may be armed: each is asked at each event.
const ARMED_MAX: usize = 1000;

/// An armed rule.
#[derive(Debug, Serialize)]
struct Shown {
    id: u64,
    fired: u64,
    #[serde(flatten)]
    rule: WrittenFault,
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

pub(super) async fn add(
    State(broker): State<Arc<Broker>>,
    Body(rule): Body<WrittenFault>,
) -> Answer {
    let faults = &broker.context.faults;
    if faults.armed().len() >= ARMED_MAX {
        let problem = format!("{ARMED_MAX} faults are armed already; delete some first");
        return Err(Failure::new(StatusCode::CONFLICT, problem));
    }
    let fault =
        Fault::try_from(rule).map_err(|problem| Failure::new(StatusCode::BAD_REQUEST, problem))?;
    answer(StatusCode::CREATED, &Added { id: faults.add(fault).id() })
}

pub(super) async fn remove(State(broker): State<Arc<Broker>>, InPath(id): InPath<u64>) -> Answer {
    if broker.context.faults.remove(id) {
        return no_content();
    }
    Err(Failure::new(StatusCode::NOT_FOUND, format!("there is no fault with the id {id}")))
}
