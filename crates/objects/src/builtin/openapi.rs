//! The built-in types as `OpenAPI` schemas that refer to each other by name.
//!
//! Owns: shapes. Never: the words that describe them, which the caller may not have at hand.

use serde_json::{Map, Value, json};

use super::table::{Field, MessageId, Shape, Table, Type};
use crate::node::{ListType, PatchStrategy};

/// Names and descriptions of messages as they are published.
pub trait Words {
    /// The name of a message's schema.
    fn name(&self, message: &str) -> Option<&str>;
    fn about(&self, message: &str) -> Option<&str>;
    fn about_member(&self, message: &str, member: &str) -> Option<&str>;
}

/// Which `OpenAPI` the schemas are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V2,
    V3,
}

impl Version {
    /// A reference to a schema.
    pub fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{place}{name}")})
    }
}

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";

/// Schemas under construction, each once.
#[expect(missing_debug_implementations, reason = "it borrows words that have no such form")]
pub struct Schemas<'a> {
    words: &'a dyn Words,
    version: Version,
    made: Map<String, Value>,
}

impl<'a> Schemas<'a> {
    pub fn new(version: Version, words: &'a dyn Words) -> Self {
        Self { words, version, made: Map::new() }
    }

    /// Adds a kind and all it is made of; gives the name of its schema.
    pub fn add_kind(&mut self, group: &str, version: &str, kind: &str) -> Option<String> {
        let api_version =
            if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let table = Table::get();
        let id = table.kind(&api_version, kind)?;
        let name = self.add(id);
        let message = table.message(id).name;
        let about = ["apiVersion", "kind"].map(|member| {
            let about = self.words.about_member(message, member).unwrap_or_default();
            (member, json!({"type": "string", "description": about}))
        });
        if let Some(schema) = self.made.get_mut(&name).and_then(Value::as_object_mut) {
            let kinds = json!([{"group": group, "version": version, "kind": kind}]);
            schema.insert("x-kubernetes-group-version-kind".to_owned(), kinds);
            let properties = schema.entry("properties").or_insert_with(|| json!({}));
            if let Some(properties) = properties.as_object_mut() {
                properties.extend(about.map(|(member, schema)| (member.to_owned(), schema)));
            }
        }
        Some(name)
    }

    /// Adds what every object has in `metadata`.
    pub fn add_object_meta(&mut self) -> Option<String> {
        Some(self.add(Table::get().named("meta.v1.ObjectMeta")?))
    }

    pub fn finish(self) -> Map<String, Value> {
        self.made
    }

    fn add(&mut self, id: MessageId) -> String {
        let message = Table::get().message(id);
        let name = self.words.name(message.name).unwrap_or(message.name).to_owned();
        if self.made.contains_key(&name) {
            return name;
        }
        // Here before it is whole: types may contain themselves.
        self.made.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        let mut required = Vec::new();
        self.fields(id, message.name, &mut properties, &mut required);
        let mut schema = Map::new();
        put_text(&mut schema, "description", self.words.about(message.name));
        schema.insert("type".to_owned(), "object".into());
        if !properties.is_empty() {
            schema.insert("properties".to_owned(), properties.into());
        }
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        if message.atomic {
            schema.insert("x-kubernetes-map-type".to_owned(), "atomic".into());
        }
        self.made.insert(name.clone(), schema.into());
        name
    }

    /// The members of a message, with those of inlined ones; `described` is whose words count.
    fn fields(
        &mut self,
        id: MessageId,
        described: &str,
        properties: &mut Map<String, Value>,
        required: &mut Vec<Value>,
    ) {
        for field in &Table::get().message(id).fields {
            match (field.member, field.of) {
                (Some(member), _) => {
                    let mut schema = self.field(field);
                    let about = self.words.about_member(described, member);
                    put_text(&mut schema, "description", about);
                    properties.insert(member.to_owned(), schema.into());
                    required.extend(field.required.then(|| Value::from(member)));
                }
                (None, Type::Message(inner)) => self.fields(inner, described, properties, required),
                (None, _) => {}
            }
        }
    }

    fn field(&mut self, field: &Field) -> Map<String, Value> {
        let value = self.value(field.of);
        let mut schema = Map::new();
        match field.shape {
            // Beside a reference, version 3 reads nothing.
            Shape::One if value.contains_key("$ref") && self.version == Version::V3 => {
                schema.insert("allOf".to_owned(), json!([value]));
            }
            Shape::One => schema = value,
            Shape::List => {
                schema.insert("type".to_owned(), "array".into());
                schema.insert("items".to_owned(), value.into());
            }
            Shape::Map => {
                schema.insert("type".to_owned(), "object".into());
                schema.insert("additionalProperties".to_owned(), value.into());
            }
        }
        if let Some(default) = &field.default {
            schema.insert("default".to_owned(), default.clone());
        }
        semantics(field, &mut schema);
        schema
    }

    fn value(&mut self, of: Type) -> Map<String, Value> {
        let plain = |kind: &str, format: Option<&str>| {
            let mut schema = Map::new();
            schema.insert("type".to_owned(), kind.into());
            put_text(&mut schema, "format", format);
            schema
        };
        match of {
            Type::String => plain("string", None),
            Type::Bytes => plain("string", Some("byte")),
            Type::Int32 => plain("integer", Some("int32")),
            Type::Int64 => plain("integer", Some("int64")),
            Type::Bool => plain("boolean", None),
            Type::Double => plain("number", Some("double")),
            Type::Time => self.named(TIME, &plain("string", Some("date-time"))),
            Type::MicroTime => self.named(MICRO_TIME, &plain("string", Some("date-time"))),
            Type::Quantity => self.named(QUANTITY, &plain("string", None)),
            Type::IntOrString => self.named(INT_OR_STRING, &plain("string", Some("int-or-string"))),
            Type::Strings => {
                let mut list = plain("array", None);
                list.insert("items".to_owned(), plain("string", None).into());
                list
            }
            Type::Json | Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => {
                Map::new()
            }
            Type::Message(id) => {
                let name = self.add(id);
                self.reference(&name)
            }
        }
    }

    fn named(&mut self, name: &str, schema: &Map<String, Value>) -> Map<String, Value> {
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), schema.clone().into());
        }
        self.reference(name)
    }

    fn reference(&self, name: &str) -> Map<String, Value> {
        match self.version.reference(name) {
            Value::Object(reference) => reference,
            _ => Map::new(),
        }
    }
}

fn put_text(schema: &mut Map<String, Value>, name: &str, text: Option<&str>) {
    if let Some(text) = text.filter(|text| !text.is_empty()) {
        schema.insert(name.to_owned(), text.into());
    }
}

/// How lists are merged and patched.
fn semantics(field: &Field, schema: &mut Map<String, Value>) {
    if field.atomic {
        put_text(schema, "x-kubernetes-map-type", Some("atomic"));
    }
    match &field.list {
        ListType::Atomic => {}
        ListType::Set => put_text(schema, "x-kubernetes-list-type", Some("set")),
        ListType::Map { keys } => {
            put_text(schema, "x-kubernetes-list-type", Some("map"));
            schema.insert("x-kubernetes-list-map-keys".to_owned(), json!(keys));
        }
    }
    let strategy = match &field.patch {
        PatchStrategy::Replace => None,
        PatchStrategy::MergePrimitive => Some("merge"),
        PatchStrategy::RetainKeys => Some("retainKeys"),
        PatchStrategy::MergeByKey { key, retain_keys } => {
            put_text(schema, "x-kubernetes-patch-merge-key", Some(key));
            Some(if *retain_keys { "merge,retainKeys" } else { "merge" })
        }
    };
    put_text(schema, "x-kubernetes-patch-strategy", strategy);
}
