//! Sizes and times as people write and read them.

use std::time::Duration;

use jiff::Timestamp;

const KIB: u64 = 1024;
const STEPS: [(&str, u64); 4] =
    [("TiB", KIB * KIB * KIB * KIB), ("GiB", KIB * KIB * KIB), ("MiB", KIB * KIB), ("KiB", KIB)];
/// Sizes of volumes are multiples of it.
const GRAIN: u64 = 2 * KIB * KIB;

/// `1.5 GiB`; whole numbers without a fraction.
pub fn bytes(count: u64) -> String {
    let Some((name, unit)) = STEPS.into_iter().find(|(_, unit)| count >= *unit) else {
        return format!("{count} B");
    };
    let tenths = u128::from(count) * 10 / u128::from(unit);
    if tenths % 10 == 0 || tenths >= 1000 {
        format!("{} {name}", tenths / 10)
    } else {
        format!("{}.{} {name}", tenths / 10, tenths % 10)
    }
}

/// `1 job`, `2 jobs`.
pub fn count(number: usize, of: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {of}{end}")
}

/// A number of bytes that a document carries as text.
pub fn bytes_of(text: Option<&str>) -> String {
    text.and_then(|it| it.parse().ok()).map_or_else(|| "-".to_owned(), bytes)
}

/// `10GiB`, `512M`, `1073741824`: powers of 1024, however they are written.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|it: char| !it.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("{text:?} is no size, as 10GiB is"))?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" | "kib" => KIB,
        "m" | "mi" | "mib" => KIB * KIB,
        "g" | "gi" | "gib" => KIB * KIB * KIB,
        "t" | "ti" | "tib" => KIB * KIB * KIB * KIB,
        other => return Err(format!("{other:?} is no unit; use KiB, MiB, GiB or TiB")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("{text:?} is more than any disk holds"))
}

/// The size of a volume, which is a multiple of 2 MiB.
pub fn parse_volume_size(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text)?;
    if size == 0 || !size.is_multiple_of(GRAIN) || i64::try_from(size).is_err() {
        return Err(format!("{text:?} is not a multiple of 2 MiB"));
    }
    Ok(size)
}

/// `90s`, `10m`, `1h30m`, `2d`; a bare number is seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration, as 90s, 10m and 1h30m are");
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let (mut rest, mut all) = (text, Duration::ZERO);
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit()).ok_or_else(wrong)?;
        let (number, unit) = rest.split_at(digits);
        let end = unit.find(|it: char| it.is_ascii_digit()).unwrap_or(unit.len());
        let (unit, next) = unit.split_at(end);
        let seconds: u64 = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)?;
        all = all.checked_add(part).ok_or_else(wrong)?;
        rest = next;
    }
    if text.is_empty() { Err(wrong()) } else { Ok(all) }
}

/// How long ago, in the largest units that matter: `3d4h`, `12m`, `5s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.as_second().saturating_sub(since.as_second()).max(0);
    let (days, hours) = (seconds / 86_400, seconds % 86_400 / 3600);
    let (minutes, rest) = (seconds % 3600 / 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{rest}s"),
        (0, 0, minutes) if minutes < 10 && rest > 0 => format!("{minutes}m{rest}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, 0) => format!("{hours}h"),
        (0, hours, minutes) if hours < 10 => format!("{hours}h{minutes}m"),
        (0, hours, _) => format!("{hours}h"),
        (days, 0, _) => format!("{days}d"),
        (days, hours, _) if days < 10 => format!("{days}d{hours}h"),
        (days, ..) => format!("{days}d"),
    }
}

/// `2026-11-16 02:00:05`, in UTC as everything that is stored.
pub fn date(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_are_written() {
        for (text, size) in
            [("1", 1), ("2KiB", 2048), ("3m", 3 << 20), ("1.5", 0), ("4 GiB", 4 << 30)]
        {
            assert_eq!(parse_bytes(text).unwrap_or(0), size, "{text}");
        }
        assert_eq!(bytes(1 << 30), "1 GiB");
        assert_eq!(bytes(1536 << 20), "1.5 GiB");
        assert_eq!(bytes(999), "999 B");
        assert!(parse_bytes("99999999999TiB").is_err());
        assert!(parse_volume_size("3MiB").is_err());
        assert_eq!(parse_volume_size("4MiB"), Ok(4 << 20));
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, seconds) in [("5", 5), ("5s", 5), ("10m", 600), ("1h30m", 5400), ("2d", 172_800)]
        {
            assert_eq!(parse_duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "m", "5x", "5m3", "-1s", "99999999999999999999s", "1.5h"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ages_name_two_units_at_most() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let ago = |seconds: i64| age(Timestamp::from_second(1_000_000 - seconds).unwrap(), now);
        assert_eq!(ago(5), "5s");
        assert_eq!(ago(65), "1m5s");
        assert_eq!(ago(3600), "1h");
        assert_eq!(ago(3 * 86_400 + 4 * 3600), "3d4h");
        assert_eq!(ago(-9), "0s");
    }
}
