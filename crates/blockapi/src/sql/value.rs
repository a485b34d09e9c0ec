//! What goes into statements and comes out of them.

use std::sync::Arc;

use sqlx::postgres::{PgColumn, PgRow};
use sqlx::sqlite::SqliteRow;
use sqlx::{Column as _, Row as _, TypeInfo as _, ValueRef as _};

use super::DbError;

/// A parameter or a field. The variant is the type, so that a null has one too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Option<String>),
    Int(Option<i64>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(Some(text.clone()))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(Some(number))
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Int(Some(i64::from(truth)))
    }
}

/// One row of an answer, fields by name. All rows of an answer have the names in common.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    names: Arc<[Box<str>]>,
    values: Vec<Value>,
}

fn names<R: sqlx::Row>(rows: &[R]) -> Arc<[Box<str>]> {
    let columns = rows.first().map(sqlx::Row::columns).unwrap_or_default();
    columns.iter().map(|it| Box::from(it.name())).collect()
}

impl Row {
    pub(super) const fn new(names: Arc<[Box<str>]>, values: Vec<Value>) -> Self {
        Self { names, values }
    }

    pub(super) fn of_sqlite(rows: &[SqliteRow]) -> Result<Vec<Self>, DbError> {
        let names = names(rows);
        let value = |row: &SqliteRow, at: usize| {
            let raw = row.try_get_raw(at)?;
            Ok(if raw.is_null() {
                Value::Text(None)
            } else if raw.type_info().name() == "INTEGER" {
                Value::Int(row.try_get(at)?)
            } else {
                Value::Text(row.try_get(at)?)
            })
        };
        let row = |row: &SqliteRow| {
            let values =
                (0..names.len()).map(|at| value(row, at)).collect::<Result<_, DbError>>()?;
            Ok(Self { names: names.clone(), values })
        };
        rows.iter().map(row).collect()
    }

    pub(super) fn of_postgres(rows: &[PgRow]) -> Result<Vec<Self>, DbError> {
        let names = names(rows);
        let value = |row: &PgRow, column: &PgColumn| {
            let at = column.ordinal();
            Ok(match column.type_info().name() {
                "INT8" => Value::Int(row.try_get(at)?),
                "INT4" => Value::Int(row.try_get::<Option<i32>, _>(at)?.map(i64::from)),
                "BOOL" => Value::Int(row.try_get::<Option<bool>, _>(at)?.map(i64::from)),
                _ => Value::Text(row.try_get(at)?),
            })
        };
        let row = |row: &PgRow| {
            let columns = row.columns().iter();
            let values =
                columns.map(|column| value(row, column)).collect::<Result<_, DbError>>()?;
            Ok(Self { names: names.clone(), values })
        };
        rows.iter().map(row).collect()
    }

    fn field(&self, name: &str) -> Result<&Value, DbError> {
        let at = self.names.iter().position(|known| **known == *name);
        at.and_then(|at| self.values.get(at)).ok_or_else(|| wrong(name, "is not there"))
    }

    /// Text, or nothing for a null.
    pub(crate) fn opt_str(&self, name: &str) -> Result<Option<&str>, DbError> {
        match self.field(name)? {
            Value::Text(text) => Ok(text.as_deref()),
            Value::Int(None) => Ok(None),
            Value::Int(Some(_)) => Err(wrong(name, "is a number, not text")),
        }
    }

    /// The same, of one's own.
    pub(crate) fn opt(&self, name: &str) -> Result<Option<String>, DbError> {
        Ok(self.opt_str(name)?.map(str::to_owned))
    }

    /// Text; a null is empty.
    pub(crate) fn text(&self, name: &str) -> Result<String, DbError> {
        Ok(self.opt(name)?.unwrap_or_default())
    }

    pub(crate) fn opt_int(&self, name: &str) -> Result<Option<i64>, DbError> {
        match self.field(name)? {
            Value::Int(number) => Ok(*number),
            Value::Text(None) => Ok(None),
            Value::Text(Some(_)) => Err(wrong(name, "is text, not a number")),
        }
    }

    /// A number; a null is zero.
    pub(crate) fn int(&self, name: &str) -> Result<i64, DbError> {
        Ok(self.opt_int(name)?.unwrap_or_default())
    }

    pub(crate) fn truth(&self, name: &str) -> Result<bool, DbError> {
        Ok(self.int(name)? != 0)
    }
}

fn wrong(column: &str, problem: &'static str) -> DbError {
    DbError::Column { column: column.to_owned(), problem }
}
