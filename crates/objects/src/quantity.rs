//! Resource quantities (`10Gi`, `100m`, `1e3`) as exact numbers, to compare them.
//!
//! Owns: the syntax and its value. Never: rewrites a quantity; what a client wrote stays.

/// A quantity in billionths of its unit, the finest step the format knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

/// Digits a quantity may have; more cannot be a real amount and would overflow.
const DIGITS_MAX: usize = 30;

impl Quantity {
    pub const ZERO: Self = Self(0);

    /// Parses a decimal number with an optional suffix. Fractions finer than a billionth round up.
    pub fn parse(text: &str) -> Option<Self> {
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
        Some(Self(if negative { -amount } else { amount }))
    }
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

    proptest! {
        #[test]
        fn noise_never_panics(text in "[-+]?[0-9.]{0,40}[a-zA-Z0-9+-]{0,4}", other in ".{0,40}") {
            let _ = (Quantity::parse(&text), Quantity::parse(&other));
        }
    }
}
