//! The types that can be part of a key.

use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{KeyEncoder, KeyPart, tag};

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
