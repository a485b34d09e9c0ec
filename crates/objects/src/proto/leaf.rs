//! Messages that are one value in JSON: times, quantities, int-or-string, raw JSON.

use jiff::Timestamp;
use serde_json::Value;

use super::ProtoError;
use super::message::Place;
use super::wire::{Reader, Wire};

/// What JSON shows of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Second,
    Microsecond,
}

/// Numbers travel as 64 bits; the low half is the value, negative ones are sign-extended.
#[expect(clippy::cast_possible_truncation, reason = "protobuf defines int32 as the low 32 bits")]
pub(super) const fn int32(number: u64) -> i32 {
    (number as u32).cast_signed()
}

/// {1 seconds, 2 nanos}; all zero is a time that was never set.
pub(super) fn time(bytes: &[u8], precision: Precision, at: Place) -> Result<Value, ProtoError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        match (number, wire) {
            (1, Wire::Varint(number)) => seconds = number.cast_signed(),
            (2, Wire::Varint(number)) => nanos = int32(number),
            (1 | 2, _) => return Err(at.wire_type()),
            _ => {}
        }
    }
    if seconds == 0 && nanos == 0 {
        return Ok(Value::Null);
    }
    // A JSON client could not have sent a fraction of a second, or of a microsecond.
    let nanos = match precision {
        Precision::Second => 0,
        Precision::Microsecond => nanos - nanos.rem_euclid(1000),
    };
    let time = Timestamp::new(seconds, nanos).map_err(|error| at.value(error.to_string()))?;
    Ok(Value::String(match precision {
        Precision::Second => format!("{time:.0}"),
        Precision::Microsecond => format!("{time:.6}"),
    }))
}

/// {1 string}; one that was never set is zero.
pub(super) fn quantity(bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
    let mut text = "";
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            text = wire.text(at.message, at.field)?;
        }
    }
    Ok(Value::from(if text.is_empty() { "0" } else { text }))
}

/// {1 type, 2 number, 3 text}; type 0 is the number, 1 the text.
pub(super) fn int_or_string(bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
    let (mut kind, mut number, mut text) = (0, 0, "");
    let mut reader = Reader::new(bytes);
    while let Some((field, wire)) = reader.next()? {
        match (field, wire) {
            (1, Wire::Varint(value)) => kind = value,
            (2, Wire::Varint(value)) => number = int32(value),
            (3, wire) => text = wire.text(at.message, at.field)?,
            (1 | 2, _) => return Err(at.wire_type()),
            _ => {}
        }
    }
    match kind {
        0 => Ok(number.into()),
        1 => Ok(text.into()),
        other => Err(at.value(format!("neither a number nor text but type {other}"))),
    }
}

/// {1 JSON text}; without text there is no value.
pub(super) fn json(bytes: &[u8], at: Place) -> Result<Value, ProtoError> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while let Some((number, wire)) = reader.next()? {
        if number == 1 {
            raw = wire.bytes().ok_or_else(|| at.wire_type())?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| at.value(error.to_string()))
}
