//! The types rules are checked against, derived from the schema.

use std::fmt;

use crate::node::{JsonType, Node};

use super::names::escape;

/// What is known about a value before a rule runs.
#[derive(Debug, Clone)]
pub(super) enum Type<'a> {
    /// Not known; everything is allowed and may fail when the rule runs.
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Null,
    Duration,
    Timestamp,
    /// A type itself, as `type()` yields it.
    Meta,
    List(Box<Type<'a>>),
    Map(Box<Type<'a>>),
    /// Fields of a schema; `true`: with the identity every resource has.
    Object(&'a Node, bool),
    /// `metadata`, of which rules see the names only.
    Metadata,
    Optional(Box<Type<'a>>),
    /// A value of a function library.
    Opaque(&'static str),
}

impl<'a> Type<'a> {
    /// The type of a value; `None` if rules cannot see it.
    pub(super) fn of(node: &'a Node, resource: bool) -> Option<Self> {
        if node.int_or_string {
            return Some(Self::Dyn);
        }
        Some(match node.kind? {
            JsonType::Object => match &node.additional {
                Some(child) => Self::Map(Box::new(Type::of(child, false).unwrap_or(Self::Dyn))),
                None => Self::Object(node, resource || node.embedded_resource),
            },
            JsonType::Array => {
                let item = node.items.as_deref().and_then(|item| Type::of(item, false));
                Self::List(Box::new(item.unwrap_or(Self::Dyn)))
            }
            JsonType::String => match node.checks.format.as_deref() {
                Some("date-time" | "date") => Self::Timestamp,
                Some("duration") => Self::Duration,
                Some("byte") => Self::Bytes,
                _ => Self::String,
            },
            JsonType::Integer => Self::Int,
            JsonType::Number => Self::Double,
            JsonType::Boolean => Self::Bool,
        })
    }

    pub(super) const fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn)
    }

    const fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value of one type can ever equal one of the other. Null is comparable with all:
    /// nullable fields are tested so.
    pub(super) fn comparable(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Null, _) | (_, Self::Dyn | Self::Null) => true,
            (a, b) if a.is_number() && b.is_number() => true,
            (Self::List(a), Self::List(b))
            | (Self::Map(a), Self::Map(b))
            | (Self::Optional(a), Self::Optional(b)) => a.comparable(b),
            (Self::Object(..) | Self::Metadata, Self::Map(_))
            | (Self::Map(_), Self::Object(..) | Self::Metadata) => true,
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }

    /// Whether `<` and its kin are defined.
    pub(super) fn ordered(&self, other: &Self) -> bool {
        let scalar = |one: &Self| {
            one.is_dyn()
                || one.is_number()
                || matches!(
                    one,
                    Self::Bool | Self::String | Self::Bytes | Self::Duration | Self::Timestamp
                )
        };
        scalar(self) && scalar(other) && self.comparable(other)
    }

    /// The type of two alternatives.
    pub(super) fn either(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Object(a, _), Self::Object(b, _)) if std::ptr::eq(*a, *b) => self,
            (Self::Object(..), Self::Object(..)) => Self::Dyn,
            (Self::Null, _) => other,
            (_, Self::Null) => self,
            (Self::List(a), _) if a.is_dyn() && matches!(other, Self::List(_)) => other,
            (a, b) if std::mem::discriminant(a) == std::mem::discriminant(b) => self,
            _ => Self::Dyn,
        }
    }

    /// The type of a field and its name in the object. `Err` says why there is none.
    pub(super) fn field(&self, name: &str) -> Result<(Self, String), String> {
        let undefined = || format!("undefined field '{name}'");
        match self {
            Self::Dyn => Ok((Self::Dyn, name.to_owned())),
            Self::Map(value) => Ok(((**value).clone(), name.to_owned())),
            Self::Object(node, resource) => {
                if *resource && let Some(found) = resource_field(name) {
                    return Ok((found, name.to_owned()));
                }
                let known = |(real, child): (&String, &'a std::sync::Arc<Node>)| {
                    (escape(real).as_deref() == Some(name))
                        .then(|| Type::of(child, false).map(|found| (found, real.clone())))
                        .flatten()
                };
                node.properties.iter().find_map(known).ok_or_else(undefined)
            }
            Self::Metadata => match name {
                "name" | "generateName" => Ok((Self::String, name.to_owned())),
                _ => Err(undefined()),
            },
            Self::Optional(inner) => {
                let (found, real) = inner.field(name)?;
                Ok((found.optional(), real))
            }
            other => Err(format!("type '{other}' does not support field selection")),
        }
    }

    pub(super) fn optional(self) -> Self {
        match self {
            Self::Optional(_) => self,
            other => Self::Optional(Box::new(other)),
        }
    }
}

fn resource_field<'a>(name: &str) -> Option<Type<'a>> {
    match name {
        "apiVersion" | "kind" => Some(Type::String),
        "metadata" => Some(Type::Metadata),
        _ => None,
    }
}

impl fmt::Display for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dyn => "dyn",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Null => "null_type",
            Self::Duration => "duration",
            Self::Timestamp => "timestamp",
            Self::Meta => "type",
            Self::List(item) => return write!(f, "list({item})"),
            Self::Map(value) => return write!(f, "map(string, {value})"),
            Self::Object(..) | Self::Metadata => "object",
            Self::Optional(inner) => return write!(f, "optional({inner})"),
            Self::Opaque(name) => name,
        })
    }
}
