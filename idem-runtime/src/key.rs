//! Keys: what makes two deliveries the same.
//!
//! A key is encoded to bytes that no other key shares, and the database stores a digest of them.
//! The encoding is typed and length-prefixed, so `("a,b", "c")` and `("a", "b,c")` differ, and so
//! do `1` and `"1"`. Nothing is folded: case, accents, trailing spaces and Unicode forms all count.
//! A field that should fold says so in its own type.

use std::fmt;

use sha2::{Digest as _, Sha256};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use crate::delivery::SourceId;
use crate::handler::Level;

/// First byte of everything that is hashed. A change of the encoding changes this number.
const ENCODING_VERSION: u8 = 1;

/// A value that can be part of an idempotency key.
///
/// Implemented for integers, `bool`, text, bytes, [`Uuid`], [`OffsetDateTime`] (the instant, at
/// full nanosecond precision, whatever its offset) and [`Date`]. An integer's key does not depend
/// on its width: a field that grows from `i32` to `i64` keeps its keys.
///
/// Floats have no canonical value, maps no order, and an absent `Option` would let messages without
/// the field share one key; none of them is a key part.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of an idempotency key",
    label = "not usable as a key field",
    note = "key fields implement `KeyPart`: integers, `bool`, strings, bytes, `Uuid`, `OffsetDateTime`, `Date`",
    note = "floats, maps and `Option` are left out on purpose: equal keys must always be equal, and an absent field must not be a key"
)]
pub trait KeyPart {
    /// Appends this value to the key.
    fn encode(&self, key: &mut KeyEncoder);
}

/// Collects the parts of a key in their declared order.
#[derive(Default)]
pub struct KeyEncoder {
    bytes: Vec<u8>,
}

impl fmt::Debug for KeyEncoder {
    /// Keys may be confidential: only the size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEncoder").field("len", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// Tags keep values of different types apart. They are part of the stored encoding: never reuse one.
mod tag {
    pub(super) const INTEGER: u8 = 1;
    pub(super) const BOOL: u8 = 2;
    pub(super) const TEXT: u8 = 3;
    pub(super) const BYTES: u8 = 4;
    pub(super) const UUID: u8 = 5;
    pub(super) const INSTANT: u8 = 6;
    pub(super) const DATE: u8 = 7;
}

impl KeyEncoder {
    /// Appends one part.
    pub fn part<P: KeyPart + ?Sized>(&mut self, part: &P) {
        part.encode(self);
    }

    fn fixed<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&bytes);
    }

    fn sized(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&length_prefix(bytes));
        self.bytes.extend_from_slice(bytes);
    }

    /// Sign and magnitude cover every integer type with one encoding.
    fn integer(&mut self, negative: bool, magnitude: u128) {
        self.bytes.push(tag::INTEGER);
        self.bytes.push(u8::from(negative));
        self.bytes.extend_from_slice(&magnitude.to_be_bytes());
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The parts as a database compares them with its columns.
    pub(crate) fn values(&self) -> Vec<KeyValue> {
        let mut values = Vec::new();
        let mut rest = self.bytes.as_slice();
        while let Some((value, after)) = KeyValue::read(rest) {
            values.push(value);
            rest = after;
        }
        values
    }
}

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
        })
    }
}

impl KeyValue {
    /// The first value of encoded parts, and what is after it.
    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (tag, rest) = bytes.split_first()?;
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
            _ => return None,
        })
    }
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)
}

/// Eight bytes whatever the platform's word size.
fn length_prefix(bytes: &[u8]) -> [u8; 8] {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes()
}

/// What the ledger stores for a key: the first 16 bytes of SHA-256 over encoding version, level,
/// scope and key.
///
/// A fixed size keeps collation, length limits and NUL bytes of the database out of the question.
/// Among 10^10 keys the chance of one accidental collision is about 1.5 × 10^-19.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 16]);

impl Digest {
    /// The digest of a level 2 key; `None` when the key has no parts.
    pub(crate) fn of_fields(scope: &str, key: &KeyEncoder) -> Option<Self> {
        (!key.is_empty()).then(|| Self::of(Level::Two, scope, key))
    }

    /// The digest of a level 1 key: the MessageId within its source.
    pub(crate) fn of_message_id(scope: &str, source: &SourceId, message_id: &str) -> Self {
        let mut key = KeyEncoder::default();
        key.part(source.namespace());
        key.part(source.entity());
        key.part(message_id);
        Self::of(Level::One, scope, &key)
    }

    /// A digest as an engine gives it back; `None` when these are not its bytes.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn from_stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The digest of no message.
    pub(crate) fn random() -> Self {
        Self(fastrand::u128(..).to_be_bytes())
    }

    fn of(level: Level, scope: &str, key: &KeyEncoder) -> Self {
        let mut hash = Sha256::new();
        hash.update([ENCODING_VERSION, level.number()]);
        hash.update(length_prefix(scope.as_bytes()));
        hash.update(scope.as_bytes());
        hash.update(&key.bytes);
        let mut digest = [0; 16];
        digest.copy_from_slice(&hash.finalize()[..16]);
        Self(digest)
    }

    /// The digest as bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The digest as the `uuid` that Postgres stores.
    pub fn as_uuid(&self) -> Uuid {
        Uuid::from_bytes(self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.as_uuid().simple())
    }
}

macro_rules! integers {
    (signed: $($signed:ty)+; unsigned: $($unsigned:ty)+) => {
        $(impl KeyPart for $signed {
            fn encode(&self, key: &mut KeyEncoder) {
                key.integer(*self < 0, self.unsigned_abs().into());
            }
        })+
        $(impl KeyPart for $unsigned {
            fn encode(&self, key: &mut KeyEncoder) {
                key.integer(false, (*self).into());
            }
        })+
    };
}

// `isize` and `usize` are left out: a message's fields have the same width on every machine.
integers!(signed: i8 i16 i32 i64 i128; unsigned: u8 u16 u32 u64 u128);

impl KeyPart for bool {
    fn encode(&self, key: &mut KeyEncoder) {
        key.fixed(tag::BOOL, [u8::from(*self)]);
    }
}

impl KeyPart for str {
    fn encode(&self, key: &mut KeyEncoder) {
        key.sized(tag::TEXT, self.as_bytes());
    }
}

impl KeyPart for String {
    fn encode(&self, key: &mut KeyEncoder) {
        self.as_str().encode(key);
    }
}

impl KeyPart for [u8] {
    fn encode(&self, key: &mut KeyEncoder) {
        key.sized(tag::BYTES, self);
    }
}

impl KeyPart for Vec<u8> {
    fn encode(&self, key: &mut KeyEncoder) {
        self.as_slice().encode(key);
    }
}

impl<const N: usize> KeyPart for [u8; N] {
    fn encode(&self, key: &mut KeyEncoder) {
        self.as_slice().encode(key);
    }
}

impl KeyPart for Uuid {
    fn encode(&self, key: &mut KeyEncoder) {
        key.fixed(tag::UUID, *self.as_bytes());
    }
}

impl KeyPart for OffsetDateTime {
    fn encode(&self, key: &mut KeyEncoder) {
        key.fixed(tag::INSTANT, self.unix_timestamp_nanos().to_be_bytes());
    }
}

impl KeyPart for Date {
    fn encode(&self, key: &mut KeyEncoder) {
        key.fixed(tag::DATE, self.to_julian_day().to_be_bytes());
    }
}

impl<P: KeyPart + ?Sized> KeyPart for &P {
    fn encode(&self, key: &mut KeyEncoder) {
        (**self).encode(key);
    }
}

/// The fields of a message that must agree among messages of one key, as hashes that the ledger
/// keeps: which of them differ can be told, and their values cannot.
///
/// Each field is the first 4 bytes of SHA-256 over its name and the first 8 over its encoding, so
/// fields can be added, removed and put in another order: those that both sides have are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    bytes: Vec<u8>,
    names: Vec<&'static str>,
    /// The same fields for those who compare them with columns.
    values: Vec<KeyValue>,
}

const FINGERPRINT_NAME: usize = 4;
const FINGERPRINT_FIELD: usize = 12;

impl Fingerprint {
    /// Appends one field.
    pub fn field<P: KeyPart + ?Sized>(&mut self, name: &'static str, value: &P) {
        let mut key = KeyEncoder::default();
        key.part(value);
        let (name_hash, value_hash) = (Sha256::digest(name), Sha256::digest(&key.bytes));
        self.bytes.extend_from_slice(&name_hash[..FINGERPRINT_NAME]);
        self.bytes.extend_from_slice(&value_hash[..FINGERPRINT_FIELD - FINGERPRINT_NAME]);
        self.names.push(name);
        self.values.extend(key.values());
    }

    /// What the ledger stores.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields with their values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &KeyValue)> {
        self.names.iter().copied().zip(&self.values)
    }

    /// The fields that differ from those of an earlier message, as stored.
    pub(crate) fn differing(&self, earlier: &[u8]) -> Vec<&'static str> {
        let fields = self.bytes.chunks_exact(FINGERPRINT_FIELD).zip(&self.names);
        let differs = |field: &[u8]| {
            let (name, value) = field.split_at(FINGERPRINT_NAME);
            let mut earlier = earlier.chunks_exact(FINGERPRINT_FIELD);
            let before = earlier.find(|before| before.starts_with(name));
            before.is_some_and(|before| !before.ends_with(value))
        };
        fields.filter(|(field, _)| differs(field)).map(|(_, name)| *name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::{date, datetime};

    fn digest(parts: &[&dyn KeyPartObject]) -> Digest {
        let mut key = KeyEncoder::default();
        for part in parts {
            part.append(&mut key);
        }
        Digest::of_fields("orders.place", &key).expect("at least one part")
    }

    /// Lets a test mix types in one slice.
    trait KeyPartObject {
        fn append(&self, key: &mut KeyEncoder);
    }

    impl<P: KeyPart> KeyPartObject for P {
        fn append(&self, key: &mut KeyEncoder) {
            self.encode(key);
        }
    }

    #[test]
    fn splits_of_the_same_text_differ() {
        for separator in [",", "|", ":", "/", "\\", "\n", "\0", "\u{3}"] {
            let joined = format!("a{separator}b");
            let tail = format!("b{separator}c");
            assert_ne!(
                digest(&[&joined.as_str(), &"c"]),
                digest(&[&"a", &tail.as_str()]),
                "separator {separator:?}"
            );
        }
        assert_ne!(digest(&[&"", &"x"]), digest(&[&"x", &""]));
        assert_ne!(digest(&[&"x"]), digest(&[&"x", &""]));
    }

    #[test]
    fn types_are_kept_apart_and_integer_widths_are_not() {
        assert_ne!(digest(&[&1i64]), digest(&[&"1"]));
        assert_ne!(digest(&[&"a"]), digest(&[b"a"]));
        assert_ne!(digest(&[&true]), digest(&[&1u8]));
        assert_ne!(digest(&[&-1i64]), digest(&[&1i64]));
        assert_eq!(digest(&[&7i32]), digest(&[&7u64]));
        assert_eq!(digest(&[&-7i8]), digest(&[&-7i128]));
    }

    #[test]
    fn nothing_is_folded() {
        for (left, right) in
            [("Ab1", "aB1"), ("é", "e"), ("ß", "ss"), ("a", "a "), ("é", "e\u{301}")]
        {
            assert_ne!(digest(&[&left]), digest(&[&right]), "{left:?} and {right:?}");
        }
    }

    #[test]
    fn equal_instants_are_one_key_and_a_nanosecond_counts() {
        let noon = datetime!(2026-11-30 10:00:00 +02:00);
        assert_eq!(digest(&[&noon]), digest(&[&datetime!(2026-11-30 08:00:00 UTC)]));
        assert_ne!(digest(&[&noon]), digest(&[&datetime!(2026-11-30 08:00:00.000000001 UTC)]));
        assert_ne!(digest(&[&date!(2026 - 11 - 30)]), digest(&[&date!(2026 - 12 - 01)]));
    }

    #[test]
    fn scope_level_and_source_separate_keys() {
        let mut key = KeyEncoder::default();
        key.part("42");
        assert_ne!(Digest::of_fields("a", &key), Digest::of_fields("b", &key));

        let orders = SourceId::new("bus.example.net", "orders");
        let refunds = SourceId::new("bus.example.net", "refunds");
        let other = SourceId::new("other.example.net", "orders");
        let of = |source| Digest::of_message_id("a", source, "42");
        assert_ne!(of(&orders), of(&refunds));
        assert_ne!(of(&orders), of(&other));
    }

    #[test]
    fn the_parts_of_a_key_come_back_as_values() {
        let mut key = KeyEncoder::default();
        let (noon, day) = (datetime!(2026-11-30 12:00:00.000001 UTC), date!(2026 - 11 - 30));
        let id = Uuid::from_u128(7);
        key.part(&i64::MIN);
        key.part(&u64::MAX);
        key.part(&true);
        key.part("a,b");
        key.part(&[0u8, 255][..]);
        key.part(&id);
        key.part(&noon);
        key.part(&day);
        let expected = [
            KeyValue::Integer(i128::from(i64::MIN)),
            KeyValue::Integer(i128::from(u64::MAX)),
            KeyValue::Bool(true),
            KeyValue::Text("a,b".to_owned()),
            KeyValue::Bytes(vec![0, 255]),
            KeyValue::Uuid(id),
            KeyValue::Instant(noon),
            KeyValue::Date(day),
        ];
        assert!(key.values() == expected, "{:?}", key.values());
        assert!(!format!("{:?}", key.values()).contains("a,b"));
    }

    fn fingerprint(fields: &[(&'static str, &str)]) -> Fingerprint {
        let mut fingerprint = Fingerprint::default();
        for (name, value) in fields {
            fingerprint.field(name, *value);
        }
        fingerprint
    }

    #[test]
    fn a_fingerprint_tells_which_fields_differ_among_those_that_both_sides_have() {
        let earlier = fingerprint(&[("amount", "10"), ("currency", "EUR")]);
        let differing =
            |fields: &[(&'static str, &str)]| fingerprint(fields).differing(earlier.as_bytes());
        assert!(differing(&[("amount", "10"), ("currency", "EUR")]).is_empty());
        assert!(differing(&[("currency", "EUR"), ("amount", "10")]).is_empty());
        assert_eq!(differing(&[("amount", "10"), ("currency", "CHF")]), ["currency"]);
        assert_eq!(differing(&[("currency", "10"), ("amount", "EUR")]), ["currency", "amount"]);
        assert!(differing(&[("amount", "10")]).is_empty(), "one was removed since");
        assert!(differing(&[("amount", "10"), ("memo", "x")]).is_empty(), "one was added since");
    }

    #[test]
    fn what_no_fingerprint_ever_was_differs_in_nothing_and_does_no_harm() {
        let fingerprint = fingerprint(&[("amount", "10")]);
        assert!(fingerprint.differing(&[]).is_empty());
        assert!(fingerprint.differing(&fingerprint.as_bytes()[..7]).is_empty());
    }

    /// Stored fingerprints must survive every release: a change here makes conflicts of repeats.
    #[test]
    fn the_fingerprint_is_fixed() {
        let hex: String = fingerprint(&[("amount", "10")])
            .as_bytes()
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, "cf38d95c333eefdf92f9251c");
    }

    #[test]
    fn a_key_without_parts_has_no_digest() {
        assert_eq!(Digest::of_fields("orders.place", &KeyEncoder::default()), None);
    }

    /// Stored digests must survive every release: a change here forgets what was done.
    #[test]
    fn the_encoding_is_fixed() {
        let vector = digest(&[&42i64, &"ref-1", &true, &date!(2026 - 11 - 30)]);
        assert_eq!(format!("{vector:?}"), "Digest(51cea5034be984cd3dd614f6a3d12706)");
        let source = SourceId::new("bus.example.net", "orders");
        let vector = Digest::of_message_id("orders.place", &source, "m-1");
        assert_eq!(format!("{vector:?}"), "Digest(229cc4f09646f31a437ff5ee84e27312)");
    }
}
