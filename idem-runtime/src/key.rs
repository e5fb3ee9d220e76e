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
/// Implemented for integers, `bool`, text, bytes, [`Uuid`], [`OffsetDateTime`](time::OffsetDateTime)
/// (the instant, at full nanosecond precision, whatever its offset) and [`Date`](time::Date). An integer's key does not depend
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
    pub(in crate::key) const INTEGER: u8 = 1;
    pub(in crate::key) const BOOL: u8 = 2;
    pub(in crate::key) const TEXT: u8 = 3;
    pub(in crate::key) const BYTES: u8 = 4;
    pub(in crate::key) const UUID: u8 = 5;
    pub(in crate::key) const INSTANT: u8 = 6;
    pub(in crate::key) const DATE: u8 = 7;
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
