//! JSON pointers (RFC 6901) with the index rules of Kubernetes JSON patches.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;

/// A parsed pointer; no segments point at the whole document.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pointer<'a> {
    segments: Vec<Cow<'a, str>>,
}

/// The place a pointer's last segment names, inside its existing parent.
pub(super) enum Spot<'v, 'a> {
    Whole(&'v mut Value),
    Member(&'v mut Map<String, Value>, Cow<'a, str>),
    Item(&'v mut Vec<Value>, Cow<'a, str>),
}

impl<'a> Pointer<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self { segments: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(format!("path {text:?} does not start with a slash"));
        };
        // No object is deeper, so a longer pointer leads nowhere.
        let segments: Vec<_> = rest.split('/').take(MAX_DEPTH + 1).map(unescape).collect();
        if segments.len() > MAX_DEPTH {
            return Err(format!("path has more than {MAX_DEPTH} segments"));
        }
        Ok(Self { segments })
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether this points at something inside what `other` points at.
    pub(super) fn is_below(&self, other: &Self) -> bool {
        self.len() > other.len() && self.segments.starts_with(&other.segments)
    }

    pub(super) fn split_last(&self) -> Option<(Self, Cow<'a, str>)> {
        let (last, parents) = self.segments.split_last()?;
        Some((Self { segments: parents.to_vec() }, last.clone()))
    }

    pub(super) fn find<'v>(&self, target: &'v Value) -> Option<&'v Value> {
        self.segments.iter().try_fold(target, |value, segment| match value {
            Value::Object(members) => members.get(segment.as_ref()),
            Value::Array(items) => item(items, segment),
            _ => None,
        })
    }

    pub(super) fn spot<'v>(&self, target: &'v mut Value) -> Result<Spot<'v, 'a>, String> {
        let Some((last, parents)) = self.segments.split_last() else {
            return Ok(Spot::Whole(target));
        };
        let mut value = target;
        for segment in parents {
            let next = match value {
                Value::Object(members) => members.get_mut(segment.as_ref()),
                Value::Array(items) => item_mut(items, segment),
                _ => None,
            };
            value = next.ok_or_else(|| self.missing())?;
        }
        match value {
            Value::Object(members) => Ok(Spot::Member(members, last.clone())),
            Value::Array(items) => Ok(Spot::Item(items, last.clone())),
            _ => Err(self.missing()),
        }
    }

    pub(super) fn missing(&self) -> String {
        format!("{self} does not exist")
    }
}

impl fmt::Display for Pointer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str("the document");
        }
        self.segments
            .iter()
            .try_for_each(|segment| write!(f, "/{}", segment.replace('~', "~0").replace('/', "~1")))
    }
}

fn unescape(segment: &str) -> Cow<'_, str> {
    if segment.contains('~') {
        // The order matters: "~01" is "~1".
        Cow::Owned(segment.replace("~1", "/").replace("~0", "~"))
    } else {
        Cow::Borrowed(segment)
    }
}

/// The existing item an index names; negative indexes count from the end.
pub(super) fn position(index: &str, len: usize) -> Option<usize> {
    let at = resolve(index, len)?;
    (at < len).then_some(at)
}

/// Where an added item goes: before the item of that index, or at the end (`-`, or one past it).
pub(super) fn insertion(index: &str, len: usize) -> Option<usize> {
    if index == "-" {
        return Some(len);
    }
    // Counted in the longer list the insertion makes, so that -1 appends.
    let at = resolve(index, len.checked_add(1)?)?;
    (at <= len).then_some(at)
}

pub(super) fn item<'v>(items: &'v [Value], index: &str) -> Option<&'v Value> {
    items.get(position(index, items.len())?)
}

pub(super) fn item_mut<'v>(items: &'v mut [Value], index: &str) -> Option<&'v mut Value> {
    let at = position(index, items.len())?;
    items.get_mut(at)
}

fn resolve(index: &str, len: usize) -> Option<usize> {
    let digits = index.strip_prefix('-').unwrap_or(index);
    let plain = digits == "0" || !digits.starts_with('0');
    if !plain || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: usize = digits.parse().ok()?;
    if index.starts_with('-') { len.checked_sub(number) } else { Some(number) }
}
