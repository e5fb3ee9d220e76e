//! Writing encoded values.

use bytes::{BufMut, BytesMut};
use uuid::Uuid;

pub(crate) fn null(out: &mut BytesMut) {
    out.put_u8(0x40);
}

pub(crate) fn boolean(out: &mut BytesMut, value: bool) {
    out.put_u8(if value { 0x41 } else { 0x42 });
}

pub(crate) fn ubyte(out: &mut BytesMut, value: u8) {
    out.put_u8(0x50);
    out.put_u8(value);
}

pub(crate) fn ushort(out: &mut BytesMut, value: u16) {
    out.put_u8(0x60);
    out.put_u16(value);
}

pub(crate) fn uint(out: &mut BytesMut, value: u32) {
    out.put_u8(0x70);
    out.put_u32(value);
}

pub(crate) fn ulong(out: &mut BytesMut, value: u64) {
    out.put_u8(0x80);
    out.put_u64(value);
}

pub(crate) fn int(out: &mut BytesMut, value: i32) {
    out.put_u8(0x71);
    out.put_i32(value);
}

pub(crate) fn long(out: &mut BytesMut, value: i64) {
    out.put_u8(0x81);
    out.put_i64(value);
}

pub(crate) fn double(out: &mut BytesMut, value: f64) {
    out.put_u8(0x82);
    out.put_f64(value);
}

pub(crate) fn timestamp(out: &mut BytesMut, milliseconds: i64) {
    out.put_u8(0x83);
    out.put_i64(milliseconds);
}

pub(crate) fn uuid(out: &mut BytesMut, value: Uuid) {
    out.put_u8(0x98);
    out.put_slice(value.as_bytes());
}

pub(crate) fn binary(out: &mut BytesMut, value: &[u8]) {
    variable(out, 0xa0, value);
}

pub(crate) fn string(out: &mut BytesMut, value: &str) {
    variable(out, 0xa1, value.as_bytes());
}

pub(crate) fn symbol(out: &mut BytesMut, value: &str) {
    variable(out, 0xa3, value.as_bytes());
}

/// The value, or null in its place.
pub(crate) fn optional<T>(
    out: &mut BytesMut,
    value: Option<T>,
    write: impl FnOnce(&mut BytesMut, T),
) {
    match value {
        Some(value) => write(out, value),
        None => null(out),
    }
}

/// The descriptor that the next value is read under.
pub(crate) fn descriptor(out: &mut BytesMut, code: u64) {
    out.put_u8(0x00);
    match u8::try_from(code) {
        Ok(small) => out.put_slice(&[0x53, small]),
        Err(_) => ulong(out, code),
    }
}

/// A list of exactly the `count` values that `write` adds.
pub(crate) fn list(out: &mut BytesMut, count: u32, write: impl FnOnce(&mut BytesMut)) {
    compound(out, 0xd0, count, write);
}

/// A map of exactly the `pairs` keys and values that `write` adds.
pub(crate) fn map(out: &mut BytesMut, pairs: u32, write: impl FnOnce(&mut BytesMut)) {
    compound(out, 0xd1, pairs.saturating_mul(2), write);
}

/// An array of timestamps in milliseconds.
pub(crate) fn timestamps(out: &mut BytesMut, values: &[i64]) {
    eight_bytes(out, 0x83, values);
}

/// An array of longs.
pub(crate) fn longs(out: &mut BytesMut, values: &[i64]) {
    eight_bytes(out, 0x81, values);
}

fn eight_bytes(out: &mut BytesMut, code: u8, values: &[i64]) {
    compound(out, 0xf0, length(values.len()), |out| {
        out.put_u8(code);
        for value in values {
            out.put_i64(*value);
        }
    });
}

/// An array of symbols.
pub(crate) fn symbols(out: &mut BytesMut, values: &[&str]) {
    compound(out, 0xf0, length(values.len()), |out| {
        out.put_u8(0xb3);
        for value in values {
            out.put_u32(length(value.len()));
            out.put_slice(value.as_bytes());
        }
    });
}

fn compound(out: &mut BytesMut, code: u8, count: u32, write: impl FnOnce(&mut BytesMut)) {
    out.put_u8(code);
    let size_at = out.len();
    out.put_u32(0);
    out.put_u32(count);
    write(out);
    patch_length(out, size_at, size_at + 4);
}

fn variable(out: &mut BytesMut, code: u8, value: &[u8]) {
    match u8::try_from(value.len()) {
        Ok(size) => out.put_slice(&[code, size]),
        Err(_) => {
            out.put_u8(code + 0x10);
            out.put_u32(length(value.len()));
        }
    }
    out.put_slice(value);
}

/// Overwrites the four bytes at `at` with the number of bytes from `start` to the end.
pub(crate) fn patch_length(out: &mut BytesMut, at: usize, start: usize) {
    let size = length(out.len().saturating_sub(start)).to_be_bytes();
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&size);
    }
}

/// A length as it goes on the wire. Limits on frames and messages keep every length far below 4 GiB.
pub(crate) fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_amqp::Value;

    fn decoded(write: impl FnOnce(&mut BytesMut)) -> Value {
        let mut out = BytesMut::new();
        write(&mut out);
        serde_amqp::from_slice(&out).expect("an independent codec reads what ours writes")
    }

    #[test]
    fn an_independent_codec_reads_every_type() {
        let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(decoded(null), Value::Null);
        assert_eq!(decoded(|out| boolean(out, true)), Value::Bool(true));
        assert_eq!(decoded(|out| ubyte(out, 4)), Value::Ubyte(4));
        assert_eq!(decoded(|out| ushort(out, 4)), Value::Ushort(4));
        assert_eq!(decoded(|out| uint(out, 4)), Value::Uint(4));
        assert_eq!(decoded(|out| ulong(out, 4)), Value::Ulong(4));
        assert_eq!(decoded(|out| int(out, -4)), Value::Int(-4));
        assert_eq!(decoded(|out| long(out, -4)), Value::Long(-4));
        assert_eq!(decoded(|out| double(out, -2.5)), Value::from(-2.5f64));
        assert_eq!(decoded(|out| uuid(out, id)), Value::Uuid((*id.as_bytes()).into()));
        assert_eq!(decoded(|out| string(out, &"x".repeat(300))), Value::String("x".repeat(300)));
        assert_eq!(decoded(|out| symbol(out, "s")), Value::Symbol("s".into()));
        assert_eq!(
            decoded(|out| list(out, 2, |out| {
                null(out);
                uint(out, 1);
            })),
            Value::List(vec![Value::Null, Value::Uint(1)])
        );
        let Value::Array(times) = decoded(|out| timestamps(out, &[1, 2])) else {
            panic!("not an array")
        };
        assert_eq!(times.len(), 2);
        let Value::Array(numbers) = decoded(|out| longs(out, &[1, -2])) else {
            panic!("not an array")
        };
        assert_eq!(numbers.into_inner(), vec![Value::Long(1), Value::Long(-2)]);
        let Value::Array(names) = decoded(|out| symbols(out, &["a", "b"])) else {
            panic!("not an array")
        };
        assert_eq!(names.into_inner(), vec![Value::Symbol("a".into()), Value::Symbol("b".into())]);
    }
}
