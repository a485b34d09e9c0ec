//! Timestamps as the API writes them: `Time` in whole seconds, `MicroTime` with six decimals, both
//! in UTC with the suffix Z.
//!
//! Owns: parsing and rendering. Never: asks what time it is.

use jiff::Timestamp;

/// How exactly a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    Seconds,
    Micros,
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

/// The normal form of a timestamp; `None` if it is none.
pub fn normal(text: &str, precision: Precision) -> Option<String> {
    let time = parse(text)?;
    Some(match precision {
        Precision::Seconds => seconds(time),
        Precision::Micros => micros(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_decimals_are_normalised() {
        for (text, precision, want) in [
            ("2026-01-01T02:00:00+02:00", Precision::Seconds, "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00.999Z", Precision::Seconds, "2026-01-01T00:00:00Z"),
            ("2026-01-01T00:00:00Z", Precision::Micros, "2026-01-01T00:00:00.000000Z"),
            ("2026-01-01T00:00:00.1Z", Precision::Micros, "2026-01-01T00:00:00.100000Z"),
            ("2026-01-01T00:00:00.123456789Z", Precision::Micros, "2026-01-01T00:00:00.123456Z"),
        ] {
            assert_eq!(normal(text, precision).as_deref(), Some(want), "{text}");
        }
        for bad in ["", "now", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z"] {
            assert_eq!(normal(bad, Precision::Seconds), None, "{bad}");
        }
    }
}
