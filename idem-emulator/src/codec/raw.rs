//! Reading encoded values in place.

use uuid::Uuid;

/// How deep described types, lists, maps and arrays may nest.
const DEPTH_MAX: u32 = 32;

/// How many descriptors one value may have, one inside the other.
const DESCRIPTORS_MAX: u32 = 4;

/// How many elements an array may have whose elements take no bytes.
const EMPTY_ELEMENTS_MAX: usize = 4096;

/// Why bytes are not an AMQP value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the value ends before its declared size")]
    Truncated,
    #[error("0x{0:02x} is not a type code")]
    UnknownCode(u8),
    #[error("a list, map or array does not match its declared size")]
    SizeMismatch,
    #[error("a string or a symbol is not UTF-8")]
    NotUtf8,
    #[error("values nest deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("a mandatory field is missing or has the wrong type: {0}")]
    Field(&'static str),
    #[error("not a message section: {0}")]
    Section(&'static str),
}

/// One encoded value. Its structure, down to the innermost value, has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw<'a> {
    code: u8,
    /// What follows the type code and the size field.
    content: &'a [u8],
    /// The whole encoding; empty for elements of an array, which share one type code.
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Checks the first value of `input` and splits it off.
    pub(crate) fn split(input: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let (raw, rest) = Self::split_unchecked(input)?;
        raw.check(0)?;
        Ok((raw, rest))
    }

    /// Splits the first value off without looking inside it.
    pub(crate) fn split_unchecked(input: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let (&code, after) = input.split_first().ok_or(DecodeError::Truncated)?;
        if code == 0x00 {
            return Self::split_described(input, after);
        }
        let (content, rest) = content(code, after)?;
        let bytes = input.get(..input.len() - rest.len()).unwrap_or_default();
        Ok((Self { code, content, bytes }, rest))
    }

    fn split_described(input: &'a [u8], after: &'a [u8]) -> Result<(Self, &'a [u8]), DecodeError> {
        let mut value = after;
        // The value may be described again, as that of a message may be, but the descriptor not.
        for _ in 0..DESCRIPTORS_MAX {
            let (&descriptor, rest) = value.split_first().ok_or(DecodeError::Truncated)?;
            let (_, rest) = content(descriptor, rest)?;
            let (&code, after_code) = rest.split_first().ok_or(DecodeError::Truncated)?;
            if code == 0x00 {
                value = after_code;
                continue;
            }
            let (_, rest) = content(code, after_code)?;
            let bytes = input.get(..input.len() - rest.len()).unwrap_or_default();
            let inner = after.get(..after.len() - rest.len()).unwrap_or_default();
            return Ok((Self { code: 0x00, content: inner, bytes }, rest));
        }
        Err(DecodeError::TooDeep)
    }

    fn check(&self, depth: u32) -> Result<(), DecodeError> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        match self.code {
            0x00 => {
                let (descriptor, value) = Self::split_unchecked(self.content)?;
                descriptor.check(depth + 1)?;
                let (value, _) = Self::split_unchecked(value)?;
                value.check(depth + 1)
            }
            // Whoever it is handed on to may not be able to read it otherwise.
            0xa1 | 0xa3 | 0xb1 | 0xb3 => {
                std::str::from_utf8(self.content).map(drop).map_err(|_| DecodeError::NotUtf8)
            }
            0xc0 | 0xc1 | 0xd0 | 0xd1 => self.check_items(depth),
            0xe0 | 0xf0 => self.check_array(depth),
            _ => Ok(()),
        }
    }

    fn check_items(&self, depth: u32) -> Result<(), DecodeError> {
        let (count, mut rest) = self.count()?;
        if matches!(self.code, 0xc1 | 0xd1) && count % 2 != 0 {
            return Err(DecodeError::SizeMismatch);
        }
        for _ in 0..count {
            // Every item takes at least one byte, so a huge count ends here soon.
            let (item, after) = Self::split_unchecked(rest)?;
            item.check(depth + 1)?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(DecodeError::SizeMismatch) }
    }

    fn check_array(&self, depth: u32) -> Result<(), DecodeError> {
        let (count, rest) = self.count()?;
        if count == 0 {
            return Ok(());
        }
        let (code, mut rest) = array_constructor(rest)?;
        if matches!(code, 0x40..=0x45) && count > EMPTY_ELEMENTS_MAX {
            return Err(DecodeError::SizeMismatch);
        }
        for _ in 0..count {
            let (content, after) = content(code, rest)?;
            Self { code, content, bytes: &[] }.check(depth + 1)?;
            rest = after;
        }
        if rest.is_empty() { Ok(()) } else { Err(DecodeError::SizeMismatch) }
    }

    /// The number of items of a list, map or array, and their bytes.
    fn count(&self) -> Result<(usize, &'a [u8]), DecodeError> {
        match self.code {
            0xc0 | 0xc1 | 0xe0 => size8(self.content),
            0xd0 | 0xd1 | 0xf0 => size32(self.content),
            _ => Ok((0, &[])),
        }
    }

    /// The encoding as it was received.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn is_null(&self) -> bool {
        self.code == 0x40
    }

    /// Not an array: its elements have no encodings of their own.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self.code, 0x45 | 0xc0 | 0xd0)
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self.code, 0xc1 | 0xd1)
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match (self.code, self.content) {
            (0x41, _) => Some(true),
            (0x42, _) => Some(false),
            (0x56, [byte]) => Some(*byte != 0),
            _ => None,
        }
    }

    /// Any integer type or timestamp, widened.
    pub(crate) fn as_i64(&self) -> Option<i64> {
        match (self.code, self.content) {
            (0x43 | 0x44, _) => Some(0),
            (0x50 | 0x52 | 0x53, [byte]) => Some(i64::from(*byte)),
            (0x51 | 0x54 | 0x55, [byte]) => Some(i64::from(i8::from_be_bytes([*byte]))),
            (0x60, bytes) => Some(i64::from(u16::from_be_bytes(bytes.try_into().ok()?))),
            (0x61, bytes) => Some(i64::from(i16::from_be_bytes(bytes.try_into().ok()?))),
            (0x70, bytes) => Some(i64::from(u32::from_be_bytes(bytes.try_into().ok()?))),
            (0x71, bytes) => Some(i64::from(i32::from_be_bytes(bytes.try_into().ok()?))),
            (0x80, bytes) => i64::try_from(u64::from_be_bytes(bytes.try_into().ok()?)).ok(),
            (0x81 | 0x83, bytes) => Some(i64::from_be_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    /// Any integer type, widened; not a timestamp.
    pub(crate) fn as_integer(&self) -> Option<i64> {
        if self.code == 0x83 { None } else { self.as_i64() }
    }

    /// Either floating-point type.
    pub(crate) fn as_f64(&self) -> Option<f64> {
        match (self.code, self.content) {
            (0x72, bytes) => Some(f32::from_be_bytes(bytes.try_into().ok()?).into()),
            (0x82, bytes) => Some(f64::from_be_bytes(bytes.try_into().ok()?)),
            _ => None,
        }
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        match (self.code, self.content) {
            (0x80, bytes) => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
            _ => u64::try_from(self.as_i64()?).ok(),
        }
    }

    pub(crate) fn as_u32(&self) -> Option<u32> {
        u32::try_from(self.as_i64()?).ok()
    }

    /// A string or a symbol: peers disagree on which to use where.
    pub(crate) fn as_text(&self) -> Option<&'a str> {
        match self.code {
            0xa1 | 0xa3 | 0xb1 | 0xb3 => std::str::from_utf8(self.content).ok(),
            _ => None,
        }
    }

    pub(crate) fn as_binary(&self) -> Option<&'a [u8]> {
        matches!(self.code, 0xa0 | 0xb0).then_some(self.content)
    }

    pub(crate) fn as_uuid(&self) -> Option<Uuid> {
        match self.code {
            0x98 => Uuid::from_slice(self.content).ok(),
            _ => None,
        }
    }

    /// The numeric descriptor and the value of a described type.
    pub(crate) fn as_described(&self) -> Option<(u64, Self)> {
        if self.code != 0x00 {
            return None;
        }
        let (descriptor, value) = Raw::split_unchecked(self.content).ok()?;
        let (value, _) = Raw::split_unchecked(value).ok()?;
        Some((descriptor.as_u64()?, value))
    }

    /// The descriptor of a described type, of whatever type it is.
    pub(crate) fn descriptor(&self) -> Option<Self> {
        let described = self.code == 0x00;
        described.then(|| Raw::split_unchecked(self.content).ok()).flatten().map(|(code, _)| code)
    }

    /// The value itself, without a descriptor if it has one.
    pub(crate) fn undescribed(&self) -> Self {
        if self.code != 0x00 {
            return *self;
        }
        Raw::split_unchecked(self.content)
            .and_then(|(_, value)| Raw::split_unchecked(value))
            .map_or(*self, |(value, _)| value)
    }

    /// The items of a list or an array; the value itself as the only item otherwise.
    pub(crate) fn items(&self) -> Items<'a> {
        let (count, rest) = self.count().unwrap_or((0, &[]));
        match self.code {
            0x45 => Items::none(),
            0xc0 | 0xd0 => Items { left: count, element: None, rest, single: None },
            0xe0 | 0xf0 => match array_constructor(rest) {
                Ok((code, rest)) => Items { left: count, element: Some(code), rest, single: None },
                Err(_) => Items::none(),
            },
            _ => Items { left: 0, element: None, rest: &[], single: Some(*self) },
        }
    }

    /// The keys and values of a map; nothing for any other type.
    pub(crate) fn pairs(&self) -> Pairs<'a> {
        let items = match (self.code, self.count()) {
            (0xc1 | 0xd1, Ok((left, rest))) => Items { left, element: None, rest, single: None },
            _ => Items::none(),
        };
        Pairs { items }
    }

    /// The value under a string or symbol key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        self.pairs().find(|(name, _)| name.as_text() == Some(key)).map(|(_, value)| value)
    }
}

/// Iterates over a list or an array.
#[derive(Debug, Clone)]
pub(crate) struct Items<'a> {
    left: usize,
    /// The shared type code of an array's elements.
    element: Option<u8>,
    rest: &'a [u8],
    single: Option<Raw<'a>>,
}

impl Items<'_> {
    fn none() -> Self {
        Items { left: 0, element: None, rest: &[], single: None }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Raw<'a>> {
        if let Some(single) = self.single.take() {
            return Some(single);
        }
        self.left = self.left.checked_sub(1)?;
        let (raw, rest) = match self.element {
            None => Raw::split_unchecked(self.rest).ok()?,
            Some(code) => {
                let (content, rest) = content(code, self.rest).ok()?;
                (Raw { code, content, bytes: &[] }, rest)
            }
        };
        self.rest = rest;
        Some(raw)
    }
}

/// Iterates over a map.
#[derive(Debug, Clone)]
pub(crate) struct Pairs<'a> {
    items: Items<'a>,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Raw<'a>, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.items.next()?, self.items.next()?))
    }
}

/// Splits the content of a value whose type code has been read already.
fn content(code: u8, input: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let (length, input) = match code {
        0x40..=0x45 => (0, input),
        0x50..=0x56 => (1, input),
        0x60 | 0x61 => (2, input),
        0x70..=0x74 => (4, input),
        0x80..=0x84 => (8, input),
        0x94 | 0x98 => (16, input),
        0xa0 | 0xa1 | 0xa3 | 0xc0 | 0xc1 | 0xe0 => size8(input)?,
        0xb0 | 0xb1 | 0xb3 | 0xd0 | 0xd1 | 0xf0 => size32(input)?,
        unknown => return Err(DecodeError::UnknownCode(unknown)),
    };
    input.split_at_checked(length).ok_or(DecodeError::Truncated)
}

/// Skips the descriptor, if any, in front of an array's element type code.
fn array_constructor(input: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let (&code, rest) = input.split_first().ok_or(DecodeError::Truncated)?;
    if code != 0x00 {
        return Ok((code, rest));
    }
    let (_, rest) = Raw::split_unchecked(rest)?;
    let (&code, rest) = rest.split_first().ok_or(DecodeError::Truncated)?;
    Ok((code, rest))
}

fn size8(input: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let (&size, rest) = input.split_first().ok_or(DecodeError::Truncated)?;
    Ok((usize::from(size), rest))
}

fn size32(input: &[u8]) -> Result<(usize, &[u8]), DecodeError> {
    let (size, rest) = input.split_first_chunk::<4>().ok_or(DecodeError::Truncated)?;
    let size = usize::try_from(u32::from_be_bytes(*size)).map_err(|_| DecodeError::Truncated)?;
    Ok((size, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_amqp::Value;
    use serde_amqp::primitives::{Array, OrderedMap, Symbol, Timestamp};

    fn encoded(value: impl Into<Value>) -> Vec<u8> {
        serde_amqp::to_vec(&value.into()).expect("an independent codec encodes the value")
    }

    fn check(bytes: &[u8]) -> Result<(), DecodeError> {
        Raw::split(bytes).map(|_| ())
    }

    #[test]
    fn integers_of_every_width_read_alike() {
        for value in [
            Value::Ubyte(7),
            Value::Uint(7),
            Value::Ulong(7),
            Value::Int(7),
            Value::Long(7),
            Value::Short(7),
        ] {
            let bytes = encoded(value);
            assert_eq!(Raw::split(&bytes).unwrap().0.as_i64(), Some(7), "{bytes:x?}");
        }
        let bytes = encoded(Value::Timestamp(Timestamp::from_milliseconds(1_700_000_000_000)));
        assert_eq!(Raw::split(&bytes).unwrap().0.as_i64(), Some(1_700_000_000_000));
        let bytes = encoded(Value::Ulong(u64::MAX));
        assert_eq!(Raw::split(&bytes).unwrap().0.as_u64(), Some(u64::MAX));
    }

    #[test]
    fn maps_answer_to_string_and_symbol_keys() {
        for key in [Value::String("k".into()), Value::Symbol(Symbol::from("k"))] {
            let mut map = OrderedMap::new();
            map.insert(key, Value::Bool(true));
            let bytes = encoded(Value::Map(map));
            assert_eq!(Raw::split(&bytes).unwrap().0.get("k").unwrap().as_bool(), Some(true));
        }
    }

    #[test]
    fn lists_and_arrays_iterate_alike() {
        let values = vec![Value::Long(1), Value::Long(300)];
        for value in [Value::List(values.clone()), Value::Array(Array(values))] {
            let bytes = encoded(value);
            let items: Vec<_> =
                Raw::split(&bytes).unwrap().0.items().filter_map(|item| item.as_i64()).collect();
            assert_eq!(items, [1, 300]);
        }
    }

    #[test]
    fn text_that_is_not_utf_8_is_an_error() {
        for code in [0xa1, 0xa3] {
            assert!(check(&[code, 2, 0xc3, 0xa9]).is_ok());
            assert_eq!(check(&[code, 2, 0xc3, 0x28]), Err(DecodeError::NotUtf8));
            assert_eq!(check(&[0xe0, 4, 1, code, 1, 0xff]), Err(DecodeError::NotUtf8), "an array");
        }
        assert_eq!(check(&[0xc0, 7, 1, 0xb1, 0, 0, 0, 1, 0xff]), Err(DecodeError::NotUtf8));
        assert_eq!(check(&[0x00, 0xa3, 1, 0xff, 0x40]), Err(DecodeError::NotUtf8), "a descriptor");
    }

    #[test]
    fn malformed_values_are_errors() {
        assert_eq!(check(&[]), Err(DecodeError::Truncated));
        assert_eq!(check(&[0xa1, 5, b'a']), Err(DecodeError::Truncated));
        assert_eq!(check(&[0x3f]), Err(DecodeError::UnknownCode(0x3f)));
        assert_eq!(check(&[0xc0, 3, 1, 0x40, 0x40]), Err(DecodeError::SizeMismatch));
        assert_eq!(check(&[0xc1, 2, 1, 0x40]), Err(DecodeError::SizeMismatch));
        let huge_array_of_nulls = [0xf0, 0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x40];
        assert_eq!(check(&huge_array_of_nulls), Err(DecodeError::SizeMismatch));
    }

    #[test]
    fn a_described_value_may_be_described_again_and_not_for_ever() {
        // An amqp-value section with a declare in it.
        let declare = [0x00, 0x53, 0x77, 0x00, 0x53, 0x31, 0xc0, 2, 1, 0x40, 0x45];
        let (section, rest) = Raw::split(&declare).unwrap();
        assert_eq!(rest, [0x45]);
        let (code, value) = section.as_described().unwrap();
        let (inner, list) = value.as_described().unwrap();
        assert_eq!((code, inner, list.items().count()), (0x77, 0x31, 1));
        let mut deep = [0x00, 0x53, 0x01].repeat(4);
        deep.push(0x40);
        assert_eq!(check(&deep), Ok(()));
        let deeper = [&[0x00, 0x53, 0x01], deep.as_slice()].concat();
        assert_eq!(check(&deeper), Err(DecodeError::TooDeep));
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_stack_overflow() {
        let mut nested = vec![0x45];
        for _ in 0..10_000 {
            let size = u32::try_from(nested.len() + 4).unwrap();
            let mut outer = vec![0xd0];
            outer.extend_from_slice(&size.to_be_bytes());
            outer.extend_from_slice(&1u32.to_be_bytes());
            outer.append(&mut nested);
            nested = outer;
        }
        assert_eq!(check(&nested), Err(DecodeError::TooDeep));
        assert_eq!(check(&[0x00; 100_000]), Err(DecodeError::UnknownCode(0x00)));
    }

    #[test]
    fn arbitrary_bytes_never_panic() {
        let mut state = 1u64;
        for _ in 0..20_000 {
            let mut bytes = [0u8; 48];
            for byte in &mut bytes {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                *byte = state.to_be_bytes()[0];
            }
            bytes[0] = [0x00, 0xc0, 0xc1, 0xd0, 0xe0, 0xf0][usize::from(bytes[1]) % 6];
            if let Ok((raw, _)) = Raw::split(&bytes) {
                assert!(raw.items().count() <= EMPTY_ELEMENTS_MAX);
                assert!(raw.pairs().count() <= bytes.len());
            }
        }
    }
}
