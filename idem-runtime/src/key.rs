//! Keys: what makes two deliveries the same.
//!
//! A key is encoded to bytes that no other key shares, and the database stores a digest of them.
//! The encoding is typed and length-prefixed, so `("a,b", "c")` and `("a", "b,c")` differ, and so
//! do `1` and `"1"`. Nothing is folded: case, accents, trailing spaces and Unicode forms all count.
//! A field that should fold says so in its own type.

mod fingerprint;
mod parts;
#[cfg(test)]
mod tests;
mod value;

use std::fmt;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

pub use fingerprint::Fingerprint;
pub use value::KeyValue;

use crate::delivery::SourceId;
use crate::handler::Level;

/// First byte of everything that is hashed. A change of the encoding changes this number.
const ENCODING_VERSION: u8 = 1;

/// A value that can be part of an idempotency key.
///
/// Implemented for
///
/// - integers, also as [`NonZero`](std::num::NonZero). An integer's key does not depend on its width:
///   a field that grows from `i32` to `i64` keeps its keys;
/// - `bool`, text and bytes;
/// - [`Uuid`], however it was written;
/// - [`OffsetDateTime`](time::OffsetDateTime), which is the instant, to the nanosecond, whatever its
///   offset, and [`Date`](time::Date); with the feature `chrono` also its `DateTime` and `NaiveDate`,
///   which make the same keys;
/// - with the feature `decimal`, `rust_decimal::Decimal`: 10, 10.00 and 1e1 are one key;
/// - references, `Box`, `Rc`, `Arc` and `Cow` of these.
///
/// Floats have no canonical value, maps no order, a time without an offset is two instants in the
/// night when the clocks go back, and an absent `Option` would let messages without the field share
/// one key; none of them is a key part.
///
/// For your own structs, [derive it](macro@crate::KeyPart). Where the derive has another opinion than
/// you, implement it: equal values append the same bytes, and other values others. That holds when
/// an implementation always appends the same number of parts, or one [record](KeyEncoder::record).
///
/// ```
/// use idem_runtime::key::{KeyEncoder, KeyPart};
///
/// enum Currency {
///     Euro,
///     Krona,
/// }
///
/// impl KeyPart for Currency {
///     fn encode(&self, key: &mut KeyEncoder) {
///         key.part(match self {
///             Self::Euro => "EUR",
///             Self::Krona => "SEK",
///         });
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of an idempotency key",
    label = "not usable as a key field",
    note = "key fields implement `KeyPart`: integers, `bool`, strings, bytes, `Uuid`, `OffsetDateTime`, `Date`, decimals; derive it for structs of these",
    note = "floats, maps, `Option` and times without an offset are left out on purpose: equal keys must always be equal, and an absent field must not be a key"
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
    pub(in crate::key) const INTEGER: u8 = 1;
    pub(in crate::key) const BOOL: u8 = 2;
    pub(in crate::key) const TEXT: u8 = 3;
    pub(in crate::key) const BYTES: u8 = 4;
    pub(in crate::key) const UUID: u8 = 5;
    pub(in crate::key) const INSTANT: u8 = 6;
    pub(in crate::key) const DATE: u8 = 7;
    pub(in crate::key) const RECORD: u8 = 8;
    pub(in crate::key) const DECIMAL: u8 = 9;
}

impl KeyEncoder {
    /// Appends one part.
    pub fn part<P: KeyPart + ?Sized>(&mut self, part: &P) {
        part.encode(self);
    }

    /// Appends the fields of a struct as one part, which is neither that of a struct with other
    /// fields nor the fields by themselves: `({a, b}, c)` and `({a}, b, c)` differ.
    ///
    /// [`#[derive(KeyPart)]`](macro@crate::KeyPart) calls this for structs with two fields and more.
    pub fn record(&mut self, fields: &[&dyn KeyPart]) {
        self.bytes.push(tag::RECORD);
        self.bytes.extend_from_slice(&length(fields.len()));
        for field in fields {
            field.encode(self);
        }
    }

    fn fixed<const N: usize>(&mut self, tag: u8, bytes: [u8; N]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&bytes);
    }

    fn sized(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend_from_slice(&length(bytes.len()));
        self.bytes.extend_from_slice(bytes);
    }

    /// Sign and magnitude cover every integer type with one encoding.
    fn integer(&mut self, negative: bool, magnitude: u128) {
        self.bytes.push(tag::INTEGER);
        self.bytes.push(u8::from(negative));
        self.bytes.extend_from_slice(&magnitude.to_be_bytes());
    }

    /// Nanoseconds since 1970.
    fn instant(&mut self, nanos: i128) {
        self.fixed(tag::INSTANT, nanos.to_be_bytes());
    }

    fn date(&mut self, julian_day: i32) {
        self.fixed(tag::DATE, julian_day.to_be_bytes());
    }

    /// A number without trailing zeros after its point.
    #[cfg(feature = "decimal")]
    fn decimal(&mut self, digits: i128, after_the_point: u32) {
        self.fixed(tag::DECIMAL, digits.to_be_bytes());
        self.bytes.extend_from_slice(&after_the_point.to_be_bytes());
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The parts as a database compares them with its columns, those of a struct one by one.
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

/// Eight bytes whatever the platform's word size.
fn length(length: usize) -> [u8; 8] {
    u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes()
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
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
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
        hash.update(length(scope.len()));
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
