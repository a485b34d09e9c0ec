//! Names of a definition and of its resources.

use serde_json::{Map, Value};

use super::text;
use crate::cause::Cause;

/// Longest name of one label and of a whole domain.
const LABEL: usize = 63;
const DOMAIN: usize = 253;

pub(super) fn check(crd: &Value, spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let group = text(spec, "group");
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !is_domain(group) || !group.contains('.') {
        let detail = "must be a domain name of lower-case labels with at least one dot";
        causes.push(Cause::invalid("spec.group", &Value::from(group), detail));
    }
    let empty = Map::new();
    let names = spec.get("names").and_then(Value::as_object).unwrap_or(&empty);
    resource_names(names, causes);
    let found = crd.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let wanted = format!("{}.{group}", text(names, "plural"));
    if found != wanted {
        let detail = "must be spec.names.plural + \".\" + spec.group";
        causes.push(Cause::invalid("metadata.name", &Value::from(found), detail));
    }
}

fn resource_names(names: &Map<String, Value>, causes: &mut Vec<Cause>) {
    for (name, needed) in [("plural", true), ("singular", false)] {
        let found = text(names, name);
        let field = format!("spec.names.{name}");
        if found.is_empty() {
            if needed {
                causes.push(Cause::required(field, ""));
            }
        } else if !is_label(found) {
            causes.push(Cause::invalid(field, &Value::from(found), LABEL_DETAIL));
        }
    }
    for (name, needed) in [("kind", true), ("listKind", false)] {
        let found = text(names, name);
        let field = format!("spec.names.{name}");
        if found.is_empty() {
            if needed {
                causes.push(Cause::required(field, ""));
            }
        } else if !is_kind(found) {
            let detail = "must be letters and digits in CamelCase, at most 63";
            causes.push(Cause::invalid(field, &Value::from(found), detail));
        }
    }
    let kind = text(names, "kind");
    if !kind.is_empty() && kind == text(names, "listKind") {
        let detail = "must differ from kind";
        causes.push(Cause::invalid("spec.names.listKind", &Value::from(kind), detail));
    }
    for name in ["shortNames", "categories"] {
        let all = names.get(name).and_then(Value::as_array);
        for (index, found) in all.into_iter().flatten().enumerate() {
            if !found.as_str().is_some_and(is_label) {
                let field = format!("spec.names.{name}[{index}]");
                causes.push(Cause::invalid(field, found, LABEL_DETAIL));
            }
        }
    }
}

pub(super) const LABEL_DETAIL: &str =
    "must be lower-case letters, digits and dashes, starting with a letter, at most 63";

/// Lower-case, starting with a letter, ending with a letter or digit.
pub(super) fn is_label(text: &str) -> bool {
    (1..=LABEL).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_domain(text: &str) -> bool {
    let label = |label: &str| {
        (1..=LABEL).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    (1..=DOMAIN).contains(&text.len()) && text.split('.').all(label)
}

fn is_kind(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase()) && is_label(&text.to_ascii_lowercase())
}
