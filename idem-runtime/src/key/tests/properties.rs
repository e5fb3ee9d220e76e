//! What holds for all keys: no two different ones are encoded alike, and equal ones always are.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Integer(i128),
    Bool(bool),
    Text(String),
    Bytes(Vec<u8>),
    Uuid(u128),
    Instant(i128),
    Date(i32),
    Record(Vec<Self>),
}

impl KeyPart for Part {
    fn encode(&self, key: &mut KeyEncoder) {
        match self {
            Self::Integer(value) => key.part(value),
            Self::Bool(value) => key.part(value),
            Self::Text(value) => key.part(value),
            Self::Bytes(value) => key.part(value),
            Self::Uuid(value) => key.part(&Uuid::from_u128(*value)),
            Self::Instant(nanos) => key.instant(*nanos),
            Self::Date(julian_day) => key.date(*julian_day),
            Self::Record(fields) => {
                let fields: Vec<&dyn KeyPart> =
                    fields.iter().map(|field| field as &dyn KeyPart).collect();
                key.record(&fields);
            }
        }
    }
}

fn encoded(parts: &[Part]) -> Vec<u8> {
    let mut key = KeyEncoder::default();
    for part in parts {
        key.part(part);
    }
    key.bytes
}

/// Few values, so that two keys are often equal and more often nearly so, and among them such that
/// look like tags and lengths.
fn part() -> impl Strategy<Value = Part> {
    let byte = prop_oneof![0..10_u8, Just(b'a')];
    let one = prop_oneof![
        (-2..3_i128).prop_map(Part::Integer),
        any::<bool>().prop_map(Part::Bool),
        vec(byte.clone(), 0..3).prop_map(|bytes| Part::Text(String::from_utf8(bytes).unwrap())),
        vec(byte, 0..3).prop_map(Part::Bytes),
        (0..3_u128).prop_map(Part::Uuid),
        (-1..2_i128).prop_map(Part::Instant),
        (0..3_i32).prop_map(Part::Date),
    ];
    one.prop_recursive(2, 8, 3, |part| vec(part, 0..3).prop_map(Part::Record))
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    vec(part(), 0..3)
}

/// The same values with one boundary between them moved.
fn regrouped(parts: &[Part], at: usize) -> Vec<Part> {
    let mut parts = parts.to_vec();
    let at = at.min(parts.len());
    match parts.get(at).cloned() {
        Some(Part::Record(fields)) => {
            parts.splice(at..=at, fields);
        }
        Some(_) | None => {
            let rest = parts.split_off(at);
            parts.push(Part::Record(rest));
        }
    }
    parts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn only_equal_keys_are_encoded_alike(left in parts(), right in parts()) {
        prop_assert_eq!(left == right, encoded(&left) == encoded(&right));
    }

    #[test]
    fn the_same_values_in_other_structs_are_another_key(parts in parts(), at in 0..3_usize) {
        let other = regrouped(&parts, at);
        prop_assert_ne!(encoded(&parts), encoded(&other), "{:?}", other);
    }

    /// So no part can be taken for the beginning of another one, and parts can follow each other.
    #[test]
    fn no_part_begins_with_another(left in part(), right in part()) {
        let (long, short) = (encoded(std::slice::from_ref(&left)), encoded(std::slice::from_ref(&right)));
        prop_assert!(left == right || !long.starts_with(&short));
    }

    #[test]
    fn text_of_any_kind_is_kept_apart(left in vec(any::<String>(), 1..3), right in vec(any::<String>(), 1..3)) {
        let texts = |texts: &[String]| encoded(&texts.iter().cloned().map(Part::Text).collect::<Vec<_>>());
        prop_assert_eq!(left == right, texts(&left) == texts(&right));
        // One boundary moved.
        let joined = [left.concat()];
        prop_assert_eq!(left == joined, texts(&left) == texts(&joined));
    }

    #[test]
    fn integers_of_every_width_are_one_key(number in any::<i32>()) {
        prop_assert_eq!(of(&number), of(&i64::from(number)));
        prop_assert_eq!(of(&number), of(&i128::from(number)));
        if let Ok(unsigned) = u64::try_from(number) {
            prop_assert_eq!(of(&number), of(&unsigned));
        }
    }

    #[test]
    fn an_instant_is_one_key_with_every_offset(seconds in -4_000_000_000..4_000_000_000_i64, hours in -23..24_i8) {
        let instant = time::OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        let there = instant.to_offset(time::UtcOffset::from_hms(hours, 0, 0).unwrap());
        prop_assert_eq!(of(&instant), of(&there));
    }

    #[cfg(feature = "decimal")]
    #[test]
    fn a_decimal_is_one_key_with_every_scale(digits in any::<i32>(), scale in 0..9_u32, zeros in 0..9_u32) {
        let number = rust_decimal::Decimal::new(digits.into(), scale);
        let mut longer = number;
        longer.rescale(scale + zeros);
        prop_assert_eq!(number, longer);
        prop_assert_eq!(of(&number), of(&longer));
        let other = number + rust_decimal::Decimal::new(1, scale + zeros);
        prop_assert_ne!(of(&number), of(&other));
    }
}

fn of(part: &dyn KeyPart) -> Vec<u8> {
    let mut key = KeyEncoder::default();
    key.part(part);
    key.bytes
}
