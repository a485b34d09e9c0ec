//! JSON values to messages, by the same table that reads them. For clients that take nothing else;
//! everybody else is served the stored text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Envelope, MAGIC};
use crate::builtin::table::{Field, MessageId, Shape, Table, Type};

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const BYTES: u32 = 2;

/// Why an object has no protobuf form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    #[error("no protobuf form of kind {kind:?} in version {api_version:?} is known")]
    UnknownKind { api_version: String, kind: String },
    #[error("member {member} of {message} is not {wanted}")]
    Value { message: &'static str, member: &'static str, wanted: &'static str },
}

/// A whole body: the envelope around the object that `value` is, by its own `apiVersion` and `kind`.
pub fn encode(value: &Value) -> Result<Vec<u8>, EncodeError> {
    let of = |member| value.get(member).and_then(Value::as_str).unwrap_or_default();
    let raw = bare(of("apiVersion"), of("kind"), value)?;
    let mut body = head(of("apiVersion"), of("kind"), raw.len());
    body.extend_from_slice(&raw);
    Ok(body)
}

/// An object without its envelope.
pub fn bare(api_version: &str, kind: &str, value: &Value) -> Result<Vec<u8>, EncodeError> {
    if kind == PARTIAL {
        return metadata("meta.v1.ObjectMeta", &value["metadata"]);
    }
    let table = Table::get();
    let Some(id) = table.kind(api_version, kind) else {
        let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
        return Err(EncodeError::UnknownKind { api_version, kind });
    };
    let mut out = Writer::default();
    if let Some(object) = value.as_object() {
        Encoder { table }.members(&mut out, id, object)?;
    }
    Ok(out.0)
}

/// What comes before an object of `length` bytes; nothing comes after it.
pub fn head(api_version: &str, kind: &str, length: usize) -> Vec<u8> {
    let mut of_type = Writer::default();
    of_type.bytes(1, api_version.as_bytes());
    of_type.bytes(2, kind.as_bytes());
    let mut out = Writer(MAGIC.to_vec());
    out.bytes(Envelope::TYPE, &of_type.0);
    out.key(Envelope::RAW, BYTES);
    out.varint(length as u64);
    out.0
}

/// What is shown of an object of any type: its metadata, in the first field, and nothing else.
const PARTIAL: &str = "PartialObjectMetadata";

/// `metadata` of a list: the first field of every list there is.
pub fn list_metadata(value: &Value) -> Result<Vec<u8>, EncodeError> {
    metadata("meta.v1.ListMeta", value)
}

/// Metadata as the first field of a message.
fn metadata(message: &str, value: &Value) -> Result<Vec<u8>, EncodeError> {
    let table = Table::get();
    let mut inner = Writer::default();
    if let (Some(id), Some(object)) = (table.named(message), value.as_object()) {
        Encoder { table }.members(&mut inner, id, object)?;
    }
    let mut out = Writer::default();
    out.bytes(1, &inner.0);
    Ok(out.0)
}

/// An item of a list, from what [`bare`] made: all of them are in its second field.
pub fn list_item(item: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes(2, item);
    out.0
}

/// One event of a watch with its length before it; `object` is what [`encode`] made.
pub fn watch_frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let mut raw = Writer::default();
    raw.bytes(1, object);
    let mut event = Writer::default();
    event.bytes(1, kind.as_bytes());
    event.bytes(2, &raw.0);
    let length = u32::try_from(event.0.len()).unwrap_or(u32::MAX);
    [length.to_be_bytes().as_slice(), &event.0].concat()
}

/// A message as it grows.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    fn number(&mut self, field: u32, value: i64) {
        self.key(field, VARINT);
        self.varint(value.cast_unsigned());
    }

    fn bytes(&mut self, field: u32, value: &[u8]) {
        self.key(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }
}

/// Where a value stands, for errors.
#[derive(Debug, Clone, Copy)]
struct Place {
    message: &'static str,
    member: &'static str,
}

impl Place {
    fn is_not(self, wanted: &'static str) -> EncodeError {
        EncodeError::Value { message: self.message, member: self.member, wanted }
    }
}

/// Walks objects. They come from parsed JSON, whose depth has a limit.
#[derive(Debug, Clone, Copy)]
struct Encoder {
    table: &'static Table,
}

impl Encoder {
    /// All fields of a message, taken from the members of an object.
    fn members(
        self,
        out: &mut Writer,
        id: MessageId,
        object: &Map<String, Value>,
    ) -> Result<(), EncodeError> {
        let message = self.table.message(id);
        for field in &message.fields {
            let Some(member) = field.member else {
                self.inlined(out, field, object)?;
                continue;
            };
            let at = Place { message: message.name, member };
            match object.get(member) {
                None | Some(Value::Null) => {}
                Some(value) => self.field(out, field, value, at)?,
            }
        }
        Ok(())
    }

    fn inlined(
        self,
        out: &mut Writer,
        field: &Field,
        object: &Map<String, Value>,
    ) -> Result<(), EncodeError> {
        if let Type::Message(id) = field.of {
            let mut inner = Writer::default();
            self.members(&mut inner, id, object)?;
            out.bytes(field.number, &inner.0);
        }
        Ok(())
    }

    fn field(
        self,
        out: &mut Writer,
        field: &Field,
        value: &Value,
        at: Place,
    ) -> Result<(), EncodeError> {
        match field.shape {
            Shape::One => self.value(out, field.number, field.of, value, at),
            Shape::List => {
                let items = value.as_array().ok_or_else(|| at.is_not("a list"))?;
                items.iter().try_for_each(|item| self.value(out, field.number, field.of, item, at))
            }
            Shape::Map => {
                let entries = value.as_object().ok_or_else(|| at.is_not("a map"))?;
                entries.iter().try_for_each(|(key, value)| {
                    let mut entry = Writer::default();
                    entry.bytes(1, key.as_bytes());
                    self.value(&mut entry, 2, field.of, value, at)?;
                    out.bytes(field.number, &entry.0);
                    Ok(())
                })
            }
        }
    }

    fn value(
        self,
        out: &mut Writer,
        number: u32,
        of: Type,
        value: &Value,
        at: Place,
    ) -> Result<(), EncodeError> {
        let text = || value.as_str().ok_or_else(|| at.is_not("text"));
        match of {
            Type::String => out.bytes(number, text()?.as_bytes()),
            Type::Bytes => {
                let bytes = STANDARD.decode(text()?).map_err(|_| at.is_not("base64"))?;
                out.bytes(number, &bytes);
            }
            Type::Int32 | Type::Int64 => {
                out.number(number, value.as_i64().ok_or_else(|| at.is_not("a whole number"))?);
            }
            Type::Bool => {
                let set = value.as_bool().ok_or_else(|| at.is_not("true or false"))?;
                out.number(number, set.into());
            }
            Type::Double => {
                let double = value.as_f64().ok_or_else(|| at.is_not("a number"))?;
                out.key(number, FIXED_64);
                out.0.extend_from_slice(&double.to_le_bytes());
            }
            _ => {
                let mut inner = Writer::default();
                self.inner(&mut inner, of, value, at)?;
                out.bytes(number, &inner.0);
            }
        }
        Ok(())
    }

    /// The contents of what is a message of its own.
    fn inner(
        self,
        out: &mut Writer,
        of: Type,
        value: &Value,
        at: Place,
    ) -> Result<(), EncodeError> {
        match (of, value) {
            // An item or entry that was never set.
            (_, Value::Null) => {}
            (Type::Time | Type::MicroTime, Value::String(text)) => {
                let time: Timestamp = text.parse().map_err(|_| at.is_not("a time"))?;
                out.number(1, time.as_second());
                out.number(2, time.subsec_nanosecond().into());
            }
            (Type::Quantity, Value::String(text)) => out.bytes(1, text.as_bytes()),
            (Type::Quantity, Value::Number(number)) => out.bytes(1, number.to_string().as_bytes()),
            (Type::IntOrString, Value::String(text)) => {
                out.number(1, 1);
                out.bytes(3, text.as_bytes());
            }
            (Type::IntOrString, Value::Number(number)) => {
                out.number(1, 0);
                out.number(2, number.as_i64().ok_or_else(|| at.is_not("a whole number"))?);
            }
            (Type::Json, value) => out.bytes(1, value.to_string().as_bytes()),
            (Type::Strings, Value::Array(items)) => self.strings(out, 1, items, at)?,
            (Type::SchemaOrBool, Value::Bool(allows)) => out.number(1, (*allows).into()),
            (Type::SchemaOrBool, Value::Object(schema)) => {
                out.number(1, 1);
                self.schema(out, 2, schema)?;
            }
            (Type::SchemaOrArray, Value::Array(schemas)) => {
                for schema in schemas {
                    let schema = schema.as_object().ok_or_else(|| at.is_not("a schema"))?;
                    self.schema(out, 2, schema)?;
                }
            }
            (Type::SchemaOrStrings, Value::Array(items)) => self.strings(out, 2, items, at)?,
            (Type::SchemaOrArray | Type::SchemaOrStrings, Value::Object(schema)) => {
                self.schema(out, 1, schema)?;
            }
            (Type::Message(id), Value::Object(object)) => self.members(out, id, object)?,
            _ => return Err(at.is_not("what its type says")),
        }
        Ok(())
    }

    fn strings(
        self,
        out: &mut Writer,
        field: u32,
        items: &[Value],
        at: Place,
    ) -> Result<(), EncodeError> {
        items.iter().try_for_each(|item| self.value(out, field, Type::String, item, at))
    }

    fn schema(
        self,
        out: &mut Writer,
        field: u32,
        schema: &Map<String, Value>,
    ) -> Result<(), EncodeError> {
        let mut inner = Writer::default();
        if let Some(id) = self.table.named("apiextensions.v1.JsonSchemaProps") {
            self.members(&mut inner, id, schema)?;
        }
        out.bytes(field, &inner.0);
        Ok(())
    }
}
