//! The versions of a definition.

use serde_json::{Map, Value};

use super::names::{LABEL_DETAIL, is_label};
use super::paths::{find, is_column, is_plain, is_selectable};
use super::text;
use crate::cause::{Cause, Reason};
use crate::node::Node;
use crate::path::Path;
use crate::schema;

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
const MAX_VERSIONS: usize = 50;
const MAX_SELECTABLE: usize = 8;
const MAX_WARNING: usize = 256;

pub(super) fn check(spec: &Map<String, Value>, causes: &mut Vec<Cause>) {
    let root = Path::Root("spec");
    let path = root.field("versions");
    let versions = match spec.get("versions").and_then(Value::as_array) {
        Some(versions) if !versions.is_empty() => versions,
        _ => {
            causes.push(Cause::required(path.to_string(), "at least one version is needed"));
            return;
        }
    };
    if versions.len() > MAX_VERSIONS {
        let text = format!("Too many: {}: must have at most {MAX_VERSIONS} items", versions.len());
        causes.push(Cause::new(Reason::TooMany, path.to_string(), text));
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        let path = path.index(index);
        let Some(members) = version.as_object() else {
            causes.push(Cause::invalid(path.to_string(), version, "must be an object"));
            continue;
        };
        check_name(members, versions.get(..index).unwrap_or_default(), &path, causes);
        check_version(members, &path, causes);
    }
    let storage = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    let count = versions.iter().filter(storage).count();
    if count != 1 {
        let text =
            format!("Invalid value: {count} versions are marked for storage, must be exactly one");
        causes.push(Cause::new(Reason::Invalid, path.to_string(), text));
    }
}

fn check_name(
    version: &Map<String, Value>,
    earlier: &[Value],
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    let name = text(version, "name");
    let field = path.field("name").to_string();
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
    } else if !is_label(name) {
        causes.push(Cause::invalid(field, &Value::from(name), LABEL_DETAIL));
    } else if earlier.iter().any(|other| other.get("name").is_some_and(|other| other == name)) {
        causes.push(Cause::duplicate(field, &Value::from(name)));
    }
}

fn check_version(version: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for name in ["served", "storage"] {
        if !version.get(name).is_some_and(Value::is_boolean) {
            causes.push(Cause::required(path.field(name).to_string(), "must be true or false"));
        }
    }
    let node = check_schema(version, path, causes);
    check_columns(version, path, causes);
    check_subresources(version, path, causes);
    check_selectable(version, node.as_ref(), path, causes);
    let warning = version.get("deprecationWarning").filter(|warning| !warning.is_null());
    if let Some(warning) = warning {
        let field = path.field("deprecationWarning").to_string();
        if version.get("deprecated") != Some(&Value::Bool(true)) {
            causes.push(Cause::invalid(field, warning, "needs deprecated: true"));
        } else if !warning.as_str().is_some_and(|text| {
            !text.is_empty() && text.len() <= MAX_WARNING && !text.contains(char::is_control)
        }) {
            causes.push(Cause::invalid(field, warning, "must be one line of at most 256 bytes"));
        }
    }
}

fn check_schema(
    version: &Map<String, Value>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) -> Option<Node> {
    let here = path.field("schema");
    let here = here.field("openAPIV3Schema");
    let found = version.get("schema").and_then(|schema| schema.get("openAPIV3Schema"));
    let Some(found) = found.filter(|found| !found.is_null()) else {
        causes.push(Cause::required(here.to_string(), "schemas are required"));
        return None;
    };
    match schema::parse(found, &here.to_string()) {
        Ok(node) => Some(node),
        Err(found) => {
            causes.extend(found);
            None
        }
    }
}

fn check_columns(version: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let here = path.field("additionalPrinterColumns");
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array);
    for (index, column) in columns.into_iter().flatten().enumerate() {
        let here = here.index(index);
        let at = |name| here.field(name).to_string();
        let get = |name| column.get(name).and_then(Value::as_str).unwrap_or_default();
        if get("name").is_empty() {
            causes.push(Cause::required(at("name"), ""));
        }
        let kind = get("type");
        if kind.is_empty() {
            causes.push(Cause::required(at("type"), ""));
        } else if !COLUMN_TYPES.contains(&kind) {
            let cause = Cause::not_supported(at("type"), &Value::from(kind), &COLUMN_TYPES);
            causes.push(cause);
        }
        let format = get("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let cause = Cause::not_supported(at("format"), &Value::from(format), &COLUMN_FORMATS);
            causes.push(cause);
        }
        let json_path = get("jsonPath");
        if json_path.is_empty() {
            causes.push(Cause::required(at("jsonPath"), ""));
        } else if !is_column(json_path) {
            let detail = "must be a JSON path starting with a dot";
            causes.push(Cause::invalid(at("jsonPath"), &Value::from(json_path), detail));
        }
        let priority = column.get("priority").filter(|priority| !priority.is_null());
        if let Some(priority) = priority.filter(|one| one.as_i64().is_none()) {
            causes.push(Cause::invalid(at("priority"), priority, "must be an integer"));
        }
    }
}

fn check_subresources(version: &Map<String, Value>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let here = path.field("subresources");
    let here = here.field("scale");
    let scale = version.get("subresources").and_then(|all| all.get("scale"));
    let Some(scale) = scale.filter(|scale| !scale.is_null()) else { return };
    for (name, needed, parents) in [
        ("specReplicasPath", true, &[".spec"] as &[&str]),
        ("statusReplicasPath", true, &[".status"]),
        ("labelSelectorPath", false, &[".spec", ".status"]),
    ] {
        let field = here.field(name).to_string();
        let found = scale.get(name).and_then(Value::as_str).unwrap_or_default();
        if found.is_empty() {
            if needed {
                causes.push(Cause::required(field, ""));
            }
            continue;
        }
        let below =
            |parent: &&str| found.strip_prefix(*parent).is_some_and(|rest| rest.starts_with('.'));
        if !is_plain(found) || !parents.iter().any(below) {
            let detail = format!("must be a path of plain names below {}", parents.join(" or "));
            causes.push(Cause::invalid(field, &Value::from(found), &detail));
        }
    }
}

fn check_selectable(
    version: &Map<String, Value>,
    node: Option<&Node>,
    path: &Path<'_>,
    causes: &mut Vec<Cause>,
) {
    let here = path.field("selectableFields");
    let fields = version.get("selectableFields").and_then(Value::as_array);
    let fields = fields.map(Vec::as_slice).unwrap_or_default();
    if fields.len() > MAX_SELECTABLE {
        let text = format!("Too many: {}: must have at most {MAX_SELECTABLE} items", fields.len());
        causes.push(Cause::new(Reason::TooMany, here.to_string(), text));
    }
    for (index, field) in fields.iter().enumerate() {
        let here = here.index(index);
        let at = here.field("jsonPath").to_string();
        let json_path = field.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        let value = Value::from(json_path);
        let earlier = fields.get(..index).unwrap_or_default();
        if json_path.is_empty() {
            causes.push(Cause::required(at, ""));
        } else if !is_plain(json_path) {
            causes.push(Cause::invalid(
                at,
                &value,
                "must be a path of plain names starting with a dot",
            ));
        } else if json_path == ".metadata" || json_path.starts_with(".metadata.") {
            causes.push(Cause::invalid(at, &value, "must not point into metadata"));
        } else if earlier.iter().any(|other| other.get("jsonPath") == Some(&value)) {
            causes.push(Cause::duplicate(at, &value));
        } else if let Some(node) = node
            && !find(node, json_path).is_some_and(is_selectable)
        {
            let detail = "must point to a string, boolean or integer of the schema";
            causes.push(Cause::invalid(at, &value, detail));
        }
    }
}
