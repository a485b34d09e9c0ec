//! Scalars with a wire form of their own: times, whole numbers written as text, raw documents.

use std::borrow::Cow;
use std::fmt;

use jiff::{Timestamp, Unit};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::schema::PRESERVE;

/// A point in time, written as RFC 3339 in UTC with whole seconds, as Kubernetes does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// The second `instant` lies in. What a document cannot say is not kept, so that a value read
    /// back equals the value written.
    pub fn new(instant: Timestamp) -> Self {
        let whole = jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Floor);
        Self(instant.round(whole).unwrap_or(instant))
    }

    pub const fn timestamp(self) -> Timestamp {
        self.0
    }
}

impl From<Timestamp> for Time {
    fn from(instant: Timestamp) -> Self {
        Self::new(instant)
    }
}

impl From<&meta::Time> for Time {
    fn from(time: &meta::Time) -> Self {
        Self::new(time.0)
    }
}

impl From<Time> for meta::Time {
    fn from(time: Time) -> Self {
        Self(time.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = <Cow<'de, str>>::deserialize(input)?;
        text.parse().map(Self::new).map_err(D::Error::custom)
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// A whole number that documents carry as text, because readers lose digits of large numbers.
/// A plain number is read too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextInt(pub i64);

impl From<i64> for TextInt {
    fn from(value: i64) -> Self {
        Self(value)
    }
}

impl fmt::Display for TextInt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for TextInt {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TextInt {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(TextIntVisitor).map(Self)
    }
}

struct TextIntVisitor;

impl Visitor<'_> for TextIntVisitor {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number, as text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<i64, E> {
        text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value)
            .map_err(|_| E::invalid_value(serde::de::Unexpected::Unsigned(value), &self))
    }
}

impl JsonSchema for TextInt {
    fn schema_name() -> Cow<'static, str> {
        "TextInt".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // 18 digits always fit 64 bits; no size or count comes near.
        json_schema!({ "type": "string", "pattern": "^-?[0-9]{1,18}$" })
    }
}

/// A point in time that some dialects keep as plain text, empty for "never".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(String);

impl Stamp {
    /// The stamp that says "never".
    pub const fn never() -> Self {
        Self(String::new())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The time, if the text is one.
    pub fn get(&self) -> Option<Timestamp> {
        self.0.parse().ok()
    }

    /// Whether the text says that something happened, readable as a time or not.
    pub fn is_set(&self) -> bool {
        !self.0.is_empty()
    }
}

impl From<Time> for Stamp {
    fn from(time: Time) -> Self {
        Self(time.to_string())
    }
}

impl From<&str> for Stamp {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl JsonSchema for Stamp {
    fn schema_name() -> Cow<'static, str> {
        "Stamp".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// An object of any shape, passed on unread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub Map<String, Value>);

impl JsonSchema for Raw {
    fn schema_name() -> Cow<'static, str> {
        "Raw".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", PRESERVE: true })
    }
}
