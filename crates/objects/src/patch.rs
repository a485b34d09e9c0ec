//! JSON patch (RFC 6902) and JSON merge patch (RFC 7386) on plain values.
//!
//! Owns: the deviations from RFC 6902 that Kubernetes clients rely on, and the bounds on what one
//! patch may make of an object. Never: knows a schema; see [`crate::strategic`] for that.

mod pointer;

use serde_json::{Map, Value};

use crate::json::MAX_DEPTH;
use pointer::{Pointer, Spot};

/// Operations one JSON patch may have.
pub const MAX_OPERATIONS: usize = 10_000;
/// Bytes all `copy` operations of a patch may add together: copies of copies double each time.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// Values that operations may visit and list items they may shift, all together.
const MAX_STEPS: usize = 50_000_000;

/// Why a patch cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body has the wrong form: a bad request.
    #[error("a JSON patch must be an array of operations")]
    NotAnArray,
    /// The request is too large.
    #[error("the allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// The patch does not fit the object: an invalid request.
    #[error("{0}")]
    Failed(String),
}

/// Merges `patch` into `target`: null removes, objects merge, everything else replaces.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(members) = target else { return };
    for (name, change) in changes {
        if change.is_null() {
            members.remove(name);
        } else if let Some(member) = members.get_mut(name) {
            merge(member, change);
        } else {
            // Even a new member loses the nulls inside it.
            let mut member = Value::Null;
            merge(&mut member, change);
            members.insert(name.clone(), member);
        }
    }
}

/// Applies the operations of `patch` in order. After an error `target` is in an unspecified state.
///
/// As on a Kubernetes server, and unlike the RFC: `test` against null succeeds on a missing member
/// of an existing object, `replace` of such a member adds it, negative indexes count from the end.
pub fn json_patch(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else { return Err(PatchError::NotAnArray) };
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooManyOperations(operations.len()));
    }
    // Decoding the whole patch first makes a malformed tail a malformed request.
    if operations.iter().any(|operation| !operation.is_object()) {
        return Err(PatchError::NotAnArray);
    }
    let mut work = Work::default();
    for (index, operation) in operations.iter().enumerate() {
        run(target, operation, &mut work)
            .map_err(|why| PatchError::Failed(format!("operation {index} of the patch: {why}")))?;
    }
    Ok(())
}

fn run(target: &mut Value, operation: &Value, work: &mut Work) -> Result<(), String> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let name = text("op").ok_or("has no \"op\"")?;
    let path = Pointer::parse(text("path").ok_or("has no \"path\"")?)?;
    let value = || operation.get("value").ok_or_else(|| format!("{name:?} needs a value"));
    let from = || {
        let from = text("from").ok_or_else(|| format!("{name:?} needs \"from\""))?;
        Pointer::parse(from)
    };
    match name {
        "test" => test(target, &path, operation.get("value").unwrap_or(&Value::Null)),
        "add" => {
            let value = value()?;
            work.fits(&path, value)?;
            add(target, &path, value.clone(), work)
        }
        "replace" => {
            let value = value()?;
            work.fits(&path, value)?;
            replace(target, &path, value.clone())
        }
        "remove" => remove(target, &path, work).map(drop),
        "copy" => {
            let value = get(target, &from()?)?;
            work.copied_bytes += work.fits(&path, value)?;
            if work.copied_bytes > MAX_COPIED_BYTES {
                return Err(format!("copies add more than {MAX_COPIED_BYTES} bytes"));
            }
            let value = value.clone();
            add(target, &path, value, work)
        }
        "move" => {
            let from = from()?;
            if path.is_below(&from) {
                return Err("cannot move a value into itself".to_owned());
            }
            work.fits(&path, get(target, &from)?)?;
            if path == from {
                return Ok(());
            }
            let value = remove(target, &from, work)?;
            add(target, &path, value, work)
        }
        other => Err(format!("unknown operation {other:?}")),
    }
}

fn test(target: &Value, path: &Pointer<'_>, expected: &Value) -> Result<(), String> {
    let found = match path.split_last() {
        None => Some(target),
        Some((parent, last)) => match (get(target, &parent)?, last) {
            // A missing member counts as null: the first writer of a list tests for that.
            (Value::Object(members), name) => members.get(name.as_ref()),
            (Value::Array(items), index) => {
                Some(pointer::item(items, &index).ok_or_else(|| path.missing())?)
            }
            _ => return Err(path.missing()),
        },
    };
    if found.unwrap_or(&Value::Null) == expected {
        Ok(())
    } else {
        Err(format!("testing {path} failed"))
    }
}

fn get<'v>(target: &'v Value, path: &Pointer<'_>) -> Result<&'v Value, String> {
    path.find(target).ok_or_else(|| path.missing())
}

fn add(
    target: &mut Value,
    path: &Pointer<'_>,
    value: Value,
    work: &mut Work,
) -> Result<(), String> {
    match path.spot(target)? {
        Spot::Whole(whole) => *whole = value,
        Spot::Member(members, name) => {
            members.insert(name.into_owned(), value);
        }
        Spot::Item(items, index) => {
            let at = pointer::insertion(&index, items.len()).ok_or_else(|| path.missing())?;
            work.step(items.len() - at)?;
            items.insert(at, value);
        }
    }
    Ok(())
}

fn replace(target: &mut Value, path: &Pointer<'_>, value: Value) -> Result<(), String> {
    match path.spot(target)? {
        Spot::Whole(whole) => *whole = value,
        Spot::Member(members, name) => {
            members.insert(name.into_owned(), value);
        }
        Spot::Item(items, index) => {
            *pointer::item_mut(items, &index).ok_or_else(|| path.missing())? = value;
        }
    }
    Ok(())
}

fn remove(target: &mut Value, path: &Pointer<'_>, work: &mut Work) -> Result<Value, String> {
    match path.spot(target)? {
        Spot::Whole(_) => Err("cannot remove the whole document".to_owned()),
        Spot::Member(members, name) => members.remove(name.as_ref()).ok_or_else(|| path.missing()),
        Spot::Item(items, index) => {
            let at = pointer::position(&index, items.len()).ok_or_else(|| path.missing())?;
            work.step(items.len() - at)?;
            Ok(items.remove(at))
        }
    }
}

/// What the operations have cost so far. A small patch must not be able to ask for hours of work or
/// for an object too deep to drop.
#[derive(Default)]
struct Work {
    steps: usize,
    copied_bytes: usize,
}

impl Work {
    fn step(&mut self, count: usize) -> Result<(), String> {
        self.steps = self.steps.saturating_add(count);
        if self.steps > MAX_STEPS { Err("asks for too much work".to_owned()) } else { Ok(()) }
    }

    /// Checks that `value` may stand at `path`; returns about how many bytes it has.
    fn fits(&mut self, path: &Pointer<'_>, value: &Value) -> Result<usize, String> {
        let mut measure = Measure { depth: 0, nodes: 0, bytes: 0 };
        measure.visit(value, 0);
        self.step(measure.nodes)?;
        if path.len() + measure.depth > MAX_DEPTH {
            return Err(format!("makes the object deeper than {MAX_DEPTH} levels"));
        }
        Ok(measure.bytes)
    }
}

struct Measure {
    depth: usize,
    nodes: usize,
    bytes: usize,
}

impl Measure {
    fn visit(&mut self, value: &Value, depth: usize) {
        self.nodes += 1;
        self.bytes += 8;
        match value {
            Value::Object(members) => {
                self.depth = self.depth.max(depth + 1);
                for (name, member) in members {
                    self.bytes += name.len();
                    self.visit(member, depth + 1);
                }
            }
            Value::Array(items) => {
                self.depth = self.depth.max(depth + 1);
                for item in items {
                    self.visit(item, depth + 1);
                }
            }
            Value::String(text) => self.bytes += text.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
