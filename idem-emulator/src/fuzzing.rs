//! What fuzz targets call, each with any bytes. It exists in builds for fuzzing and for our own
//! tests, which replay the seeds through the same functions.

use bytes::{Bytes, BytesMut};

pub use crate::amqp::fuzzing::connection;
use crate::broker::{Message, MessageState};
use crate::clock::Timestamp;
use crate::codec::Raw;
use crate::codec::message::{Sections, View, body, properties, render, rewritten, submission};
use crate::rules::{Change, Filter, Properties, PropertyValue, Rule, Rules, SystemProperty};

/// Reads `input` as a value and as a message, and uses all that can be read.
///
/// # Panics
///
/// If a message that was accepted cannot be read again.
pub fn values(input: &[u8]) {
    if let Ok((value, rest)) = Raw::split(input) {
        assert_eq!(value.bytes().len() + rest.len(), input.len());
        walk(&value, 0);
    }
    if let Ok(sections) = Sections::split(input) {
        message(&sections);
    }
}

/// Compiles `input` as a condition and an action, and applies them.
pub fn rules(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let rule = |filter| Rule::new("fuzzed", filter);
    let attempts = [rule(Filter::sql(text)), rule(Filter::True).action(text)];
    for rules in attempts.into_iter().filter_map(|rule| Rules::compile(vec![rule]).ok()) {
        for changes in rules.copies(&Sample) {
            read_again(rewritten(&[], &changes));
        }
    }
}

/// Reads `input` as a configuration file.
#[cfg(feature = "config")]
pub fn config(input: &[u8]) {
    // Only what goes wrong on the way is of interest.
    drop(crate::config::topology(input));
}

/// Visits every value inside a value: there are no more of them than bytes, but for elements of
/// arrays that take none.
fn walk(value: &Raw<'_>, depth: u32) {
    assert!(depth < 64, "checked values nest less deep");
    let (_, _, _) = (value.as_i64(), value.as_f64(), value.as_bool());
    let (_, _, _) = (value.as_text(), value.as_binary(), value.as_uuid());
    if value.descriptor().is_some() {
        return walk(&value.undescribed(), depth + 1);
    }
    for (key, value) in value.pairs() {
        walk(&key, depth + 1);
        walk(&value, depth + 1);
    }
    for item in value.items().filter(|item| item != value) {
        walk(&item, depth + 1);
    }
}

fn message(sections: &Sections<'_>) {
    let stored = submission(sections, true);
    read_again(stored.content.clone());
    let changes = [
        Change::System(SystemProperty::Subject, Some("changed".to_owned())),
        Change::User("added".to_owned(), Some("value".into())),
    ];
    read_again(rewritten(&stored.content, &changes));
    let body = body(&stored.content);
    assert!(body.len() <= stored.content.len());
    if let Some(map) = sections.application_properties {
        properties(&map);
    }
}

/// What is stored must come out as a message.
fn read_again(content: Bytes) {
    let time = Timestamp::from_milliseconds(0);
    let message = Message {
        id: None,
        session_id: None,
        time_to_live: None,
        content,
        sequence_number: 1,
        state: MessageState::Active,
        enqueued_at: time,
        expires_at: Some(time),
        delivery_count: 0,
        amendments: None,
        original_number: None,
        forwards: 0,
        destination: None,
    };
    let mut rendered = BytesMut::new();
    render(&mut rendered, &message, None);
    Sections::split(&rendered).expect("what was stored is a message");
    let view = View::of(&message.content);
    view.system(SystemProperty::Subject);
    view.user("added");
}

/// A message with a property of each kind.
struct Sample;

impl Properties for Sample {
    fn system(&self, _: SystemProperty) -> Option<PropertyValue> {
        Some("text".into())
    }

    fn user(&self, name: &str) -> Option<PropertyValue> {
        match name.len() % 5 {
            0 => None,
            1 => Some(true.into()),
            2 => Some(i64::MIN.into()),
            3 => Some(0.5.into()),
            _ => Some("a%a_a".into()),
        }
    }
}

#[cfg(test)]
mod tests;
