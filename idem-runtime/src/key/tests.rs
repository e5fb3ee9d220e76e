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

/// Stored fingerprints must survive every release: a change here makes conflicts of repeats.
#[test]
fn the_fingerprint_is_fixed() {
    let hex: String =
        fingerprint(&[("amount", "10")]).as_bytes().iter().map(|b| format!("{b:02x}")).collect();
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
