//! What rules see of a stored message, and how their actions change it.

use std::cell::OnceCell;
use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, PROPERTIES, copy_pairs, id_text};
use crate::codec::{Raw, encode};
use crate::rules::{Change, Properties, PropertyValue, SystemProperty};

/// A stored message, taken apart.
#[derive(Debug)]
pub(crate) struct View<'a> {
    fields: Vec<Raw<'a>>,
    layout: Layout<'a>,
    /// The application properties, read when a rule asks for the first one: there may be thousands of
    /// them, and of rules that ask.
    application: OnceCell<HashMap<&'a str, Raw<'a>>>,
}

impl<'a> View<'a> {
    pub(crate) fn of(content: &'a [u8]) -> Self {
        let layout = Layout::read(content).unwrap_or_default();
        Self { fields: layout.property_fields(), layout, application: OnceCell::new() }
    }

    pub(crate) fn message_id(&self) -> Option<String> {
        self.text(SystemProperty::MessageId)
    }

    pub(crate) fn session_id(&self) -> Option<String> {
        self.text(SystemProperty::SessionId)
    }

    fn text(&self, property: SystemProperty) -> Option<String> {
        id_text(self.fields.get(field(property))?)
    }
}

impl Properties for View<'_> {
    fn system(&self, property: SystemProperty) -> Option<PropertyValue> {
        self.text(property).map(PropertyValue::Text)
    }

    fn user(&self, name: &str) -> Option<PropertyValue> {
        let properties = self.application.get_or_init(|| self.layout.application_properties());
        property_value(properties.get(name)?)
    }
}

/// The place of a property among the properties of a message.
fn field(property: SystemProperty) -> usize {
    match property {
        SystemProperty::MessageId => 0,
        SystemProperty::To => 2,
        SystemProperty::Subject => 3,
        SystemProperty::ReplyTo => 4,
        SystemProperty::CorrelationId => 5,
        SystemProperty::ContentType => 6,
        SystemProperty::SessionId => 10,
        SystemProperty::ReplyToSessionId => 12,
    }
}

/// The value of an application property; nothing for null.
pub(crate) fn property_value(value: &Raw<'_>) -> Option<PropertyValue> {
    if value.is_null() {
        return None;
    }
    if let Some(truth) = value.as_bool() {
        return Some(truth.into());
    }
    if let Some(text) = value.as_text() {
        return Some(text.into());
    }
    if let Some(number) = value.as_integer() {
        return Some(number.into());
    }
    if let Some(number) = value.as_f64() {
        return Some(number.into());
    }
    Some(PropertyValue::Encoded(value.bytes().to_vec()))
}

pub(crate) fn write_property_value(out: &mut BytesMut, value: &PropertyValue) {
    match value {
        PropertyValue::Boolean(truth) => encode::boolean(out, *truth),
        PropertyValue::Integer(number) => encode::long(out, *number),
        PropertyValue::Real(number) => encode::double(out, *number),
        PropertyValue::Text(text) => encode::string(out, text),
        PropertyValue::Encoded(bytes) => out.put_slice(bytes),
    }
}

/// A stored message with changes made to it, one after the other.
pub(crate) fn rewritten(content: &[u8], changes: &[Change]) -> Bytes {
    let layout = Layout::read(content).unwrap_or_default();
    let mut fields: Vec<Bytes> = layout
        .property_fields()
        .iter()
        .map(|field| Bytes::copy_from_slice(field.bytes()))
        .collect();
    let mut pairs = layout.application_pairs;
    let mut application = BytesMut::from(layout.application);
    for change in changes {
        match change {
            Change::System(property, text) => set_field(&mut fields, *property, text.as_deref()),
            Change::User(name, value) => {
                (pairs, application) = set_pair(pairs, &application, name, value.as_ref());
            }
        }
    }
    let mut properties = BytesMut::new();
    encode::descriptor(&mut properties, PROPERTIES);
    encode::list(&mut properties, encode::length(fields.len()), |out| {
        fields.iter().for_each(|field| out.put_slice(field));
    });
    let changed = Layout {
        properties: &properties,
        application_pairs: pairs,
        application: &application,
        ..layout
    };
    changed.to_bytes()
}

fn set_field(fields: &mut Vec<Bytes>, property: SystemProperty, text: Option<&str>) {
    let mut value = BytesMut::new();
    encode::optional(&mut value, text, encode::string);
    let index = field(property);
    while fields.len() <= index {
        fields.push(Bytes::from_static(&[0x40]));
    }
    if let Some(field) = fields.get_mut(index) {
        *field = value.freeze();
    }
}

fn set_pair(
    pairs: u32,
    application: &[u8],
    name: &str,
    value: Option<&PropertyValue>,
) -> (u32, BytesMut) {
    let mut map = BytesMut::new();
    encode::map(&mut map, pairs, |out| out.put_slice(application));
    let is_other = |key: &Raw<'_>| key.as_text() != Some(name);
    let (mut pairs, mut changed) =
        Raw::split(&map).map(|(map, _)| copy_pairs(&map, is_other)).unwrap_or_default();
    if let Some(value) = value {
        encode::string(&mut changed, name);
        write_property_value(&mut changed, value);
        pairs += 1;
    }
    (pairs, changed)
}
