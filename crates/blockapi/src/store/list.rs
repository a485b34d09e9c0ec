//! Pages of rows: filters, order, a marker, a count. A page is one statement, whatever its size, and one
//! more for each pair of metadata that it is asked by.

use super::statement::Statement;
pub(crate) use crate::sql::Then;
use crate::sql::{Db, DbError, Row, Value};

/// An expression to order by.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// An expression that is never null.
    pub(crate) expression: String,
    pub(crate) is_number: bool,
    pub(crate) descending: bool,
}

/// Pairs that so few rows have are found by their index, and name the rows of a page.
const FEW: i64 = 1000;

/// A pair of metadata that rows must have.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) table: &'static str,
    /// Its column with the id of the row.
    pub(crate) owner: &'static str,
    /// The id, in the table of the page.
    pub(crate) id: &'static str,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Pair {
    /// Pairs of images and types may be longer than an index takes.
    fn has_index(&self) -> bool {
        ["volume_metadata", "snapshot_metadata", "backup_metadata"].contains(&self.table)
    }
}

/// What a filter asks of rows.
#[derive(Debug, Clone)]
pub(crate) enum Condition {
    One(Statement),
    /// One of two, which no row meets both. The first has an index in the order of the page, which a
    /// statement with an OR would not use; few rows meet the second, found by an index as well.
    Either(Statement, Statement),
    /// All of them.
    Pairs(Vec<Pair>),
}

impl From<Statement> for Condition {
    fn from(statement: Statement) -> Self {
        Self::One(statement)
    }
}

/// Which rows, and in which order.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// What the caller may see: of the rows, and of the marker too.
    pub(crate) scope: Option<Statement>,
    /// Conditions, joined by AND.
    filters: Vec<Statement>,
    either: Option<(Statement, Statement)>,
    pairs: Vec<Pair>,
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
            either: None,
            pairs: Vec::new(),
            keys: Vec::new(),
            marker: None,
            limit: 1000,
            offset: 0,
            with_count: false,
        }
    }

    pub(crate) fn and(&mut self, condition: impl Into<Condition>) {
        match condition.into() {
            Condition::One(filter) => self.filters.push(filter),
            Condition::Either(one, other) if self.either.is_none() => {
                self.either = Some((one, other));
            }
            Condition::Either(one, other) => self.filters.push(or(&one, &other)),
            Condition::Pairs(pairs) => self.pairs.extend(pairs),
        }
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
    /// Of the second statement, if there was one.
    pub(crate) more: Vec<Row>,
    pub(crate) count: Option<i64>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    #[error("there is no row with the id {0}")]
    Marker(String),
    #[error(transparent)]
    Db(#[from] DbError),
}

fn or(one: &Statement, other: &Statement) -> Statement {
    let mut sql = Statement::new("(");
    sql.splice(one).push(") OR (").splice(other).push(")");
    sql
}

/// The rows of a page.
pub(crate) async fn fetch(db: &Db, source: Source<'_>, page: &Page) -> Result<Found, ListError> {
    fetch_with(db, source, page, None).await
}

/// The same, with more of the same moment: what a second statement made of the rows finds.
pub(crate) async fn fetch_with(
    db: &Db,
    source: Source<'_>,
    page: &Page,
    then: Option<Then>,
) -> Result<Found, ListError> {
    let (sql, count) = statement(db, source, page).await?;
    let (rows, more) = match then {
        None => (db.fetch(&sql.text, &sql.values).await?, Vec::new()),
        Some(then) => db.fetch_both(&(sql.text, sql.values), then).await?,
    };
    Ok(Found { rows, more, count })
}

/// How the database goes about a page, in its own words.
#[cfg(test)]
pub(crate) async fn explain(
    db: &Db,
    source: Source<'_>,
    page: &Page,
) -> Result<Vec<Row>, ListError> {
    let (sql, _) = statement(db, source, page).await?;
    let word = if db.is_postgres() { "EXPLAIN" } else { "EXPLAIN QUERY PLAN" };
    Ok(db.fetch(&format!("{word} {}", sql.text), &sql.values).await?)
}

async fn statement(
    db: &Db,
    source: Source<'_>,
    page: &Page,
) -> Result<(Statement, Option<i64>), ListError> {
    let mut filter = Statement::default();
    filter.push(source.table).push(".deleted = 0");
    for one in page.scope.iter().chain(&page.filters) {
        filter.push(" AND (").splice(one).push(")");
    }
    let mut rows = Rows { source, named: None };
    for pair in &page.pairs {
        if rows.named.is_none() && is_rare(db, pair).await? {
            rows.named = Some(pair);
        } else {
            filter.push(" AND ").splice(&has(pair));
        }
    }
    let count = if page.with_count {
        let mut sql = rows.select("COUNT(*) AS n");
        sql.splice(&filter);
        if let Some((one, other)) = &page.either {
            sql.push(" AND (").splice(&or(one, other)).push(")");
        }
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
    let sql = match &page.either {
        None => rows.page(&filter, &keys, page),
        Some(either) => rows.joint(&filter, &keys, page, either),
    };
    Ok((sql, count))
}

/// Where the rows of a page are looked for.
struct Rows<'a> {
    source: Source<'a>,
    /// Among those with this pair alone, whatever else is asked of them.
    named: Option<&'a Pair>,
}

impl Rows<'_> {
    /// Up to its conditions.
    fn select(&self, columns: &str) -> Statement {
        let table = self.source.table;
        let mut sql = Statement::default();
        let from = match &self.named {
            None => table.to_owned(),
            // Read first: a planner would rather walk all rows in the order of the page, for how soon it
            // hopes to meet the few.
            Some(Pair { table: pairs, owner, key, value, .. }) => {
                sql.push("WITH few AS MATERIALIZED (SELECT * FROM ").push(table);
                sql.push(&format!(" WHERE id IN (SELECT {owner} FROM {pairs} WHERE key = "));
                sql.bind(key.as_str()).push(" AND value = ").bind(value.as_str()).push(")) ");
                format!("few AS {table}")
            }
        };
        sql.push("SELECT ").push(columns).push(" FROM ").push(&from);
        sql.push(self.source.joins).push(" WHERE ");
        sql
    }

    fn page(&self, filter: &Statement, keys: &[Key], page: &Page) -> Statement {
        let mut sql = self.select(self.source.columns);
        sql.splice(filter);
        order(&mut sql, keys.iter().map(|key| (key.expression.as_str(), key.descending)));
        sql.push(" LIMIT ").bind(page.limit).push(" OFFSET ").bind(page.offset);
        sql
    }

    /// A page of rows that meet one of two conditions: the first of each, put in order.
    fn joint(
        &self,
        filter: &Statement,
        keys: &[Key],
        page: &Page,
        (one, other): &(Statement, Statement),
    ) -> Statement {
        let named = keys.iter().enumerate().map(|(at, key)| format!("{} AS k{at}", key.expression));
        let columns: Vec<String> =
            [self.source.columns.to_owned()].into_iter().chain(named).collect();
        let columns = columns.join(", ");
        let part = |condition: &Statement, order_by: &dyn Fn(&Key) -> String| {
            let mut part = self.select(&columns);
            part.splice(filter).push(" AND (").splice(condition).push(")");
            let by: Vec<String> = keys.iter().map(order_by).collect();
            let descending = keys.iter().map(|key| key.descending);
            order(&mut part, by.iter().map(String::as_str).zip(descending));
            part.push(" LIMIT ").bind(page.limit.saturating_add(page.offset));
            part
        };
        let mut sql = Statement::new("SELECT * FROM (");
        sql.splice(&part(one, &|key| key.expression.clone()));
        sql.push(") a UNION ALL SELECT * FROM (");
        // An order that no index has: these are few, and not to be met by walking all rows in order.
        sql.splice(&part(other, &|key| {
            let nothing = if key.is_number { "+ 0" } else { "|| ''" };
            format!("{} {nothing}", key.expression)
        }));
        sql.push(") b");
        let short: Vec<String> = (0..keys.len()).map(|at| format!("k{at}")).collect();
        let short = short.iter().map(String::as_str);
        order(&mut sql, short.zip(keys.iter().map(|key| key.descending)));
        sql.push(" LIMIT ").bind(page.limit).push(" OFFSET ").bind(page.offset);
        sql
    }
}

fn order<'a>(sql: &mut Statement, keys: impl Iterator<Item = (&'a str, bool)>) {
    for (at, (expression, descending)) in keys.enumerate() {
        sql.push(if at == 0 { " ORDER BY " } else { ", " }).push(expression);
        sql.push(if descending { " DESC" } else { " ASC" });
    }
}

/// Whether few rows have a pair, of everybody; not if no index tells.
async fn is_rare(db: &Db, pair: &Pair) -> Result<bool, DbError> {
    if !pair.has_index() {
        return Ok(false);
    }
    let Pair { table, owner, .. } = pair;
    let mut sql = Statement::new("SELECT COUNT(*) AS n FROM (");
    sql.push(&format!("SELECT {owner} FROM {table} WHERE key = ")).bind(pair.key.as_str());
    // In the order of the index, so that no planner takes another way.
    sql.push(" AND value = ").bind(pair.value.as_str());
    sql.push(&format!(" ORDER BY {owner} LIMIT {}) owners", FEW + 1));
    let row = db.fetch_one(&sql.text, &sql.values).await?;
    Ok(row.map(|row| row.int("n")).transpose()?.unwrap_or_default() <= FEW)
}

/// Asked of one row after the other, in the order of the page and no further than it: pairs of other
/// projects are not looked at. EXISTS would let a planner begin with the pairs of everybody.
fn has(pair: &Pair) -> Statement {
    let Pair { table, owner, id, .. } = pair;
    let mut sql = Statement::new(&format!(
        "(SELECT m.value FROM {table} m WHERE m.{owner} = {id} AND m.key = "
    ));
    sql.bind(pair.key.as_str()).push(") = ").bind(pair.value.as_str());
    sql
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
    // Where an index begins; of what follows, it could not tell.
    if let (Some(first), Some(value)) = (keys.first(), values.first()) {
        after.push(&first.expression).push(if first.descending { " <= " } else { " >= " });
        after.bind(value.clone()).push(" AND (");
    }
    for (at, key) in keys.iter().enumerate() {
        after.push(if at == 0 { "(" } else { " OR (" });
        for (earlier, value) in keys.iter().zip(&values).take(at) {
            after.push(&earlier.expression).push(" = ").bind(value.clone()).push(" AND ");
        }
        let value = values.get(at).cloned().unwrap_or(Value::Text(None));
        after.push(&key.expression).push(if key.descending { " < " } else { " > " }).bind(value);
        after.push(")");
    }
    after.push(")");
    Ok(after)
}
