//! Durations as Go programs write them: `720h0m0s`, `1m30.5s`, `250ms`.
//!
//! Owns reading and writing that text. A document keeps the text it came with, readable or not, so
//! that one bad value spoils one object and not the list around it.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What schemas ask of a duration. Negative ones mean nothing in any field we have.
pub const PATTERN: &str = r"^(0|([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+)$";

/// The text of a duration.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GoDuration(String);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a duration; write it as 1h30m or 45s")]
pub struct DurationError {
    text: String,
}

impl GoDuration {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What the text means.
    pub fn get(&self) -> Result<Duration, DurationError> {
        parse(&self.0).ok_or_else(|| DurationError { text: self.0.clone() })
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(render(duration))
    }
}

impl From<&str> for GoDuration {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN })
    }
}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Whole arithmetic, checked at every step: the text comes from outside.
fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut nanos: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let (_, unit) = UNITS.iter().find(|(known, _)| *known == name)?;
        let base = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
        nanos = nanos.checked_add(base.checked_mul(*unit)?)?.checked_add(part(fraction, *unit)?)?;
        rest = after;
    }
    // Go counts in signed 64 bits; a longer time would be refused there.
    (!text.is_empty() && i64::try_from(nanos).is_ok()).then(|| Duration::from_nanos(nanos))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `0.<fraction>` of a unit, in nanoseconds; digits past the last nanosecond do not count.
fn part(fraction: &str, unit: u64) -> Option<u64> {
    // No unit has more than 13 digits of nanoseconds, so 18 digits of fraction are plenty.
    let kept = fraction.get(..fraction.len().min(18))?;
    if kept.is_empty() {
        return Some(0);
    }
    let scale = 10_u128.checked_pow(u32::try_from(kept.len()).ok()?)?;
    let numerator = kept.parse::<u128>().ok()?.checked_mul(u128::from(unit))?;
    u64::try_from(numerator / scale).ok()
}

fn render(duration: Duration) -> String {
    let nanos = duration.subsec_nanos();
    let total = duration.as_secs();
    if total == 0 && nanos > 0 {
        return match nanos {
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}\u{b5}s", decimal(nanos / 1_000, nanos % 1_000, 3)),
            _ => format!("{}ms", decimal(nanos / 1_000_000, nanos % 1_000_000, 6)),
        };
    }
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    let seconds = decimal(seconds, nanos, 9);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

fn decimal(whole: impl fmt::Display, fraction: u32, width: usize) -> String {
    if fraction == 0 {
        return whole.to_string();
    }
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn go_texts_are_read_as_go_reads_them() {
        let table = [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("720h0m0s", Some(720 * 3_600_000_000_000)),
            ("1m30.5s", Some(90_500_000_000)),
            ("250ms", Some(250_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            ("7us", Some(7_000)),
            ("7\u{b5}s", Some(7_000)),
            (".5s", Some(500_000_000)),
            ("0.0000000019s", Some(1)),
            ("", None),
            ("30d", None),
            ("10", None),
            ("-5m", None),
            ("5 m", None),
            ("1..5s", None),
            ("99999999999999999999h", None),
            ("9999999h", None),
        ];
        for (text, nanos) in table {
            assert_eq!(
                GoDuration::from(text).get().ok(),
                nanos.map(Duration::from_nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn durations_are_written_as_go_writes_them() {
        let table = [
            (Duration::ZERO, "0s"),
            (Duration::from_hours(720), "720h0m0s"),
            (Duration::from_mins(5), "5m0s"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_micros(1500), "1.5ms"),
            (Duration::from_nanos(1500), "1.5\u{b5}s"),
            (Duration::from_nanos(15), "15ns"),
        ];
        for (duration, text) in table {
            assert_eq!(GoDuration::from(duration).as_str(), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos in 0..i64::MAX as u64) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(GoDuration::from(duration).get(), Ok(duration));
        }

        #[test]
        fn noise_never_panics(text in "\\PC{0,40}") {
            let _ = GoDuration::from(text.as_str()).get();
        }

        #[test]
        fn near_durations_never_panic(text in "[0-9.a-z\u{b5}]{0,60}") {
            let _ = GoDuration::from(text.as_str()).get();
        }
    }
}
