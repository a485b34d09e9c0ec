//! The shape of a type: one tree of [`Node`]s for built-in kinds (made from a table) and custom
//! resources (parsed from a structural schema). Pruning, defaulting, validation, patches, apply and
//! `OpenAPI` all read this tree; none of them knows where it came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::cel::Compiled;
use crate::pattern::Pattern;

/// JSON type a node asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl JsonType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// How items of a list are told apart (`x-kubernetes-list-type`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Scalars without duplicates.
    Set,
    /// Objects told apart by these members.
    Map { keys: Vec<String> },
}

/// How a strategic merge patch treats a list (`patchStrategy`, `patchMergeKey`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PatchStrategy {
    #[default]
    Replace,
    /// Scalars are united.
    MergePrimitive,
    /// Objects are merged by this member; `retain_keys` for unions such as volumes.
    MergeByKey { key: String, retain_keys: bool },
    /// A single object whose other members go away unless retained (`patchStrategy: retainKeys`).
    RetainKeys,
}

/// One `x-kubernetes-validations` rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: bool,
}

/// Value checks that do not shape the object. Also used inside allOf/anyOf/oneOf/not.
#[derive(Debug, Clone, Default)]
pub struct Checks {
    pub format: Option<String>,
    pub enumeration: Vec<Value>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub all_of: Vec<Node>,
    pub any_of: Vec<Node>,
    pub one_of: Vec<Node>,
    pub not: Option<Box<Node>>,
}

/// The description of one value. The default is "anything at all, but unknown members are pruned".
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "schemas have these independent flags")]
pub struct Node {
    /// `None`: any type (int-or-string, preserve-unknown-fields, or a branch of anyOf).
    pub kind: Option<JsonType>,
    pub title: String,
    pub description: String,
    pub properties: BTreeMap<String, Arc<Node>>,
    /// Schema of the values of members not in `properties` (`additionalProperties`).
    pub additional: Option<Arc<Node>>,
    pub items: Option<Arc<Node>>,
    pub default: Option<Value>,
    pub nullable: bool,
    pub int_or_string: bool,
    pub preserve_unknown: bool,
    pub embedded_resource: bool,
    pub list_type: ListType,
    /// `x-kubernetes-map-type: atomic`: the object is one value for apply.
    pub map_atomic: bool,
    pub patch: PatchStrategy,
    pub checks: Checks,
    pub rules: Vec<Rule>,
    /// `rules`, compiled once when the schema was parsed; only these are evaluated.
    pub compiled: Vec<Arc<Compiled>>,
    /// This node or one below it has rules; false lets validation skip the whole subtree.
    pub rules_below: bool,
}
