//! Messages to JSON values, driven by the table of built-in types.

use std::cell::Cell;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use super::wire::{Reader, Wire};
use super::{MAX_DEPTH, MAX_VALUES, ProtoError, leaf};
use crate::builtin::table::{Field, Message, MessageId, Shape, Table, Type};

type Object = Map<String, Value>;

/// How many values may still be read. A value takes far more room in memory than on the wire, so the
/// limit of the body's size alone is too generous.
#[derive(Debug)]
pub(super) struct Budget(Cell<u32>);

impl Budget {
    pub(super) const fn new() -> Self {
        Self(Cell::new(MAX_VALUES))
    }

    fn spend(&self) -> Result<(), ProtoError> {
        self.0.set(self.0.get().checked_sub(1).ok_or(ProtoError::TooMany)?);
        Ok(())
    }
}

/// Walks messages; the depth says how many it is inside of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoder<'a> {
    table: &'static Table,
    depth: u32,
    budget: &'a Budget,
}

/// Which field is being read, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) message: &'static str,
    pub(super) field: u32,
}

impl Place {
    pub(super) fn wire_type(self) -> ProtoError {
        ProtoError::WireType { message: self.message, field: self.field }
    }

    pub(super) fn value(self, reason: impl Into<String>) -> ProtoError {
        let reason = reason.into();
        ProtoError::Value { message: self.message, field: self.field, reason }
    }
}

impl<'a> Decoder<'a> {
    pub(super) const fn new(table: &'static Table, budget: &'a Budget) -> Self {
        Self { table, depth: 0, budget }
    }

    /// A whole message as a new object.
    pub(super) fn object(self, id: MessageId, bytes: &[u8]) -> Result<Object, ProtoError> {
        let mut object = Object::new();
        self.read_into(&mut object, id, bytes)?;
        Ok(object)
    }

    fn deeper(self) -> Result<Self, ProtoError> {
        if self.depth >= MAX_DEPTH {
            return Err(ProtoError::TooDeep);
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn read_into(self, object: &mut Object, id: MessageId, bytes: &[u8]) -> Result<(), ProtoError> {
        self.budget.spend()?;
        let inside = self.deeper()?;
        let message = self.table.message(id);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            if let Some(field) = message.field(number) {
                inside.field(object, message, field, wire)?;
            }
        }
        Ok(())
    }

    fn field(
        self,
        object: &mut Object,
        message: &Message,
        field: &Field,
        wire: Wire<'_>,
    ) -> Result<(), ProtoError> {
        let at = Place { message: message.name, field: field.number };
        let Some(member) = field.member else {
            let Type::Message(id) = field.of else { return Ok(()) };
            return self.read_into(object, id, wire.bytes().ok_or_else(|| at.wire_type())?);
        };
        match field.shape {
            Shape::One => self.one(object, member, field, wire, at),
            Shape::List => {
                let Value::Array(list) = entry(object, member, || Value::Array(Vec::new())) else {
                    return Ok(());
                };
                self.append(list, field.of, wire, at)
            }
            Shape::Map => {
                let bytes = wire.bytes().ok_or_else(|| at.wire_type())?;
                let (key, value) = self.pair(field.of, bytes, at)?;
                if let Value::Object(map) = entry(object, member, || Value::Object(Object::new())) {
                    map.insert(key, value);
                }
                Ok(())
            }
        }
    }

    fn one(
        self,
        object: &mut Object,
        member: &str,
        field: &Field,
        wire: Wire<'_>,
        at: Place,
    ) -> Result<(), ProtoError> {
        if let Type::Message(id) = field.of {
            // Parts of one message add up if it comes in several pieces.
            let bytes = wire.bytes().ok_or_else(|| at.wire_type())?;
            if let Value::Object(inner) = entry(object, member, || Value::Object(Object::new())) {
                self.read_into(inner, id, bytes)?;
            }
            return Ok(());
        }
        let value = self.value(field.of, wire, at)?;
        if value.is_null() || (is_zero(&value, field.of) && !field.explicit) {
            object.remove(member);
        } else {
            object.insert(member.to_owned(), value);
        }
        Ok(())
    }

    /// One more item, or several numbers packed into one field.
    fn append(
        self,
        list: &mut Vec<Value>,
        of: Type,
        wire: Wire<'_>,
        at: Place,
    ) -> Result<(), ProtoError> {
        let (Wire::Bytes(packed), Type::Int32 | Type::Int64 | Type::Bool | Type::Double) =
            (wire, of)
        else {
            list.push(self.value(of, wire, at)?);
            return Ok(());
        };
        let mut reader = Reader::new(packed);
        while !reader.is_empty() {
            let item = match of {
                Type::Double => Wire::Fixed64(u64::from_le_bytes(reader.array()?)),
                _ => Wire::Varint(reader.varint()?),
            };
            list.push(self.value(of, item, at)?);
        }
        Ok(())
    }

    /// A map entry: a message of key and value, each of which may be missing.
    fn pair(self, of: Type, bytes: &[u8], at: Place) -> Result<(String, Value), ProtoError> {
        let (mut key, mut value) = (String::new(), None);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match number {
                1 => wire.text(at.message, at.field)?.clone_into(&mut key),
                2 => value = Some(self.value(of, wire, at)?),
                _ => {}
            }
        }
        let value = match (value, of) {
            (Some(value), _) => value,
            (None, Type::Int32 | Type::Int64 | Type::Bool) => {
                self.value(of, Wire::Varint(0), at)?
            }
            (None, Type::Double) => self.value(of, Wire::Fixed64(0), at)?,
            (None, _) => self.value(of, Wire::Bytes(&[]), at)?,
        };
        Ok((key, value))
    }

    /// One value. `Null` stands for a time that is not set and for absent JSON.
    fn value(self, of: Type, wire: Wire<'_>, at: Place) -> Result<Value, ProtoError> {
        self.budget.spend()?;
        let varint = || match wire {
            Wire::Varint(number) => Ok(number),
            Wire::Fixed64(_) | Wire::Bytes(_) | Wire::Fixed32(_) => Err(at.wire_type()),
        };
        let bytes = || wire.bytes().ok_or_else(|| at.wire_type());
        Ok(match of {
            Type::String => wire.text(at.message, at.field)?.into(),
            Type::Bytes => STANDARD.encode(bytes()?).into(),
            Type::Int32 => leaf::int32(varint()?).into(),
            Type::Int64 => varint()?.cast_signed().into(),
            Type::Bool => (varint()? != 0).into(),
            Type::Double => match wire {
                Wire::Fixed64(bits) => double(f64::from_bits(bits), at)?,
                Wire::Varint(_) | Wire::Bytes(_) | Wire::Fixed32(_) => return Err(at.wire_type()),
            },
            Type::Time => leaf::time(bytes()?, leaf::Precision::Second, at)?,
            Type::MicroTime => leaf::time(bytes()?, leaf::Precision::Microsecond, at)?,
            Type::Quantity => leaf::quantity(bytes()?, at)?,
            Type::IntOrString => leaf::int_or_string(bytes()?, at)?,
            Type::Json => leaf::json(bytes()?, at)?,
            Type::Strings => self.strings(bytes()?, 1, at)?.into(),
            Type::SchemaOrBool => self.schema_or_bool(bytes()?, at)?,
            Type::SchemaOrArray => self.schema_or_array(bytes()?, at)?,
            Type::SchemaOrStrings => self.schema_or_strings(bytes()?, at)?,
            Type::Message(id) => Value::Object(self.object(id, bytes()?)?),
        })
    }

    /// {1 allows, 2 schema}: the schema wins.
    fn schema_or_bool(self, bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
        let (mut allows, mut schema) = (false, None);
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Varint(number)) => allows = number != 0,
                (2, Wire::Bytes(bytes)) => schema = Some(self.schema(bytes, at)?),
                (1 | 2, _) => return Err(at.wire_type()),
                _ => {}
            }
        }
        Ok(schema.unwrap_or(Value::Bool(allows)))
    }

    /// {1 schema, 2 schemas}: the list wins if it has items.
    fn schema_or_array(self, bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
        let (mut schema, mut list) = (Value::Null, Vec::new());
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => schema = self.schema(bytes, at)?,
                (2, Wire::Bytes(bytes)) => list.push(self.schema(bytes, at)?),
                (1 | 2, _) => return Err(at.wire_type()),
                _ => {}
            }
        }
        Ok(if list.is_empty() { schema } else { Value::Array(list) })
    }

    /// {1 schema, 2 strings}: the strings win if there are any.
    fn schema_or_strings(self, bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
        let strings = self.strings(bytes, 2, at)?;
        if !strings.is_empty() {
            return Ok(strings.into());
        }
        let mut schema = Value::Null;
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            if number == 1 {
                schema = self.schema(wire.bytes().ok_or_else(|| at.wire_type())?, at)?;
            }
        }
        Ok(schema)
    }

    /// The repeated strings in field `field` of a message.
    fn strings(self, bytes: &[u8], field: u32, at: Place) -> Result<Vec<Value>, ProtoError> {
        let mut all = Vec::new();
        let mut reader = Reader::new(bytes);
        while let Some((number, wire)) = reader.next()? {
            if number == field {
                all.push(self.value(Type::String, wire, at)?);
            }
        }
        Ok(all)
    }

    fn schema(self, bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
        let id = self.table.named("apiextensions.v1.JsonSchemaProps");
        let id = id.ok_or_else(|| at.value("no schema type is known"))?;
        Ok(Value::Object(self.object(id, bytes)?))
    }
}

fn entry<'a>(object: &'a mut Object, member: &str, empty: impl FnOnce() -> Value) -> &'a mut Value {
    object.entry(member).or_insert_with(empty)
}

/// What Go writes for a scalar that was never set. Quantities and the like have no such value.
fn is_zero(value: &Value, of: Type) -> bool {
    match of {
        Type::String | Type::Bytes => value.as_str().is_some_and(str::is_empty),
        Type::Int32 | Type::Int64 => value.as_i64() == Some(0),
        Type::Double => value.as_f64() == Some(0.0),
        Type::Bool => value.as_bool() == Some(false),
        _ => false,
    }
}

/// Go shows a whole number without a fraction; so does JSON from us.
fn double(number: f64, at: Place) -> Result<Value, ProtoError> {
    /// Every whole number up to here has an exact double.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within the range of i64")]
        return Ok(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number).ok_or_else(|| at.value("not a finite number"))
}
