mod properties;
mod vectors;

use time::macros::{date, datetime};

use super::*;
use crate::KeyPart;
fn digest(parts: &[&dyn KeyPart]) -> Digest {
    let mut key = KeyEncoder::default();
    for part in parts {
        key.part(*part);
    }
    Digest::of_fields("orders.place", &key).expect("at least one part")
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
    for (left, right) in [("Ab1", "aB1"), ("é", "e"), ("ß", "ss"), ("a", "a "), ("é", "e\u{301}")]
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

#[test]
fn a_key_without_parts_has_no_digest() {
    assert_eq!(Digest::of_fields("orders.place", &KeyEncoder::default()), None);
}

#[test]
fn what_stands_for_a_value_makes_its_key() {
    use std::borrow::Cow;
    use std::num::{NonZeroI64, NonZeroU8};

    let text = digest(&[&"a"]);
    assert_eq!(text, digest(&[&String::from("a")]));
    assert_eq!(text, digest(&[&Box::<str>::from("a")]));
    assert_eq!(text, digest(&[&std::sync::Arc::<str>::from("a")]));
    assert_eq!(text, digest(&[&std::rc::Rc::<str>::from("a")]));
    assert_eq!(text, digest(&[&Cow::<'_, str>::Borrowed("a")]));
    assert_eq!(digest(&[&-7]), digest(&[&NonZeroI64::new(-7).unwrap()]));
    assert_eq!(digest(&[&7]), digest(&[&NonZeroU8::new(7).unwrap()]));
    assert_eq!(digest(&[b"a"]), digest(&[&Cow::<'_, [u8]>::Owned(b"a".to_vec())]));
}

/// M-12.
#[test]
fn a_uuid_is_one_key_however_it_was_written() {
    let written = [
        "67e55044-10b1-426f-9247-bb680e5fe0c8",
        "67E55044-10B1-426F-9247-BB680E5FE0C8",
        "{67E55044-10b1-426f-9247-bb680e5fe0c8}",
        "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
        "67e5504410b1426f9247bb680e5fe0c8",
    ];
    let ids = written.map(|text| text.parse::<Uuid>().unwrap());
    assert!(ids.iter().all(|id| digest(&[id]) == digest(&[&ids[0]])));
    for text in &written[1..] {
        assert_ne!(digest(&[text]), digest(&[&written[0]]), "as text it is its bytes");
    }
}

/// M-03.
#[cfg(feature = "decimal")]
#[test]
fn equal_decimals_are_one_key_and_no_text() {
    use rust_decimal::Decimal;

    let ten = digest(&[&Decimal::TEN]);
    for written in ["10", "10.0", "10.00"] {
        assert_eq!(ten, digest(&[&written.parse::<Decimal>().unwrap()]), "{written}");
    }
    assert_eq!(ten, digest(&[&Decimal::from_scientific("1e1").unwrap()]));
    assert_ne!(ten, digest(&[&"10"]));
    assert_ne!(ten, digest(&[&10]));
    assert_ne!(ten, digest(&[&Decimal::ONE_HUNDRED]));
    assert_ne!(ten, digest(&[&-Decimal::TEN]));
    assert_eq!(digest(&[&Decimal::ZERO]), digest(&[&-Decimal::ZERO]));
    let values = |text: &str| {
        let mut key = KeyEncoder::default();
        key.part(&text.parse::<Decimal>().unwrap());
        key.values()
    };
    for (written, read) in [
        ("10.00", "10"),
        ("-0.5", "-0.5"),
        ("0.001", "0.001"),
        ("-123.4560", "-123.456"),
        ("0", "0"),
        ("79228162514264337593543950335", "79228162514264337593543950335"),
    ] {
        assert!(values(written) == [KeyValue::Decimal(read.to_owned())], "{written}");
    }
}

#[cfg(feature = "chrono")]
#[test]
fn instants_and_dates_of_chrono_make_the_keys_of_time() {
    let there = chrono::DateTime::parse_from_rfc3339("2026-11-30T10:00:00.000000001+02:00");
    let instant = datetime!(2026-11-30 08:00:00.000000001 UTC);
    assert_eq!(digest(&[&there.unwrap()]), digest(&[&instant]));
    let before = chrono::DateTime::parse_from_rfc3339("1969-12-31T23:59:59.5Z");
    assert_eq!(digest(&[&before.unwrap()]), digest(&[&datetime!(1969-12-31 23:59:59.5 UTC)]));
    for (there, here) in
        [((2026, 11, 30), date!(2026 - 11 - 30)), ((1, 1, 1), date!(0001 - 01 - 01))]
    {
        let there = chrono::NaiveDate::from_ymd_opt(there.0, there.1, there.2);
        assert_eq!(digest(&[&there.unwrap()]), digest(&[&here]));
    }
}

#[derive(KeyPart)]
#[key_part(crate = crate)]
struct CustomerId(i64);

#[derive(KeyPart)]
#[key_part(crate = crate)]
struct Reference<'a, T: Copy, const N: usize> {
    customer: T,
    salt: [u8; N],
    r#type: &'a str,
}

#[derive(KeyPart)]
#[key_part(crate = crate)]
struct Pair<L, R>(L, R);

#[test]
fn a_newtype_is_its_field() {
    assert_eq!(digest(&[&CustomerId(42)]), digest(&[&42]));
    assert!(values(&CustomerId(42)) == [KeyValue::Integer(42)]);
}

#[test]
fn a_struct_is_its_fields_in_their_order_and_none_other() {
    assert_ne!(digest(&[&Pair("a", "b")]), digest(&[&Pair("b", "a")]));
    assert_ne!(digest(&[&Pair("a", "b")]), digest(&[&"a", &"b"]));
    let splits: [&[&dyn KeyPart]; 4] = [
        &[&Pair(Pair("a", "b"), "c")],
        &[&Pair("a", Pair("b", "c"))],
        &[&Pair("a", "b"), &"c"],
        &[&"a", &Pair("b", "c")],
    ];
    let digests = splits.map(digest);
    for (number, split) in digests.iter().enumerate() {
        assert!(!digests[..number].contains(split), "{number}");
    }
}

#[test]
fn the_fields_of_structs_are_values_one_by_one() {
    let reference = Reference { customer: CustomerId(42).0, salt: [7], r#type: "order" };
    let fields =
        [KeyValue::Integer(42), KeyValue::Bytes(vec![7]), KeyValue::Text("order".to_owned())];
    assert!(values(&reference) == fields);
    assert!(values(&Pair(&reference, true))[3] == KeyValue::Bool(true));
}

fn values(part: &dyn KeyPart) -> Vec<KeyValue> {
    let mut key = KeyEncoder::default();
    key.part(part);
    key.values()
}
