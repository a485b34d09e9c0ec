//! What words on the command line mean: booleans, integers and sizes as Go programs read them,
//! labels and volume names. Pure.

use std::collections::HashMap;
use std::time::Duration;

/// A volume's name is 2 to 64 letters long.
const VOLUME_NAME_BYTES: std::ops::RangeInclusive<usize> = 2..=64;
/// Of either part of a label's key.
const LABEL_NAME_MAX_BYTES: usize = 63;
const LABEL_PREFIX_MAX_BYTES: usize = 253;
/// Digits after the point that still make a difference: more than bytes can show.
const FRACTION_DIGITS: usize = 18;

pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Decimal, or `0x`, `0o`, `0b` and a leading zero for the other bases.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)?),
        [b'+', ..] => (false, text.get(1..)?),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = if let Some(rest) = lower.strip_prefix("0x") {
        (16, rest)
    } else if let Some(rest) = lower.strip_prefix("0b") {
        (2, rest)
    } else if let Some(rest) = lower.strip_prefix("0o") {
        (8, rest)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (8, lower.get(1..)?)
    } else {
        (10, lower.as_str())
    };
    // The parser of the standard library would take a second sign.
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    let value = i128::from_str_radix(digits, radix).ok()?;
    i64::try_from(if negative { -value } else { value }).ok()
}

/// A number with an optional fraction and suffix, in multiples of 1024: `4194304`, `4m`, `4MB`,
/// `4MiB`, `1.5g`.
pub(crate) fn size(text: &str) -> Option<i64> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = text.split_at_checked(end.unwrap_or(text.len()))?;
    let multiple = multiple(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let fraction = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let whole = whole.parse::<u128>().ok()?.checked_mul(multiple)?;
    let part = fraction.parse::<u128>().ok()?.checked_mul(multiple)? / scale;
    i64::try_from(whole.checked_add(part)?).ok()
}

fn multiple(suffix: &str) -> Option<u128> {
    let suffix = suffix.strip_prefix(' ').unwrap_or(suffix).to_ascii_lowercase();
    let suffix = suffix.strip_suffix('b').unwrap_or(&suffix);
    let letter = suffix.strip_suffix('i').unwrap_or(suffix);
    let power = match letter {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    1024_u128.checked_pow(power)
}

/// Numbers with units, `7d`, `1h30m`; a number alone is seconds.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let (mut rest, mut seconds) = (text, 0_u64);
    while !rest.is_empty() {
        let (digits, more) = rest.split_at_checked(rest.find(|it: char| !it.is_ascii_digit())?)?;
        let unit = more.chars().next()?;
        let each = match unit {
            's' => 1,
            'm' => 60,
            'h' => 60 * 60,
            'd' => 24 * 60 * 60,
            _ => return None,
        };
        seconds = seconds.checked_add(digits.parse::<u64>().ok()?.checked_mul(each)?)?;
        rest = more.get(unit.len_utf8()..)?;
    }
    (!text.is_empty()).then(|| Duration::from_secs(seconds))
}

/// `key=value` pairs.
pub(crate) fn labels(texts: &[String]) -> Result<HashMap<String, String>, String> {
    let mut labels = HashMap::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("invalid label {text:?}: write it as key=value"));
        };
        if !is_qualified_name(key) {
            return Err(format!("invalid label {text:?}: the key is no qualified name"));
        }
        if value.is_empty() {
            return Err(format!("invalid label {text:?}: the value is empty"));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// As Kubernetes has it: an optional DNS prefix and `/`, then a name.
fn is_qualified_name(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_dns_name) && is_name(name)
}

fn is_name(name: &str) -> bool {
    let middle = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let ends = [name.bytes().next(), name.bytes().next_back()];
    name.len() <= LABEL_NAME_MAX_BYTES
        && ends.iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
        && name.bytes().all(middle)
}

fn is_dns_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(letter)
    };
    name.len() <= LABEL_PREFIX_MAX_BYTES && name.split('.').all(part)
}

pub(crate) fn is_volume_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    VOLUME_NAME_BYTES.contains(&name.len())
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(letter)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn booleans_are_those_of_go() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Some(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Some(false), "{text}");
        }
        for text in ["", "yes", "tRUE", "2", "on", " true"] {
            assert_eq!(boolean(text), None, "{text}");
        }
    }

    #[test]
    fn integers_have_the_bases_of_go() {
        for (text, value) in [
            ("0", 0),
            ("42", 42),
            ("-7", -7),
            ("+7", 7),
            ("0x10", 16),
            ("0X1f", 31),
            ("017", 15),
            ("0o17", 15),
            ("0b101", 5),
            ("9223372036854775807", i64::MAX),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text), Some(value), "{text}");
        }
        for text in ["", "-", "4m", "1.0", "9223372036854775808", "0x", "08", "--1", "0x-1", "é"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_take_a_fraction_and_a_suffix() {
        for (text, value) in [
            ("0", 0),
            ("4194304", 4 << 20),
            ("4m", 4 << 20),
            ("4M", 4 << 20),
            ("4MB", 4 << 20),
            ("4MiB", 4 << 20),
            ("4 mib", 4 << 20),
            ("1.5g", 3 << 29),
            ("0.5k", 512),
            ("1t", 1 << 40),
            ("2P", 2 << 50),
            ("7b", 7),
        ] {
            assert_eq!(size(text), Some(value), "{text}");
        }
        for text in ["", "m", "-4m", "4x", "4mm", "1.2.3k", ".5g", "5.", "9999999999p", "4  m"] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_numbers_with_units() {
        for (text, seconds) in [("0", 0), ("90", 90), ("7d", 604_800), ("1h30m", 5400), ("5s", 5)] {
            assert_eq!(duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "h", "7x", "1h30", "-1h", "1.5h", "99999999999999999999d", "7é"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn labels_need_a_qualified_key_and_a_value() {
        let good = ["app=a", "example.com/app=b=c", "a.b_c-d=1"].map(str::to_owned);
        let labels = labels(&good).unwrap();
        assert_eq!(labels.get("example.com/app").map(String::as_str), Some("b=c"));
        assert_eq!(labels.len(), 3);
        let long = format!("{}=v", "k".repeat(64));
        for bad in ["app", "app=", "=v", "-a=v", "a/b/c=v", "Bad.Prefix/a=v", "a b=v", &long] {
            assert!(super::labels(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }

    #[test]
    fn volume_names_are_short_and_plain() {
        for name in ["v1", "vol-1_a.b", "0x", &"v".repeat(64)] {
            assert!(is_volume_name(name), "{name}");
        }
        for name in ["", "v", "-v", ".v", "a/b", "a b", "vé", &"v".repeat(65)] {
            assert!(!is_volume_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_word_panics(text in ".{0,40}") {
            let _ = (boolean(&text), integer(&text), size(&text), duration(&text));
            let _ = (is_volume_name(&text), labels(std::slice::from_ref(&text)));
        }
    }
}
