//! A delivery: one hand-over of a message by the broker.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;

use crate::outcome::Rejection;

/// Where a message came from: part of every level 1 key.
///
/// Two queues, two subscriptions, or equal names in two namespaces never share keys; a queue and
/// its dead-letter queue do, so that a message redriven from there keeps its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceId {
    namespace: Arc<str>,
    entity: Arc<str>,
}

impl SourceId {
    /// The source of an entity in a namespace.
    ///
    /// The namespace is a host name or an address; a port is left out, so that an emulator on
    /// another port is the same source. An IPv6 address with a port is in brackets. The entity is a path such as `orders` or
    /// `orders/Subscriptions/billing`; a dead-letter suffix is left out. Both are case-folded, as
    /// the broker does.
    pub fn new(namespace: &str, entity: &str) -> Self {
        let host = match namespace.rsplit_once(':') {
            Some((host, port))
                if port.bytes().all(|b| b.is_ascii_digit())
                    && (host.ends_with(']') || !host.contains(':')) =>
            {
                host
            }
            _ => namespace,
        };
        let entity = entity.trim_matches('/').to_lowercase();
        let entity = entity.strip_suffix("/$deadletterqueue").unwrap_or(&entity);
        Self { namespace: host.to_lowercase().into(), entity: entity.into() }
    }

    /// The namespace's host, in lower case.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The entity's path, in lower case.
    pub fn entity(&self) -> &str {
        &self.entity
    }
}

impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.entity)
    }
}

/// A message as the broker handed it over.
#[derive(Clone)]
pub struct Delivery {
    source: SourceId,
    body: Bytes,
    message_id: Option<String>,
    session_id: Option<String>,
    subject: Option<String>,
    content_type: Option<String>,
    correlation_id: Option<String>,
    properties: BTreeMap<String, Property>,
    delivery_count: u32,
    sequence_number: i64,
    enqueued_at: Option<OffsetDateTime>,
    body_defect: Option<&'static str>,
}

/// The value of an application property.
///
/// Types of the wire that have no counterpart here are given as their text.
#[derive(Clone, Debug, PartialEq)]
pub enum Property {
    /// A truth value.
    Bool(bool),
    /// A signed or unsigned integer of any width.
    Integer(i128),
    /// A floating-point number of any width.
    Float(f64),
    /// Text, symbols, UUIDs and other values as text.
    Text(String),
    /// Bytes.
    Bytes(Bytes),
    /// An instant.
    Instant(OffsetDateTime),
}

impl Delivery {
    /// A first delivery of a message with this body and nothing else.
    pub fn new(source: SourceId, body: impl Into<Bytes>) -> Self {
        Self {
            source,
            body: body.into(),
            message_id: None,
            session_id: None,
            subject: None,
            content_type: None,
            correlation_id: None,
            properties: BTreeMap::new(),
            delivery_count: 1,
            sequence_number: 0,
            enqueued_at: None,
            body_defect: None,
        }
    }

    /// Sets the MessageId; an empty one counts as missing.
    #[must_use]
    pub fn with_message_id(mut self, message_id: impl Into<String>) -> Self {
        self.message_id = Some(message_id.into()).filter(|id| !id.is_empty());
        self
    }

    /// Sets the session.
    #[must_use]
    pub fn with_session_id(mut self, session_id: impl Into<String>) -> Self {
        self.session_id = Some(session_id.into());
        self
    }

    /// Sets the subject.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the content type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the correlation id.
    #[must_use]
    pub fn with_correlation_id(mut self, correlation_id: impl Into<String>) -> Self {
        self.correlation_id = Some(correlation_id.into());
        self
    }

    /// Adds an application property.
    #[must_use]
    pub fn with_property(mut self, name: impl Into<String>, value: Property) -> Self {
        self.properties.insert(name.into(), value);
        self
    }

    /// Sets the delivery count: 1 is the first delivery.
    #[must_use]
    pub fn with_delivery_count(mut self, delivery_count: u32) -> Self {
        self.delivery_count = delivery_count;
        self
    }

    /// Sets the sequence number that the broker gave the message.
    #[must_use]
    pub fn with_sequence_number(mut self, sequence_number: i64) -> Self {
        self.sequence_number = sequence_number;
        self
    }

    /// Sets the time at which the broker accepted the message.
    #[must_use]
    pub fn with_enqueued_at(mut self, enqueued_at: OffsetDateTime) -> Self {
        self.enqueued_at = Some(enqueued_at);
        self
    }

    /// Says that the body could not be read as bytes, and why; decoding then rejects the message.
    #[must_use]
    pub fn with_unreadable_body(mut self, defect: &'static str) -> Self {
        self.body_defect = Some(defect);
        self
    }

    /// Where the message came from.
    pub fn source(&self) -> &SourceId {
        &self.source
    }

    /// The body's bytes.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The MessageId that the sender gave; never empty.
    pub fn message_id(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The session that the message belongs to, if it has one.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// The subject, also known as label.
    pub fn subject(&self) -> Option<&str> {
        self.subject.as_deref()
    }

    /// The content type that the sender declared.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The correlation id.
    pub fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// The application property of this name.
    pub fn property(&self, name: &str) -> Option<&Property> {
        self.properties.get(name)
    }

    /// How many times the message has been delivered, this time included: 1 is the first.
    pub fn delivery_count(&self) -> u32 {
        self.delivery_count
    }

    /// The number that the broker gave the message within its entity.
    pub fn sequence_number(&self) -> i64 {
        self.sequence_number
    }

    /// When the broker accepted the message, by the broker's clock.
    pub fn enqueued_at(&self) -> Option<OffsetDateTime> {
        self.enqueued_at
    }

    /// Rejects a message whose body could not be read as bytes.
    pub(crate) fn readable(&self) -> Result<&Self, Rejection> {
        match self.body_defect {
            Some(defect) => Err(Rejection::new("UnreadableBody", defect)),
            None => Ok(self),
        }
    }
}

/// What makes a message of a delivery.
#[diagnostic::on_unimplemented(
    message = "`{M}` cannot be decoded from JSON",
    label = "does not implement `serde::Deserialize`",
    note = "derive `serde::Deserialize` for the message, or name a function that decodes it: `decode = path`"
)]
pub trait Decode<M> {
    /// Makes the message.
    ///
    /// # Errors
    ///
    /// When the body is no such message: it is dead-lettered for this reason.
    fn decode(delivery: &Delivery) -> Result<M, Rejection>;
}

/// Messages are JSON in UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<M: DeserializeOwned> Decode<M> for Json {
    fn decode(delivery: &Delivery) -> Result<M, Rejection> {
        let body = &delivery.readable()?.body;
        let json = body.strip_prefix(UTF8_MARK).unwrap_or(body);
        if json.is_empty() {
            return Err(Rejection::new("EmptyBody", "the body is empty; JSON was expected"));
        }
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let message = serde_path_to_error::deserialize(&mut deserializer)
            .map_err(|error| Rejection::new(UNDECODABLE, undecodable(&error)))?;
        deserializer.end().map_err(|error| {
            Rejection::new(UNDECODABLE, format!("text after the JSON value: {error}"))
        })?;
        Ok(message)
    }
}

/// The reason of a message that does not decode.
pub(crate) const UNDECODABLE: &str = "UndecodableBody";

/// Some senders put a byte-order mark before the JSON.
const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";

fn undecodable(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let cause = error.inner();
    if cause.is_syntax() || cause.is_eof() {
        return format!("the body is not JSON: {cause}");
    }
    let cause = without_values(cause);
    match path.as_str() {
        "." => format!("the body does not fit the message: {cause}"),
        _ => format!("field `{path}` does not fit the message: {cause}"),
    }
}

/// What was expected, without what was found: the text goes into logs, and bodies do not.
fn without_values(cause: &serde_json::Error) -> String {
    let text = cause.to_string();
    if let Some((_, expected)) = text.rsplit_once(", expected ") {
        format!("expected {expected}")
    } else if text.starts_with("missing field") {
        text
    } else {
        format!("its type refuses it at line {} column {}", cause.line(), cause.column())
    }
}

impl fmt::Debug for Delivery {
    /// Bodies and property values may be confidential: only their size and names are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", &self.source)
            .field("message_id", &self.message_id)
            .field("sequence_number", &self.sequence_number)
            .field("delivery_count", &self.delivery_count)
            .field("body_len", &self.body.len())
            .field("properties", &self.properties.keys())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Order {
        customer_id: i64,
        lines: Vec<Line>,
    }

    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Line {
        amount: i64,
    }

    fn decode(body: &'static [u8]) -> Result<Order, Rejection> {
        Json::decode(&Delivery::new(SourceId::new("localhost:5672", "orders"), body))
    }

    #[test]
    fn json_is_decoded_with_and_without_a_mark() {
        let order = Order { customer_id: 7, lines: vec![Line { amount: 3 }] };
        let json = br#"{"customer_id":7,"lines":[{"amount":3}]}"#;
        assert_eq!(decode(json), Ok(order));
        assert_eq!(decode(b"\xEF\xBB\xBF{\"customer_id\":7,\"lines\":[]}").unwrap().customer_id, 7);
    }

    #[test]
    fn what_does_not_decode_is_rejected_with_a_reason_that_helps() {
        let cases: [(&[u8], &str, &str); 7] = [
            (b"", "EmptyBody", "the body is empty"),
            (b"\xEF\xBB\xBF", "EmptyBody", "the body is empty"),
            (b"order 7", "UndecodableBody", "the body is not JSON"),
            (b"{\"customer_id\":7,", "UndecodableBody", "the body is not JSON"),
            (b"null", "UndecodableBody", "the body does not fit the message"),
            (b"{\"customer_id\":7,\"lines\":[]} x", "UndecodableBody", "text after the JSON value"),
            (
                b"{\"customer_id\":7,\"lines\":[{\"amount\":\"many\"}]}",
                "UndecodableBody",
                "field `lines[0].amount` does not fit the message: expected i64",
            ),
        ];
        for (body, reason, description) in cases {
            let rejection = decode(body).expect_err("must be rejected");
            assert_eq!(rejection.reason(), reason);
            assert!(rejection.description().contains(description), "{rejection}");
        }
    }

    #[test]
    fn a_rejection_says_what_was_expected_and_not_what_was_found() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Colour {
            Red,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only decoded")]
        struct Paint {
            colour: Colour,
            litres: u8,
            #[serde(deserialize_with = "picky")]
            note: String,
        }
        fn picky<'de, D: serde::Deserializer<'de>>(_: D) -> Result<String, D::Error> {
            Err(serde::de::Error::custom("secret is not allowed"))
        }
        let cases = [
            (r#"{"colour":"secret"}"#, "field `colour` does not fit the message: expected `red`"),
            (r#"{"colour":"red","litres":"secret"}"#, "field `litres`"),
            (r#"{"colour":"red","litres":7777}"#, "expected u8"),
            (r#"{"colour":"red","litres":7,"note":"x"}"#, "field `note`"),
            (r#"{"litres":7}"#, "missing field `colour`"),
        ];
        for (body, expected) in cases {
            let source = SourceId::new("bus.example.net", "paint");
            let delivery = Delivery::new(source, body);
            let rejection = <Json as Decode<Paint>>::decode(&delivery).expect_err("no paint");
            let text = rejection.description();
            assert!(text.contains(expected), "{text}");
            assert!(!text.contains("secret") && !text.contains("7777"), "{text}");
        }
    }

    #[test]
    fn a_source_is_the_same_whatever_its_port_case_and_dead_letter_suffix() {
        let orders = SourceId::new("bus.example.net", "orders");
        assert_eq!(SourceId::new("BUS.example.net:5672", "/Orders/"), orders);
        assert_eq!(SourceId::new("bus.example.net", "orders/$DeadLetterQueue"), orders);
        assert_ne!(SourceId::new("bus.example.net", "orders/Subscriptions/a"), orders);
    }

    #[test]
    fn of_an_ipv6_address_only_a_port_behind_brackets_is_left_out() {
        for (namespace, host) in [
            ("[fe80::1]:5672", "[fe80::1]"),
            ("[fe80::1]", "[fe80::1]"),
            ("fe80::1", "fe80::1"),
            ("::1", "::1"),
            ("127.0.0.1:5672", "127.0.0.1"),
        ] {
            assert_eq!(SourceId::new(namespace, "orders").namespace(), host);
        }
    }

    #[test]
    fn an_empty_message_id_is_none() {
        let delivery = Delivery::new(SourceId::new("h", "q"), "{}").with_message_id("");
        assert_eq!(delivery.message_id(), None);
    }

    #[test]
    fn debug_shows_no_content() {
        let delivery = Delivery::new(SourceId::new("h", "q"), "secret body")
            .with_property("token", Property::Text("secret value".to_owned()));
        assert!(!format!("{delivery:?}").contains("secret"));
    }
}
