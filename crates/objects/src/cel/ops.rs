//! What operators and the frequent functions do with values.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, KeyRef, OptionalValue};
use regex::RegexBuilder;

use super::delegate;
use super::eval::{Budget, Outcome, Stop, error};
use super::expr::{Native, Op};
use super::lower::MAX_REGEX;
use super::value::{as_optional, optional, type_of};

/// No rule may build a longer text.
const MAX_TEXT: usize = 1 << 20;
/// No rule may build a longer list.
const MAX_LIST: usize = 100_000;

/// Rough measure of the work one pass over a value takes: library calls copy lists and maps whole.
/// Counting ends where no budget reaches, because shared parts can make a value look huge.
pub(super) fn size(value: &Value) -> usize {
    const ENOUGH: usize = 10_000_000;
    let mut left = ENOUGH;
    measure(value, &mut left);
    ENOUGH - left
}

fn measure(value: &Value, left: &mut usize) {
    let here = match value {
        Value::String(text) => text.len() / 8 + 1,
        Value::Bytes(bytes) => bytes.len() / 8 + 1,
        _ => 1,
    };
    *left = left.saturating_sub(here);
    match value {
        Value::List(items) => {
            for item in items.iter() {
                if *left == 0 {
                    return;
                }
                measure(item, left);
            }
        }
        Value::Map(map) => {
            for item in map.map.values() {
                if *left == 0 {
                    return;
                }
                measure(item, left);
            }
        }
        _ => {}
    }
}

pub(super) fn field(value: &Value, name: &Arc<String>) -> Outcome {
    match value {
        Value::Map(map) => map
            .get(&KeyRef::String(name.as_str()))
            .cloned()
            .ok_or_else(|| error(format!("no such key: {name}"))),
        other => match as_optional(other).map(OptionalValue::value) {
            Some(None) => Ok(optional(None)),
            Some(Some(inner)) => Ok(optional(field(inner, name).ok())),
            None => Err(error(format!("cannot select '{name}' of this value"))),
        },
    }
}

pub(super) fn has(value: &Value, name: &Arc<String>) -> Outcome {
    match value {
        Value::Map(map) => Ok(Value::Bool(map.get(&KeyRef::String(name.as_str())).is_some())),
        other => match as_optional(other).map(OptionalValue::value) {
            Some(None) => Ok(Value::Bool(false)),
            Some(Some(inner)) => has(inner, name),
            None => Err(error(format!("cannot select '{name}' of this value"))),
        },
    }
}

pub(super) fn index(value: &Value, key: &Value) -> Outcome {
    match value {
        Value::List(items) => position(key)
            .and_then(|position| items.get(position).cloned())
            .ok_or_else(|| error("index out of bounds")),
        Value::Map(map) => {
            let missing = || error("no such key");
            let found = KeyRef::try_from(key).map_err(|_| missing())?;
            map.get(&found).cloned().ok_or_else(missing)
        }
        _ => Err(error("this value cannot be indexed")),
    }
}

fn position(key: &Value) -> Option<usize> {
    match key {
        Value::Int(index) => usize::try_from(*index).ok(),
        Value::UInt(index) => usize::try_from(*index).ok(),
        _ => None,
    }
}

pub(super) fn key_of(value: &Value) -> Result<Key, Stop> {
    value.clone().try_into().map_err(|_| error("this value cannot be a key"))
}

pub(super) fn equal(a: &Value, b: &Value, budget: &mut Budget) -> Result<bool, Stop> {
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            budget.spend(1)?;
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b.iter()) {
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            budget.spend(1)?;
            if a.map.len() != b.map.len() {
                return Ok(false);
            }
            for (key, a) in a.map.iter() {
                match b.map.get(key) {
                    Some(b) if equal(a, b, budget)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::String(x), Value::String(y)) => {
            budget.spend(1 + x.len().min(y.len()) / 64)?;
            Ok(x == y)
        }
        _ => {
            budget.spend(1)?;
            Ok(a == b)
        }
    }
}

pub(super) fn contains(list: &Value, item: &Value, budget: &mut Budget) -> Result<bool, Stop> {
    match list {
        Value::List(items) => {
            for other in items.iter() {
                if equal(other, item, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(KeyRef::try_from(item).is_ok_and(|key| map.get(&key).is_some())),
        _ => Err(error("'in' needs a list or a map")),
    }
}

pub(super) fn compare(a: &Value, b: &Value, budget: &mut Budget) -> Result<Ordering, Stop> {
    budget.spend(growth(a).min(growth(b)))?;
    match (a, b) {
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        _ => a.partial_cmp(b).ok_or_else(|| error("these values cannot be ordered")),
    }
}

pub(super) fn negate(value: &Value) -> Outcome {
    match value {
        Value::Int(number) => {
            number.checked_neg().map(Value::Int).ok_or_else(|| error("integer overflow"))
        }
        Value::Float(number) => Ok(Value::Float(-*number)),
        Value::Duration(span) => Ok(Value::Duration(-*span)),
        _ => Err(error("only numbers can be negated")),
    }
}

pub(super) fn arithmetic(op: Op, a: Value, b: Value, budget: &mut Budget) -> Outcome {
    budget.spend(growth(&a).saturating_add(growth(&b)))?;
    let result = match (op, &a, &b) {
        (Op::Add, Value::String(x), Value::String(y)) if x.len() + y.len() > MAX_TEXT => {
            return Err(error("the text is too long"));
        }
        (Op::Add, Value::List(x), Value::List(y)) if x.len() + y.len() > MAX_LIST => {
            return Err(error("the list is too long"));
        }
        (Op::Add, Value::Bytes(x), Value::Bytes(y)) => {
            if x.len() + y.len() > MAX_TEXT {
                return Err(error("the text is too long"));
            }
            return Ok(Value::Bytes(Arc::new([x.as_slice(), y.as_slice()].concat())));
        }
        (Op::Divide, Value::Float(x), Value::Float(y)) => return Ok(Value::Float(x / y)),
        (Op::Add, ..) => a + b,
        (Op::Subtract, ..) => a - b,
        (Op::Multiply, ..) => a * b,
        (Op::Divide, ..) => a / b,
        _ => a % b,
    };
    result.map_err(|failed| error(short(&failed.to_string())))
}

/// Errors of the libraries repeat their operands.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}

/// What copying a value costs; its items are shared, not copied.
fn growth(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / 64,
        Value::Bytes(bytes) => bytes.len() / 64,
        Value::List(items) => items.len() / 4,
        _ => 0,
    }
}

pub(super) fn native(native: Native, args: &[Value], budget: &mut Budget) -> Outcome {
    let wrong = || error("no such overload");
    match (native, args) {
        (Native::Size, [value]) => length(value, budget),
        (Native::TypeOf, [value]) => Ok(type_of(value)),
        (Native::Same, [value]) => Ok(value.clone()),
        (Native::ToText, [value]) => to_text(value, budget),
        (Native::ToBool, [Value::Bool(value)]) => Ok(Value::Bool(*value)),
        (Native::ToBool, [Value::String(text)]) => match text.as_str() {
            "true" | "True" | "TRUE" | "t" | "1" => Ok(Value::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "0" => Ok(Value::Bool(false)),
            _ => Err(error("not true or false")),
        },
        (
            Native::StartsWith | Native::EndsWith | Native::Contains,
            [Value::String(text), Value::String(part)],
        ) => {
            budget.spend(text.len() / 64)?;
            Ok(Value::Bool(match native {
                Native::StartsWith => text.starts_with(part.as_str()),
                Native::EndsWith => text.ends_with(part.as_str()),
                _ => text.contains(part.as_str()),
            }))
        }
        (Native::Matches, [Value::String(text), Value::String(pattern)]) => {
            // The pattern is data: it is compiled each time, and that is the costly part.
            budget.spend(2_000 + pattern.len() * 100 + search(text, pattern))?;
            let regex = RegexBuilder::new(pattern)
                .size_limit(MAX_REGEX)
                .build()
                .map_err(|_| error("not a usable regular expression"))?;
            Ok(Value::Bool(regex.is_match(text)))
        }
        (
            Native::Replace,
            [Value::String(text), Value::String(from), Value::String(to), rest @ ..],
        ) => replace(text, from, to, rest.first(), budget),
        (Native::Join, [Value::List(items), rest @ ..]) => join(items, rest.first(), budget),
        (Native::Range, [Value::Int(count)]) => {
            let count = usize::try_from(*count).map_err(|_| wrong())?;
            if count > MAX_LIST {
                return Err(error("the list is too long"));
            }
            budget.spend(count)?;
            Ok(Value::List(Arc::new((0_i64..).take(count).map(Value::Int).collect())))
        }
        (Native::OptionalNone, []) => Ok(optional(None)),
        (Native::OptionalOf, [value]) => Ok(optional(Some(value.clone()))),
        (Native::OptionalOfNonZero, [value]) => {
            Ok(optional((!value.is_zero()).then(|| value.clone())))
        }
        (_, [value, rest @ ..]) => {
            let inner = as_optional(value).ok_or_else(wrong)?;
            of_optional(native, value, inner.value(), rest.first())
        }
        _ => Err(wrong()),
    }
}

fn of_optional(
    native: Native,
    whole: &Value,
    inner: Option<&Value>,
    other: Option<&Value>,
) -> Outcome {
    match (native, inner, other) {
        (Native::OptionalHasValue, inner, _) => Ok(Value::Bool(inner.is_some())),
        (Native::OptionalValue | Native::OptionalOrValue, Some(inner), _) => Ok(inner.clone()),
        (Native::OptionalOr, Some(_), _) => Ok(whole.clone()),
        (Native::OptionalOr | Native::OptionalOrValue, None, Some(other)) => Ok(other.clone()),
        (Native::OptionalValue, None, _) => Err(error("the optional has no value")),
        _ => Err(error("no such overload")),
    }
}

/// `string()`: the scalars here, values of the libraries there.
fn to_text(value: &Value, budget: &mut Budget) -> Outcome {
    let text = match value {
        Value::String(_) => return Ok(value.clone()),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::UInt(value) => value.to_string(),
        other => {
            budget.spend(size(other).saturating_add(20))?;
            return delegate::run(&delegate::call("string", false, 1), vec![other.clone()]);
        }
    };
    Ok(Value::String(Arc::new(text)))
}

/// What looking for a pattern in a text costs: at worst each of its letters is tried at each place.
pub(super) fn search(text: &str, pattern: &str) -> usize {
    (text.len() / 8).saturating_mul(1 + pattern.len() / 64)
}

/// Text is measured in characters, not bytes.
fn length(value: &Value, budget: &mut Budget) -> Outcome {
    let count = match value {
        Value::String(text) => {
            budget.spend(text.len() / 64)?;
            text.chars().count()
        }
        Value::Bytes(bytes) => bytes.len(),
        Value::List(items) => items.len(),
        Value::Map(map) => map.map.len(),
        _ => return Err(error("this value has no size")),
    };
    Ok(Value::Int(i64::try_from(count).unwrap_or(i64::MAX)))
}

fn replace(
    text: &str,
    from: &str,
    to: &str,
    limit: Option<&Value>,
    budget: &mut Budget,
) -> Outcome {
    let limit = match limit {
        None => usize::MAX,
        Some(Value::Int(limit)) if *limit < 0 => usize::MAX,
        Some(Value::Int(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
        Some(_) => return Err(error("the limit of 'replace' must be an integer")),
    };
    budget.spend(text.len() / 8 + 1)?;
    let count = text.matches(from).count().min(limit);
    let longest = count.saturating_mul(to.len()).saturating_add(text.len());
    if longest > MAX_TEXT {
        return Err(error("the text is too long"));
    }
    budget.spend(longest / 8)?;
    Ok(Value::String(Arc::new(text.replacen(from, to, limit))))
}

fn join(items: &[Value], separator: Option<&Value>, budget: &mut Budget) -> Outcome {
    let separator = match separator {
        None => "",
        Some(Value::String(separator)) => separator.as_str(),
        Some(_) => return Err(error("the separator of 'join' must be a string")),
    };
    let mut text = String::new();
    for (index, item) in items.iter().enumerate() {
        let Value::String(item) = item else {
            return Err(error("'join' needs a list of strings"));
        };
        if index > 0 {
            text.push_str(separator);
        }
        text.push_str(item);
        if text.len() > MAX_TEXT {
            return Err(error("the text is too long"));
        }
        budget.spend(1 + (item.len() + separator.len()) / 16)?;
    }
    Ok(Value::String(Arc::new(text)))
}
