//! From the schemas `schemars` derives to the structural schemas an API server accepts.
//!
//! Owns that translation and nothing else. The derived schema says `null` for an absent option;
//! a structural one leaves it out, because the server drops a null where it is not asked for.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

/// Key that makes a server keep members a schema does not name.
pub(crate) const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Key of the CEL rules of a value.
const RULES: &str = "x-kubernetes-validations";

/// The structural schema of `T`.
pub(crate) fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| {
        s.inline_subschemas = true;
        s.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    rewrite(&mut schema);
    schema
}

/// Types nest as deep as their declarations, so this recursion is bounded by the source code.
pub(crate) fn rewrite(schema: &mut Value) {
    let map = match schema {
        Value::Object(map) => map,
        // `true`: any value at all.
        other => {
            *other = json!({ PRESERVE: true });
            return;
        }
    };
    unwrap_option(map);
    // A default here is how serde reads an absent field, not something a server should write into
    // users' objects.
    for key in ["$schema", "title", "default"] {
        map.remove(key);
    }
    drop_null(map);
    name_format(map);
    fold_lines(map);
    if let Some(Value::Object(children)) = map.get_mut("properties") {
        children.values_mut().for_each(rewrite);
    }
    if let Some(items) = map.get_mut("items") {
        rewrite(items);
    }
    open_maps(map);
}

/// `anyOf: [T, null]` is how an optional `T` is derived when `T` is more than one type word.
fn unwrap_option(map: &mut Map<String, Value>) {
    let is_null = |branch: &Value| branch.get("type").is_some_and(|kind| kind == "null");
    let optional = match map.get("anyOf") {
        Some(Value::Array(branches)) => {
            matches!(branches.as_slice(), [Value::Object(_), null] if is_null(null))
        }
        _ => false,
    };
    if !optional {
        return;
    }
    let Some(Value::Array(branches)) = map.remove("anyOf") else { return };
    let Some(Value::Object(inner)) = branches.into_iter().next() else { return };
    for (key, value) in inner {
        // What is said of the field is nearer than what is said of its type.
        map.entry(key).or_insert(value);
    }
}

fn drop_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get("type") {
        let named: Vec<_> = types.iter().filter(|t| *t != "null").cloned().collect();
        if let [only] = named.as_slice() {
            map.insert("type".into(), only.clone());
        }
    }
    if let Some(Value::Array(words)) = map.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

/// Integer widths Kubernetes has a name for; the range of unsigned ones is kept by `minimum`.
fn name_format(map: &mut Map<String, Value>) {
    let known = match map.get("format").and_then(Value::as_str) {
        Some("int8" | "int16" | "uint8" | "uint16" | "int32") => "int32",
        Some("uint32" | "uint64" | "uint" | "int" | "int64") => "int64",
        _ => return,
    };
    map.insert("format".into(), known.into());
}

/// Doc comments are wrapped for the editor; `kubectl explain` wraps by itself.
fn fold_lines(map: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = map.get_mut("description") {
        let paragraphs: Vec<_> = text
            .split("\n\n")
            .map(|p| p.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        *text = paragraphs.join("\n\n");
    }
}

fn open_maps(map: &mut Map<String, Value>) {
    match map.get_mut("additionalProperties") {
        Some(Value::Bool(true)) => {
            map.remove("additionalProperties");
            map.insert(PRESERVE.into(), true.into());
        }
        Some(Value::Bool(false)) => {
            map.remove("additionalProperties");
        }
        Some(values) => rewrite(values),
        None => {}
    }
}

/// For fields that keep the value they first got. A rule on the old value does not run while there
/// was none, so a field may still be filled in later.
pub(crate) fn immutable(schema: &mut Schema) {
    rule(schema, "self == oldSelf", "field is immutable");
}

/// As [`immutable`], but an empty text counts as no value yet.
pub(crate) fn settled(schema: &mut Schema) {
    rule(schema, "self == oldSelf || oldSelf == ''", "field is immutable once it has a value");
}

/// Adds a CEL rule to the schema of a field.
pub(crate) fn rule(schema: &mut Schema, rule: &str, message: &str) {
    let map = schema.ensure_object();
    let rules = map.entry(RULES).or_insert_with(|| json!([]));
    if let Value::Array(rules) = rules {
        rules.push(json!({ "rule": rule, "message": message }));
    }
}

/// Adds CEL rules to the schema of a whole object.
pub(crate) fn rules<T: AsRef<str>>(schema: &mut Value, all: &[(T, T)]) {
    let drawn = all.iter().map(|(rule, message)| (rule.as_ref(), message.as_ref()));
    let drawn: Vec<Value> =
        drawn.map(|(rule, message)| json!({ "rule": rule, "message": message })).collect();
    if let (false, Value::Object(map)) = (drawn.is_empty(), schema) {
        map.insert(RULES.into(), drawn.into());
    }
}

/// Lets a schema take whatever a newer peer writes: unknown members are kept, words are not
/// checked, nothing is required. For copies of foreign documents.
pub(crate) fn loosen(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    for key in ["enum", "required", "pattern", "format", "minimum", "maximum", RULES] {
        map.remove(key);
    }
    if map.contains_key("properties") {
        map.insert(PRESERVE.into(), true.into());
    }
    if let Some(Value::Object(children)) = map.get_mut("properties") {
        children.values_mut().for_each(loosen);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(key) {
            loosen(child);
        }
    }
}
