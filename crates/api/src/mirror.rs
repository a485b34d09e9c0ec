//! A copy of a foreign document, kept as it came.
//!
//! Owns fidelity: whatever a newer peer writes, the copy says the same. A typed view is a look at
//! the copy, never its source.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::schema;

/// A copied document that is usually a `T`.
pub struct Mirror<T> {
    document: Map<String, Value>,
    kind: PhantomData<fn() -> T>,
}

impl<T> Mirror<T> {
    pub const fn document(&self) -> &Map<String, Value> {
        &self.document
    }

    pub fn into_document(self) -> Map<String, Value> {
        self.document
    }

    pub fn is_empty(&self) -> bool {
        self.document.is_empty()
    }
}

impl<T: Serialize> Mirror<T> {
    /// A copy of a document this process wrote itself.
    pub fn of(value: &T) -> Result<Self, serde_json::Error> {
        match serde_json::to_value(value)? {
            Value::Object(document) => Ok(Self::from(document)),
            _ => Err(serde::ser::Error::custom("a mirrored document must be an object")),
        }
    }
}

impl<T: DeserializeOwned> Mirror<T> {
    /// The copy as this build understands it.
    pub fn view(&self) -> Result<T, serde_json::Error> {
        T::deserialize(&self.document)
    }
}

impl<T> From<Map<String, Value>> for Mirror<T> {
    fn from(document: Map<String, Value>) -> Self {
        Self { document, kind: PhantomData }
    }
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self::from(Map::new())
    }
}

impl<T> Clone for Mirror<T> {
    fn clone(&self) -> Self {
        Self::from(self.document.clone())
    }
}

impl<T> PartialEq for Mirror<T> {
    fn eq(&self, other: &Self) -> bool {
        self.document == other.document
    }
}

impl<T> fmt::Debug for Mirror<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mirror").field(&self.document).finish()
    }
}

impl<T> Serialize for Mirror<T> {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        self.document.serialize(output)
    }
}

impl<'de, T> Deserialize<'de> for Mirror<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        Map::deserialize(input).map(Self::from)
    }
}

impl<T: JsonSchema> JsonSchema for Mirror<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("MirrorOf{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut inner = schema::structural::<T>();
        schema::loosen(&mut inner);
        match inner {
            Value::Object(map) => map.into(),
            other => Schema::try_from(other).unwrap_or_default(),
        }
    }
}
