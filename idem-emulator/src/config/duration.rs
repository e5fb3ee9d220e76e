//! Durations as ISO 8601 writes them, such as `PT1M30S` or `P14D`.

use std::ops::RangeBounds;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};

const DAY: u64 = 24 * 60 * 60;

/// Reads a duration within a range.
pub(super) fn read_within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: &impl RangeBounds<Duration>,
    allowed: &str,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).filter(|duration| range.contains(duration)).ok_or_else(|| {
        Error::custom(format_args!("must be an ISO 8601 duration of {allowed}, found `{text}`"))
    })
}

/// Days, hours, minutes and seconds, in this order. Years and months are not of one length, and are
/// refused.
fn parse(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('P')?;
    let (days, time) = match text.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let (days, after_days) = part(days, 'D', DAY)?;
    let (hours, after_hours) = part(time, 'H', 60 * 60)?;
    let (minutes, after_minutes) = part(after_hours, 'M', 60)?;
    let seconds = seconds(after_minutes)?;
    let whole = after_days.is_empty().then_some(days)?.checked_add(hours)?.checked_add(minutes)?;
    Duration::from_secs(whole).checked_add(seconds)
}

/// The seconds in a part that may be absent, and what comes after it.
fn part(text: &str, unit: char, seconds: u64) -> Option<(u64, &str)> {
    match text.split_once(unit) {
        Some((number, rest)) => Some((digits(number)?.checked_mul(seconds)?, rest)),
        None => Some((0, text)),
    }
}

fn seconds(text: &str) -> Option<Duration> {
    if text.is_empty() {
        return Some(Duration::ZERO);
    }
    let number = text.strip_suffix('S')?;
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if (1..=9).contains(&fraction.len()) => (whole, fraction),
        Some(_) => return None,
        None => (number, "0"),
    };
    let nanoseconds = digits(&format!("{fraction:0<9}"))?;
    Some(Duration::new(digits(whole)?, u32::try_from(nanoseconds).ok()?))
}

fn digits(text: &str) -> Option<u64> {
    let only_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    only_digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        let cases = [
            ("PT1M", 60.0),
            ("PT0.05S", 0.05),
            ("P1D", 86_400.0),
            ("P1DT1H1M1S", 90_061.0),
            ("PT0S", 0.0),
            ("P7DT0.5S", 604_800.5),
        ];
        for (text, seconds) in cases {
            assert_eq!(parse(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        assert!(parse("P10675199DT2H48M5.4775807S").is_some(), "the longest of the cloud");
    }

    #[test]
    fn anything_else_is_refused() {
        let wrong = [
            "",
            "P",
            "PT",
            "T1M",
            "1M",
            "PT1",
            "PT1M1",
            "P1M",
            "P1Y",
            "P1W",
            "PT-1S",
            "-PT1S",
            "PT1S1M",
            "P1DT",
            "PT.5S",
            "PT1.S",
            "PT+1S",
            "pt1m",
            "PT99999999999999999999S",
            "00:01:00",
        ];
        for text in wrong {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
