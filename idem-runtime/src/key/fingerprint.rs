//! What must agree among messages of one key.

use sha2::{Digest as _, Sha256};

use super::{KeyEncoder, KeyPart, KeyValue};

/// The fields of a message that must agree among messages of one key, as hashes that the ledger
/// keeps: which of them differ can be told, and their values cannot.
///
/// Each field is the first 4 bytes of SHA-256 over its name and the first 8 over its encoding, so
/// fields can be added, removed and put in another order: those that both sides have are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint {
    bytes: Vec<u8>,
    names: Vec<&'static str>,
    /// The same fields for those who compare them with columns; that of a struct has several.
    values: Vec<Vec<KeyValue>>,
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
        self.values.push(key.values());
    }

    /// What the ledger stores.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlserver"))]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields with their values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &[KeyValue])> {
        self.names.iter().copied().zip(self.values.iter().map(Vec::as_slice))
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
