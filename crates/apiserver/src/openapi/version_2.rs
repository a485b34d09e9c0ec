//! The `OpenAPI` version 2 document in the protobuf form that kubectl before 1.34 asks for: the messages
//! of the public `openapi.v2` package, as far as the document uses them.

use serde_json::{Map, Value};

/// The media type of this form.
pub(crate) const MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A message being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        loop {
            let low = u8::try_from(value & 0x7f).unwrap_or(0);
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, number: u64, text: &str) {
        if !text.is_empty() {
            self.bytes(number, text.as_bytes());
        }
    }

    fn inner(&mut self, number: u64, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(number, &inner.0);
    }

    fn flag(&mut self, number: u64, value: bool) {
        if value {
            self.varint(number << 3);
            self.varint(1);
        }
    }

    fn number(&mut self, number: u64, value: Option<f64>) {
        if let Some(value) = value {
            self.varint(number << 3 | 1);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    fn count(&mut self, number: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.varint(number << 3);
            self.varint(value);
        }
    }

    /// A value of any shape, as YAML: JSON is.
    fn any(&mut self, number: u64, value: &Value) {
        self.inner(number, |any| any.text(2, &value.to_string()));
    }

    /// Every member whose name begins with `x-`.
    fn extensions(&mut self, number: u64, of: &Map<String, Value>) {
        for (name, value) in of.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.inner(number, |named| {
                named.text(1, name);
                named.any(2, value);
            });
        }
    }
}

fn text<'a>(of: &'a Map<String, Value>, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn members(of: Option<&Value>) -> impl Iterator<Item = (&String, &Map<String, Value>)> {
    let members = of.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, value)| Some((name, value.as_object()?)))
}

fn items(of: Option<&Value>) -> impl Iterator<Item = &Value> {
    of.and_then(Value::as_array).into_iter().flatten()
}

/// The document as protobuf.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut whole = Message::default();
    whole.text(1, document.get("swagger").and_then(Value::as_str).unwrap_or_default());
    if let Some(info) = document.get("info").and_then(Value::as_object) {
        whole.inner(2, |message| {
            message.text(1, text(info, "title"));
            message.text(2, text(info, "version"));
        });
    }
    whole.inner(8, |paths| {
        for (name, item) in members(document.get("paths")) {
            paths.inner(2, |named| {
                named.text(1, name);
                named.inner(2, |path| path_item(path, item));
            });
        }
    });
    whole.inner(9, |definitions| {
        for (name, definition) in members(document.get("definitions")) {
            definitions.inner(1, |named| {
                named.text(1, name);
                named.inner(2, |message| schema(message, definition));
            });
        }
    });
    whole.0
}

fn path_item(path: &mut Message, item: &Map<String, Value>) {
    let methods = [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)];
    for (method, number) in methods {
        if let Some(of) = item.get(method).and_then(Value::as_object) {
            path.inner(number, |message| operation(message, of));
        }
    }
}

fn operation(message: &mut Message, of: &Map<String, Value>) {
    message.text(5, text(of, "operationId"));
    for consumed in items(of.get("consumes")).filter_map(Value::as_str) {
        message.text(7, consumed);
    }
    for parameter in items(of.get("parameters")).filter_map(Value::as_object) {
        // A parameter, not of a body, of the query.
        message.inner(8, |item| {
            item.inner(1, |one| {
                one.inner(2, |one| {
                    one.inner(3, |query| {
                        query.text(2, text(parameter, "in"));
                        query.text(4, text(parameter, "name"));
                        query.text(6, text(parameter, "type"));
                        query.flag(20, parameter.get("uniqueItems") == Some(&Value::Bool(true)));
                    });
                });
            });
        });
    }
    message.inner(9, |responses| {
        for (code, response) in members(of.get("responses")) {
            responses.inner(1, |named| {
                named.text(1, code);
                named.inner(2, |value| {
                    value.inner(1, |message| message.text(1, text(response, "description")));
                });
            });
        }
    });
    message.extensions(13, of);
}

fn schema(message: &mut Message, of: &Map<String, Value>) {
    message.text(1, text(of, "$ref"));
    message.text(2, text(of, "format"));
    message.text(3, text(of, "title"));
    message.text(4, text(of, "description"));
    if let Some(default) = of.get("default") {
        message.any(5, default);
    }
    limits(message, of);
    for required in items(of.get("required")).filter_map(Value::as_str) {
        message.text(19, required);
    }
    for one in items(of.get("enum")) {
        message.any(20, one);
    }
    match of.get("additionalProperties") {
        Some(Value::Object(inner)) => {
            message.inner(21, |item| item.inner(1, |message| schema(message, inner)));
        }
        Some(Value::Bool(allowed)) => message.inner(21, |item| item.flag(2, *allowed)),
        _ => {}
    }
    if let Some(kind) = of.get("type").and_then(Value::as_str) {
        message.inner(22, |item| item.text(1, kind));
    }
    if let Some(inner) = of.get("items").and_then(Value::as_object) {
        message.inner(23, |item| item.inner(1, |message| schema(message, inner)));
    }
    for inner in items(of.get("allOf")).filter_map(Value::as_object) {
        message.inner(24, |message| schema(message, inner));
    }
    if of.contains_key("properties") {
        message.inner(25, |properties| {
            for (name, inner) in members(of.get("properties")) {
                properties.inner(1, |named| {
                    named.text(1, name);
                    named.inner(2, |message| schema(message, inner));
                });
            }
        });
    }
    message.extensions(31, of);
}

fn limits(message: &mut Message, of: &Map<String, Value>) {
    let float = |name: &str| of.get(name).and_then(Value::as_f64);
    let count = |name: &str| of.get(name).and_then(Value::as_u64);
    let flag = |name: &str| of.get(name) == Some(&Value::Bool(true));
    message.number(6, float("multipleOf"));
    message.number(7, float("maximum"));
    message.flag(8, flag("exclusiveMaximum"));
    message.number(9, float("minimum"));
    message.flag(10, flag("exclusiveMinimum"));
    message.count(11, count("maxLength"));
    message.count(12, count("minLength"));
    message.text(13, text(of, "pattern"));
    message.count(14, count("maxItems"));
    message.count(15, count("minItems"));
    message.count(17, count("maxProperties"));
    message.count(18, count("minProperties"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_small_document_is_these_bytes() {
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "T", "version": "v"},
            "definitions": {"A": {"type": "object", "x-k": 1}},
        });
        let want = [
            &[0x0a, 3][..],
            b"2.0",
            &[0x12, 6, 0x0a, 1, b'T', 0x12, 1, b'v'],
            &[0x42, 0],
            // definitions, one of them named A, its schema
            &[0x4a, 0x1f, 0x0a, 0x1d, 0x0a, 1, b'A', 0x12, 0x18],
            // type
            &[0xb2, 1, 8, 0x0a, 6],
            b"object",
            // an extension: its name, its value as YAML
            &[0xfa, 1, 10, 0x0a, 3],
            b"x-k",
            &[0x12, 3, 0x12, 1, b'1'],
        ];
        assert_eq!(encode(&document), want.concat());
    }
}
