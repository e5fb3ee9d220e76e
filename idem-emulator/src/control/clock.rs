//! The time that the broker sees.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::exchange::{Answer, Body, Failure, answer};
use crate::broker::Broker;
use crate::clock::Clock;

#[derive(Debug, Serialize)]
struct Shown {
    /// Since the Unix epoch.
    now_ms: i64,
    manual: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Advance {
    advance_ms: u64,
}

pub(super) async fn read(State(broker): State<Arc<Broker>>) -> Answer {
    show(&broker.context.clock)
}

/// When it is answered, all that was due in between has happened.
pub(super) async fn advance(
    State(broker): State<Arc<Broker>>,
    Body(Advance { advance_ms }): Body<Advance>,
) -> Answer {
    let clock = &broker.context.clock;
    if !clock.advance(Duration::from_millis(advance_ms)) {
        return Err(Failure::new(
            StatusCode::CONFLICT,
            "the clock is the system's, which cannot be advanced; start the emulator with a manual clock",
        ));
    }
    show(clock)
}

fn show(clock: &Clock) -> Answer {
    let now_ms = clock.now().milliseconds();
    answer(StatusCode::OK, &Shown { now_ms, manual: clock.is_manual() })
}
