//! A [`Node`] as the `OpenAPI` schema that clients read.

use serde_json::{Map, Value, json};

use super::MAX_DEPTH;
use crate::node::{Checks, ListType, Node, PatchStrategy, Rule};
use crate::pattern::Pattern;

/// The schema of `node`, with the Kubernetes extensions.
pub fn to_openapi(node: &Node) -> Value {
    schema(node, 0)
}

fn schema(node: &Node, depth: usize) -> Value {
    let mut out = Map::new();
    // Deeper than any installed schema; nodes made by hand could be.
    if depth > MAX_DEPTH * 2 {
        return Value::Object(out);
    }
    describe(node, &mut out);
    if !node.properties.is_empty() {
        let properties =
            node.properties.iter().map(|(name, child)| (name.clone(), schema(child, depth + 1)));
        out.insert("properties".to_owned(), Value::Object(properties.collect()));
    }
    if let Some(child) = &node.additional {
        out.insert("additionalProperties".to_owned(), schema(child, depth + 1));
    }
    if let Some(child) = &node.items {
        out.insert("items".to_owned(), schema(child, depth + 1));
    }
    checks(&node.checks, &mut out, depth);
    extensions(node, &mut out);
    Value::Object(out)
}

fn put(out: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        out.insert(name.to_owned(), value.into());
    }
}

fn flag(out: &mut Map<String, Value>, name: &str, set: bool) {
    put(out, name, set.then_some(true));
}

fn describe(node: &Node, out: &mut Map<String, Value>) {
    put(out, "title", Some(node.title.as_str()).filter(|text| !text.is_empty()));
    put(out, "description", Some(node.description.as_str()).filter(|text| !text.is_empty()));
    put(out, "type", node.kind.map(crate::node::JsonType::as_str));
    put(out, "default", node.default.clone());
    flag(out, "nullable", node.nullable);
}

fn checks(checks: &Checks, out: &mut Map<String, Value>, depth: usize) {
    put(out, "format", checks.format.as_deref());
    put(out, "enum", (!checks.enumeration.is_empty()).then(|| checks.enumeration.clone()));
    put(out, "minimum", checks.minimum.map(number));
    flag(out, "exclusiveMinimum", checks.exclusive_minimum);
    put(out, "maximum", checks.maximum.map(number));
    flag(out, "exclusiveMaximum", checks.exclusive_maximum);
    put(out, "multipleOf", checks.multiple_of.map(number));
    put(out, "minLength", checks.min_length);
    put(out, "maxLength", checks.max_length);
    put(out, "pattern", checks.pattern.as_ref().map(Pattern::as_str));
    put(out, "minItems", checks.min_items);
    put(out, "maxItems", checks.max_items);
    put(out, "minProperties", checks.min_properties);
    put(out, "maxProperties", checks.max_properties);
    put(out, "required", (!checks.required.is_empty()).then(|| checks.required.clone()));
    for (name, branches) in
        [("allOf", &checks.all_of), ("anyOf", &checks.any_of), ("oneOf", &checks.one_of)]
    {
        let made = || branches.iter().map(|branch| schema(branch, depth + 1)).collect::<Vec<_>>();
        put(out, name, (!branches.is_empty()).then(made));
    }
    put(out, "not", checks.not.as_deref().map(|not| schema(not, depth + 1)));
}

/// Whole numbers are printed as such.
#[expect(clippy::cast_possible_truncation, reason = "guarded by the range and the fraction")]
fn number(value: f64) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT { json!(value as i64) } else { json!(value) }
}

fn extensions(node: &Node, out: &mut Map<String, Value>) {
    flag(out, "x-kubernetes-int-or-string", node.int_or_string);
    flag(out, "x-kubernetes-preserve-unknown-fields", node.preserve_unknown);
    flag(out, "x-kubernetes-embedded-resource", node.embedded_resource);
    put(out, "x-kubernetes-map-type", node.map_atomic.then_some("atomic"));
    match &node.list_type {
        ListType::Atomic => {}
        ListType::Set => put(out, "x-kubernetes-list-type", Some("set")),
        ListType::Map { keys } => {
            put(out, "x-kubernetes-list-type", Some("map"));
            put(out, "x-kubernetes-list-map-keys", Some(keys.clone()));
        }
    }
    match &node.patch {
        PatchStrategy::Replace => {}
        PatchStrategy::MergePrimitive => put(out, "x-kubernetes-patch-strategy", Some("merge")),
        PatchStrategy::MergeByKey { key, retain_keys } => {
            let strategy = if *retain_keys { "merge,retainKeys" } else { "merge" };
            put(out, "x-kubernetes-patch-strategy", Some(strategy));
            put(out, "x-kubernetes-patch-merge-key", Some(key.as_str()));
        }
        PatchStrategy::RetainKeys => put(out, "x-kubernetes-patch-strategy", Some("retainKeys")),
    }
    let rules = || node.rules.iter().map(rule).collect::<Vec<_>>();
    put(out, "x-kubernetes-validations", (!node.rules.is_empty()).then(rules));
}

fn rule(rule: &Rule) -> Value {
    let mut out = Map::new();
    put(&mut out, "rule", Some(rule.rule.as_str()));
    put(&mut out, "message", rule.message.as_deref());
    put(&mut out, "messageExpression", rule.message_expression.as_deref());
    put(&mut out, "reason", rule.reason.as_deref());
    put(&mut out, "fieldPath", rule.field_path.as_deref());
    flag(&mut out, "optionalOldSelf", rule.optional_old_self);
    Value::Object(out)
}
