//! Resource quantities (`10Gi`, `100m`, `1e3`) as exact numbers, to compare them and to write them
//! in their one normal form.
//!
//! Owns: the syntax, its value and the normal form. Never: knows where an object has quantities.

/// A quantity in billionths of its unit, the finest step the format knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Digits a quantity may have; more cannot be a real amount and would overflow.
const DIGITS_MAX: usize = 30;

impl Quantity {
    pub const ZERO: Self = Self(0);

    /// Parses a decimal number with an optional suffix. Fractions finer than a billionth round up.
    pub fn parse(text: &str) -> Option<Self> {
        read(text).map(|(amount, _)| amount)
    }

    /// The spelling everybody gets to see: equal amounts in one notation are equal text. The largest
    /// suffix that leaves a whole number is used, and what has no binary spelling gets a decimal one.
    pub fn normal(text: &str) -> Option<String> {
        let (Self(nanos), notation) = read(text)?;
        let limit = i128::from(i64::MAX) * NANOS;
        let nanos = nanos.clamp(-limit, limit);
        let whole = nanos % NANOS == 0;
        Some(match notation {
            _ if nanos == 0 => "0".to_owned(),
            Notation::Binary if whole && (nanos / NANOS).abs() >= 1024 => binary(nanos / NANOS),
            Notation::Binary | Notation::Decimal => decimal(nanos, |exponent| {
                let at = usize::try_from((exponent + 9) / 3).unwrap_or_default();
                DECIMAL_SUFFIXES.get(at).map(|suffix| (*suffix).to_owned()).unwrap_or_default()
            }),
            Notation::Exponent => decimal(nanos, |exponent| match exponent {
                0 => String::new(),
                exponent => format!("e{exponent}"),
            }),
        })
    }

    /// The sum; an amount nobody has is the largest there is.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Whether this is more than `ratio` times `base`.
    pub fn exceeds_ratio(self, base: Self, ratio: Self) -> bool {
        // In thousandths, so that real amounts do not overflow; what still does is more.
        let scaled = self.0.checked_mul(1000);
        let allowed = (ratio.0 / (NANOS / 1000)).saturating_mul(base.0);
        scaled.is_none_or(|scaled| scaled > allowed)
    }

    /// As people write it.
    pub fn shown(self) -> String {
        if self.0 % (1024 * NANOS) == 0 && self.0 != 0 {
            return binary(self.0 / NANOS);
        }
        let nanos = format!("{}n", self.0);
        Self::normal(&nanos).unwrap_or(nanos)
    }

    /// At least this much in whole thousandths: finer amounts of a resource round up.
    #[must_use]
    pub fn rounded_up_to_thousandths(text: &str) -> Option<String> {
        let (Self(nanos), notation) = read(text)?;
        let step = NANOS / 1000;
        if nanos % step == 0 {
            return Self::normal(text);
        }
        let thousandths = nanos.div_euclid(step) + 1;
        let rounded = match notation {
            Notation::Exponent => format!("{thousandths}e-3"),
            Notation::Binary | Notation::Decimal => format!("{thousandths}m"),
        };
        Self::normal(&rounded)
    }
}

/// Billionths in one.
const NANOS: i128 = 1_000_000_000;
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// How a quantity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// `Ki`, `Mi`, …
    Binary,
    /// `m`, `k`, `M`, …, or no suffix
    Decimal,
    /// `e3`
    Exponent,
}

fn binary(mut amount: i128) -> String {
    let mut suffixes = BINARY_SUFFIXES.iter();
    let mut suffix = suffixes.next();
    while amount % 1024 == 0
        && let Some(larger) = suffixes.next()
    {
        amount /= 1024;
        suffix = Some(larger);
    }
    format!("{amount}{}", suffix.unwrap_or(&""))
}

/// Mantissa and an exponent that is a multiple of three.
fn decimal(mut nanos: i128, suffix: impl Fn(i32) -> String) -> String {
    let mut exponent = -9;
    while nanos % 1000 == 0 && exponent < 18 {
        nanos /= 1000;
        exponent += 3;
    }
    format!("{nanos}{}", suffix(exponent))
}

fn read(text: &str) -> Option<(Quantity, Notation)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.len() + fraction.len();
    if digits == 0 || digits > DIGITS_MAX || fraction.contains('.') {
        return None;
    }
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let amount = match suffix_value(suffix)? {
        Suffix::Binary(factor) => scaled(mantissa.checked_mul(factor)?, 9 - scale),
        Suffix::Decimal(exponent) => scaled(mantissa, exponent + 9 - scale),
    }?;
    let notation = match suffix.as_bytes() {
        [.., b'i'] => Notation::Binary,
        [b'e' | b'E', _, ..] => Notation::Exponent,
        _ => Notation::Decimal,
    };
    Some((Quantity(if negative { -amount } else { amount }), notation))
}

enum Suffix {
    Binary(i128),
    Decimal(i32),
}

fn suffix_value(suffix: &str) -> Option<Suffix> {
    let binary = |power: u32| Suffix::Binary(1_i128 << (10 * power));
    Some(match suffix {
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "" => Suffix::Decimal(0),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            Suffix::Decimal(exponent.parse().ok().filter(|e| (-30..=30).contains(e))?)
        }
    })
}

/// `mantissa * 10^exponent`, rounded up.
fn scaled(mantissa: i128, exponent: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    if exponent >= 0 {
        return mantissa.checked_mul(power?);
    }
    let Some(power) = power else { return Some(i128::from(mantissa > 0)) };
    mantissa.checked_add(power - 1).map(|sum| sum / power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_amounts_are_equal_however_they_are_written() {
        for (a, b) in [
            ("1Gi", "1024Mi"),
            ("1", "1000m"),
            ("1k", "1e3"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("+1", "1"),
            ("1E3", "1000"),
            ("1E", "1000P"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(Quantity::parse(a), Quantity::parse(b), "{a} {b}");
            assert!(Quantity::parse(a).is_some(), "{a}");
        }
        assert!(Quantity::parse("1Gi") > Quantity::parse("1G"));
        assert!(Quantity::parse("-1") < Some(Quantity::ZERO));
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for bad in ["", "-", ".", "Gi", "1 Gi", "1gi", "1KB", "1.2.3", "1e", "1e99", "0x10", "½"] {
            assert_eq!(Quantity::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_quantity_has_one_normal_form() {
        for (text, wanted) in [
            ("0.5Gi", "512Mi"),
            ("1024Mi", "1Gi"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("0.1Gi", "107374182400m"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1000", "1k"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("1500e-3", "1500e-3"),
            ("1E", "1E"),
            ("0", "0"),
            ("0Gi", "0"),
            ("-2048Ki", "-2Mi"),
            ("0.0000000001", "1n"),
            ("100E", "9223372036854775807"),
            ("+5", "5"),
        ] {
            assert_eq!(Quantity::normal(text).as_deref(), Some(wanted), "{text}");
            assert_eq!(Quantity::normal(wanted).as_deref(), Some(wanted), "{wanted} again");
        }
        for (text, wanted) in
            [("0.0001", "1m"), ("1500u", "2m"), ("2", "2"), ("0.1Gi", "107374182400m")]
        {
            assert_eq!(Quantity::rounded_up_to_thousandths(text).as_deref(), Some(wanted));
        }
    }

    proptest! {
        #[test]
        fn the_normal_form_is_the_same_amount(number in -8_000_000_i64..8_000_000, at in 0_usize..17) {
            let suffixes = ["", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti", "e2",
                "e-2", "e5", "E1", "e-9"];
            let text = format!("{number}{}", suffixes[at]);
            let normal = Quantity::normal(&text).unwrap();
            prop_assert_eq!(Quantity::parse(&normal), Quantity::parse(&text));
            prop_assert_eq!(Quantity::normal(&normal).unwrap(), normal);
        }

        #[test]
        fn noise_never_panics(text in "[-+]?[0-9.]{0,40}[a-zA-Z0-9+-]{0,4}", other in ".{0,40}") {
            let _ = (Quantity::parse(&text), Quantity::parse(&other));
        }
    }
}
