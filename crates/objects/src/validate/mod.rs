//! Validation of values against a [`Node`]: JSON types alone for built-in kinds, the whole schema
//! with its CEL rules for custom resources.
//!
//! Owns: which values a schema refuses, and with which cause.
//! Never: changes a value; refuses on update what an earlier schema let in and nobody has touched.

mod formats;
mod lists;
mod rules;
mod scalars;
mod types;
mod values;

use std::cell::Cell;

use serde_json::Value;

use crate::cause::{Cause, Reason};
use crate::node::Node;
use crate::path::Path;

pub use types::{TypeMismatch, types};

/// Deeper values are refused, so that no walk exhausts the stack.
pub(crate) const MAX_DEPTH: usize = 256;

/// More causes help nobody, and an object can be made to have millions.
pub(crate) const MAX_CAUSES: usize = 100;

/// Everything wrong with `new`. `node` describes a whole object (not a part of one). `old` is the
/// stored object when this is an update: what did not change may keep violating, and transition
/// rules compare with it.
pub fn validate(node: &Node, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = walk(node, new, old, &Path::Root(""));
    // Rules may rely on the shape of the object; other violations do not confuse them.
    if node.rules_below && !causes.iter().any(|cause| breaks_shape(cause.reason)) {
        rules::run(node, new, old, &mut causes);
    }
    causes
}

/// Checks a part of an object without its rules; used for defaults.
pub(crate) fn part(node: &Node, value: &Value, path: &Path<'_>) -> Vec<Cause> {
    walk(node, value, None, path)
}

/// What one object may cost to check: a second of a processor in the worst case. A schema can ask for
/// any number of looks at each value, and its patterns for any number of steps.
const MAX_STEPS: u64 = 500_000_000;
/// A look at one value with one schema.
const LOOK_STEPS: u64 = 50;

fn walk(node: &Node, value: &Value, old: Option<&Value>, path: &Path<'_>) -> Vec<Cause> {
    let left = Cell::new(MAX_STEPS);
    let mut found = Found::within(&left);
    values::check(node, value, old, path, 0, &mut found);
    let mut causes = found.causes;
    // Last, so that no unchanged part forgives what was never looked at.
    if left.get() == 0 {
        let text = "Invalid value: takes too long to check with this schema";
        causes.push(Cause::new(Reason::Invalid, path.to_string(), text.to_owned()));
    }
    causes
}

/// What a walk has found, and what it may still cost; branches share the latter.
struct Found<'a> {
    causes: Vec<Cause>,
    left: &'a Cell<u64>,
}

impl<'a> Found<'a> {
    fn within(left: &'a Cell<u64>) -> Self {
        Self { causes: Vec::new(), left }
    }

    /// Pays for `steps`; once there is nothing left, nothing more is looked at.
    fn spend(&self, steps: u64) -> bool {
        let rest = self.left.get().saturating_sub(steps);
        self.left.set(rest);
        rest > 0
    }
}

const fn breaks_shape(reason: Reason) -> bool {
    matches!(reason, Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid)
}

#[cfg(test)]
mod tests;
