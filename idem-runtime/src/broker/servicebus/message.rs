//! Messages of the wire to ours and back.
//!
//! The client's own accessors panic on annotations of an unexpected type, and give no body that
//! consists of several sections or of a value. So everything is read from the raw message here,
//! and what is missing or odd has a meaning instead of a panic.

use std::time::Duration;

use azservicebus::ServiceBusMessage;
use azservicebus::amqp::error::SetMessageIdError;
use azservicebus_amqp_types::messaging::annotations::AnnotationKey;
use azservicebus_amqp_types::messaging::{
    Body, Data, Header, Message, MessageAnnotations, MessageId, Properties,
};
use azservicebus_amqp_types::primitives::{SimpleValue, Timestamp, Value};
use bytes::Bytes;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::broker::OutgoingMessage;
use crate::delivery::{Delivery, Property, SourceId};

pub(super) type RawMessage = Message<Body<Value>>;

const SEQUENCE_NUMBER: &str = "x-opt-sequence-number";
const ENQUEUED_TIME: &str = "x-opt-enqueued-time";
const LOCKED_UNTIL: &str = "x-opt-locked-until";

/// What we count on when the broker does not say how long a lock holds: the shortest lock that a
/// queue can have.
const LOCK_REMAINING_DEFAULT: Duration = Duration::from_secs(5);

/// Copies a message out of the client.
pub(super) fn delivery(source: &SourceId, message: &RawMessage) -> Delivery {
    let mut delivery = match body(&message.body) {
        Ok(bytes) => Delivery::new(source.clone(), bytes),
        Err(defect) => Delivery::new(source.clone(), Bytes::new()).with_body_defect(defect),
    };
    if let Some(properties) = &message.properties {
        delivery = with_properties(delivery, properties);
    }
    for (name, value) in message.application_properties.iter().flat_map(|map| map.iter()) {
        if let Some(value) = property(value) {
            delivery = delivery.with_property(name, value);
        }
    }
    if let Some(enqueued_at) = instant(message, ENQUEUED_TIME) {
        delivery = delivery.with_enqueued_at(enqueued_at);
    }
    delivery
        .with_delivery_count(delivery_count(message.header.as_ref()))
        .with_sequence_number(sequence_number(message).unwrap_or_default())
}

/// How long the lock holds from now.
///
/// The broker gives an instant of its own clock, which we compare with ours: the two must agree
/// to within a fraction of a lock. Where they do not, locks are renewed too often or too late; a
/// lock lost that way costs a second delivery, never a second effect.
pub(super) fn lock_remaining(message: &RawMessage) -> Duration {
    match instant(message, LOCKED_UNTIL) {
        Some(locked_until) => (locked_until - now()).try_into().unwrap_or(Duration::ZERO),
        None => LOCK_REMAINING_DEFAULT,
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is compared with an instant of the broker's clock, which no test can move"
)]
fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The number that the broker gave the message within its entity.
pub(super) fn sequence_number(message: &RawMessage) -> Option<i64> {
    match annotation(message.message_annotations.as_ref(), SEQUENCE_NUMBER)? {
        Value::Long(number) => Some(*number),
        _ => None,
    }
}

/// At most how large a message is on the wire, within a batch whose envelope repeats its
/// properties.
pub(super) fn size_max(message: &OutgoingMessage) -> usize {
    /// Lengths and type codes of all sections come to less.
    const FRAMING: usize = 256;
    let texts = [&message.message_id, &message.subject, &message.content_type];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    message.body.len() + 2 * texts + FRAMING
}

/// A message of ours for the client.
///
/// # Errors
///
/// When the MessageId is empty or longer than the broker takes.
pub(super) fn outgoing(message: OutgoingMessage) -> Result<ServiceBusMessage, SetMessageIdError> {
    let mut out = ServiceBusMessage::new(message.body);
    if let Some(message_id) = message.message_id {
        out.set_message_id(message_id)?;
    }
    out.set_subject(message.subject);
    out.set_content_type(message.content_type);
    Ok(out)
}

fn body(body: &Body<Value>) -> Result<Bytes, &'static str> {
    match body {
        Body::Data(sections) => Ok(joined(sections)),
        Body::Value(section) => match &section.0 {
            Value::Binary(bytes) => Ok(Bytes::copy_from_slice(bytes)),
            Value::String(text) => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Value::Null => Ok(Bytes::new()),
            _ => Err("the body is an AMQP value that is neither text nor bytes"),
        },
        Body::Sequence(_) => Err("the body is an AMQP sequence; text or bytes were expected"),
        Body::Empty => Ok(Bytes::new()),
    }
}

fn joined(sections: &[Data]) -> Bytes {
    match sections {
        [section] => Bytes::copy_from_slice(&section.0),
        sections => {
            let bytes = sections.iter().flat_map(|section| section.0.iter().copied());
            bytes.collect::<Vec<_>>().into()
        }
    }
}

fn with_properties(mut delivery: Delivery, properties: &Properties) -> Delivery {
    if let Some(message_id) = &properties.message_id {
        delivery = delivery.with_message_id(id_text(message_id));
    }
    if let Some(correlation_id) = &properties.correlation_id {
        delivery = delivery.with_correlation_id(id_text(correlation_id));
    }
    if let Some(subject) = &properties.subject {
        delivery = delivery.with_subject(subject);
    }
    if let Some(content_type) = &properties.content_type {
        delivery = delivery.with_content_type(&content_type.0);
    }
    delivery
}

/// An id of any AMQP type as text. Level 1 keys are made of it, so it must never change.
fn id_text(id: &MessageId) -> String {
    match id {
        MessageId::String(text) => text.clone(),
        MessageId::Ulong(number) => number.to_string(),
        MessageId::Uuid(uuid) => Uuid::from_bytes(*uuid.as_inner()).hyphenated().to_string(),
        MessageId::Binary(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

/// `None` for a null, which is as good as a property that is not there.
fn property(value: &SimpleValue) -> Option<Property> {
    let property = match value {
        SimpleValue::Null => return None,
        SimpleValue::Bool(value) => Property::Bool(*value),
        SimpleValue::Ubyte(value) => Property::Integer((*value).into()),
        SimpleValue::Ushort(value) => Property::Integer((*value).into()),
        SimpleValue::Uint(value) => Property::Integer((*value).into()),
        SimpleValue::Ulong(value) => Property::Integer((*value).into()),
        SimpleValue::Byte(value) => Property::Integer((*value).into()),
        SimpleValue::Short(value) => Property::Integer((*value).into()),
        SimpleValue::Int(value) => Property::Integer((*value).into()),
        SimpleValue::Long(value) => Property::Integer((*value).into()),
        SimpleValue::Float(value) => Property::Float(value.0.into()),
        SimpleValue::Double(value) => Property::Float(value.0),
        SimpleValue::Char(value) => Property::Text(value.to_string()),
        SimpleValue::String(value) => Property::Text(value.clone()),
        SimpleValue::Symbol(value) => Property::Text(value.0.clone()),
        SimpleValue::Uuid(value) => {
            Property::Text(Uuid::from_bytes(*value.as_inner()).hyphenated().to_string())
        }
        SimpleValue::Binary(value) => Property::Bytes(Bytes::copy_from_slice(value)),
        SimpleValue::Timestamp(value) => match from_timestamp(value) {
            Some(instant) => Property::Instant(instant),
            None => Property::Text(format!("{value:?}")),
        },
        SimpleValue::Decimal32(_)
        | SimpleValue::Decimal64(_)
        | SimpleValue::Decimal128(_)
        | SimpleValue::Described(_) => Property::Text(format!("{value:?}")),
    };
    Some(property)
}

/// The header counts the deliveries before this one; no header means none.
fn delivery_count(header: Option<&Header>) -> u32 {
    header.map_or(0, |header| header.delivery_count).saturating_add(1)
}

fn instant(message: &RawMessage, name: &str) -> Option<OffsetDateTime> {
    match annotation(message.message_annotations.as_ref(), name)? {
        Value::Timestamp(timestamp) => from_timestamp(timestamp),
        _ => None,
    }
}

fn annotation<'a>(annotations: Option<&'a MessageAnnotations>, name: &str) -> Option<&'a Value> {
    annotations?.get(&name as &dyn AnnotationKey)
}

/// `None` where the year has more than four digits.
fn from_timestamp(timestamp: &Timestamp) -> Option<OffsetDateTime> {
    let nanoseconds = i128::from(timestamp.milliseconds()) * 1_000_000;
    OffsetDateTime::from_unix_timestamp_nanos(nanoseconds).ok()
}
