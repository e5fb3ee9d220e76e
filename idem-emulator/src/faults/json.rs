//! Rules as JSON: the fault by its name, and the conditions by the names of their setters.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::effect::{DeliveryFault, Effect, SettlementFault};
use super::{Fault, FaultKind};

/// A rule as it is written and shown.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    kind: FaultKind,
    /// How long the fault delays, in milliseconds, where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
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

impl TryFrom<Written> for Fault {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        Ok(Self {
            entity: written.on,
            message: written.message,
            operation: written.operation,
            nth: written.nth.map(NonZeroU64::get),
            probability: written.probability.map(|probability| probability.0),
            seed: written.seed,
            times: written.times.map(NonZeroU64::get),
            ..of_kind(written.kind, written.delay_ms)?
        })
    }
}

impl From<Fault> for Written {
    fn from(fault: Fault) -> Self {
        let delay = delay(fault.effect);
        Self {
            kind: fault.effect.kind(),
            delay_ms: delay.map(|by| u64::try_from(by.as_millis()).unwrap_or(u64::MAX)),
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

fn of_kind(kind: FaultKind, delay_ms: Option<u64>) -> Result<Fault, &'static str> {
    let delays = matches!(kind, FaultKind::DelayDelivery | FaultKind::DelaySettlementAnswer);
    if delays != delay_ms.is_some() {
        return Err(if delays {
            "a fault that delays needs `delay_ms`"
        } else {
            "`delay_ms` is for faults that delay"
        });
    }
    let by = Duration::from_millis(delay_ms.unwrap_or_default());
    Ok(match kind {
        FaultKind::Redeliver => Fault::redeliver(),
        FaultKind::ExpireLock => Fault::expire_lock(),
        FaultKind::LoseSessionLock => Fault::lose_session_lock(),
        FaultKind::DelayDelivery => Fault::delay_delivery(by),
        FaultKind::Reorder => Fault::reorder(),
        FaultKind::DropConnectionAtDelivery => Fault::drop_connection_at_delivery(),
        FaultKind::CloseConnectionAtDelivery => Fault::close_connection_at_delivery(),
        FaultKind::LoseSettlement => Fault::lose_settlement(),
        FaultKind::DropConnectionAtSettlement => Fault::drop_connection_at_settlement(),
        FaultKind::CloseConnectionAtSettlement => Fault::close_connection_at_settlement(),
        FaultKind::LoseSettlementAnswer => Fault::lose_settlement_answer(),
        FaultKind::DropConnectionAfterSettlement => Fault::drop_connection_after_settlement(),
        FaultKind::DelaySettlementAnswer => Fault::delay_settlement_answer(by),
        FaultKind::ForgetCompletion => Fault::forget_completion(),
        FaultKind::DropConnectionAtSend => Fault::drop_connection_at_send(),
        FaultKind::DropConnectionAfterSend => Fault::drop_connection_after_send(),
        FaultKind::RefuseSend => Fault::refuse_send(),
        FaultKind::DetachAtSend => Fault::detach_at_send(),
        FaultKind::LoseRequest => Fault::lose_request(),
        FaultKind::RefuseRequest => Fault::refuse_request(),
        FaultKind::TimeOutRequest => Fault::time_out_request(),
    })
}

fn delay(effect: Effect) -> Option<Duration> {
    match effect {
        Effect::Delivery(DeliveryFault::Delay(by))
        | Effect::Settlement(SettlementFault::DelayAnswer(by)) => Some(by),
        Effect::Send(_) | Effect::Delivery(_) | Effect::Settlement(_) | Effect::Request(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_is_shown_as_it_was_written() {
        // The error lists the names of all kinds.
        let error = serde_json::from_str::<FaultKind>(r#""none""#).unwrap_err().to_string();
        let (_, names) = error.split_once("expected one of ").expect("the names");
        let names: Vec<_> = names.split('`').skip(1).step_by(2).collect();
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let delay = if name.starts_with("delay_") { r#""delay_ms":5,"# } else { "" };
            let conditions = r#""on":"q","message":"m","operation":"o","nth":2,"probability":0.5,"seed":7,"times":1"#;
            let json = format!(r#"{{"kind":"{name}",{delay}{conditions}}}"#);
            let written: Written = serde_json::from_str(&json).unwrap();
            let fault = Fault::try_from(written).expect(name);
            assert_eq!(serde_json::to_string(&Written::from(fault)).unwrap(), json);
        }
    }

    #[test]
    fn a_delay_belongs_to_faults_that_delay() {
        for json in [r#"{"kind":"delay_delivery"}"#, r#"{"kind":"redeliver","delay_ms":1}"#] {
            let written: Written = serde_json::from_str(json).unwrap();
            assert!(Fault::try_from(written).unwrap_err().contains("`delay_ms`"));
        }
    }
}
