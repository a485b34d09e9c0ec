//! Request bodies: bytes to JSON values and back to YAML.
//!
//! Owns: the limits a body must keep (depth, aliases, nodes) and the list of members that were sent
//! twice, which strict field validation reports. Never: knows a schema or an object's meaning.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Objects and arrays inside each other; a deeper body is refused before it can exhaust a stack.
pub const MAX_DEPTH: usize = 100;
/// The same for block YAML, whose reader needs far more stack a level; JSON sent as YAML is not cut.
const MAX_YAML_DEPTH: usize = 50;
/// Repeated members that are reported; further ones still follow "the last one wins".
const MAX_DUPLICATES: usize = 100;
/// A reported path is cut here, so that long names cannot multiply a body's size.
const MAX_PATH_BYTES: usize = 1024;
/// Nodes of a YAML document after its aliases are expanded.
const MAX_YAML_NODES: usize = 250_000;
/// Text of a YAML document after its aliases are expanded.
const MAX_YAML_TEXT_BYTES: usize = 8 * 1024 * 1024;

/// A decoded body.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    pub value: Value,
    /// Paths of members sent more than once, such as `spec.size`; the last value was taken.
    pub duplicates: Vec<String>,
}

/// Why a body is not a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("invalid JSON: {0}")]
    Json(String),
    #[error("invalid YAML: {0}")]
    Yaml(String),
    #[error("the document is nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Decodes one JSON document, refusing anything after it.
pub fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let mut state = State::default();
    let mut source = serde_json::Deserializer::from_slice(bytes);
    let value = Seed { state: &mut state, at: &At::Root, depth: 0 }
        .deserialize(&mut source)
        .and_then(|value| source.end().map(|()| value));
    match value {
        Ok(value) => Ok(Decoded { value, duplicates: state.duplicates }),
        Err(_) if state.too_deep => Err(DecodeError::TooDeep),
        Err(error) => Err(DecodeError::Json(error.to_string())),
    }
}

/// Decodes one YAML document with the scalar rules Kubernetes uses (`yes` is a boolean, `0644` octal).
/// An empty document is null.
pub fn decode_yaml(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    // Most senders write JSON, which is YAML too; the JSON reader is many times faster.
    let starts_flow = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    if starts_flow && let Ok(decoded) = decode(bytes) {
        return Ok(decoded);
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| DecodeError::Yaml("the document is not UTF-8".to_owned()))?;
    let mut state = State::default();
    let value = serde_saphyr::with_deserializer_from_str_with_options(text, yaml(), |source| {
        Seed { state: &mut state, at: &At::Root, depth: 0 }.deserialize(source)
    });
    match value {
        Ok(value) => Ok(Decoded { value, duplicates: state.duplicates }),
        Err(_) if state.too_deep => Err(DecodeError::TooDeep),
        Err(error) => Err(DecodeError::Yaml(error.without_snippet().to_string())),
    }
}

/// Writes a value as YAML.
pub fn encode_yaml(value: &Value) -> String {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let mut text = String::new();
    match serde_saphyr::to_fmt_writer_with_options(&mut text, value, options) {
        Ok(()) => text,
        // Every JSON document is a YAML document.
        Err(_) => value.to_string(),
    }
}

fn yaml() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            flow_nesting_limit: MAX_YAML_DEPTH + 1,
            max_documents: 1,
            max_events: MAX_YAML_NODES * 3,
            max_nodes: MAX_YAML_NODES,
            max_total_scalar_bytes: MAX_YAML_TEXT_BYTES,
            max_aliases: 10_000,
            max_anchors: 10_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_NODES,
        },
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// What decoding gathers beside the value.
#[derive(Default)]
struct State {
    duplicates: Vec<String>,
    seen: usize,
    too_deep: bool,
}

impl State {
    fn duplicate(&mut self, at: &At<'_>) {
        // Counting repetitions, not paths, bounds the work a hostile body can ask for.
        self.seen += 1;
        if self.seen > MAX_DUPLICATES {
            return;
        }
        let path = at.to_string();
        if !self.duplicates.contains(&path) {
            self.duplicates.push(path);
        }
    }
}

/// The place being decoded, kept on the stack: a path costs nothing unless it is reported.
enum At<'a> {
    Root,
    Member(&'a At<'a>, &'a str),
    Item(&'a At<'a>, usize),
}

impl At<'_> {
    fn write(&self, out: &mut String) {
        match self {
            Self::Root => {}
            Self::Member(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                let room = MAX_PATH_BYTES.saturating_sub(out.len());
                out.extend(name.chars().take(room));
            }
            Self::Item(parent, index) => {
                parent.write(out);
                if out.len() < MAX_PATH_BYTES {
                    out.push_str(&["[", &index.to_string(), "]"].concat());
                }
            }
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

struct Seed<'a> {
    state: &'a mut State,
    at: &'a At<'a>,
    depth: usize,
}

impl Seed<'_> {
    fn enter<E: de::Error>(&mut self) -> Result<usize, E> {
        let depth = self.depth + 1;
        if depth > MAX_DEPTH {
            self.state.too_deep = true;
            return Err(E::custom("nested too deep"));
        }
        Ok(depth)
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: de::Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("numbers must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut source: A) -> Result<Value, A::Error> {
        let depth = self.enter()?;
        let mut items = Vec::new();
        loop {
            let at = At::Item(self.at, items.len());
            let seed = Seed { state: &mut *self.state, at: &at, depth };
            match source.next_element_seed(seed)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut source: A) -> Result<Value, A::Error> {
        let depth = self.enter()?;
        let mut members = Map::new();
        while let Some(name) = source.next_key::<String>()? {
            let at = At::Member(self.at, &name);
            let value = source.next_value_seed(Seed { state: &mut *self.state, at: &at, depth })?;
            if members.contains_key(&name) {
                self.state.duplicate(&at);
            }
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests;
