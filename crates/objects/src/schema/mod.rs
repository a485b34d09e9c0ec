//! Structural schemas: from the `openAPIV3Schema` of a definition to [`Node`]s, and back to the
//! `OpenAPI` that clients read.
//!
//! Owns: which schemas may be installed.
//! Never: accepts a schema whose objects could not be pruned, defaulted or merged; compiles
//! anything later than here.

mod branch;
mod keywords;
mod lists;
mod openapi;
mod rules;
mod structure;

use serde_json::Value;

use crate::cause::Cause;
use crate::node::Node;
use crate::path::Path;

pub use openapi::to_openapi;

/// Nesting of a schema; also bounds every walk over an object along the schema.
const MAX_DEPTH: usize = 64;
/// Nodes of a schema: a small document cannot be made to cost much more than its size.
const MAX_NODES: usize = 50_000;
/// Rules of a schema.
const MAX_RULES: usize = 1_000;

/// Parses and checks the schema of a whole object. `field` is where the schema stands in the
/// definition, for the causes.
pub fn parse(openapi_v3_schema: &Value, field: &str) -> Result<Node, Vec<Cause>> {
    let pattern_bytes_left = crate::pattern::MAX_ALL_BYTES;
    let mut parser = Parser { causes: Vec::new(), nodes: 0, rules: 0, pattern_bytes_left };
    let path = Path::Root(field);
    let node = parser.structure(
        openapi_v3_schema,
        &path,
        structure::Place { depth: 0, root: true, correlatable: true },
    );
    if parser.causes.is_empty() { Ok(node) } else { Err(parser.causes) }
}

/// State of one parse.
struct Parser {
    causes: Vec<Cause>,
    nodes: usize,
    rules: usize,
    pattern_bytes_left: usize,
}

impl Parser {
    fn refuse(&mut self, cause: Cause) {
        if self.causes.len() < crate::validate::MAX_CAUSES {
            self.causes.push(cause);
        }
    }

    fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.refuse(Cause::forbidden(path.to_string(), detail));
    }

    fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.refuse(Cause::required(path.to_string(), detail));
    }

    fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        let shown = if value.is_object() || value.is_array() { &Value::Null } else { value };
        if shown.is_null() {
            let text = format!("Invalid value: {detail}");
            self.refuse(Cause::new(crate::cause::Reason::Invalid, path.to_string(), text));
        } else {
            self.refuse(Cause::invalid(path.to_string(), shown, detail));
        }
    }

    /// Whether another node may be looked at; says why not otherwise.
    fn enter(&mut self, path: &Path<'_>, depth: usize) -> bool {
        self.nodes += 1;
        if depth >= MAX_DEPTH {
            self.forbidden(path, &format!("must not be nested more than {MAX_DEPTH} levels deep"));
            return false;
        }
        if self.nodes == MAX_NODES {
            self.forbidden(path, &format!("a schema must not have more than {MAX_NODES} parts"));
        }
        self.nodes < MAX_NODES
    }
}

#[cfg(test)]
mod tests;
