//! The formats of strings and numbers that are checked; unknown formats are ignored.
//!
//! Lenient where clients are: the aim is to catch mistakes, not to be a parser of each standard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// What is wrong with `text` under `format`, if anything.
pub(super) fn check_text(format: &str, text: &str) -> Option<&'static str> {
    let (fits, detail) = match format {
        "date-time" => (is_date_time(text), "must be a date and time such as 2006-01-02T15:04:05Z"),
        "date" => (is_date(text), "must be a date such as 2006-01-02"),
        "duration" => (is_duration(text), "must be a duration such as 1h30m"),
        "byte" => (STANDARD.decode(text).is_ok(), "must be base64"),
        "uuid" => (is_uuid(text, None), "must be a UUID"),
        "uuid3" => (is_uuid(text, Some('3')), "must be a UUID of version 3"),
        "uuid4" => (is_uuid(text, Some('4')), "must be a UUID of version 4"),
        "uuid5" => (is_uuid(text, Some('5')), "must be a UUID of version 5"),
        "ipv4" => (text.parse::<Ipv4Addr>().is_ok(), "must be an IPv4 address"),
        "ipv6" => (text.parse::<Ipv6Addr>().is_ok(), "must be an IPv6 address"),
        "cidr" => (is_cidr(text), "must be an address range such as 10.0.0.0/8"),
        "email" => (is_email(text), "must be an email address"),
        "hostname" => (is_hostname(text), "must be a host name"),
        "uri" => (is_uri(text), "must be a URI"),
        "mac" => (is_mac(text), "must be a MAC address"),
        _ => return None,
    };
    (!fits).then_some(detail)
}

/// What is wrong with a number under `format`, if anything.
pub(super) fn check_number(format: &str, value: &Value) -> Option<&'static str> {
    let integer = || value.as_i64();
    match format {
        "int32" => match integer() {
            Some(number) if i32::try_from(number).is_ok() => None,
            None if value.as_f64().is_some_and(in_int32) => None,
            _ => Some("must be an integer of 32 bits"),
        },
        "int64" if value.is_u64() && integer().is_none() => Some("must be an integer of 64 bits"),
        "float" if value.as_f64().is_some_and(|number| number.abs() > f64::from(f32::MAX)) => {
            Some("must be a number of single precision")
        }
        _ => None,
    }
}

fn in_int32(number: f64) -> bool {
    number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
}

/// RFC 3339 with the usual `T` and zone; the calendar is checked by parsing.
pub(crate) fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't', ' ']) else { return false };
    let zone =
        time.ends_with(['Z', 'z']) || time.get(8..).is_some_and(|rest| rest.contains(['+', '-']));
    is_date(date) && zone && text.parse::<jiff::Timestamp>().is_ok()
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// `1h30m`, `-1.5s`, `0`, and the spelled-out form `3 days`.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 38] = [
        "ns",
        "us",
        "µs",
        "μs",
        "ms",
        "s",
        "m",
        "h",
        "d",
        "w",
        "nano",
        "nanos",
        "nanosecond",
        "nanoseconds",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "millis",
        "milli",
        "millisecond",
        "milliseconds",
        "sec",
        "secs",
        "second",
        "seconds",
        "min",
        "mins",
        "minute",
        "minutes",
        "hr",
        "hour",
        "hours",
        "day",
        "days",
        "wk",
        "week",
        "weeks",
    ];
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut parts = 0;
    while !rest.is_empty() {
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = rest.get(..rest.len() - after.len()).unwrap_or_default();
        if number.parse::<f64>().is_err() {
            return false;
        }
        let after = after.trim_start_matches(' ');
        let tail = after.trim_start_matches(char::is_alphabetic);
        let unit = after.get(..after.len() - tail.len()).unwrap_or_default();
        if !UNITS.contains(&unit) {
            return false;
        }
        rest = tail.trim_start_matches(' ');
        parts += 1;
    }
    parts > 0
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let dashes = text.chars().filter(|c| *c == '-').count();
    digits.len() == 32
        && (dashes == 0 || is_dashed_uuid(text))
        && digits.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|version| digits.get(12) == Some(&version))
}

fn is_dashed_uuid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12])
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.bytes().all(|byte| byte.is_ascii_digit())
        && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_email(text: &str) -> bool {
    // A display name may stand before the address in angle brackets.
    let address = match text.split_once('<') {
        Some((_, rest)) => match rest.strip_suffix('>') {
            Some(address) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    !local.is_empty()
        && !domain.is_empty()
        && !address.contains(|c: char| c.is_whitespace() || c.is_control())
        && (is_hostname(domain) || (domain.starts_with('[') && domain.ends_with(']')))
}

fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.chars().all(|c| c.is_alphanumeric() || c == '-' || c == '_')
    };
    (1..=253).contains(&text.len()) && text.split('.').all(label)
}

/// An absolute URI or an absolute path.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.contains(|c: char| c.is_control() || c == ' ') || !escapes_fit(text)
    {
        return false;
    }
    if text.starts_with('/') {
        return true;
    }
    let Some((scheme, _)) = text.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn escapes_fit(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit))
    })
}

fn is_mac(text: &str) -> bool {
    let pairs = |separator| {
        let parts: Vec<&str> = text.split(separator).collect();
        matches!(parts.len(), 6 | 8 | 20) && parts.iter().all(|part| is_hex(part, 2))
    };
    let quads: Vec<&str> = text.split('.').collect();
    pairs(':')
        || pairs('-')
        || (matches!(quads.len(), 3 | 4 | 10) && quads.iter().all(|part| is_hex(part, 4)))
}

fn is_hex(text: &str, len: usize) -> bool {
    text.len() == len && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_format_accepts_and_refuses_its_examples() {
        let table: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &[
                    "2006-01-02T15:04:05Z",
                    "2006-01-02T15:04:05.123456+02:00",
                    "2024-02-29T00:00:00-07:00",
                ],
                &["2006-01-02", "2006-01-02T15:04:05", "2023-02-29T00:00:00Z", "x", ""],
            ),
            (
                "date",
                &["2024-02-29"],
                &["2023-02-29", "2024-2-9", "20240229", "2024-02-29T00:00:00Z"],
            ),
            (
                "duration",
                &["1h30m", "0", "-1.5s", "10ms", "3 days", "1µs"],
                &["", "1", "h", "1x", "1h-2m"],
            ),
            ("byte", &["", "aGk="], &["aGk", "!"]),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
                &["123e4567", "g23e4567-e89b-12d3-a456-426614174000"],
            ),
            (
                "uuid4",
                &["123e4567-e89b-42d3-a456-426614174000"],
                &["123e4567-e89b-12d3-a456-426614174000"],
            ),
            ("ipv4", &["10.0.0.1"], &["10.0.0", "::1", "256.0.0.1"]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", ":::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            ("email", &["a@b.c", "N <a@b.c>"], &["a", "@b", "a b@c"]),
            ("hostname", &["a.b-c", "localhost"], &["-a", "a..b", "a b", ""]),
            ("uri", &["https://a/b?c=d", "urn:a:b", "/path"], &["", "a b", "://x", "http://%zz"]),
            (
                "mac",
                &["00:1a:2b:3c:4d:5e", "00-1a-2b-3c-4d-5e", "001a.2b3c.4d5e"],
                &["00:1a", "zz:1a:2b:3c:4d:5e"],
            ),
            ("never-heard-of", &["anything"], &[]),
        ];
        for (format, good, bad) in table {
            for text in *good {
                assert_eq!(check_text(format, text), None, "{format} {text:?}");
            }
            for text in *bad {
                assert!(check_text(format, text).is_some(), "{format} {text:?}");
            }
        }
    }

    #[test]
    fn numbers_stay_in_the_range_of_their_format() {
        assert_eq!(check_number("int32", &json!(2_147_483_647)), None);
        assert_eq!(check_number("int32", &json!(2.0)), None);
        assert!(check_number("int32", &json!(2_147_483_648_i64)).is_some());
        assert_eq!(check_number("int64", &json!(i64::MAX)), None);
        assert!(check_number("int64", &json!(u64::MAX)).is_some());
        assert!(check_number("float", &json!(1e300)).is_some());
        assert_eq!(check_number("double", &json!(1e300)), None);
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in ".{0,40}") {
            for format in ["date-time", "date", "duration", "byte", "uuid4", "cidr", "email", "hostname", "uri", "mac"] {
                let _ = check_text(format, &text);
            }
        }
    }
}
