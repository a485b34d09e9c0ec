//! Reading the keywords of one schema object.

use serde_json::{Map, Value};

use super::Parser;
use crate::node::{Checks, JsonType};
use crate::path::Path;
use crate::pattern::{BadPattern, Pattern};

/// Keywords of `OpenAPI` that no structural schema may have.
const FORBIDDEN: [&str; 12] = [
    "$ref",
    "$schema",
    "definitions",
    "dependencies",
    "deprecated",
    "discriminator",
    "id",
    "patternProperties",
    "readOnly",
    "writeOnly",
    "xml",
    "additionalItems",
];

impl Parser {
    pub(super) fn forbid_keywords(&mut self, schema: &Map<String, Value>, path: &Path<'_>) {
        for name in FORBIDDEN {
            if schema.contains_key(name) {
                self.forbidden(&path.field(name), "is not supported");
            }
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            self.forbidden(
                &path.field("uniqueItems"),
                "must not be true, use x-kubernetes-list-type",
            );
        }
    }

    /// The value of `name` if it has the wanted form; a value of another form is an error.
    fn read<'v, T>(
        &mut self,
        schema: &'v Map<String, Value>,
        name: &str,
        path: &Path<'_>,
        wanted: &str,
        convert: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = schema.get(name).filter(|value| !value.is_null())?;
        let converted = convert(value);
        if converted.is_none() {
            self.invalid(&path.field(name), value, &format!("must be {wanted}"));
        }
        converted
    }

    pub(super) fn text(
        &mut self,
        schema: &Map<String, Value>,
        name: &str,
        path: &Path<'_>,
    ) -> Option<String> {
        self.read(schema, name, path, "a string", |value| value.as_str().map(str::to_owned))
    }

    pub(super) fn flag(
        &mut self,
        schema: &Map<String, Value>,
        name: &str,
        path: &Path<'_>,
    ) -> bool {
        self.read(schema, name, path, "true or false", Value::as_bool).unwrap_or(false)
    }

    fn number(&mut self, schema: &Map<String, Value>, name: &str, path: &Path<'_>) -> Option<f64> {
        self.read(schema, name, path, "a number", Value::as_f64)
    }

    fn count(&mut self, schema: &Map<String, Value>, name: &str, path: &Path<'_>) -> Option<u64> {
        self.read(schema, name, path, "an integer that is not negative", Value::as_u64)
    }

    pub(super) fn array<'v>(
        &mut self,
        schema: &'v Map<String, Value>,
        name: &str,
        path: &Path<'_>,
    ) -> &'v [Value] {
        self.read(schema, name, path, "a list", |value| value.as_array().map(Vec::as_slice))
            .unwrap_or_default()
    }

    pub(super) fn texts(
        &mut self,
        schema: &Map<String, Value>,
        name: &str,
        path: &Path<'_>,
    ) -> Vec<String> {
        let here = path.field(name);
        let mut texts = Vec::new();
        for (index, value) in self.array(schema, name, path).iter().enumerate() {
            match value.as_str() {
                Some(text) => texts.push(text.to_owned()),
                None => self.invalid(&here.index(index), value, "must be a string"),
            }
        }
        texts
    }

    pub(super) fn object<'v>(
        &mut self,
        schema: &'v Map<String, Value>,
        name: &str,
        path: &Path<'_>,
    ) -> Option<&'v Map<String, Value>> {
        self.read(schema, name, path, "an object", Value::as_object)
    }

    /// The `type` keyword; an unknown name is an error.
    pub(super) fn kind(
        &mut self,
        schema: &Map<String, Value>,
        path: &Path<'_>,
    ) -> Option<JsonType> {
        let name = self.text(schema, "type", path).filter(|name| !name.is_empty())?;
        let kind = match name.as_str() {
            "object" => JsonType::Object,
            "array" => JsonType::Array,
            "string" => JsonType::String,
            "integer" => JsonType::Integer,
            "number" => JsonType::Number,
            "boolean" => JsonType::Boolean,
            _ => {
                let all = ["array", "boolean", "integer", "number", "object", "string"];
                let cause = crate::cause::Cause::not_supported(
                    path.field("type").to_string(),
                    &Value::from(name),
                    &all,
                );
                self.refuse(cause);
                return None;
            }
        };
        Some(kind)
    }

    /// The checks of one schema object, without its branches.
    pub(super) fn checks(&mut self, schema: &Map<String, Value>, path: &Path<'_>) -> Checks {
        let pattern = self.text(schema, "pattern", path).filter(|pattern| !pattern.is_empty());
        let pattern = pattern.and_then(|pattern| self.pattern(&pattern, path));
        let multiple_of = self.number(schema, "multipleOf", path);
        if let Some(step) = multiple_of.filter(|step| *step <= 0.0) {
            self.invalid(&path.field("multipleOf"), &Value::from(step), "must be positive");
        }
        Checks {
            format: self.text(schema, "format", path).filter(|format| !format.is_empty()),
            enumeration: self.array(schema, "enum", path).to_vec(),
            minimum: self.number(schema, "minimum", path),
            exclusive_minimum: self.flag(schema, "exclusiveMinimum", path),
            maximum: self.number(schema, "maximum", path),
            exclusive_maximum: self.flag(schema, "exclusiveMaximum", path),
            multiple_of,
            min_length: self.count(schema, "minLength", path),
            max_length: self.count(schema, "maxLength", path),
            pattern,
            min_items: self.count(schema, "minItems", path),
            max_items: self.count(schema, "maxItems", path),
            min_properties: self.count(schema, "minProperties", path),
            max_properties: self.count(schema, "maxProperties", path),
            required: self.texts(schema, "required", path),
            ..Checks::default()
        }
    }

    fn pattern(&mut self, text: &str, path: &Path<'_>) -> Option<Pattern> {
        let why = match Pattern::compile(text, self.pattern_bytes_left) {
            Ok(pattern) => {
                self.pattern_bytes_left =
                    self.pattern_bytes_left.saturating_sub(pattern.size_bytes());
                return Some(pattern);
            }
            Err(BadPattern::Syntax) => "must be a usable regular expression",
            Err(BadPattern::TooLarge) => {
                "is too large a regular expression, alone or with the others of this schema"
            }
        };
        self.invalid(&path.field("pattern"), &Value::from(text), why);
        None
    }
}
