//! Reads prost-generated Rust sources: messages, field numbers, types and the `+marker` comments.
//!
//! It is no Rust parser: it knows the shape prost writes and fails loudly on anything else.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One message type.
#[derive(Debug, Default, Clone)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    /// `+structType=atomic`
    pub(super) atomic: bool,
}

/// How often a field may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

/// One field of a message.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) tag: u32,
    pub(super) shape: Shape,
    /// A scalar (`string`, `int32`, …) or the identifier of a message (`core.v1.Pod`).
    pub(super) of: String,
    pub(super) is_message: bool,
    /// `+name=value` comments in order.
    pub(super) markers: Vec<(String, String)>,
}

impl Field {
    pub(super) fn marker(&self, name: &str) -> Option<&str> {
        self.markers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn markers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.markers.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// All messages below `root`, by identifier.
pub(super) fn read(root: &Path) -> Result<BTreeMap<String, Message>> {
    let mut all = BTreeMap::new();
    for file in super::files::below(root)? {
        if file.path.file_name().is_some_and(|name| name == "mod.rs") {
            parse(&file.text, &file.module, &mut all)
                .with_context(|| format!("in {}", file.path.display()))?;
        }
    }
    Ok(all)
}

/// The identifier of a type: `api::core::v1` and `Pod` make `core.v1.Pod`.
pub(super) fn identifier(module: &[String], name: &str) -> String {
    let noise = [
        "api",
        "apimachinery",
        "apiextensions_apiserver",
        "kube_aggregator",
        "pkg",
        "apis",
        "util",
    ];
    let kept: Vec<&str> =
        module.iter().map(String::as_str).filter(|part| !noise.contains(part)).collect();
    format!("{}.{name}", kept.join("."))
}

fn parse(text: &str, module: &[String], all: &mut BTreeMap<String, Message>) -> Result<()> {
    let mut markers = Vec::new();
    let mut open: Option<(String, Message)> = None;
    let mut attribute = None;
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        if let Some(comment) = line.strip_prefix("///") {
            markers.extend(marker(comment));
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.split([' ', '{']).next().unwrap_or_default();
            let atomic =
                markers.iter().any(|(key, value)| key == "structType" && value == "atomic");
            let message = Message { fields: Vec::new(), atomic };
            markers.clear();
            if rest.ends_with("{}") {
                all.insert(identifier(module, name), message);
            } else {
                open = Some((identifier(module, name), message));
            }
        } else if line.starts_with("#[prost(") {
            attribute = Some(joined(line, &mut lines, ")]"));
        } else if let (Some((_, message)), Some(rest)) = (&mut open, line.strip_prefix("pub ")) {
            let declaration = joined(rest, &mut lines, ",");
            let attribute = attribute.take().context("a field without its prost attribute")?;
            let taken = std::mem::take(&mut markers);
            message.fields.push(field(&declaration, &attribute, module, taken)?);
        } else if line == "}" {
            if let Some((name, message)) = open.take() {
                all.insert(name, message);
            }
            markers.clear();
        }
    }
    Ok(())
}

/// A declaration that may go on over several lines, up to the line that ends it.
fn joined<'a>(first: &str, rest: &mut impl Iterator<Item = &'a str>, end: &str) -> String {
    let mut whole = first.to_owned();
    while !(whole.ends_with(end) && whole.matches('<').count() == whole.matches('>').count()) {
        let Some(next) = rest.next() else { break };
        whole.push_str(next);
    }
    whole
}

fn marker(comment: &str) -> Option<(String, String)> {
    let text = comment.trim().strip_prefix('+')?;
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let plain = key.chars().all(|one| one.is_ascii_alphanumeric());
    plain.then(|| (key.to_owned(), value.trim().to_owned()))
}

fn field(
    declaration: &str,
    attribute: &str,
    module: &[String],
    markers: Vec<(String, String)>,
) -> Result<Field> {
    let (name, kind) = declaration
        .split_once(": ")
        .or_else(|| declaration.split_once(':'))
        .with_context(|| format!("not a field: {declaration}"))?;
    let name = name.trim_start_matches("r#").to_owned();
    let inner = attribute.trim_start_matches("#[prost(").trim_end_matches(")]").trim();
    let tag = inner
        .split_once("tag = \"")
        .and_then(|(_, rest)| rest.split('"').next())
        .context("no tag")?
        .parse()?;
    let (first, shape) = if let Some(rest) = inner.strip_prefix("btree_map = \"string, ") {
        (rest.split('"').next().unwrap_or_default(), Shape::Map)
    } else {
        let first = inner.split([',', ' ']).next().unwrap_or_default();
        (first, if inner.contains("repeated") { Shape::List } else { Shape::One })
    };
    let is_message = first == "message";
    let of = match first {
        "message" => resolve(kind, module)?,
        "string" | "bytes" | "int32" | "int64" | "bool" | "double" => first.to_owned(),
        other => bail!("field {name} has the unknown type {other}"),
    };
    Ok(Field { name, tag, shape, of, is_message, markers })
}

/// The message a Rust field type names, with its wrappers taken off.
fn resolve(kind: &str, module: &[String]) -> Result<String> {
    let kind = kind.trim_end_matches(',');
    let mut parts = kind.split(['<', ',']).map(|part| part.trim_end_matches('>').trim());
    let path = parts.rfind(|part| !part.is_empty()).context("an empty type")?;
    let mut place = module.to_vec();
    let mut parts: Vec<&str> = path.split("::").collect();
    let name = parts.pop().context("an empty path")?;
    for part in parts {
        if part == "super" {
            place.pop();
        } else {
            place.push(part.to_owned());
        }
    }
    Ok(identifier(&place, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
/// Words that are not ours.
/// +structType=atomic
#[derive(Clone, PartialEq, ::prost::Message)]
pub struct Sample {
    /// Something.
    /// +listType=map
    /// +listMapKey=name
    /// +listMapKey=kind
    #[prost(message, repeated, tag = "7")]
    pub items: ::prost::alloc::vec::Vec<super::super::super::apimachinery::pkg::util::Other>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub limits: ::prost::alloc::collections::BTreeMap<
        ::prost::alloc::string::String,
        Quantity,
    >,
    #[prost(string, optional, tag = "1")]
    pub r#type: ::core::option::Option<::prost::alloc::string::String>,
}
pub struct Empty {}
"#;

    #[test]
    fn messages_are_read_with_their_markers_and_places() {
        let module = ["api", "core", "v1"].map(str::to_owned);
        let mut all = BTreeMap::new();
        parse(SOURCE, &module, &mut all).unwrap();
        assert!(all["core.v1.Empty"].fields.is_empty());
        let sample = &all["core.v1.Sample"];
        assert!(sample.atomic);
        let [items, limits, kind] = sample.fields.as_slice() else { panic!("{sample:?}") };
        assert_eq!((items.tag, items.shape, items.of.as_str()), (7, Shape::List, ".Other"));
        assert_eq!(items.markers("listMapKey").collect::<Vec<_>>(), ["name", "kind"]);
        assert_eq!((limits.shape, limits.of.as_str()), (Shape::Map, "core.v1.Quantity"));
        assert_eq!((kind.name.as_str(), kind.of.as_str()), ("type", "string"));
        assert!(kind.markers.is_empty());
    }

    #[test]
    fn an_unknown_type_is_an_error_not_a_gap() {
        let text =
            "pub struct A {\n#[prost(sint32, optional, tag = \"1\")]\npub a: Option<i32>,\n}";
        assert!(parse(text, &[], &mut BTreeMap::new()).is_err());
    }
}
