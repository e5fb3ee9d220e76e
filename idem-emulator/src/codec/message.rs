//! Between a message on the wire and a message in the broker.
//!
//! The broker stores one run of bytes per message: a short layout, then the sender's annotations,
//! properties, application properties and body as they were encoded. Only this module reads it.

mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use super::raw::Raw;
use super::{DecodeError, encode};
use crate::broker::{DeadLetter, Message, MessageState, Property, Submission};
use crate::clock::Timestamp;

pub(crate) use view::{View, property_value, rewritten, write_property_value};

const HEADER: u64 = 0x70;
const DELIVERY_ANNOTATIONS: u64 = 0x71;
const MESSAGE_ANNOTATIONS: u64 = 0x72;
const PROPERTIES: u64 = 0x73;
const APPLICATION_PROPERTIES: u64 = 0x74;
const DATA: u64 = 0x75;
const SEQUENCE: u64 = 0x76;
const VALUE: u64 = 0x77;
const FOOTER: u64 = 0x78;

/// Annotations that only the broker writes; a sender's values are dropped.
const BROKER_ANNOTATIONS: [&str; 6] = [
    "x-opt-sequence-number",
    "x-opt-enqueue-sequence-number",
    "x-opt-enqueued-time",
    "x-opt-locked-until",
    "x-opt-message-state",
    "x-opt-deadletter-source",
];

const LOCK_TOKEN: &str = "x-opt-lock-token";

/// `absolute-expiry-time` among the properties.
const EXPIRY_FIELD: usize = 8;

const REASON_PROPERTY: &str = "DeadLetterReason";
const DESCRIPTION_PROPERTY: &str = "DeadLetterErrorDescription";

/// The sections of an encoded message. Everything but the body has been checked in depth.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sections<'a> {
    header: Option<Raw<'a>>,
    delivery_annotations: Option<Raw<'a>>,
    message_annotations: Option<Raw<'a>>,
    properties: Option<Raw<'a>>,
    pub(crate) application_properties: Option<Raw<'a>>,
    /// The body sections and the footer, encoded.
    body: &'a [u8],
}

impl<'a> Sections<'a> {
    /// Takes sections in any order, as the broker in the cloud does: the Python client sends delivery
    /// annotations last. Only the body must be in one piece.
    pub(crate) fn split(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut sections = Self::default();
        let mut rest = payload;
        while !rest.is_empty() {
            let (section, after) = Raw::split_unchecked(rest)?;
            let (code, _) =
                section.as_described().ok_or(DecodeError::Section("not a described type"))?;
            if matches!(code, DATA | SEQUENCE | VALUE | FOOTER) {
                let body;
                (body, rest) = split_body(rest)?;
                if !std::mem::replace(&mut sections.body, body).is_empty() {
                    return Err(DecodeError::Section("the body is not in one piece"));
                }
                continue;
            }
            sections.place(code, section)?;
            rest = after;
        }
        Ok(sections)
    }

    fn place(&mut self, code: u64, section: Raw<'a>) -> Result<(), DecodeError> {
        let place = match code {
            HEADER => &mut self.header,
            DELIVERY_ANNOTATIONS => &mut self.delivery_annotations,
            MESSAGE_ANNOTATIONS => &mut self.message_annotations,
            PROPERTIES => &mut self.properties,
            APPLICATION_PROPERTIES => &mut self.application_properties,
            _ => return Err(DecodeError::Section("unknown descriptor")),
        };
        if place.is_some() {
            return Err(DecodeError::Section("it occurs twice"));
        }
        let (checked, _) = Raw::split(section.bytes())?;
        let content = checked.undescribed();
        let is_right = match code {
            HEADER | PROPERTIES => content.is_list(),
            _ => content.is_map(),
        };
        if !is_right {
            return Err(DecodeError::Section("its content has the wrong type"));
        }
        *place = Some(content);
        Ok(())
    }

    fn property(&self, index: usize) -> Option<Raw<'a>> {
        self.properties?.items().nth(index).filter(|value| !value.is_null())
    }

    pub(crate) fn message_id(&self) -> Option<Raw<'a>> {
        self.property(0)
    }

    pub(crate) fn reply_to(&self) -> Option<&'a str> {
        self.property(4)?.as_text()
    }

    fn session_id(&self) -> Option<&'a str> {
        self.property(10)?.as_text()
    }

    fn partition_key(&self) -> Option<&'a str> {
        self.message_annotations?.get("x-opt-partition-key")?.as_text()
    }

    pub(crate) fn application_property(&self, name: &str) -> Option<Raw<'a>> {
        self.application_properties?.get(name)
    }

    fn header_field(&self, index: usize) -> Option<Raw<'a>> {
        self.header?.items().nth(index).filter(|value| !value.is_null())
    }

    fn time_to_live_milliseconds(&self) -> Option<u32> {
        self.header_field(2)?.as_u32()
    }

    fn time_to_live(&self) -> Option<Duration> {
        self.time_to_live_milliseconds().map(|time| Duration::from_millis(u64::from(time)))
    }

    /// The time at which the sender wants the message to be enqueued.
    fn scheduled_for(&self) -> Option<Timestamp> {
        let time = self.message_annotations?.get("x-opt-scheduled-enqueue-time")?;
        time.as_i64().map(Timestamp::from_milliseconds)
    }

    /// The value of an amqp-value body.
    pub(crate) fn body_value(&self) -> Option<Raw<'a>> {
        let (section, _) = Raw::split(self.body).ok()?;
        section.as_described().filter(|(code, _)| *code == VALUE).map(|(_, value)| value)
    }

    /// The bytes of each data section.
    pub(crate) fn data(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.body;
        std::iter::from_fn(move || {
            let (section, after) = Raw::split_unchecked(rest).ok()?;
            rest = after;
            section.as_described().filter(|(code, _)| *code == DATA)?.1.as_binary()
        })
    }
}

/// The sections of a body that begins here, and what follows them.
fn split_body(payload: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut rest = payload;
    while !rest.is_empty() {
        let (section, after) = Raw::split_unchecked(rest)?;
        match section.as_described() {
            Some((DATA | SEQUENCE | VALUE | FOOTER, _)) => rest = after,
            Some(_) | None => break,
        }
    }
    Ok(payload.split_at(payload.len() - rest.len()))
}

/// Turns a sender's message into what the broker stores, with a random id if it has none and
/// should be given one.
pub(crate) fn submission(sections: &Sections<'_>, assigns_ids: bool) -> Submission {
    let assigned = (assigns_ids && sections.message_id().is_none())
        .then(|| Uuid::new_v4().simple().to_string());
    pack(sections, assigned.as_deref())
}

/// `assigned_id` is used if the sender gave none.
fn pack(sections: &Sections<'_>, assigned_id: Option<&str>) -> Submission {
    let sent_id = sections.message_id().and_then(|id| id_text(&id));
    let assigned_id = assigned_id.filter(|_| sent_id.is_none());
    let content = Layout::write(sections, assigned_id);
    let id = sent_id.as_deref().or(assigned_id).map(Arc::from);
    Submission {
        id,
        session_id: sections.session_id().map(Arc::from),
        partition_key: sections.partition_key().map(Arc::from),
        destination: None,
        property_size_max: property_size_max(sections),
        properties_size: properties_size(&content),
        time_to_live: sections.time_to_live(),
        scheduled_for: sections.scheduled_for(),
        content,
    }
}

/// The size of the largest application property, its name included.
fn property_size_max(sections: &Sections<'_>) -> usize {
    let properties = sections.application_properties.iter().flat_map(Raw::pairs);
    properties.map(|(name, value)| name.bytes().len() + value.bytes().len()).max().unwrap_or(0)
}

/// The size of all that a stored message has beside its body.
pub(crate) fn properties_size(content: &[u8]) -> usize {
    let layout = Layout::read(content).unwrap_or_default();
    layout.annotations.len() + layout.properties.len() + layout.application.len()
}

/// A message id as text, whatever type it was sent with.
fn id_text(id: &Raw<'_>) -> Option<String> {
    if let Some(text) = id.as_text() {
        return Some(text.to_owned());
    }
    if let Some(uuid) = id.as_uuid() {
        return Some(uuid.to_string());
    }
    if let Some(number) = id.as_u64() {
        return Some(number.to_string());
    }
    id.as_binary().map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The stored form, read back.
#[derive(Debug, Default)]
struct Layout<'a> {
    durable: Option<bool>,
    priority: Option<u8>,
    ttl_milliseconds: Option<u32>,
    delivery_pairs: u32,
    delivery: &'a [u8],
    annotation_pairs: u32,
    annotations: &'a [u8],
    properties: &'a [u8],
    application_pairs: u32,
    application: &'a [u8],
    body: &'a [u8],
}

const DURABLE: u8 = 1;
const HAS_DURABLE: u8 = 2;
const HAS_PRIORITY: u8 = 4;
const HAS_TTL: u8 = 8;
const LAYOUT_BYTES: usize = 34;

impl<'a> Layout<'a> {
    fn write(sections: &Sections<'_>, assigned_id: Option<&str>) -> Bytes {
        let durable = sections.header_field(0).and_then(|value| value.as_bool());
        let priority =
            sections.header_field(1).and_then(|value| u8::try_from(value.as_u32()?).ok());
        let ttl = sections.time_to_live_milliseconds();
        let (delivery_pairs, delivery) =
            own_annotations(sections.delivery_annotations, &[LOCK_TOKEN]);
        let (annotation_pairs, annotations) =
            own_annotations(sections.message_annotations, &BROKER_ANNOTATIONS);
        let properties = match (assigned_id, sections.properties) {
            (Some(id), properties) => properties_with_id(properties, id),
            (None, Some(properties)) => properties_section(|out| out.put_slice(properties.bytes())),
            (None, None) => BytesMut::new(),
        };
        let (application_pairs, application) = sections
            .application_properties
            .map_or((0, BytesMut::new()), |map| copy_pairs(&map, |_| true));

        let layout = Layout {
            durable,
            priority,
            ttl_milliseconds: ttl,
            delivery_pairs,
            delivery: &delivery,
            annotation_pairs,
            annotations: &annotations,
            properties: &properties,
            application_pairs,
            application: &application,
            body: sections.body,
        };
        layout.to_bytes()
    }

    fn to_bytes(&self) -> Bytes {
        let flags = u8::from(self.durable == Some(true)) * DURABLE
            + u8::from(self.durable.is_some()) * HAS_DURABLE
            + u8::from(self.priority.is_some()) * HAS_PRIORITY
            + u8::from(self.ttl_milliseconds.is_some()) * HAS_TTL;
        let total = LAYOUT_BYTES
            + self.delivery.len()
            + self.annotations.len()
            + self.properties.len()
            + self.application.len()
            + self.body.len();
        let mut out = BytesMut::with_capacity(total);
        out.put_u8(flags);
        out.put_u8(self.priority.unwrap_or(0));
        out.put_u32(self.ttl_milliseconds.unwrap_or(0));
        out.put_u32(self.delivery_pairs);
        out.put_u32(encode::length(self.delivery.len()));
        out.put_u32(self.annotation_pairs);
        out.put_u32(encode::length(self.annotations.len()));
        out.put_u32(encode::length(self.properties.len()));
        out.put_u32(self.application_pairs);
        out.put_u32(encode::length(self.application.len()));
        out.put_slice(self.delivery);
        out.put_slice(self.annotations);
        out.put_slice(self.properties);
        out.put_slice(self.application);
        out.put_slice(self.body);
        out.freeze()
    }

    /// The application properties as a map.
    fn application_map(&self) -> BytesMut {
        let mut map = BytesMut::new();
        encode::map(&mut map, self.application_pairs, |out| out.put_slice(self.application));
        map
    }

    /// The application properties by name; of several with one name the first.
    fn application_properties(&self) -> HashMap<&'a str, Raw<'a>> {
        let mut rest = self.application;
        let pairs = std::iter::from_fn(|| {
            let (key, after) = Raw::split_unchecked(rest).ok()?;
            let value;
            (value, rest) = Raw::split_unchecked(after).ok()?;
            Some((key, value))
        });
        let mut properties = HashMap::new();
        for (key, value) in pairs {
            if let Some(name) = key.as_text() {
                properties.entry(name).or_insert(value);
            }
        }
        properties
    }

    /// The fields of the properties.
    fn property_fields(&self) -> Vec<Raw<'a>> {
        let section = Raw::split(self.properties).ok().map(|(section, _)| section.undescribed());
        section.map(|list| list.items().collect()).unwrap_or_default()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    fn read(mut content: &'a [u8]) -> Option<Self> {
        let flags = content.try_get_u8().ok()?;
        let priority = content.try_get_u8().ok()?;
        let ttl = content.try_get_u32().ok()?;
        let delivery_pairs = content.try_get_u32().ok()?;
        let delivery = content.try_get_u32().ok()?;
        let annotation_pairs = content.try_get_u32().ok()?;
        let annotations = content.try_get_u32().ok()?;
        let properties = content.try_get_u32().ok()?;
        let application_pairs = content.try_get_u32().ok()?;
        let application = content.try_get_u32().ok()?;
        let (delivery, rest) = content.split_at_checked(usize::try_from(delivery).ok()?)?;
        let (annotations, rest) = rest.split_at_checked(usize::try_from(annotations).ok()?)?;
        let (properties, rest) = rest.split_at_checked(usize::try_from(properties).ok()?)?;
        let (application, body) = rest.split_at_checked(usize::try_from(application).ok()?)?;
        Some(Self {
            durable: (flags & HAS_DURABLE != 0).then_some(flags & DURABLE != 0),
            priority: (flags & HAS_PRIORITY != 0).then_some(priority),
            ttl_milliseconds: (flags & HAS_TTL != 0).then_some(ttl),
            delivery_pairs,
            delivery,
            annotation_pairs,
            annotations,
            properties,
            application_pairs,
            application,
            body,
        })
    }
}

/// The sender's annotations without those that only the broker writes.
fn own_annotations(sent: Option<Raw<'_>>, brokers: &[&str]) -> (u32, BytesMut) {
    sent.map_or((0, BytesMut::new()), |map| {
        copy_pairs(&map, |key| key.as_text().is_none_or(|name| !brokers.contains(&name)))
    })
}

/// The encoded keys and values of a map, of those keys that `keep` accepts.
fn copy_pairs(map: &Raw<'_>, keep: impl Fn(&Raw<'_>) -> bool) -> (u32, BytesMut) {
    let mut out = BytesMut::with_capacity(map.bytes().len());
    let mut count = 0;
    for (key, value) in map.pairs().filter(|(key, _)| keep(key)) {
        out.put_slice(key.bytes());
        out.put_slice(value.bytes());
        count += 1;
    }
    (count, out)
}

fn properties_section(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    encode::descriptor(&mut out, PROPERTIES);
    write(&mut out);
    out
}

/// The properties section with its first field, the message id, replaced.
fn properties_with_id(properties: Option<Raw<'_>>, id: &str) -> BytesMut {
    let others: Vec<_> = properties.map(|list| list.items().skip(1).collect()).unwrap_or_default();
    properties_section(|out| {
        encode::list(out, encode::length(others.len() + 1), |out| {
            encode::string(out, id);
            for other in others {
                out.put_slice(other.bytes());
            }
        });
    })
}

/// Writes a stored message as receivers see it. `lock` is the lock token and the end of the lock.
pub(crate) fn render(out: &mut BytesMut, message: &Message, lock: Option<(Uuid, Timestamp)>) {
    let layout = Layout::read(&message.content).unwrap_or_default();
    render_head(out, &layout, message, lock);
    out.put_slice(layout.body);
}

/// Writes a stored message as receivers see it, without its body.
pub(crate) fn render_without_body(out: &mut BytesMut, message: &Message) {
    let layout = Layout::read(&message.content).unwrap_or_default();
    render_head(out, &layout, message, None);
}

fn render_head(
    out: &mut BytesMut,
    layout: &Layout<'_>,
    message: &Message,
    lock: Option<(Uuid, Timestamp)>,
) {
    render_header(out, layout, message.delivery_count);
    render_delivery_annotations(out, layout, lock.map(|(token, _)| token));
    render_annotations(out, layout, message, lock.map(|(_, until)| until));
    match message.expires_at {
        None => out.put_slice(layout.properties),
        Some(at) => render_properties_with_expiry(out, layout, at),
    }
    render_application_properties(out, layout, message);
}

/// The properties with `absolute-expiry-time` set.
fn render_properties_with_expiry(out: &mut BytesMut, layout: &Layout<'_>, expires_at: Timestamp) {
    let fields = layout.property_fields();
    let count = fields.len().max(EXPIRY_FIELD + 1);
    encode::descriptor(out, PROPERTIES);
    encode::list(out, encode::length(count), |out| {
        for index in 0..count {
            match fields.get(index) {
                _ if index == EXPIRY_FIELD => encode::timestamp(out, expires_at.milliseconds()),
                Some(field) => out.put_slice(field.bytes()),
                None => encode::null(out),
            }
        }
    });
}

fn render_header(out: &mut BytesMut, layout: &Layout<'_>, delivery_count: u32) {
    encode::descriptor(out, HEADER);
    encode::list(out, 5, |out| {
        encode::optional(out, layout.durable, encode::boolean);
        encode::optional(out, layout.priority, encode::ubyte);
        encode::optional(out, layout.ttl_milliseconds, encode::uint);
        // The broker in the cloud leaves `first-acquirer` out.
        encode::null(out);
        // Written even when 0: clients take a missing count for an unknown one.
        encode::uint(out, delivery_count);
    });
}

fn render_delivery_annotations(out: &mut BytesMut, layout: &Layout<'_>, token: Option<Uuid>) {
    let pairs = layout.delivery_pairs + u32::from(token.is_some());
    if pairs == 0 {
        return;
    }
    encode::descriptor(out, DELIVERY_ANNOTATIONS);
    encode::map(out, pairs, |out| {
        out.put_slice(layout.delivery);
        if let Some(token) = token {
            encode::symbol(out, LOCK_TOKEN);
            encode::uuid(out, token);
        }
    });
}

fn render_annotations(
    out: &mut BytesMut,
    layout: &Layout<'_>,
    message: &Message,
    locked_until: Option<Timestamp>,
) {
    let source = message.dead_letter().map(|dead_letter| &dead_letter.source);
    let is_active = message.state == MessageState::Active;
    let pairs = layout.annotation_pairs
        + 2
        + u32::from(message.original_number.is_some())
        + u32::from(!is_active)
        + u32::from(locked_until.is_some())
        + u32::from(source.is_some());
    encode::descriptor(out, MESSAGE_ANNOTATIONS);
    encode::map(out, pairs, |out| {
        out.put_slice(layout.annotations);
        encode::symbol(out, "x-opt-sequence-number");
        encode::long(out, message.sequence_number);
        if let Some(number) = message.original_number {
            encode::symbol(out, "x-opt-enqueue-sequence-number");
            encode::long(out, number);
        }
        encode::symbol(out, "x-opt-enqueued-time");
        encode::timestamp(out, message.enqueued_at.milliseconds());
        if !is_active {
            encode::symbol(out, "x-opt-message-state");
            encode::int(out, message.state.code());
        }
        if let Some(until) = locked_until {
            encode::symbol(out, "x-opt-locked-until");
            encode::timestamp(out, until.milliseconds());
        }
        if let Some(source) = source {
            encode::symbol(out, "x-opt-deadletter-source");
            encode::string(out, source);
        }
    });
}

fn render_application_properties(out: &mut BytesMut, layout: &Layout<'_>, message: &Message) {
    let Some(amendments) = &message.amendments else {
        if layout.application_pairs > 0 {
            encode::descriptor(out, APPLICATION_PROPERTIES);
            encode::map(out, layout.application_pairs, |out| out.put_slice(layout.application));
        }
        return;
    };
    let properties = amendments.properties.iter();
    let mut added: BTreeMap<&str, Bytes> =
        properties.map(|(name, value)| (name.as_str(), value.clone())).collect();
    if let Some(dead_letter) = &amendments.dead_letter {
        added.extend(reason_properties(dead_letter));
    }
    let (kept_pairs, kept) = original_pairs(layout, &added);
    encode::descriptor(out, APPLICATION_PROPERTIES);
    encode::map(out, kept_pairs + encode::length(added.len()), |out| {
        out.put_slice(&kept);
        for (name, value) in &added {
            encode::string(out, name);
            out.put_slice(value);
        }
    });
}

/// The sender's application properties, without those that have been replaced.
fn original_pairs(layout: &Layout<'_>, replaced: &BTreeMap<&str, Bytes>) -> (u32, BytesMut) {
    let map = layout.application_map();
    Raw::split(&map).map_or((0, BytesMut::new()), |(map, _)| {
        copy_pairs(&map, |key| key.as_text().is_none_or(|key| !replaced.contains_key(key)))
    })
}

fn reason_properties(dead_letter: &DeadLetter) -> impl Iterator<Item = (&str, Bytes)> {
    let reason = dead_letter.reason.as_deref().map(|text| (REASON_PROPERTY, text));
    let description = dead_letter.description.as_deref().map(|text| (DESCRIPTION_PROPERTY, text));
    reason.into_iter().chain(description).map(|(name, text)| {
        let mut value = BytesMut::new();
        encode::string(&mut value, text);
        (name, value.freeze())
    })
}

/// The entries of a map as application properties; keys that are not text are left out.
pub(crate) fn properties(map: &Raw<'_>) -> Vec<Property> {
    map.pairs()
        .filter_map(|(key, value)| {
            let value = Bytes::copy_from_slice(value.bytes());
            Some(Property { name: key.as_text()?.to_owned(), value })
        })
        .collect()
}

/// The body of a stored message: the bytes of its data sections, or of its string or binary value;
/// the encoded sections for anything else.
pub(crate) fn body(content: &Bytes) -> Bytes {
    let layout = Layout::read(content).unwrap_or_default();
    let sections = Sections { body: layout.body, ..Sections::default() };
    let mut data = sections.data();
    if let Some(first) = data.next() {
        return match data.next() {
            None => content.slice_ref(first),
            Some(second) => [first, second].into_iter().chain(data).flatten().copied().collect(),
        };
    }
    match sections
        .body_value()
        .and_then(|value| value.as_binary().or(value.as_text().map(str::as_bytes)))
    {
        Some(bytes) => content.slice_ref(bytes),
        None => content.slice_ref(layout.body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::Amendments;
    use fe2o3_amqp_types::messaging::annotations::AnnotationKey;
    use fe2o3_amqp_types::messaging::message::__private::{Deserializable, Serializable};
    use fe2o3_amqp_types::messaging::{self, ApplicationProperties, Body, MessageId, Properties};
    use fe2o3_amqp_types::primitives::{SimpleValue, Symbol, Value};
    use serde_amqp::primitives::Binary;

    type WireMessage = messaging::Message<Body<Value>>;

    fn wire_message(id: Option<MessageId>) -> WireMessage {
        messaging::Message::builder()
            .properties(Properties {
                message_id: id,
                subject: Some("s".to_owned()),
                ..Properties::default()
            })
            .application_properties(
                ApplicationProperties::builder().insert("kept", 1).insert("changed", 2).build(),
            )
            .body(Body::Data(vec![messaging::Data(Binary::from(b"hello".to_vec()))].into()))
            .build()
    }

    fn packed(message: &WireMessage, assigned: Option<&str>) -> Submission {
        let bytes = serde_amqp::to_vec(&Serializable(message)).unwrap();
        pack(&Sections::split(&bytes).unwrap(), assigned)
    }

    fn stored(submission: Submission) -> Message {
        Message {
            id: submission.id,
            content: submission.content,
            sequence_number: 7,
            session_id: submission.session_id,
            destination: None,
            time_to_live: submission.time_to_live,
            state: MessageState::Active,
            enqueued_at: Timestamp::from_milliseconds(1000),
            expires_at: None,
            delivery_count: 0,
            amendments: None,
            original_number: None,
            forwards: 0,
        }
    }

    fn rendered(message: &Message) -> WireMessage {
        let mut out = BytesMut::new();
        render(&mut out, message, Some((Uuid::from_u128(9), Timestamp::from_milliseconds(2000))));
        serde_amqp::from_slice::<Deserializable<WireMessage>>(&out).unwrap().0
    }

    #[test]
    fn a_message_comes_out_as_it_went_in_with_the_brokers_stamps() {
        let original = wire_message(Some(MessageId::String("m-1".to_owned())));
        let submission = packed(&original, Some("unused"));
        assert_eq!(submission.id.as_deref(), Some("m-1"));
        let out = rendered(&stored(submission));
        assert_eq!(out.properties, original.properties);
        assert_eq!(out.application_properties, original.application_properties);
        assert_eq!(format!("{:?}", out.body), format!("{:?}", original.body));
        let annotations = format!("{:?}", out.message_annotations);
        for name in ["x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-locked-until"] {
            assert!(annotations.contains(name), "{annotations}");
        }
        assert!(format!("{:?}", out.delivery_annotations).contains("x-opt-lock-token"));
    }

    #[test]
    fn message_ids_of_every_type_become_text() {
        let ids = [
            (MessageId::Ulong(12), "12"),
            (MessageId::Uuid([0x11; 16].into()), "11111111-1111-1111-1111-111111111111"),
            (MessageId::Binary(Binary::from(vec![0xab, 1])), "ab01"),
        ];
        for (id, text) in ids {
            assert_eq!(packed(&wire_message(Some(id)), None).id.as_deref(), Some(text));
        }
        assert_eq!(packed(&wire_message(None), None).id, None);
    }

    #[test]
    fn an_assigned_id_leaves_the_other_properties_alone() {
        let submission = packed(&wire_message(None), Some("given"));
        assert_eq!(submission.id.as_deref(), Some("given"));
        let properties = rendered(&stored(submission)).properties.unwrap();
        assert_eq!(properties.message_id, Some(MessageId::String("given".to_owned())));
        assert_eq!(properties.subject.as_deref(), Some("s"));
    }

    #[test]
    fn amendments_replace_properties_of_the_same_name() {
        let mut value = BytesMut::new();
        encode::int(&mut value, 3);
        let mut message = stored(packed(&wire_message(None), None));
        message.amendments = Some(Arc::new(Amendments {
            properties: BTreeMap::from([("changed".to_owned(), value.freeze())]),
            dead_letter: Some(DeadLetter {
                reason: Some("why".into()),
                description: None,
                source: "orders".into(),
            }),
        }));
        let properties = rendered(&message).application_properties.unwrap();
        assert_eq!(properties.get("kept"), Some(&SimpleValue::Int(1)));
        assert_eq!(properties.get("changed"), Some(&SimpleValue::Int(3)));
        assert_eq!(properties.get(REASON_PROPERTY), Some(&SimpleValue::String("why".to_owned())));
    }

    #[test]
    fn the_body_is_read_without_its_encoding() {
        assert_eq!(body(&packed(&wire_message(None), None).content), "hello");
    }

    const BODY: [u8; 6] = [0x00, 0x53, 0x75, 0xa0, 1, b'x'];
    const PROPERTIES_SECTION: [u8; 4] = [0x00, 0x53, 0x73, 0x45];

    #[test]
    fn a_section_may_follow_the_body_but_not_part_it() {
        let sections = |parts: &[&[u8]]| Sections::split(&parts.concat()).map(|it| it.body.len());
        let (body, other) = (&BODY[..], &PROPERTIES_SECTION[..]);
        assert_eq!(sections(&[other, body]).unwrap(), BODY.len());
        assert_eq!(sections(&[body, other]).unwrap(), BODY.len());
        assert_eq!(sections(&[body, body, other]).unwrap(), 2 * BODY.len());
        assert!(sections(&[body, other, body]).is_err());
    }

    #[test]
    fn sections_that_are_unknown_or_occur_twice_are_refused() {
        assert!(Sections::split(&[PROPERTIES_SECTION, PROPERTIES_SECTION].concat()).is_err());
        assert!(Sections::split(&[0x00, 0x53, 0x99, 0x45]).is_err());
    }

    /// The elements of an array share one type code: they cannot be handed on one by one.
    #[test]
    fn sections_are_lists_or_maps_as_they_should_be() {
        let array: [u8; 9] = [0x00, 0x53, 0x73, 0xe0, 4, 1, 0xa1, 1, b'x'];
        assert!(Raw::split(&array).is_ok(), "it is a value");
        assert!(Sections::split(&array).is_err());
        for section in [HEADER, PROPERTIES] {
            let mut bytes = BytesMut::new();
            encode::descriptor(&mut bytes, section);
            encode::map(&mut bytes, 0, |_| {});
            assert!(Sections::split(&bytes).is_err(), "{section:x}");
        }
        for section in [DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, APPLICATION_PROPERTIES] {
            let mut bytes = BytesMut::new();
            encode::descriptor(&mut bytes, section);
            encode::list(&mut bytes, 0, |_| {});
            assert!(Sections::split(&bytes).is_err(), "{section:x}");
        }
    }

    #[test]
    fn delivery_annotations_reach_the_receiver_wherever_they_were_sent() {
        // As the Python client encodes them: after the body.
        let mut bytes = BytesMut::from(&BODY[..]);
        encode::descriptor(&mut bytes, DELIVERY_ANNOTATIONS);
        encode::map(&mut bytes, 2, |out| {
            encode::symbol(out, "mine");
            encode::int(out, 3);
            encode::symbol(out, "x-opt-lock-token");
            encode::int(out, 4);
        });
        let message = stored(pack(&Sections::split(&bytes).unwrap(), None));
        let annotations = rendered(&message).delivery_annotations.unwrap().0;
        assert_eq!(annotations.len(), 2);
        assert_eq!(
            annotations.get(&Symbol::from("mine") as &dyn AnnotationKey),
            Some(&Value::Int(3))
        );
        let token = annotations.get(&Symbol::from("x-opt-lock-token") as &dyn AnnotationKey);
        assert!(matches!(token, Some(Value::Uuid(_))), "{token:?}");
    }

    #[test]
    fn what_the_sender_left_out_of_the_header_stays_out() {
        let mut bytes = BytesMut::new();
        render(&mut bytes, &stored(packed(&wire_message(None), None)), None);
        let (header, _) = Raw::split(&bytes).unwrap();
        let fields: Vec<bool> = header.undescribed().items().map(|field| field.is_null()).collect();
        assert_eq!(fields, [true, true, true, true, false]);

        let mut durable = wire_message(None);
        durable.header = Some(messaging::Header { durable: true, ..messaging::Header::default() });
        assert!(rendered(&stored(packed(&durable, None))).header.unwrap().durable);
    }

    #[test]
    fn only_what_says_something_is_stamped() {
        let stamps = |message: &Message| rendered(message).message_annotations.unwrap().0.len();
        let mut message = stored(packed(&wire_message(None), None));
        assert_eq!(stamps(&message), 3);
        message.state = MessageState::Deferred;
        assert_eq!(stamps(&message), 4);
        message.original_number = Some(1);
        assert_eq!(stamps(&message), 5);
    }
}
