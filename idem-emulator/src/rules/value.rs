//! Values of properties, and how they compare.

use std::cmp::Ordering;

/// The value of an application property.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PropertyValue {
    /// True or false.
    Boolean(bool),
    /// An integer of any width.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A string.
    Text(String),
    /// A value of any other type in its AMQP encoding, such as a UUID; it is only ever equal or not.
    Encoded(Vec<u8>),
}

impl From<bool> for PropertyValue {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<i64> for PropertyValue {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl From<i32> for PropertyValue {
    fn from(value: i32) -> Self {
        Self::Integer(value.into())
    }
}

impl From<f64> for PropertyValue {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<&str> for PropertyValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for PropertyValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl PropertyValue {
    /// How two values compare; values of different kinds do not.
    pub(super) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Boolean(one), Self::Boolean(other)) => Some(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (Self::Integer(one), Self::Integer(other)) => Some(one.cmp(other)),
            (Self::Encoded(one), Self::Encoded(other)) => (one == other).then_some(Ordering::Equal),
            (one, other) => one.as_real()?.partial_cmp(&other.as_real()?),
        }
    }

    pub(super) fn as_real(&self) -> Option<f64> {
        match self {
            // By way of its digits, which rounds where an `as` cast is not allowed to.
            Self::Integer(value) => value.to_string().parse().ok(),
            Self::Real(value) => Some(*value),
            Self::Boolean(_) | Self::Text(_) | Self::Encoded(_) => None,
        }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Boolean(_) | Self::Integer(_) | Self::Real(_) | Self::Encoded(_) => None,
        }
    }
}
