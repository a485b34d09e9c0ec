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
    let mut causes = Vec::new();
    values::check(node, new, old, &Path::Root(""), 0, &mut causes);
    // Rules may rely on the shape of the object; other violations do not confuse them.
    if node.rules_below && !causes.iter().any(|cause| breaks_shape(cause.reason)) {
        rules::run(node, new, old, &mut causes);
    }
    causes
}

/// Checks a part of an object without its rules; used for defaults.
pub(crate) fn part(node: &Node, value: &Value, path: &Path<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    values::check(node, value, None, path, 0, &mut causes);
    causes
}

const fn breaks_shape(reason: Reason) -> bool {
    matches!(reason, Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid)
}

#[cfg(test)]
mod tests;
