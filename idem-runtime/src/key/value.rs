//! A key's parts as values, for those who compare them with columns.

use std::fmt;

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::tag;

/// A part of a key, or a field that must agree, as a database compares it with a column.
#[derive(Clone, PartialEq, Eq)]
pub enum KeyValue {
    /// An integer of any width.
    Integer(i128),
    /// A `bool`.
    Bool(bool),
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A UUID.
    Uuid(Uuid),
    /// An instant.
    Instant(OffsetDateTime),
    /// A date.
    Date(Date),
    /// A decimal number, in digits with a point and without needless zeros.
    Decimal(String),
}

impl fmt::Debug for KeyValue {
    /// Keys may be confidential: only the type is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Integer(_) => "Integer(..)",
            Self::Bool(_) => "Bool(..)",
            Self::Text(_) => "Text(..)",
            Self::Bytes(_) => "Bytes(..)",
            Self::Uuid(_) => "Uuid(..)",
            Self::Instant(_) => "Instant(..)",
            Self::Date(_) => "Date(..)",
            Self::Decimal(_) => "Decimal(..)",
        })
    }
}

impl KeyValue {
    /// The first value of encoded parts, and what is after it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (tag, rest) = after_records(bytes)?.split_first()?;
        Some(match *tag {
            tag::INTEGER => {
                let (negative, rest) = rest.split_first()?;
                let (magnitude, rest) = rest.split_first_chunk()?;
                let magnitude = i128::try_from(u128::from_be_bytes(*magnitude)).ok()?;
                (Self::Integer(if *negative == 1 { -magnitude } else { magnitude }), rest)
            }
            tag::BOOL => {
                let (value, rest) = rest.split_first()?;
                (Self::Bool(*value == 1), rest)
            }
            tag::TEXT => {
                let (text, rest) = sized(rest)?;
                (Self::Text(String::from_utf8(text.to_vec()).ok()?), rest)
            }
            tag::BYTES => {
                let (bytes, rest) = sized(rest)?;
                (Self::Bytes(bytes.to_vec()), rest)
            }
            tag::UUID => {
                let (bytes, rest) = rest.split_first_chunk()?;
                (Self::Uuid(Uuid::from_bytes(*bytes)), rest)
            }
            tag::INSTANT => {
                let (nanos, rest) = rest.split_first_chunk()?;
                let nanos = i128::from_be_bytes(*nanos);
                (Self::Instant(OffsetDateTime::from_unix_timestamp_nanos(nanos).ok()?), rest)
            }
            tag::DATE => {
                let (day, rest) = rest.split_first_chunk()?;
                (Self::Date(Date::from_julian_day(i32::from_be_bytes(*day)).ok()?), rest)
            }
            tag::DECIMAL => {
                let (digits, rest) = rest.split_first_chunk()?;
                let (after_the_point, rest) = rest.split_first_chunk()?;
                let after_the_point = u32::from_be_bytes(*after_the_point);
                (Self::Decimal(decimal(i128::from_be_bytes(*digits), after_the_point)?), rest)
            }
            _ => return None,
        })
    }
}

/// What a struct's fields are is of no interest to columns: one by one they come.
fn after_records(mut bytes: &[u8]) -> Option<&[u8]> {
    while let Some((&tag::RECORD, fields)) = bytes.split_first() {
        let (_count, rest) = fields.split_first_chunk::<8>()?;
        bytes = rest;
    }
    Some(bytes)
}

/// With as many digits after the point, of which there are never more than 28.
fn decimal(digits: i128, after_the_point: u32) -> Option<String> {
    let after_the_point = usize::try_from(after_the_point).ok().filter(|count| *count <= 28)?;
    let sign = if digits < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = after_the_point + 1);
    let (whole, fraction) = digits.split_at_checked(digits.len() - after_the_point)?;
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}
