//! The query of a list: filters, order and pages, by what each resource lets be asked.

use serde_json::{Value, json};

use super::fault::Fault;
use super::literal::{self, Literal};
use super::request::{Request, truth};
use super::version::Version;
use crate::model::status::BackupStatus;
use crate::store::guard::{OLD_FORM, backup_sql, backup_without_error_sql, legacy_sql, status_sql};
use crate::store::list::{Condition, Key, Page, Pair};
use crate::store::statement::Statement;

const PAGE_MAX: i64 = 1000;
/// What one request may ask for, so that no statement grows without end.
const SORT_KEYS: usize = 8;
const FILTERS: usize = 50;
const VALUES: usize = 100;

/// What a key of a query stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field {
    Text(&'static str),
    Number(&'static str),
    Truth(&'static str),
    Time(&'static str),
    /// Pairs in a table of their own: table, its column of the owner, id of the owner.
    Pairs(&'static str, &'static str, &'static str),
    /// The status of volumes, which older clients see as one of two.
    Status,
    BackupStatus,
}

/// What can be listed, and by what.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) fields: &'static [(&'static str, Field)],
    /// What those who are not administrators may filter by.
    pub(crate) members: &'static [&'static str],
    pub(crate) later: Later,
}

/// What came with a microversion: below it, it is not there.
#[derive(Debug)]
pub(crate) struct Later {
    /// Filters, orders and pages at all.
    pub(crate) pages: u32,
    pub(crate) filters: &'static [(&'static str, u32)],
    /// Filters that only administrators had before.
    pub(crate) members: &'static [(&'static str, u32)],
    pub(crate) orders: &'static [(&'static str, u32)],
}

impl Later {
    /// Everything was there from the beginning.
    pub(crate) const NOTHING: Self = Self { pages: 0, filters: &[], members: &[], orders: &[] };
}

fn is_there(later: &[(&str, u32)], key: &str, version: Version) -> bool {
    later.iter().all(|(name, since)| *name != key || version.has(*since))
}

/// Keys of a query that are no filters.
const CONTROLS: &[&str] =
    &["limit", "offset", "marker", "sort", "sort_key", "sort_dir", "all_tenants"];

impl Resource {
    /// The field of a key, at a version.
    fn field(&self, key: &str, version: Version) -> Option<Field> {
        let found = self.fields.iter().find(|(name, _)| *name == key).map(|(_, field)| *field)?;
        match found {
            Field::BackupStatus if !version.has_backup_status() => None,
            other => Some(other),
        }
    }

    /// The page a request asks for, of what the caller may see.
    pub(crate) fn page(&self, request: &Request) -> Result<Page, Fault> {
        let mut page = Page::all();
        if !request.version.has(self.later.pages) {
            return Ok(page);
        }
        (page.limit, page.offset) = bounds(request)?;
        page.marker = request.param("marker").map(str::to_owned);
        page.with_count =
            request.version.has(45) && request.param("with_count").and_then(truth) == Some(true);
        page.keys = self.keys(request)?;
        if request.query.len() > FILTERS {
            return Err(too_many("filters", FILTERS));
        }
        for (key, value) in &request.query {
            let is_control = CONTROLS.contains(&key.as_str())
                || (key == "with_count" && request.version.has(45));
            if is_control {
                continue;
            }
            if let Some(filter) = self.filter(request, key, value)? {
                page.and(filter);
            }
        }
        Ok(page)
    }

    /// Nothing if a key is to be passed over.
    fn filter(
        &self,
        request: &Request,
        key: &str,
        value: &str,
    ) -> Result<Option<Condition>, Fault> {
        let version = request.version;
        let (name, is_like) = match key.strip_suffix('~') {
            Some(name) if version.has(34) => (name, true),
            _ => (key, false),
        };
        if !is_there(self.later.filters, name, version) {
            return Ok(None);
        }
        let field = self.field(name, version);
        let is_members =
            self.members.contains(&name) && is_there(self.later.members, name, version);
        let may = request.caller.is_admin() || is_members;
        match field {
            Some(field) if may => condition(request, field, value, is_like).map(Some),
            _ if request.caller.is_admin() => Ok(Some(Statement::new("FALSE").into())),
            _ if version.has(31) => {
                Err(Fault::bad(format!("Invalid filters {name} are found in query options.")))
            }
            _ => Ok(None),
        }
    }

    fn keys(&self, request: &Request) -> Result<Vec<Key>, Fault> {
        let mut keys: Vec<Key> = Vec::new();
        for (name, direction) in sorting(request)? {
            let field = self
                .field(&name, request.version)
                .filter(|_| is_there(self.later.orders, &name, request.version))
                .ok_or_else(|| Fault::invalid_input("Invalid sort key"))?;
            let descending = match direction.as_str() {
                "desc" => true,
                "asc" => false,
                _ => {
                    return Err(Fault::invalid_input(
                        "Unknown sort direction, must be 'desc' or 'asc'.",
                    ));
                }
            };
            let is_created =
                matches!(field, Field::Time(column) if column.ends_with(".created_at"));
            let is_id = name == "id";
            let is_number = matches!(field, Field::Number(_) | Field::Truth(_));
            let expression = match field {
                Field::Pairs(..) => return Err(Fault::invalid_input("Invalid sort key")),
                // Numbers are never null, and some have an index.
                Field::Number(column) | Field::Truth(column) => column.to_owned(),
                // Never null, and there is an index.
                other if is_created || is_id => expression(request, other),
                other => format!("COALESCE({}, '')", expression(request, other)),
            };
            // Asked for again, a key changes nothing.
            if !keys.iter().any(|it| it.expression == expression) {
                keys.push(Key { expression, is_number, descending });
            }
            if keys.len() > SORT_KEYS {
                return Err(too_many("sort keys", SORT_KEYS));
            }
        }
        Ok(keys)
    }
}

fn too_many(what: &str, most: usize) -> Fault {
    Fault::invalid_input(format!("More than {most} {what} are asked for at once."))
}

/// What a value asks of a field.
fn condition(
    request: &Request,
    field: Field,
    value: &str,
    is_like: bool,
) -> Result<Condition, Fault> {
    let version = request.version;
    if is_like {
        return Ok(like(&expression(request, field), value).into());
    }
    let literal = literal::parse(value);
    let values = match &literal {
        Literal::List(items) => items.len(),
        Literal::Pairs(pairs) => pairs.len(),
        Literal::None | Literal::Text(_) => 1,
    };
    if values > VALUES {
        return Err(too_many("values", VALUES));
    }
    let filter = match field {
        Field::Text(column) => text(column, &literal),
        Field::Number(column) => number(column, &literal),
        Field::Truth(column) => match truth(value) {
            // Written out: a planner then knows how few there are, and that an index of them serves.
            Some(truth) => Statement::new(&format!("{column} = {}", i32::from(truth))),
            None if version.has(2) => {
                return Err(Fault::invalid_input(format!(
                    "Unrecognized value '{value}', acceptable values are: '0', '1', 'f', 'false', \
                     'n', 'no', 'off', 'on', 't', 'true', 'y', 'yes'"
                )));
            }
            None => Statement::new("FALSE"),
        },
        Field::Time(column) => times(column, value)?,
        Field::Pairs(table, owner, id) => return Ok(pairs((table, owner, id), literal)),
        Field::Status if version.has_backup_status() => match &literal {
            Literal::Text(value) => return Ok(status(value)),
            other => text(&status_sql(), other),
        },
        Field::Status => return Ok(legacy(request, &literal)),
        Field::BackupStatus => match or_none(literal) {
            Literal::Text(value) => backup(&backup_sql(), &value),
            other => text(&backup_sql(), &other),
        },
    };
    Ok(filter.into())
}

/// What stands for no backup status, alone or in a list.
fn or_none(literal: Literal) -> Literal {
    match literal {
        Literal::Text(text) if ["none", "null"].contains(&text.as_str()) => Literal::None,
        Literal::List(items) => Literal::List(items.into_iter().map(or_none).collect()),
        other => other,
    }
}

/// A status of a volume, by the column itself where that can be: it has an index.
fn status(value: &str) -> Condition {
    let mut plain = Statement::new("volumes.status = ");
    plain.bind(value);
    // Rows of the release before are these by their attachments.
    let by_attachments = ["available", "in-use", "attaching", "detaching", "reserved"];
    if !by_attachments.contains(&value) {
        let is_backup = BackupStatus::parse(value).is_some();
        return if is_backup { Statement::new("FALSE") } else { plain }.into();
    }
    let mut old = Statement::new(OLD_FORM);
    old.push(" AND ").push(&status_sql()).push(" = ").bind(value);
    Condition::Either(plain, old)
}

/// A backup's state, by the expression the client sees it by; the first one has an index.
fn backup(expression: &str, value: &str) -> Statement {
    let mut sql = Statement::new(&backup_sql());
    sql.push(" = ").bind(value);
    if expression != backup_sql() {
        sql.push(" AND ").push(expression).push(" = ").bind(value);
    }
    sql
}

/// What the client sees of a backup.
fn seen_backup(request: &Request) -> String {
    if request.hides_backup_error { backup_without_error_sql() } else { backup_sql() }
}

/// A field as text, for comparisons and order.
fn expression(request: &Request, field: Field) -> String {
    match field {
        Field::Text(column) | Field::Time(column) => column.to_owned(),
        Field::Number(column) | Field::Truth(column) => format!("CAST({column} AS TEXT)"),
        Field::Pairs(_, _, id) => id.to_owned(),
        Field::Status if request.version.has_backup_status() => status_sql(),
        Field::Status => legacy_sql(&seen_backup(request)),
        Field::BackupStatus => backup_sql(),
    }
}

/// Keys and directions as asked for, in either spelling.
fn sorting(request: &Request) -> Result<Vec<(String, String)>, Fault> {
    let old = request.param("sort_key").is_some() || request.param("sort_dir").is_some();
    let Some(sort) = request.param("sort") else {
        if !old {
            return Ok(Vec::new());
        }
        let key = request.param("sort_key").unwrap_or("created_at").trim().to_owned();
        let direction = request.param("sort_dir").unwrap_or("desc").trim().to_owned();
        return Ok(vec![(key, direction)]);
    };
    if old {
        return Err(Fault::bad(
            "The 'sort_key' and 'sort_dir' parameters are deprecated and cannot be used with the \
             'sort' parameter.",
        ));
    }
    Ok(sort
        .split(',')
        .map(|part| {
            let (key, direction) = part.split_once(':').unwrap_or((part, "desc"));
            (key.trim().to_owned(), direction.trim().to_owned())
        })
        .collect())
}

fn bounds(request: &Request) -> Result<(i64, i64), Fault> {
    let number = |name: &str| -> Result<Option<i64>, Fault> {
        let Some(text) = request.param(name) else { return Ok(None) };
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        if !is_number {
            return Err(Fault::bad(format!("{name} param must be an integer")));
        }
        // Too long to be a number of ours: the sign is what is left of it.
        let beyond = if digits.len() < text.len() { i64::MIN } else { i64::MAX };
        Ok(Some(text.parse().unwrap_or(beyond)))
    };
    let limit = number("limit")?.unwrap_or(PAGE_MAX);
    if limit < 0 {
        return Err(Fault::bad("limit param must be positive"));
    }
    let offset = number("offset")?.unwrap_or(0);
    if !(0..=i64::from(i32::MAX)).contains(&offset) {
        return Err(Fault::bad("offset must be >= 0"));
    }
    Ok((limit.min(PAGE_MAX), offset))
}

fn text(expression: &str, literal: &Literal) -> Statement {
    let mut sql = Statement::default();
    match literal {
        Literal::None => {
            sql.push(expression).push(" IS NULL");
        }
        Literal::Text(text) => {
            sql.push(expression).push(" = ").bind(text.as_str());
        }
        Literal::List(items) => {
            sql.push(expression).push(" IN ").bind_list(items.iter().filter_map(Literal::as_text));
            if items.contains(&Literal::None) {
                sql.push(" OR ").push(expression).push(" IS NULL");
            }
        }
        Literal::Pairs(_) => {
            sql.push("FALSE");
        }
    }
    sql
}

fn number(column: &str, literal: &Literal) -> Statement {
    let mut sql = Statement::default();
    match literal {
        Literal::None => sql.push(column).push(" IS NULL"),
        Literal::Text(text) => match text.parse::<i64>() {
            Ok(number) => sql.push(column).push(" = ").bind(number),
            Err(_) => sql.push("FALSE"),
        },
        Literal::List(items) => {
            sql.push("FALSE");
            for item in items {
                if let Literal::Text(_) | Literal::None = item {
                    sql.push(" OR ").splice(&number(column, item));
                }
            }
            &mut sql
        }
        Literal::Pairs(_) => sql.push("FALSE"),
    };
    sql
}

/// Case counts on every engine alike, which it does not for LIKE.
fn like(expression: &str, value: &str) -> Statement {
    let mut sql = Statement::new(expression);
    if value.is_empty() {
        sql.push(" IS NOT NULL");
    } else {
        sql.push(" <> replace(").push(expression).push(", ").bind(value).push(", '')");
    }
    sql
}

/// A status that older clients know, asked of two fields.
fn legacy(request: &Request, literal: &Literal) -> Condition {
    let seen = seen_backup(request);
    let value = match literal {
        Literal::Text(value) => value,
        Literal::List(items) => {
            let mut sql = Statement::new(&legacy_sql(&seen));
            sql.push(" IN ").bind_list(items.iter().filter_map(Literal::as_text));
            return sql.into();
        }
        Literal::None | Literal::Pairs(_) => return Statement::new("FALSE").into(),
    };
    if BackupStatus::parse(value).is_some() {
        let mut sql = backup(&seen, value);
        sql.push(" AND ").push(&status_sql()).push(" IN ('available', 'in-use')");
        return sql.into();
    }
    let found = status(value);
    if !["available", "in-use"].contains(&value.as_str()) {
        return found;
    }
    let unseen = |mut sql: Statement| {
        sql.push(" AND ").push(&seen).push(" IS NULL");
        sql
    };
    match found {
        Condition::One(sql) => unseen(sql).into(),
        Condition::Either(plain, old) => Condition::Either(unseen(plain), unseen(old)),
        pairs @ Condition::Pairs(_) => pairs,
    }
}

fn pairs(
    (table, owner, id): (&'static str, &'static str, &'static str),
    literal: Literal,
) -> Condition {
    let Literal::Pairs(wanted) = literal else { return Statement::new("FALSE").into() };
    let pair = |(key, value)| Pair { table, owner, id, key, value };
    Condition::Pairs(wanted.into_iter().map(pair).collect())
}

/// `gt:2026-01-01T00:00:00,lt:…`, or a time alone.
fn times(column: &str, value: &str) -> Result<Statement, Fault> {
    let mut sql = Statement::new("TRUE");
    if value.split(',').count() > VALUES {
        return Err(too_many("times", VALUES));
    }
    for part in value.split(',') {
        let (operator, time) = match part.split_once(':') {
            Some((word, rest)) if word.bytes().all(|it| it.is_ascii_alphabetic()) => (word, rest),
            _ => ("eq", part),
        };
        let sign = match operator {
            "gt" => " > ",
            "gte" => " >= ",
            "eq" => " = ",
            "neq" => " <> ",
            "lt" => " < ",
            "lte" => " <= ",
            other => {
                return Err(Fault::bad(format!(
                    "Operator {other} is not supported for comparison."
                )));
            }
        };
        let stamp = moment(time).ok_or_else(|| {
            Fault::bad(format!("Invalid time {time}: write it as 2026-01-31T12:00:00"))
        })?;
        sql.push(" AND ").push(column).push(sign).bind(stamp);
    }
    Ok(sql)
}

pub(super) fn moment(text: &str) -> Option<String> {
    let text = text.trim();
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(crate::store::stamp(time));
    }
    let civil = text.parse::<jiff::civil::DateTime>().ok()?;
    Some(civil.strftime("%Y-%m-%dT%H:%M:%S.%6f").to_string())
}

/// Links to the next page, if there may be one.
pub(crate) fn next_link(
    request: &Request,
    collection: &str,
    page: &Page,
    shown: usize,
    count: Option<i64>,
    last: Option<&str>,
) -> Option<Value> {
    let items = count.unwrap_or(i64::try_from(shown).unwrap_or(i64::MAX));
    let last = last.filter(|_| shown > 0 && page.limit <= items)?;
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    // The marker says where the next page begins.
    let rest =
        request.query.iter().filter(|(key, _)| !["marker", "offset"].contains(&key.as_str()));
    for (key, value) in rest {
        query.append_pair(key, value);
    }
    query.append_pair("marker", last);
    let href = format!("{}?{}", request.links.path(collection), query.finish());
    Some(json!([{"rel": "next", "href": href}]))
}

/// A list with its links and its count.
pub(crate) fn body(
    name: &str,
    items: Vec<Value>,
    links: (&str, Option<Value>),
    count: Option<i64>,
) -> Value {
    let mut body = serde_json::Map::new();
    body.insert(name.to_owned(), Value::Array(items));
    if let Some(next) = links.1 {
        body.insert(links.0.to_owned(), next);
    }
    if let Some(count) = count {
        body.insert("count".to_owned(), count.into());
    }
    Value::Object(body)
}

/// Whether rows of all projects are wanted, and may be.
pub(crate) fn all_projects(request: &Request) -> Result<bool, Fault> {
    let Some(text) = request.param("all_tenants") else { return Ok(false) };
    if !request.caller.is_admin() {
        return Ok(false);
    }
    truth(text)
        .ok_or_else(|| Fault::bad(format!("Value '{text}' for 'all_tenants' is not a boolean.")))
}

/// Only rows of the caller's project, unless an administrator asks for all.
pub(crate) fn isolate(request: &Request, page: &mut Page, column: &str) -> Result<(), Fault> {
    if !all_projects(request)? {
        let mut sql = Statement::new(column);
        sql.push(" = ").bind(request.caller.project_id.as_str());
        page.scope = Some(sql);
    }
    Ok(())
}
