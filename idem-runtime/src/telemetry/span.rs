//! The span of a delivery, by the names that OpenTelemetry gives to messaging.

use tracing::field::{Empty, display};
use tracing::{Span, info_span};

use super::trace::{TraceContext, diagnostic_id};
use super::{name_of_outcome, name_of_reason};
use crate::delivery::Delivery;
use crate::handler::HandlerSpec;
use crate::outcome::Outcome;

/// The span of one delivery, which begins with it and ends when it is settled. It belongs to the trace
/// of the sender and to no span of ours.
///
/// `handler` is that of the message, if there is one for it.
pub(crate) fn of_delivery(delivery: &Delivery, handler: Option<&HandlerSpec>) -> Span {
    let source = delivery.source();
    let span = info_span!(
        target: "idem_runtime",
        parent: None,
        "process",
        otel.name = format!("process {}", source.entity()),
        otel.kind = "consumer",
        otel.status_code = Empty,
        error.r#type = Empty,
        messaging.system = "servicebus",
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.destination.name = source.entity(),
        messaging.message.id = delivery.message_id(),
        messaging.message.body.size = delivery.body().len(),
        messaging.servicebus.message.delivery_count = delivery.delivery_count(),
        messaging.servicebus.message.enqueued_time =
            delivery.enqueued_at().map(|at| at.unix_timestamp()),
        server.address = source.namespace(),
        idem.scope = handler.map(|handler| handler.scope),
        idem.level = handler.map(|handler| handler.level.number()),
        idem.outcome = Empty,
        trace_id = Empty,
        parent_id = Empty,
        traceparent = Empty,
        diagnostic_id = Empty,
    );
    if span.is_disabled() {
        return span;
    }
    match TraceContext::of(delivery) {
        Some(sender) => {
            span.record("trace_id", display(format_args!("{:032x}", sender.trace_id())));
            span.record("parent_id", display(format_args!("{:016x}", sender.parent_id())));
            span.record("traceparent", display(sender));
            #[cfg(feature = "opentelemetry")]
            opentelemetry::continue_trace(&span, sender, delivery);
        }
        None => {
            span.record("diagnostic_id", diagnostic_id(delivery));
        }
    }
    span
}

/// The span of deliveries that are handled together, which follows from those of each.
pub(crate) fn of_batch<'a>(
    scope: &str,
    deliveries: impl ExactSizeIterator<Item = &'a Span>,
) -> Span {
    let span = info_span!(
        target: "idem_runtime",
        parent: None,
        "process_batch",
        otel.kind = "consumer",
        messaging.system = "servicebus",
        messaging.operation.r#type = "process",
        messaging.batch.message_count = deliveries.len(),
        idem.scope = scope,
    );
    for delivery in deliveries {
        span.follows_from(delivery);
    }
    span
}

/// Says in the span of a delivery what that came to. A duplicate is no error, and neither is a key
/// that is busy.
pub(crate) fn record_outcome(span: &Span, outcome: &Outcome) {
    span.record("idem.outcome", name_of_outcome(outcome));
    let error = match outcome {
        Outcome::Done(_) | Outcome::Duplicate(_) | Outcome::Busy => return,
        Outcome::Conflict(_) => "IdempotencyConflict",
        Outcome::Retry(reason) => name_of_reason(reason),
        Outcome::Reject(rejection) => rejection.reason(),
        Outcome::Unknown(_) => "commit_in_doubt",
    };
    span.record("otel.status_code", "ERROR");
    span.record("error.type", error);
}

#[cfg(feature = "opentelemetry")]
mod opentelemetry {
    use std::str::FromStr;

    use opentelemetry::Context;
    use opentelemetry::trace::{
        SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
    };
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    use crate::delivery::Delivery;
    use crate::telemetry::TraceContext;
    use crate::telemetry::trace::text_of;

    /// Makes the sender's span the parent of ours.
    pub(super) fn continue_trace(span: &Span, sender: TraceContext, delivery: &Delivery) {
        let state = text_of(delivery, "tracestate").map(TraceState::from_str);
        let sender = SpanContext::new(
            TraceId::from(sender.trace_id()),
            SpanId::from(sender.parent_id()),
            TraceFlags::new(sender.flags()),
            true,
            state.and_then(Result::ok).unwrap_or_default(),
        );
        // Refused where no layer of OpenTelemetry listens, or none to this span.
        span.set_parent(Context::new().with_remote_span_context(sender)).ok();
    }
}
