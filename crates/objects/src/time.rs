//! Timestamps as the API writes them: `Time` in whole seconds, `MicroTime` with six decimals, both
//! in UTC with the suffix Z.
//!
//! Owns: parsing and rendering. Never: asks what time it is.

use jiff::Timestamp;

/// How exactly a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Read with any number of decimals, written with none.
    Seconds,
    /// Read and written with exactly six decimals.
    Micros,
}

impl Precision {
    /// The layout as error messages show it, written for the second of January 2006.
    pub const fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Renders a `Time`.
pub fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

/// Renders a `MicroTime`.
pub fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Parses RFC 3339 with any offset and any number of decimals.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The normal form of a timestamp; `None` if it is none of this precision.
pub fn normal(text: &str, precision: Precision) -> Option<String> {
    let decimals = decimals(text)?;
    let time = parse(text)?;
    match precision {
        Precision::Seconds => Some(seconds(time)),
        Precision::Micros => (decimals == 6).then(|| micros(time)),
    }
}

/// How many decimals the seconds have, if the text has the shape `2006-01-02T15:04:05.999+07:00`.
/// The general parser takes more shapes than the API does.
fn decimals(text: &str) -> Option<usize> {
    const SHAPE: &[u8] = b"dddd-dd-ddTdd:dd:dd";
    let (head, rest) = text.as_bytes().split_at_checked(SHAPE.len())?;
    let fits = |(byte, wanted): (&u8, &u8)| match wanted {
        b'd' => byte.is_ascii_digit(),
        literal => byte == literal,
    };
    if !head.iter().zip(SHAPE).all(fits) || head.ends_with(b"60") {
        return None;
    }
    let (decimals, zone) = match rest.strip_prefix(b".") {
        None => (0, rest),
        Some(rest) => {
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (Some(count).filter(|count| *count > 0)?, rest.get(count..)?)
        }
    };
    match zone {
        b"Z" => Some(decimals),
        [b'+' | b'-', zone @ ..] => {
            (zone.len() == 5 && zone.iter().zip(b"dd:dd").all(fits)).then_some(decimals)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_decimals_are_normalised() {
        for (text, precision, want) in [
            ("2026-01-01T02:00:00+02:00", Precision::Seconds, "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00.999Z", Precision::Seconds, "2026-01-01T00:00:00Z"),
            ("2026-01-01T02:00:00.123456+02:00", Precision::Micros, "2026-01-01T00:00:00.123456Z"),
        ] {
            assert_eq!(normal(text, precision).as_deref(), Some(want), "{text}");
        }
        for bad in ["", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"] {
            assert_eq!(normal(bad, Precision::Seconds), None, "{bad}");
        }
        for odd in [
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:60Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00z",
            "2026-01-01T00:00:00Z[UTC]",
            "2026-01-01T00:00:00+0200",
        ] {
            assert_eq!(normal(odd, Precision::Seconds), None, "{odd}");
        }
        for inexact in ["00Z", "00.1Z", "00.12345Z", "00.1234567Z", "00.123456789Z"] {
            let time = format!("2026-01-01T00:00:{inexact}");
            assert_eq!(normal(&time, Precision::Micros), None, "{time}");
            assert!(normal(&time, Precision::Seconds).is_some(), "{time}");
        }
    }
}
