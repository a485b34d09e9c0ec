//! Checks that look at one value alone.

use serde_json::Value;

use super::{Found, formats};
use crate::cause::{Cause, Reason};
use crate::node::{Checks, JsonType};
use crate::path::Path;

/// Longer values are not repeated in messages.
const SHOWN: usize = 120;

pub(super) fn check(checks: &Checks, value: &Value, path: &Path<'_>, found: &mut Found<'_>) {
    if !checks.enumeration.is_empty() && !checks.enumeration.iter().any(|one| same(one, value)) {
        let all: Vec<String> = checks.enumeration.iter().map(plain).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        found.causes.push(Cause::not_supported(path.to_string(), &shown(value), &all));
    }
    match value {
        Value::String(text) => string(checks, text, value, path, found),
        Value::Number(number) => {
            if let Some(number) = number.as_f64() {
                numeric(checks, number, value, path, &mut found.causes);
            }
        }
        _ => {}
    }
}

fn string(checks: &Checks, text: &str, value: &Value, path: &Path<'_>, found: &mut Found<'_>) {
    if let Some(pattern) = &checks.pattern
        && !found.spend(pattern.steps(text.len()))
    {
        return;
    }
    let causes = &mut found.causes;
    let mut refuse = |detail: &str| {
        causes.push(Cause::invalid(path.to_string(), &shown(value), detail));
    };
    if let Some(format) = &checks.format
        && let Some(detail) = formats::check_text(format, text)
    {
        refuse(detail);
    }
    if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        refuse(&format!("must match the pattern '{}'", pattern.as_str()));
    }
    if checks.max_length.is_none() && checks.min_length.is_none() {
        return;
    }
    let count = text.chars().count() as u64;
    if let Some(least) = checks.min_length.filter(|least| count < *least) {
        refuse(&format!("must be at least {least} characters long"));
    }
    if let Some(most) = checks.max_length.filter(|most| count > *most) {
        let text = format!("Too long: must be at most {most} characters long, but has {count}");
        causes.push(Cause::new(Reason::TooLong, path.to_string(), text));
    }
}

fn numeric(checks: &Checks, number: f64, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let mut refuse = |detail: &str| {
        causes.push(Cause::invalid(path.to_string(), &shown(value), detail));
    };
    if let Some(format) = &checks.format
        && let Some(detail) = formats::check_number(format, value)
    {
        refuse(detail);
    }
    if let Some(least) = checks.minimum {
        if checks.exclusive_minimum && number <= least {
            refuse(&format!("must be greater than {least}"));
        } else if number < least {
            refuse(&format!("must be greater than or equal to {least}"));
        }
    }
    if let Some(most) = checks.maximum {
        if checks.exclusive_maximum && number >= most {
            refuse(&format!("must be less than {most}"));
        } else if number > most {
            refuse(&format!("must be less than or equal to {most}"));
        }
    }
    if let Some(step) = checks.multiple_of
        && !is_multiple(number, step)
    {
        refuse(&format!("must be a multiple of {step}"));
    }
}

/// Tolerates the rounding of decimal fractions: 0.3 is a multiple of 0.1.
fn is_multiple(number: f64, step: f64) -> bool {
    if step <= 0.0 {
        return true;
    }
    let ratio = number / step;
    (ratio - ratio.round()).abs() <= 1e-9 * ratio.abs().max(1.0)
}

/// Equal as JSON Schema sees it: 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

/// Whether `value` has the JSON type `kind`.
pub(super) fn has_type(value: &Value, kind: JsonType) -> bool {
    match kind {
        JsonType::Object => value.is_object(),
        JsonType::Array => value.is_array(),
        JsonType::String => value.is_string(),
        JsonType::Boolean => value.is_boolean(),
        JsonType::Number => value.is_number(),
        JsonType::Integer => is_integer(value),
    }
}

/// Integral and inside the range of 64 bits; `2.0` is integral.
fn is_integer(value: &Value) -> bool {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    let Value::Number(number) = value else { return false };
    number.is_i64()
        || (number.is_f64()
            && number
                .as_f64()
                .is_some_and(|float| float.fract() == 0.0 && (-LIMIT..LIMIT).contains(&float)))
}

pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The value as messages repeat it: scalars as they are (shortened), others by their type.
pub(super) fn shown(value: &Value) -> Value {
    match value {
        Value::Array(_) | Value::Object(_) => Value::from(type_name(value)),
        Value::String(text) if text.len() > SHOWN => {
            let short: String = text.chars().take(SHOWN).collect();
            Value::from(format!("{short}…"))
        }
        scalar => scalar.clone(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
