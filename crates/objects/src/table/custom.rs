//! Columns and cells that a custom resource definition declares.

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::{Column, age, name};
use crate::access::{integer, text};
use crate::jsonpath::Path;

/// Types a printer column may have.
const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

/// One entry of `additionalPrinterColumns`, ready to use.
#[derive(Debug, Clone, PartialEq)]
pub struct PrinterColumn {
    pub column: Column,
    pub path: Path,
}

impl PrinterColumn {
    /// Reads an entry of `additionalPrinterColumns`.
    pub fn parse(entry: &Value) -> Result<Self, String> {
        let kind = text(entry, "type");
        if !TYPES.contains(&kind) {
            return Err(format!("type {kind:?} is not one of {}", TYPES.join(", ")));
        }
        let priority = integer(entry, "priority").unwrap_or_default();
        let column = Column {
            name: text(entry, "name").to_owned(),
            kind: kind.to_owned(),
            format: text(entry, "format").to_owned(),
            description: text(entry, "description").to_owned(),
            priority: i32::try_from(priority).map_err(|_| "priority is out of range")?,
        };
        Ok(Self { column, path: Path::parse(text(entry, "jsonPath"))? })
    }

    /// The columns of a definition that declares none.
    pub fn standard() -> Vec<Self> {
        let column = Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: "Time since the object was created.".to_owned(),
            priority: 0,
        };
        Path::parse(".metadata.creationTimestamp")
            .map(|path| Self { column, path })
            .into_iter()
            .collect()
    }
}

/// All columns: the name, then those declared.
pub fn custom_columns(columns: &[PrinterColumn]) -> Vec<Column> {
    std::iter::once(Column::name()).chain(columns.iter().map(|one| one.column.clone())).collect()
}

/// The cells of one custom resource, in the order of [`custom_columns`].
pub fn custom_cells(columns: &[PrinterColumn], obj: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |one: &PrinterColumn| {
        let found = one.path.find(obj);
        found.first().map_or(Value::Null, |value| cell(&one.column.kind, value, now))
    };
    std::iter::once(name(obj)).chain(columns.iter().map(cell)).collect()
}

/// A value that does not fit the type of its column shows nothing.
fn cell(kind: &str, value: &Value, now: Timestamp) -> Value {
    match (kind, value) {
        ("integer", Value::Number(number)) => whole(number),
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(time)) => age(time, now).into(),
        ("string", Value::Null) => Value::Null,
        ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        _ => Value::Null,
    }
}

/// Fractions are cut off.
fn whole(number: &Number) -> Value {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the cast saturates, and a cell is for show"
    )]
    let cut = |float: f64| float.trunc() as i64;
    if number.is_i64() || number.is_u64() {
        return Value::Number(number.clone());
    }
    number.as_f64().map_or(Value::Null, |float| cut(float).into())
}
