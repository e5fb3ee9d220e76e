//! Messages of the wire to ours and back.
//!
//! The client's own accessors panic on annotations of an unexpected type, and give no body that
//! consists of several sections or of a value. So everything is read from the raw message here,
//! and what is missing or odd has a meaning instead of a panic.

use std::error::Error;

use azservicebus::ServiceBusMessage;
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

/// Copies a message out of the client.
pub(super) fn delivery(source: &SourceId, message: &RawMessage) -> Delivery {
    let mut delivery = match body(&message.body) {
        Ok(bytes) => Delivery::new(source.clone(), bytes),
        Err(defect) => Delivery::new(source.clone(), Bytes::new()).with_unreadable_body(defect),
    };
    if let Some(properties) = &message.properties {
        delivery = with_properties(delivery, properties);
    }
    for (name, value) in message.application_properties.iter().flat_map(|map| map.iter()) {
        if let Some(value) = property(value) {
            delivery = delivery.with_property(name, value);
        }
    }
    if let Some(enqueued_at) = enqueued_at(message) {
        delivery = delivery.with_enqueued_at(enqueued_at);
    }
    delivery
        .with_delivery_count(delivery_count(message.header.as_ref()))
        .with_sequence_number(sequence_number(message).unwrap_or_default())
}

/// When the broker accepted the message, by its clock.
pub(super) fn enqueued_at(message: &RawMessage) -> Option<OffsetDateTime> {
    instant(message, ENQUEUED_TIME)
}

/// When the lock ends, by the broker's clock.
pub(super) fn locked_until(message: &RawMessage) -> Option<OffsetDateTime> {
    instant(message, LOCKED_UNTIL)
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
    let texts = [&message.message_id, &message.session_id, &message.subject, &message.content_type];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    message.body.len() + 2 * texts + FRAMING
}

/// A message of ours for the client.
///
/// # Errors
///
/// When the MessageId is empty, or it or the session id longer than the broker takes.
pub(super) fn outgoing(
    message: OutgoingMessage,
) -> Result<ServiceBusMessage, Box<dyn Error + Send + Sync>> {
    let mut out = ServiceBusMessage::new(message.body);
    if let Some(message_id) = message.message_id {
        out.set_message_id(message_id)?;
    }
    out.set_session_id(message.session_id)?;
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
    if let Some(session_id) = &properties.group_id {
        delivery = delivery.with_session_id(session_id);
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

#[cfg(test)]
pub(super) mod tests {
    use azservicebus_amqp_types::messaging::{
        AmqpSequence, AmqpValue, ApplicationProperties, Batch,
    };
    use azservicebus_amqp_types::primitives::Symbol;
    use time::macros::datetime;

    use super::*;

    fn raw(body: Body<Value>) -> RawMessage {
        RawMessage {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: None,
            application_properties: None,
            body,
            footer: None,
        }
    }

    fn read(message: &RawMessage) -> Delivery {
        delivery(&SourceId::new("localhost", "orders"), message)
    }

    fn data(sections: &[&[u8]]) -> Body<Value> {
        let sections = sections.iter().map(|bytes| Data::from(bytes.to_vec()));
        Body::Data(Batch::from(sections.collect::<Vec<_>>()))
    }

    fn value(value: Value) -> Body<Value> {
        Body::Value(AmqpValue(value))
    }

    fn annotated(annotations: Vec<(&str, Value)>) -> RawMessage {
        let mut message = raw(Body::Empty);
        let annotations = annotations.into_iter();
        let annotations = annotations.map(|(name, value)| (Symbol::from(name).into(), value));
        message.message_annotations = Some(MessageAnnotations(annotations.collect()));
        message
    }

    pub(in super::super) fn raw_without_anything() -> RawMessage {
        raw(Body::Empty)
    }

    pub(in super::super) fn enqueued_and_locked(
        enqueued_at: OffsetDateTime,
        locked_until: OffsetDateTime,
    ) -> RawMessage {
        let value = |at: OffsetDateTime| {
            let milliseconds = at.unix_timestamp() * 1_000;
            Value::Timestamp(Timestamp::from_milliseconds(milliseconds))
        };
        annotated(vec![(ENQUEUED_TIME, value(enqueued_at)), (LOCKED_UNTIL, value(locked_until))])
    }

    #[test]
    fn bodies_of_text_or_bytes_are_read() {
        let cases = [
            (data(&[b"one"]), "one"),
            (data(&[b"one, ", b"", b"two"]), "one, two"),
            (data(&[]), ""),
            (value(Value::String("text".to_owned())), "text"),
            (value(Value::Binary(b"bytes".to_vec().into())), "bytes"),
            (value(Value::Null), ""),
            (Body::Empty, ""),
        ];
        for (body, expected) in cases {
            assert_eq!(read(&raw(body)).body().as_ref(), expected.as_bytes());
        }
    }

    #[test]
    fn other_bodies_are_a_defect_that_decoding_tells() {
        let cases = [
            (value(Value::Int(7)), "neither text nor bytes"),
            (value(Value::List(Vec::new())), "neither text nor bytes"),
            (Body::Sequence(Batch::from(vec![AmqpSequence(vec![Value::Int(7)])])), "sequence"),
        ];
        for (body, expected) in cases {
            let rejection = read(&raw(body)).readable().unwrap_err();
            assert_eq!(rejection.reason(), "UnreadableBody");
            assert!(rejection.description().contains(expected), "{rejection}");
        }
    }

    #[test]
    fn ids_of_every_type_have_one_text() {
        let uuid = [0xAB; 16].into();
        let cases = [
            (MessageId::String("Order 7".to_owned()), Some("Order 7")),
            (MessageId::String(String::new()), None),
            (MessageId::Ulong(u64::MAX), Some("18446744073709551615")),
            (MessageId::Uuid(uuid), Some("abababab-abab-abab-abab-abababababab")),
            (MessageId::Binary(vec![0, 0x0F, 0xFF].into()), Some("000fff")),
            (MessageId::Binary(Vec::new().into()), None),
        ];
        for (id, expected) in cases {
            let mut message = raw(Body::Empty);
            message.properties = Some(Properties {
                message_id: Some(id.clone()),
                correlation_id: Some(id),
                ..Properties::default()
            });
            let delivery = read(&message);
            assert_eq!(delivery.message_id(), expected);
            assert_eq!(delivery.correlation_id().unwrap_or_default(), expected.unwrap_or_default());
        }
    }

    #[test]
    fn a_message_without_anything_is_a_first_delivery() {
        let delivery = read(&raw(Body::Empty));
        assert_eq!(delivery.delivery_count(), 1);
        assert_eq!(delivery.sequence_number(), 0);
        assert_eq!(delivery.enqueued_at(), None);
        assert_eq!(delivery.message_id(), None);
        assert_eq!(locked_until(&raw(Body::Empty)), None);
    }

    #[test]
    fn annotations_are_read() {
        let message = annotated(vec![
            (SEQUENCE_NUMBER, Value::Long(41)),
            (ENQUEUED_TIME, Value::Timestamp(Timestamp::from_milliseconds(1_000))),
            (LOCKED_UNTIL, Value::Timestamp(Timestamp::from_milliseconds(2_000))),
        ]);
        let delivery = read(&message);
        assert_eq!(delivery.sequence_number(), 41);
        assert_eq!(delivery.enqueued_at(), Some(datetime!(1970-01-01 00:00:01 UTC)));
        assert_eq!(locked_until(&message), Some(datetime!(1970-01-01 00:00:02 UTC)));
    }

    #[test]
    fn odd_annotations_count_as_missing() {
        let ends = [i64::MIN, i64::MAX];
        for end in ends.map(|end| Value::Timestamp(Timestamp::from_milliseconds(end))) {
            for odd in [end, Value::Null, Value::String("soon".to_owned())] {
                let message = annotated(vec![
                    (SEQUENCE_NUMBER, odd.clone()),
                    (ENQUEUED_TIME, odd.clone()),
                    (LOCKED_UNTIL, odd),
                ]);
                let delivery = read(&message);
                assert_eq!(delivery.sequence_number(), 0);
                assert_eq!(delivery.enqueued_at(), None);
                assert_eq!(locked_until(&message), None);
            }
        }
    }

    #[test]
    fn the_largest_delivery_count_does_not_overflow() {
        let mut message = raw(Body::Empty);
        message.header = Some(Header { delivery_count: u32::MAX, ..Header::default() });
        assert_eq!(read(&message).delivery_count(), u32::MAX);
    }

    #[test]
    fn application_properties_keep_their_kind() {
        let instant = Timestamp::from_milliseconds(1_000);
        let cases = [
            (SimpleValue::Bool(true), Some(Property::Bool(true))),
            (SimpleValue::Ulong(u64::MAX), Some(Property::Integer(u64::MAX.into()))),
            (SimpleValue::Byte(-1), Some(Property::Integer(-1))),
            (SimpleValue::Double(0.5.into()), Some(Property::Float(0.5))),
            (SimpleValue::Char('é'), Some(Property::Text("é".to_owned()))),
            (SimpleValue::Symbol(Symbol::from("s")), Some(Property::Text("s".to_owned()))),
            (
                SimpleValue::Uuid([0x0A; 16].into()),
                Some(Property::Text("0a0a0a0a-0a0a-0a0a-0a0a-0a0a0a0a0a0a".to_owned())),
            ),
            (
                SimpleValue::Binary(vec![1, 2].into()),
                Some(Property::Bytes(Bytes::from_static(&[1, 2]))),
            ),
            (
                SimpleValue::Timestamp(instant),
                Some(Property::Instant(datetime!(1970-01-01 00:00:01 UTC))),
            ),
            (SimpleValue::Null, None),
        ];
        for (value, expected) in cases {
            let mut message = raw(Body::Empty);
            let properties = ApplicationProperties::builder().insert("p", value).build();
            message.application_properties = Some(properties);
            assert_eq!(read(&message).property("p").cloned(), expected);
        }
    }

    #[test]
    fn a_message_id_must_have_1_to_128_characters() {
        let message = |id: String| OutgoingMessage::default().with_message_id(id);
        assert!(outgoing(message("é".repeat(64))).is_ok());
        assert!(outgoing(message("x".repeat(129))).is_err());
        assert!(outgoing(message(String::new())).is_err());
    }
}
