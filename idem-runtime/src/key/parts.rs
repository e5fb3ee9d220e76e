//! The types that can be part of a key.

use std::borrow::Cow;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

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
        $(transparent!(NonZero<$signed>: |number| number.get());)+
        $(transparent!(NonZero<$unsigned>: |number| number.get());)+
    };
}

/// A type whose values stand for values of another one.
macro_rules! transparent {
    ($ty:ty: |$value:ident| $inner:expr) => {
        impl KeyPart for $ty {
            fn encode(&self, key: &mut KeyEncoder) {
                let $value = self;
                $inner.encode(key);
            }
        }
    };
}

macro_rules! pointers {
    ($($pointer:ty)+) => {
        $(impl<P: KeyPart + ?Sized> KeyPart for $pointer {
            fn encode(&self, key: &mut KeyEncoder) {
                (**self).encode(key);
            }
        })+
    };
}

// `isize` and `usize` are left out: a message's fields have the same width on every machine.
integers!(signed: i8 i16 i32 i64 i128; unsigned: u8 u16 u32 u64 u128);

transparent!(String: |text| text.as_str());
transparent!(Vec<u8>: |bytes| bytes.as_slice());

pointers!(&P Box<P> Rc<P> Arc<P>);

impl<P: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, P> {
    fn encode(&self, key: &mut KeyEncoder) {
        (**self).encode(key);
    }
}

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

impl KeyPart for [u8] {
    fn encode(&self, key: &mut KeyEncoder) {
        key.sized(tag::BYTES, self);
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
        key.instant(self.unix_timestamp_nanos());
    }
}

impl KeyPart for Date {
    fn encode(&self, key: &mut KeyEncoder) {
        key.date(self.to_julian_day());
    }
}

/// Equal numbers are equal parts, however many zeros they are written with.
#[cfg(feature = "decimal")]
impl KeyPart for rust_decimal::Decimal {
    fn encode(&self, key: &mut KeyEncoder) {
        let number = self.normalize();
        key.decimal(number.mantissa(), number.scale());
    }
}

#[cfg(feature = "chrono")]
impl<Tz: chrono::TimeZone> KeyPart for chrono::DateTime<Tz> {
    fn encode(&self, key: &mut KeyEncoder) {
        let seconds = i128::from(self.timestamp()) * 1_000_000_000;
        key.instant(seconds + i128::from(self.timestamp_subsec_nanos()));
    }
}

#[cfg(feature = "chrono")]
impl KeyPart for chrono::NaiveDate {
    fn encode(&self, key: &mut KeyEncoder) {
        /// The Julian day before the first one that `chrono` counts.
        const DAY_ZERO: i32 = 1_721_425;
        key.date(chrono::Datelike::num_days_from_ce(self) + DAY_ZERO);
    }
}
