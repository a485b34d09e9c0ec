//! Pages of rows: filters, order, a marker, a count. A page is one statement, whatever its size.

use super::statement::Statement;
use crate::sql::{Db, DbError, Row, Value};

/// An expression to order by.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// An expression that is never null.
    pub(crate) expression: String,
    pub(crate) is_number: bool,
    pub(crate) descending: bool,
}

/// Which rows, and in which order.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// What the caller may see: of the rows, and of the marker too.
    pub(crate) scope: Option<Statement>,
    /// Conditions, joined by AND.
    pub(crate) filters: Vec<Statement>,
    pub(crate) keys: Vec<Key>,
    pub(crate) marker: Option<String>,
    pub(crate) limit: i64,
    pub(crate) offset: i64,
    pub(crate) with_count: bool,
}

impl Page {
    /// Everything, newest first.
    pub(crate) fn all() -> Self {
        Self {
            scope: None,
            filters: Vec::new(),
            keys: Vec::new(),
            marker: None,
            limit: 1000,
            offset: 0,
            with_count: false,
        }
    }

    pub(crate) fn and(&mut self, filter: Statement) {
        self.filters.push(filter);
    }
}

/// What a page is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) table: &'a str,
    /// After FROM, if more than the table.
    pub(crate) joins: &'a str,
    pub(crate) columns: &'a str,
}

/// Rows of a page, and of how many.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Row>,
    pub(crate) count: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("there is no row with the id {0}")]
    Marker(String),
    #[error(transparent)]
    Db(#[from] DbError),
}

/// The rows of a page.
pub(crate) async fn fetch(db: &Db, source: Source<'_>, page: &Page) -> Result<Found, ListError> {
    let mut filter = Statement::default();
    filter.push(source.table).push(".deleted = 0");
    for one in page.scope.iter().chain(&page.filters) {
        filter.push(" AND (").splice(one).push(")");
    }
    let count = if page.with_count {
        let mut sql = Statement::new("SELECT COUNT(*) AS n FROM ");
        sql.push(source.table).push(source.joins).push(" WHERE ").splice(&filter);
        let row = db.fetch_one(&sql.text, &sql.values).await?;
        Some(row.map(|row| row.int("n")).transpose()?.unwrap_or_default())
    } else {
        None
    };
    let keys = keys_of(source.table, &page.keys);
    if let Some(marker) = &page.marker {
        let after = after(db, source, &keys, (marker, page.scope.as_ref())).await?;
        filter.push(" AND (").splice(&after).push(")");
    }
    let mut sql = Statement::new("SELECT ");
    sql.push(source.columns).push(" FROM ").push(source.table).push(source.joins);
    sql.push(" WHERE ").splice(&filter).push(" ORDER BY ");
    for (at, key) in keys.iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " }).push(&key.expression);
        sql.push(if key.descending { " DESC" } else { " ASC" });
    }
    sql.push(" LIMIT ").bind(page.limit).push(" OFFSET ").bind(page.offset);
    Ok(Found { rows: db.fetch(&sql.text, &sql.values).await?, count })
}

/// The keys asked for, then time and id: no two rows are equal.
fn keys_of(table: &str, asked: &[Key]) -> Vec<Key> {
    let descending = asked.first().is_none_or(|first| first.descending);
    let mut keys = asked.to_vec();
    for column in ["created_at", "id"] {
        let expression = format!("{table}.{column}");
        if !keys.iter().any(|key| key.expression == expression) {
            keys.push(Key { expression, is_number: false, descending });
        }
    }
    keys
}

/// The rows that come after the one with this id.
async fn after(
    db: &Db,
    source: Source<'_>,
    keys: &[Key],
    (marker, scope): (&str, Option<&Statement>),
) -> Result<Statement, ListError> {
    let mut sql = Statement::new("SELECT ");
    for (at, key) in keys.iter().enumerate() {
        sql.push(if at == 0 { "" } else { ", " });
        sql.push(&key.expression).push(&format!(" AS k{at}"));
    }
    sql.push(" FROM ").push(source.table).push(source.joins);
    sql.push(" WHERE ").push(source.table).push(".deleted = 0 AND ");
    sql.push(source.table).push(".id = ").bind(marker);
    if let Some(scope) = scope {
        sql.push(" AND (").splice(scope).push(")");
    }
    let row = db.fetch_one(&sql.text, &sql.values).await?;
    let row = row.ok_or_else(|| ListError::Marker(marker.to_owned()))?;
    let mut values: Vec<Value> = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let name = format!("k{at}");
        values.push(if key.is_number { row.int(&name)?.into() } else { row.text(&name)?.into() });
    }
    let mut after = Statement::default();
    for (at, key) in keys.iter().enumerate() {
        after.push(if at == 0 { "(" } else { " OR (" });
        for (earlier, value) in keys.iter().zip(&values).take(at) {
            after.push(&earlier.expression).push(" = ").bind(value.clone()).push(" AND ");
        }
        let value = values.get(at).cloned().unwrap_or(Value::Text(None));
        after.push(&key.expression).push(if key.descending { " < " } else { " > " }).bind(value);
        after.push(")");
    }
    Ok(after)
}
