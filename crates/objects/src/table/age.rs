//! Ages as people read them: two units while they matter, one when they do not.

use jiff::Timestamp;

use crate::time::parse;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The age of something that began at `from`: `45s`, `3m7s`, `4h`, `2d3h`; `<invalid>` when `from` is
/// no time or lies in the future.
pub fn age(from: &str, now: Timestamp) -> String {
    if from.is_empty() {
        return "<unknown>".to_owned();
    }
    match parse(from) {
        Some(from) => duration(seconds_between(from, now)),
        None => "<invalid>".to_owned(),
    }
}

/// The time between two moments, in whole seconds towards zero.
pub(super) fn seconds_between(from: Timestamp, until: Timestamp) -> i64 {
    until.duration_since(from).as_secs()
}

/// A number of seconds, shortened.
pub(super) fn duration(seconds: i64) -> String {
    // Clocks of two machines may differ by a second; more is an error someone should see.
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(seconds, (MINUTE, 'm'), (1, 's')),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => pair(seconds, (HOUR, 'h'), (MINUTE, 'm')),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => pair(seconds, (DAY, 'd'), (HOUR, 'h')),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        63_072_000..252_288_000 => pair(seconds, (YEAR, 'y'), (DAY, 'd')),
        _ => format!("{}y", seconds / YEAR),
    }
}

/// Two units; the smaller one is left out when it is zero.
fn pair(seconds: i64, large: (i64, char), small: (i64, char)) -> String {
    let rest = seconds % large.0 / small.0;
    let head = format!("{}{}", seconds / large.0, large.1);
    if rest == 0 { head } else { format!("{head}{rest}{}", small.1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_are_shortened_step_by_step() {
        for (seconds, want) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (45, "45s"),
            (119, "119s"),
            (120, "2m"),
            (187, "3m7s"),
            (599, "9m59s"),
            (600, "10m"),
            (2 * HOUR, "120m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (4 * HOUR, "4h"),
            (4 * HOUR + 5 * MINUTE + 9, "4h5m"),
            (8 * HOUR + 5 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (51 * HOUR, "2d3h"),
            (8 * DAY + HOUR, "8d"),
            (729 * DAY, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (8 * YEAR + 3 * DAY, "8y"),
        ] {
            assert_eq!(duration(seconds), want, "{seconds}");
        }
    }

    #[test]
    fn ages_count_from_a_time() {
        let now = "2026-01-01T00:03:07Z".parse().unwrap();
        assert_eq!(age("2026-01-01T00:00:00Z", now), "3m7s");
        assert_eq!(age("2027-01-01T00:00:00Z", now), "<invalid>");
        assert_eq!(age("yesterday", now), "<invalid>");
        assert_eq!(age("", now), "<unknown>");
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in ".{0,40}", seconds: i64) {
            let _ = (age(&text, Timestamp::UNIX_EPOCH), age(&text, Timestamp::MAX));
            let _ = duration(seconds);
        }
    }
}
