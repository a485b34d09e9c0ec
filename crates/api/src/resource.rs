//! What makes a Rust type a kind of resource: its names, its columns and its definition.
//!
//! Owns the outer frame of objects (`apiVersion`, `kind`, `metadata`, `spec`, `status`) and of the
//! `CustomResourceDefinition`s. Knows nothing of what is inside a spec or a status.

use serde_json::{Map, Value, json};

/// What all kinds of one group and version have in common.
#[derive(Debug)]
pub struct Dialect {
    pub group: &'static str,
    pub version: &'static str,
    /// Name under which `kubectl get` lists all kinds of the dialect together.
    pub category: &'static str,
    pub status: StatusDoor,
    pub spec: SpecRule,
}

/// Where a status is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusDoor {
    /// Through `/status` alone; a write to the object leaves it as it was.
    Subresource,
    /// With the object itself, as peers do that create objects together with their status.
    Main,
}

/// Whether an object without `spec` is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecRule {
    Required,
    Optional,
}

/// One column of `kubectl get`.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    pub kind: &'static str,
    pub path: &'static str,
    /// 0 is always shown; greater numbers only with `-o wide`.
    pub priority: u8,
}

/// Names and columns of one kind.
#[derive(Debug)]
pub struct Definition {
    pub dialect: &'static Dialect,
    pub kind: &'static str,
    pub plural: &'static str,
    pub short: &'static [&'static str],
    pub columns: &'static [Column],
}

impl Definition {
    /// `<plural>.<group>`, the name of the definition object.
    pub fn crd_name(&self) -> String {
        format!("{}.{}", self.plural, self.dialect.group)
    }
}

/// A kind whose definition this crate can draw.
pub trait Kind: kube_core::Resource<DynamicType = ()> {
    const DEFINITION: Definition;

    /// Structural schema of the whole object.
    fn schema() -> Value;

    /// The `CustomResourceDefinition` of this kind.
    fn crd() -> Value {
        crd(&Self::DEFINITION, &Self::schema())
    }
}

pub(crate) const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, priority: 0 }
}

pub(crate) const fn text(name: &'static str, path: &'static str) -> Column {
    column(name, "string", path)
}

pub(crate) const fn wide(name: &'static str, path: &'static str) -> Column {
    Column { name, kind: "string", path, priority: 1 }
}

pub(crate) const fn date(name: &'static str, path: &'static str) -> Column {
    column(name, "date", path)
}

pub(crate) const AGE: Column = date("Age", ".metadata.creationTimestamp");

fn crd(definition: &Definition, schema: &Value) -> Value {
    let dialect = definition.dialect;
    let mut names = json!({
        "kind": definition.kind,
        "listKind": format!("{}List", definition.kind),
        "plural": definition.plural,
        "singular": definition.kind.to_lowercase(),
        "categories": [dialect.category],
    });
    let mut version = json!({
        "name": dialect.version,
        "served": true,
        "storage": true,
        "schema": { "openAPIV3Schema": schema },
        "additionalPrinterColumns":
            definition.columns.iter().map(printer_column).collect::<Vec<_>>(),
    });
    if !definition.short.is_empty() {
        put(&mut names, "shortNames", json!(definition.short));
    }
    if dialect.status == StatusDoor::Subresource {
        put(&mut version, "subresources", json!({ "status": {} }));
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": definition.crd_name() },
        "spec": {
            "group": dialect.group,
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    })
}

fn printer_column(column: &Column) -> Value {
    let mut out = json!({ "name": column.name, "type": column.kind, "jsonPath": column.path });
    if column.priority > 0 {
        put(&mut out, "priority", json!(column.priority));
    }
    out
}

fn put(target: &mut Value, key: &str, value: Value) {
    if let Value::Object(map) = target {
        map.insert(key.to_owned(), value);
    }
}

/// The schema of a whole object around the schemas of its top-level fields.
pub(crate) fn object_schema(
    description: &[&str],
    fields: impl IntoIterator<Item = (&'static str, Value)>,
    required: &[&str],
) -> Value {
    let mut properties = Map::new();
    let named = |what: &str| json!({ "type": "string", "description": what });
    properties.insert("apiVersion".into(), named("Group and version this object is written in."));
    properties.insert("kind".into(), named("Kind of this object."));
    properties.insert("metadata".into(), json!({ "type": "object" }));
    properties.extend(fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)));
    let lines: Vec<_> = description.iter().map(|line| line.trim()).collect();
    let mut out = json!({
        "type": "object",
        "description": lines.join(" ").trim(),
        "properties": properties,
    });
    if !required.is_empty() {
        put(&mut out, "required", json!(required));
    }
    out
}

/// Declares the outer type of a kind: metadata, spec and status, with its names and columns.
macro_rules! resource {
    (
        $(#[doc = $doc:literal])+
        $name:ident in $dialect:path {
            plural: $plural:literal,
            short: [$($short:literal),*],
            spec: $spec:ty,
            status: $status:ty,
            columns: [$($column:expr),* $(,)?] $(,)?
            $(rules: [$($rule:expr),* $(,)?] $(,)?)?
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        pub struct $name {
            #[serde(default)]
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// Absent is read as empty: one such object must not spoil the list it is in.
            #[serde(default)]
            pub spec: $spec,
            pub status: Option<$status>,
        }

        impl $name {
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut made = Self { spec, ..Self::default() };
                made.metadata.name = Some(name.to_owned());
                made
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct as _;
                let count = if self.status.is_some() { 5 } else { 4 };
                let mut object = output.serialize_struct(stringify!($name), count)?;
                object.serialize_field("apiVersion", &<Self as kube_core::Resource>::api_version(&()))?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                match &self.status {
                    Some(status) => object.serialize_field("status", status)?,
                    None => object.skip_field("status")?,
                }
                object.end()
            }
        }

        impl kube_core::object::HasSpec for $name {
            type Spec = $spec;
            fn spec(&self) -> &$spec {
                &self.spec
            }
            fn spec_mut(&mut self) -> &mut $spec {
                &mut self.spec
            }
        }

        impl kube_core::object::HasStatus for $name {
            type Status = $status;
            fn status(&self) -> Option<&$status> {
                self.status.as_ref()
            }
            fn status_mut(&mut self) -> &mut Option<$status> {
                &mut self.status
            }
        }

        $crate::resource::kind!($name in $dialect {
            plural: $plural, short: [$($short),*], columns: [$($column),*],
            doc: [$($doc),+],
            required: {
                if matches!($dialect.spec, $crate::resource::SpecRule::Required) { &["spec"] } else { &[] }
            },
            fields: [
                ("spec", $crate::schema::structural::<$spec>()),
                ("status", $crate::schema::structural::<$status>())
            ],
            rules: {
                let all: &[(&str, &str)] = &[$($($rule),*)?];
                all
            }
        });
    };
}
pub(crate) use resource;

/// The part of a kind that does not depend on what its fields are.
macro_rules! kind {
    ($name:ident in $dialect:path {
        plural: $plural:literal, short: [$($short:literal),*], columns: [$($column:expr),*],
        doc: [$($doc:literal),+], required: $required:expr, fields: [$($field:expr),+],
        rules: $rules:expr
    }) => {
        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }
            fn group((): &()) -> std::borrow::Cow<'_, str> {
                $dialect.group.into()
            }
            fn version((): &()) -> std::borrow::Cow<'_, str> {
                $dialect.version.into()
            }
            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl $crate::resource::Kind for $name {
            const DEFINITION: $crate::resource::Definition = $crate::resource::Definition {
                dialect: &$dialect,
                kind: stringify!($name),
                plural: $plural,
                short: &[$($short),*],
                columns: &[$($column),*],
            };

            fn schema() -> serde_json::Value {
                let required: &[&str] = $required;
                let mut schema =
                    $crate::resource::object_schema(&[$($doc),+], [$($field),+], required);
                $crate::schema::rules(&mut schema, &$rules);
                schema
            }
        }
    };
}
pub(crate) use kind;
