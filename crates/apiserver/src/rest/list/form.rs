//! How a list is written around its objects: as programs read it, or as people do. In each form it
//! is made object by object, so that no form of a list takes more memory than another.

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::negotiate::{Answer, Syntax};
use crate::rest::view::{self, pretty};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Compact,
    Pretty,
    Yaml,
}

impl Form {
    pub(super) fn of(answer: Answer) -> Self {
        match (answer.syntax, answer.pretty) {
            (Syntax::Yaml, _) => Self::Yaml,
            (Syntax::Json | Syntax::Protobuf, true) => Self::Pretty,
            (Syntax::Json | Syntax::Protobuf, false) => Self::Compact,
        }
    }

    pub(super) fn media(self) -> &'static str {
        match self {
            Self::Compact | Self::Pretty => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    /// All that comes before the first object; `member` holds the objects.
    pub(super) fn head(self, before: &[(&str, Value)], member: &str, is_empty: bool) -> String {
        match self {
            Self::Compact => {
                let all: Vec<String> =
                    before.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{},\"{member}\":[", all.join(","))
            }
            Self::Pretty => {
                let all: Vec<String> = before
                    .iter()
                    .map(|(name, value)| format!("  \"{name}\": {}", indented(&pretty(value), 2)))
                    .collect();
                format!("{{\n{},\n  \"{member}\": [", all.join(",\n"))
            }
            Self::Yaml => {
                let one = |(name, value): &(&str, Value)| {
                    let object = Map::from_iter([((*name).to_owned(), value.clone())]);
                    yaml(&object.into())
                };
                let head: String = before.iter().map(one).collect();
                let items = if is_empty { " []\n" } else { "\n" };
                format!("{head}{member}:{items}")
            }
        }
    }

    /// An object in its place.
    pub(super) fn item(self, object: Bytes) -> Result<Bytes, Failure> {
        if self == Self::Compact {
            return Ok(object);
        }
        let value: Value = serde_json::from_slice(&object)
            .map_err(|error| Failure::internal(format!("an object is not readable: {error}")))?;
        Ok(match self {
            Self::Compact => object,
            Self::Pretty => format!("\n    {}", indented(&pretty(&value), 4)).into(),
            Self::Yaml => format!("- {}\n", indented(yaml(&value).trim_end(), 2)).into(),
        })
    }

    pub(super) fn between(self) -> &'static [u8] {
        match self {
            Self::Compact | Self::Pretty => b",",
            Self::Yaml => b"",
        }
    }

    pub(super) fn end(self, is_empty: bool) -> &'static [u8] {
        match (self, is_empty) {
            (Self::Compact, _) => b"]}",
            (Self::Pretty, true) => b"]\n}\n",
            (Self::Pretty, false) => b"\n  ]\n}\n",
            (Self::Yaml, _) => b"",
        }
    }
}

fn yaml(value: &Value) -> String {
    let text = view::yaml(value);
    if text.ends_with('\n') { text } else { text + "\n" }
}

/// The lines after the first, moved to the right. Texts in them have no line ends of their own.
fn indented(text: &str, columns: usize) -> String {
    text.replace('\n', &format!("\n{}", " ".repeat(columns)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(form: Form, head: &[(&str, Value)], items: &[Value]) -> String {
        let mut text = form.head(head, "items", items.is_empty());
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                text += std::str::from_utf8(form.between()).unwrap();
            }
            let item = form.item(item.to_string().into()).unwrap();
            text += std::str::from_utf8(&item).unwrap();
        }
        text + std::str::from_utf8(form.end(items.is_empty())).unwrap()
    }

    #[test]
    fn every_form_says_the_same() {
        let head = [("kind", json!("ThingList")), ("metadata", json!({"resourceVersion": "7"}))];
        let odd = json!({"text": "two\nlines\n\n  and more: \"x\"", "tab": "\ta", "dash": "- a",
            "hash": "a # b", "long": "word ".repeat(100), "yes": "yes", "number": "0644",
            "empty": {}, "none": [], "list": [{"a": [1, [2]]}, "\u{2028}", "\u{85}", ""],
            "null": null, "deep": {"a": {"b": "line\nline"}}, "trail": "x\n"});
        for items in [vec![], vec![odd.clone()], vec![odd.clone(), json!({"a": 1}), odd]] {
            let list = json!({"kind": "ThingList", "metadata": {"resourceVersion": "7"},
                "items": items});
            let compact = written(Form::Compact, &head, &items);
            assert_eq!(serde_json::from_str::<Value>(&compact).unwrap(), list);
            let pretty = written(Form::Pretty, &head, &items);
            assert_eq!(serde_json::from_str::<Value>(&pretty).unwrap(), list, "{pretty}");
            let yaml = written(Form::Yaml, &head, &items);
            let read = objects::json::decode_yaml(yaml.as_bytes()).unwrap().value;
            assert_eq!(read, list, "{yaml}");
        }
    }

    #[test]
    fn people_see_it_as_if_it_had_been_written_whole() {
        let head = [("kind", json!("L")), ("metadata", json!({"a": "b"}))];
        let items = [json!({"a": {"b": [1]}}), json!({})];
        let whole = json!({"kind": "L", "metadata": {"a": "b"}, "items": items});
        let text = written(Form::Pretty, &head, &items);
        let mut sorted: Vec<&str> = text.lines().map(str::trim).collect();
        let expected = serde_json::to_string_pretty(&whole).unwrap();
        let mut wanted: Vec<&str> = expected.lines().map(str::trim).collect();
        assert!(text.contains("\n  \"items\": [\n    {\n      \"a\": {\n"), "{text}");
        for lines in [&mut sorted, &mut wanted] {
            for line in lines.iter_mut() {
                *line = line.trim_end_matches(',');
            }
            lines.sort_unstable();
        }
        assert_eq!(sorted, wanted);
    }
}
