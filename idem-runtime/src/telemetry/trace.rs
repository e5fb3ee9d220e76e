//! The trace that a sender was in when it sent a message, as its properties tell. They come from
//! anybody, so that whatever is not exactly as it should be is nothing.

use std::fmt;

use crate::delivery::{Delivery, Property};

/// Where in a trace a sender was when it sent a message.
///
/// It is read from the application property `traceparent`, as the W3C's Trace Context has it, and
/// else from `Diagnostic-Id`, the older name in Azure, in that form or in the hierarchical one where
/// that names a trace of the W3C's: `|4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7.`
///
/// `Display` is the form of `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    parent_id: u64,
    flags: u8,
}

const SAMPLED: u8 = 1;

impl TraceContext {
    /// The sender's, if it has sent one that can be read.
    pub fn of(delivery: &Delivery) -> Option<Self> {
        let text = |name| text_of(delivery, name);
        let diagnostic_id = || {
            let id = text("Diagnostic-Id")?;
            Self::parse(id).or_else(|| Self::parse_hierarchical(id))
        };
        text("traceparent").and_then(Self::parse).or_else(diagnostic_id)
    }

    /// The trace's id, which is never 0.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// The id of the sender's span, which is never 0.
    pub fn parent_id(&self) -> u64 {
        self.parent_id
    }

    /// The flags of the trace, of which the lowest says that the sender records it.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// `00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01`. A version to come may have more
    /// behind that.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(5, '-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace_id = hexadecimal(parts.next()?, 32)?;
        let parent_id = hexadecimal(parts.next()?, 16)?;
        let flags = hexadecimal(parts.next()?, 2)?;
        let is_of_version = match version {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        if is_of_version { Self::new(trace_id, parent_id, flags) } else { None }
    }

    /// The root names the trace, and the last part the span. Nothing tells whether the sender records
    /// the trace; that it does loses nothing.
    fn parse_hierarchical(text: &str) -> Option<Self> {
        let (root, rest) = text.strip_prefix('|')?.split_once('.')?;
        let parts = rest.strip_suffix(['.', '_'])?;
        let last = parts.rsplit(['.', '_']).next()?;
        Self::new(hexadecimal(root, 32)?, hexadecimal(last, 16)?, u128::from(SAMPLED))
    }

    fn new(trace_id: u128, parent_id: u128, flags: u128) -> Option<Self> {
        let (parent_id, flags) = (u64::try_from(parent_id).ok()?, u8::try_from(flags).ok()?);
        let is_valid = trace_id != 0 && parent_id != 0;
        is_valid.then_some(Self { trace_id, parent_id, flags })
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, self.flags)
    }
}

/// Exactly so many digits, in lower case. `from_str_radix` alone would take a sign.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = text.len() == digits && text.bytes().all(is_digit);
    if is_number { u128::from_str_radix(text, 16).ok() } else { None }
}

/// What .NET calls the hierarchical form has at most so many bytes.
const DIAGNOSTIC_ID_SIZE_MAX: usize = 1024;

/// A `Diagnostic-Id` in the hierarchical form that names no trace of the W3C's: a log can still be
/// searched for it.
pub(super) fn diagnostic_id(delivery: &Delivery) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"|._-#+/=".contains(&byte);
    text_of(delivery, "Diagnostic-Id").filter(|id| {
        id.starts_with('|') && id.len() <= DIAGNOSTIC_ID_SIZE_MAX && id.bytes().all(is_part)
    })
}

pub(super) fn text_of<'a>(delivery: &'a Delivery, name: &str) -> Option<&'a str> {
    match delivery.property(name)? {
        Property::Text(text) => Some(text),
        Property::Bool(_)
        | Property::Integer(_)
        | Property::Float(_)
        | Property::Bytes(_)
        | Property::Instant(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::SourceId;

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn delivery(properties: &[(&str, &str)]) -> Delivery {
        let delivery = Delivery::new(SourceId::new("bus.example.net", "orders"), "{}");
        properties.iter().fold(delivery, |delivery, (name, value)| {
            delivery.with_property(*name, Property::Text((*value).to_owned()))
        })
    }

    fn of(name: &str, value: &str) -> Option<String> {
        TraceContext::of(&delivery(&[(name, value)])).map(|context| context.to_string())
    }

    #[test]
    fn a_trace_is_read_in_each_of_its_forms() {
        for name in ["traceparent", "Diagnostic-Id"] {
            assert_eq!(of(name, TRACE).as_deref(), Some(TRACE));
            let not_sampled = TRACE.replace("-01", "-00");
            assert_eq!(of(name, &not_sampled), Some(not_sampled));
            let of_a_version_to_come = format!("cc{}-what-ever", &TRACE[2..]);
            assert_eq!(of(name, &of_a_version_to_come).as_deref(), Some(TRACE));
        }
        for hierarchical in [
            "|4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7.",
            "|4bf92f3577b34da6a3ce929d0e0e4736.1.2_00f067aa0ba902b7_",
        ] {
            assert_eq!(of("Diagnostic-Id", hierarchical).as_deref(), Some(TRACE));
            assert_eq!(of("traceparent", hierarchical), None);
        }
    }

    #[test]
    fn the_newer_name_counts_unless_it_cannot_be_read() {
        let other = TRACE.replace("4bf9", "0000");
        let both = |first: &str| {
            let both = delivery(&[("traceparent", first), ("Diagnostic-Id", TRACE)]);
            TraceContext::of(&both).map(|context| context.to_string())
        };
        assert_eq!(both(&other), Some(other));
        assert_eq!(both("nonsense").as_deref(), Some(TRACE));
    }

    #[test]
    fn what_is_not_exactly_right_is_nothing() {
        let wrong = [
            "",
            "00",
            "00-",
            "00---",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01",
            "|",
            "|.",
            "||.",
            "|4bf92f3577b34da6a3ce929d0e0e4736.",
            "|4bf92f3577b34da6a3ce929d0e0e4736.1.",
            "|4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7",
            "4bf92f3577b34da6a3ce929d0e0e4736.00f067aa0ba902b7.",
            "|00000000000000000000000000000000.00f067aa0ba902b7.",
        ];
        for text in wrong {
            for name in ["traceparent", "Diagnostic-Id"] {
                assert_eq!(of(name, text), None, "{name}: {text}");
            }
        }
        let number = delivery(&[]).with_property("traceparent", Property::Integer(7));
        assert_eq!(TraceContext::of(&number), None);
    }

    #[test]
    fn an_id_without_a_trace_is_kept_if_it_looks_like_one() {
        let kept = |id: &str| diagnostic_id(&delivery(&[("Diagnostic-Id", id)])).map(str::to_owned);
        assert_eq!(kept("|guid-1.da4e9679_"), Some("|guid-1.da4e9679_".to_owned()));
        for id in ["", "guid", "|a\nb.", "|é.", TRACE, &format!("|{}.", "a".repeat(1024))] {
            assert_eq!(kept(id), None, "{id}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_is_no_panic(text in r"\PC{0,80}", hex in "[|0-9a-f.-]{0,80}") {
            for text in [&text, &hex] {
                let delivery = delivery(&[("traceparent", text), ("Diagnostic-Id", text)]);
                if let Some(context) = TraceContext::of(&delivery) {
                    proptest::prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
                }
                diagnostic_id(&delivery);
            }
        }
    }
}
