//! `tests/key_vectors.json`: what keys of this version of the encoding are.
//!
//! Stored digests must survive every release. Where one of these tests fails, what was done before
//! would be done again: a change needs another version, and a way from this one.

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    encoding_version: u8,
    parts: Vec<PartVector>,
    keys_of_level_2: Vec<FieldsVector>,
    keys_of_level_1: Vec<MessageIdVector>,
    fields_that_must_agree: Vec<FingerprintVector>,
}

#[derive(Deserialize)]
struct PartVector {
    part: Part,
    bytes: String,
}

#[derive(Deserialize)]
struct FieldsVector {
    scope: String,
    parts: Vec<Part>,
    digest: String,
}

#[derive(Deserialize)]
struct MessageIdVector {
    scope: String,
    namespace: String,
    entity: String,
    message_id: String,
    digest: String,
}

#[derive(Deserialize)]
struct FingerprintVector {
    field: String,
    part: Part,
    fingerprint: String,
}

#[derive(Debug, Deserialize)]
struct Part {
    r#type: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    fields: Vec<Self>,
}

impl KeyPart for Part {
    fn encode(&self, key: &mut KeyEncoder) {
        let value = self.value.as_str();
        match self.r#type.as_str() {
            "i8" => key.part(&value.parse::<i8>().unwrap()),
            "i64" => key.part(&value.parse::<i64>().unwrap()),
            "i128" => key.part(&value.parse::<i128>().unwrap()),
            "u64" => key.part(&value.parse::<u64>().unwrap()),
            "u128" => key.part(&value.parse::<u128>().unwrap()),
            "bool" => key.part(&value.parse::<bool>().unwrap()),
            "text" => key.part(value),
            "bytes" => key.part(&bytes(value)),
            "uuid" => key.part(&value.parse::<Uuid>().unwrap()),
            "instant" => key.part(&OffsetDateTime::parse(value, &Rfc3339).unwrap()),
            "date" => {
                let midnight = format!("{value}T00:00:00Z");
                key.part(&OffsetDateTime::parse(&midnight, &Rfc3339).unwrap().date());
            }
            #[cfg(feature = "decimal")]
            "decimal" => key.part(&value.parse::<rust_decimal::Decimal>().unwrap()),
            "record" => {
                let fields: Vec<&dyn KeyPart> =
                    self.fields.iter().map(|field| field as &dyn KeyPart).collect();
                key.record(&fields);
            }
            other => panic!("`{other}` is no type of a part"),
        }
    }
}

impl Part {
    /// Whether the type is there with the features of this build.
    fn is_known(&self) -> bool {
        cfg!(feature = "decimal") || self.r#type != "decimal"
    }
}

fn vectors() -> Vectors {
    let vectors: Vectors =
        serde_json::from_str(include_str!("../../../tests/key_vectors.json")).unwrap();
    assert_eq!(vectors.encoding_version, ENCODING_VERSION);
    vectors
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2).map(|at| &hex[at..at + 2]);
    digits.map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

fn encoded<'a>(parts: impl IntoIterator<Item = &'a Part>) -> KeyEncoder {
    let mut key = KeyEncoder::default();
    for part in parts {
        key.part(part);
    }
    key
}

#[test]
fn parts_have_their_bytes() {
    let parts = vectors().parts;
    for PartVector { part, bytes: expected } in parts.iter().filter(|vector| vector.part.is_known())
    {
        assert_eq!(encoded([part]).bytes, bytes(expected), "{part:?}");
    }
}

#[test]
fn keys_of_level_2_have_their_digests() {
    for FieldsVector { scope, parts, digest } in &vectors().keys_of_level_2 {
        if parts.iter().all(Part::is_known) {
            let found = Digest::of_fields(scope, &encoded(parts)).unwrap();
            assert_eq!(found.as_bytes().to_vec(), bytes(digest), "{scope} {parts:?}");
        }
    }
}

#[test]
fn keys_of_level_1_have_their_digests() {
    for MessageIdVector { scope, namespace, entity, message_id, digest } in
        &vectors().keys_of_level_1
    {
        let source = SourceId::new(namespace, entity);
        let found = Digest::of_message_id(scope, &source, message_id);
        assert_eq!(found.as_bytes().to_vec(), bytes(digest), "{scope} {entity} {message_id}");
    }
}

#[test]
fn fields_that_must_agree_have_their_fingerprints() {
    for FingerprintVector { field, part, fingerprint } in vectors().fields_that_must_agree {
        let mut found = Fingerprint::default();
        found.field(field.leak(), &part);
        assert_eq!(found.as_bytes(), bytes(&fingerprint));
    }
}
