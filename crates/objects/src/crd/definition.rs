//! A definition as typed values, for the code that serves its resources.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::text;
use crate::cause::Cause;
use crate::node::Node;
use crate::schema;

/// Whether objects live in namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespaced,
}

/// What a definition says.
#[derive(Debug, Clone)]
pub struct Definition {
    pub group: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    pub versions: Vec<Version>,
}

/// One version of the resource.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the definition has these independent flags")]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub deprecated: bool,
    pub deprecation_warning: Option<String>,
    /// The schema of the author, without the metadata the server adds.
    pub schema: Arc<Node>,
    /// Whether `/status` is a subresource.
    pub status: bool,
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// JSON paths, such as `.spec.size`.
    pub selectable_fields: Vec<String>,
    pub raw_schema: Value,
}

/// Where `/scale` finds its values, as JSON paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    pub spec_path: String,
    pub status_path: String,
    pub selector_path: Option<String>,
}

/// An additional printer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

impl Definition {
    /// Reads a definition that has passed [`super::validate`]; anything it cannot use is a cause.
    pub fn parse(crd: &Value) -> Result<Self, Vec<Cause>> {
        let Some(spec) = crd.get("spec").and_then(Value::as_object) else {
            return Err(vec![Cause::required("spec", "")]);
        };
        let empty = Map::new();
        let names = spec.get("names").and_then(Value::as_object).unwrap_or(&empty);
        let mut causes = Vec::new();
        for (field, value) in [
            ("spec.group", text(spec, "group")),
            ("spec.names.plural", text(names, "plural")),
            ("spec.names.kind", text(names, "kind")),
        ] {
            if value.is_empty() {
                causes.push(Cause::required(field, ""));
            }
        }
        let scope = match text(spec, "scope") {
            "Cluster" => Scope::Cluster,
            "Namespaced" => Scope::Namespaced,
            other => {
                let all = ["Cluster", "Namespaced"];
                causes.push(Cause::not_supported("spec.scope", &Value::from(other), &all));
                Scope::Namespaced
            }
        };
        let versions = versions(spec, &mut causes);
        if !causes.is_empty() {
            return Err(causes);
        }
        let kind = text(names, "kind");
        let or = |name: &str, other: String| match text(names, name) {
            "" => other,
            found => found.to_owned(),
        };
        Ok(Self {
            group: text(spec, "group").to_owned(),
            plural: text(names, "plural").to_owned(),
            singular: or("singular", kind.to_lowercase()),
            kind: kind.to_owned(),
            list_kind: or("listKind", format!("{kind}List")),
            short_names: texts(names.get("shortNames")),
            categories: texts(names.get("categories")),
            scope,
            versions,
        })
    }

    /// The version objects are stored in.
    pub fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let all = value.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn versions(spec: &Map<String, Value>, causes: &mut Vec<Cause>) -> Vec<Version> {
    let all = spec.get("versions").and_then(Value::as_array);
    let mut versions = Vec::new();
    for (index, version) in all.into_iter().flatten().enumerate() {
        let field = format!("spec.versions[{index}].schema.openAPIV3Schema");
        let raw_schema = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        match schema::parse(&raw_schema, &field) {
            Ok(node) => versions.push(read(version, node, raw_schema)),
            Err(found) => causes.extend(found),
        }
    }
    if versions.is_empty() && causes.is_empty() {
        causes.push(Cause::required("spec.versions", "at least one version is needed"));
    }
    versions
}

fn read(version: &Value, node: Node, raw_schema: Value) -> Version {
    let flag = |name: &str| version.get(name) == Some(&Value::Bool(true));
    let string = |value: &Value, name: &str| {
        value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let present = |pointer: &str| version.pointer(pointer).filter(|value| !value.is_null());
    let column = |column: &Value| Column {
        name: string(column, "name"),
        kind: string(column, "type"),
        format: string(column, "format"),
        description: string(column, "description"),
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        json_path: string(column, "jsonPath"),
    };
    let list = |name: &str| version.get(name).and_then(Value::as_array).into_iter().flatten();
    Version {
        name: string(version, "name"),
        served: flag("served"),
        storage: flag("storage"),
        deprecated: flag("deprecated"),
        deprecation_warning: present("/deprecationWarning")
            .and_then(Value::as_str)
            .map(str::to_owned),
        schema: Arc::new(node),
        status: present("/subresources/status").is_some(),
        scale: present("/subresources/scale").map(|scale| Scale {
            spec_path: string(scale, "specReplicasPath"),
            status_path: string(scale, "statusReplicasPath"),
            selector_path: Some(string(scale, "labelSelectorPath")).filter(|path| !path.is_empty()),
        }),
        columns: list("additionalPrinterColumns").map(column).collect(),
        selectable_fields: list("selectableFields")
            .map(|field| string(field, "jsonPath"))
            .collect(),
        raw_schema,
    }
}
