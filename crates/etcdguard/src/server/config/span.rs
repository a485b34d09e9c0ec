//! Durations as the dialect writes them: `20s`, `1h30m`, `2m8.5s`, `-5ms`. Pure.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const SECOND: i128 = 1_000_000_000;
/// Long enough for any duration that means something, short enough to be looked at at all.
const TEXT_MAX_BYTES: usize = 64;

/// A duration of the configuration. It may be negative in the text; nothing ever waits less than
/// not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    nanos: i64,
}

impl Span {
    pub const fn from_secs(seconds: u32) -> Self {
        Self { nanos: seconds as i64 * 1_000_000_000 }
    }

    /// The time to wait; nothing for a negative one.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.nanos).unwrap_or_default())
    }

    /// Reads numbers with units one after the other; `0` needs none.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX_BYTES {
            return None;
        }
        let (sign, mut rest) = match text.as_bytes().first()? {
            b'-' => (-1, text.get(1..)?),
            b'+' => (1, text.get(1..)?),
            _ => (1, text),
        };
        if rest == "0" {
            return Some(Self::default());
        }
        if rest.is_empty() {
            return None;
        }
        let mut nanos: i128 = 0;
        while !rest.is_empty() {
            let (part, after) = part(rest)?;
            nanos = nanos.checked_add(part)?;
            rest = after;
        }
        Some(Self { nanos: i64::try_from(sign * nanos).ok()? })
    }
}

/// One number and its unit, in nanoseconds, and what follows.
fn part(text: &str) -> Option<(i128, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, rest) = text.split_at(end);
    let unit_end = rest.find(|letter: char| letter.is_ascii_digit() || letter == '.');
    let (unit, rest) = rest.split_at(unit_end.unwrap_or(rest.len()));
    let unit: i128 = match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => SECOND,
        "m" => 60 * SECOND,
        "h" => 3600 * SECOND,
        _ => return None,
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && decimals.is_empty() || decimals.contains('.') {
        return None;
    }
    let parse = |digits: &str| if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    let whole: i128 = parse(whole)?;
    // More decimals than nanoseconds have say nothing.
    let decimals = decimals.get(..decimals.len().min(18))?;
    let scale = 10_i128.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let fraction: i128 = parse(decimals)?;
    Some((whole.checked_mul(unit)?.checked_add(fraction.checked_mul(unit)? / scale)?, rest))
}

impl fmt::Display for Span {
    /// The shortest form with the same parts as everybody else prints: `1m0s`, `1h30m0s`, `2m8.5s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        if nanos == 0 {
            return f.write_str("0s");
        }
        if nanos < 1_000_000_000 {
            let (unit, name) = match nanos {
                0..1_000 => (1, "ns"),
                1_000..1_000_000 => (1_000, "µs"),
                1_000_000.. => (1_000_000, "ms"),
            };
            return write!(f, "{}{name}", Decimal { nanos, unit });
        }
        let seconds = nanos / 1_000_000_000;
        if seconds >= 3600 {
            write!(f, "{}h", seconds / 3600)?;
        }
        if seconds >= 60 {
            write!(f, "{}m", seconds / 60 % 60)?;
        }
        write!(f, "{}s", Decimal { nanos: nanos % 60_000_000_000, unit: 1_000_000_000 })
    }
}

struct Decimal {
    nanos: u64,
    unit: u64,
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.nanos / self.unit)?;
        let rest = self.nanos % self.unit;
        if rest == 0 {
            return Ok(());
        }
        let width = self.unit.ilog10() as usize;
        let digits = format!("{rest:0width$}");
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("{text:?} is no duration; write one as in 1h30m"))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_are_read_and_written_as_everybody_does() {
        for (text, nanos, shown) in [
            ("20s", 20_000_000_000, "20s"),
            ("2m8s", 128_000_000_000, "2m8s"),
            ("1h30m", 5_400_000_000_000, "1h30m0s"),
            ("8m", 480_000_000_000, "8m0s"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("1.5s", 1_500_000_000, "1.5s"),
            (".5ms", 500_000, "500µs"),
            ("-5ms", -5_000_000, "-5ms"),
            ("100us", 100_000, "100µs"),
        ] {
            let span = Span::parse(text).unwrap();
            assert_eq!(span.nanos, nanos, "{text}");
            assert_eq!(span.to_string(), shown, "{text}");
        }
        for text in ["", "s", "5", "1x", "1h-3m", ".s", "1..2s", "9999999999999999h", "-"] {
            assert_eq!(Span::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(nanos in any::<i64>()) {
            let span = Span { nanos };
            prop_assert_eq!(Span::parse(&span.to_string()), Some(span));
        }

        #[test]
        fn noise_never_panics(text in ".{0,80}") {
            let _ = Span::parse(&text);
        }
    }
}
