//! MessageIds that follow from what a message says.

use std::collections::BTreeSet;
use std::fmt::Write;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::key::{KeyEncoder, KeyPart, KeyValue};

/// How long a MessageId may be, in bytes of UTF-8.
///
/// Service Bus allows 128 characters, and its Rust client counts bytes.
pub const MESSAGE_ID_SIZE_MAX: usize = 128;

/// A message whose MessageId follows from its fields, so that it has the same one however often and by
/// whomever it is sent.
///
/// The broker's own duplicate detection and handlers of level 1 go by the MessageId, and with a random
/// one they see nothing of a message that is sent again. [Derive it](macro@crate::MessageId), and give
/// the id to an [`OutgoingMessage`](crate::broker::OutgoingMessage::with_message_id_of).
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no MessageId of its own",
    label = "does not implement `MessageId`",
    note = "derive it: `#[derive(MessageId)]` and `#[message_id = \"{{order_no}}/payment\"]`"
)]
pub trait MessageId {
    /// The id: 1 to 128 bytes, always the same for the same message.
    ///
    /// # Errors
    ///
    /// When the fields make no id that the broker takes.
    fn message_id(&self) -> Result<String, MessageIdError>;
}

/// Why a message has no MessageId. It would have none however often it is tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageIdError {
    /// The id is longer than the broker takes.
    #[error(
        "the MessageId has {size} bytes, and the broker takes {MESSAGE_ID_SIZE_MAX}; name fields that \
         are shorter, such as numbers or a `Uuid`"
    )]
    TooLong {
        /// Its size in bytes.
        size: usize,
    },
    /// The only field of the id is an empty text.
    #[error("the MessageId is empty; give `{field}` a value before the message is sent")]
    Empty {
        /// The fields of the id.
        field: String,
    },
    /// A field is a struct.
    #[error(
        "`{field}` has not one value that could be part of a MessageId; name the fields of a struct \
         one by one, as in `address.postcode`"
    )]
    NotOneValue {
        /// The field.
        field: &'static str,
    },
}

/// A piece of a MessageId.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "fields may be confidential")]
pub enum Piece<'a> {
    /// Text of the template.
    Text(&'static str),
    /// A field's name and value.
    Field(&'static str, &'a dyn KeyPart),
}

/// Joins the pieces of an id in such a way that no other values make the same one.
///
/// The character that ends a field in the template is escaped in the values, so that the first one
/// after a value is the template's own: `{a}/{b}` makes `x%2Fy/z` of `x/y` and `z`, and `x/y%2Fz` of
/// `x` and `y/z`. Where nothing can be mistaken, since there is only one field, nothing is escaped.
pub fn message_id(pieces: &[Piece<'_>]) -> Result<String, MessageIdError> {
    let escaped = escaped(pieces);
    let mut id = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(text) => id.push_str(text),
            Piece::Field(name, value) => push_escaped(&mut id, &text(name, *value)?, &escaped),
        }
    }
    match id.len() {
        0 => Err(MessageIdError::Empty { field: names(pieces) }),
        1..=MESSAGE_ID_SIZE_MAX => Ok(id),
        size => Err(MessageIdError::TooLong { size }),
    }
}

/// The characters that end fields which others follow, and with them the one that escapes.
fn escaped(pieces: &[Piece<'_>]) -> BTreeSet<char> {
    let is_field = |piece: &Piece<'_>| matches!(piece, Piece::Field(..));
    let first = pieces.iter().position(is_field).unwrap_or(pieces.len());
    let last = pieces.iter().rposition(is_field).unwrap_or(first);
    let between = pieces.get(first..last).unwrap_or_default();
    let ends = between.iter().filter_map(|piece| match piece {
        Piece::Text(text) => text.chars().next(),
        Piece::Field(..) => None,
    });
    let mut escaped: BTreeSet<char> = ends.collect();
    if !escaped.is_empty() {
        escaped.insert('%');
    }
    escaped
}

/// As in URLs.
fn push_escaped(id: &mut String, value: &str, escaped: &BTreeSet<char>) {
    for character in value.chars() {
        if !escaped.contains(&character) {
            id.push(character);
            continue;
        }
        for byte in character.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(id, "%{byte:02X}");
        }
    }
}

/// A value as text: equal ones are equal texts, and those of one type are no others.
fn text(name: &'static str, value: &dyn KeyPart) -> Result<String, MessageIdError> {
    let mut key = KeyEncoder::default();
    key.part(value);
    let values = key.values();
    let [value] = values.as_slice() else {
        return Err(MessageIdError::NotOneValue { field: name });
    };
    Ok(match value {
        KeyValue::Integer(number) => number.to_string(),
        KeyValue::Bool(value) => value.to_string(),
        KeyValue::Text(text) | KeyValue::Decimal(text) => text.clone(),
        KeyValue::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        KeyValue::Uuid(id) => id.hyphenated().to_string(),
        KeyValue::Instant(instant) => instant_text(*instant),
        KeyValue::Date(date) => date.to_string(),
    })
}

/// Years before 0 and after 9999 have no text in RFC 3339.
fn instant_text(instant: OffsetDateTime) -> String {
    instant.format(&Rfc3339).unwrap_or_else(|_| instant.unix_timestamp_nanos().to_string())
}

fn names(pieces: &[Piece<'_>]) -> String {
    let names = pieces.iter().filter_map(|piece| match piece {
        Piece::Field(name, _) => Some(*name),
        Piece::Text(_) => None,
    });
    names.collect::<Vec<_>>().join("`, `")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::{date, datetime};
    use uuid::Uuid;

    use super::*;
    use crate::MessageId;

    #[derive(MessageId)]
    #[message_id = "{order_no}/payment"]
    #[message_id(crate = crate)]
    struct Payment<'a> {
        order_no: &'a str,
    }

    #[derive(MessageId)]
    #[message_id = "line {order.0}/{order.1}-{number}"]
    #[message_id(crate = crate)]
    struct Line<T> {
        order: (T, String),
        number: u32,
    }

    #[derive(MessageId)]
    #[message_id = "{0}"]
    #[message_id(crate = crate)]
    struct Alone<T>(T);

    fn line(order: &str, part: &str, number: u32) -> String {
        Line { order: (order, part.to_owned()), number }.message_id().expect("an id")
    }

    #[test]
    fn an_id_is_the_template_with_the_values_in_it() {
        assert_eq!(Payment { order_no: "A-7" }.message_id().unwrap(), "A-7/payment");
        assert_eq!(line("A_7", "b c", 3), "line A_7/b c-3");
    }

    #[test]
    fn values_have_one_text_whatever_they_were_written_as() {
        let id = |part: &dyn KeyPart| Alone(part).message_id().unwrap();
        assert_eq!(id(&-7), "-7");
        assert_eq!(id(&true), "true");
        assert_eq!(id(b"\0\xff"), "00ff");
        let uuid = "{67E55044-10B1-426F-9247-BB680E5FE0C8}".parse::<Uuid>().unwrap();
        assert_eq!(id(&uuid), "67e55044-10b1-426f-9247-bb680e5fe0c8");
        let noon = datetime!(2026-11-30 10:00:00.5 +02:00);
        assert_eq!(id(&noon), "2026-11-30T08:00:00.5Z");
        assert_eq!(id(&datetime!(-0001-01-01 00:00:00 UTC)), "-62198755200000000000");
        assert_eq!(id(&date!(2026 - 11 - 30)), "2026-11-30");
        #[cfg(feature = "decimal")]
        assert_eq!(id(&rust_decimal::Decimal::new(1000, 2)), "10");
    }

    #[test]
    fn what_ends_a_field_is_escaped_in_values_and_nothing_else_is() {
        assert_eq!(line("a/b", "c", 1), "line a%2Fb/c-1");
        assert_eq!(line("a", "b/c", 1), "line a/b%2Fc-1");
        assert_eq!(line("a%2Fb", "c-d", 1), "line a%252Fb/c%2Dd-1");
        assert_eq!(Payment { order_no: "a/b%" }.message_id().unwrap(), "a/b%/payment");
    }

    /// O-02.
    #[test]
    fn an_id_has_1_to_128_bytes() {
        let longest = "é".repeat(60);
        assert_eq!(Payment { order_no: &longest }.message_id().unwrap().len(), 128);
        let longer = longest + "x";
        let error = Payment { order_no: &longer }.message_id().unwrap_err();
        assert_eq!(error, MessageIdError::TooLong { size: 129 });
        assert!(error.to_string().contains("129 bytes, and the broker takes 128;"), "{error}");
        let error = Alone("").message_id().unwrap_err();
        assert_eq!(error, MessageIdError::Empty { field: "0".to_owned() });
        assert_eq!(Payment { order_no: "" }.message_id().unwrap(), "/payment");
    }

    #[test]
    fn a_struct_is_not_one_value() {
        #[derive(crate::KeyPart)]
        #[key_part(crate = crate)]
        struct Reference(i64, i64);
        #[derive(crate::KeyPart)]
        #[key_part(crate = crate)]
        struct CustomerId(i64);

        let error = Alone(Reference(1, 2)).message_id().unwrap_err();
        assert_eq!(error, MessageIdError::NotOneValue { field: "0" });
        assert_eq!(Alone(CustomerId(1)).message_id().unwrap(), "1");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        /// Few characters, so that ids are often nearly the same.
        #[test]
        fn other_values_make_another_id(
            left in ("[a/%2F-]{0,4}", "[a/%2F-]{0,4}", 0..2_u32),
            right in ("[a/%2F-]{0,4}", "[a/%2F-]{0,4}", 0..2_u32),
        ) {
            let ids = (line(&left.0, &left.1, left.2), line(&right.0, &right.1, right.2));
            prop_assert_eq!(left == right, ids.0 == ids.1);
        }
    }
}
