//! How stored objects leave the server: in the version asked for, whole, as a table or as metadata,
//! one by one or as a list. Objects whose stored text already is the answer are copied, not parsed.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use objects::table;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::{Call, admit};
use crate::failure::Failure;
use crate::negotiate::{Answer, PROTOBUF, Shape, Syntax};
use crate::registry::{Origin, Resource};
use crate::set_member;
use crate::store::Stored;

/// Can the stored text be sent as it is?
pub(crate) fn is_current(resource: &Resource, stored: &Stored) -> bool {
    resource.api_version == resource.stored_as
        && match &resource.origin {
            Origin::BuiltIn(_) => true,
            Origin::Custom(custom) => stored.revision >= custom.schema_since,
        }
}

/// The object as JSON text in the resource's version.
pub(crate) fn text(resource: &Resource, stored: &Stored) -> Result<Bytes, Failure> {
    if is_current(resource, stored) {
        return Ok(stored.body.clone());
    }
    Ok(Bytes::from(value(resource, stored)?.to_string()))
}

/// The object as a value in the resource's version.
pub(crate) fn value(resource: &Resource, stored: &Stored) -> Result<Value, Failure> {
    let mut object = parse(stored)?;
    if !is_current(resource, stored) {
        convert(resource, &mut object);
    }
    Ok(object)
}

fn parse(stored: &Stored) -> Result<Value, Failure> {
    serde_json::from_slice(&stored.body).map_err(|error| unreadable(stored, &error))
}

fn unreadable(stored: &Stored, error: &serde_json::Error) -> Failure {
    tracing::error!(
        resource = %stored.key.resource,
        namespace = %stored.key.namespace,
        name = %stored.key.name,
        %error,
        "stored object is not readable"
    );
    Failure::internal(format!("the stored object {:?} is not readable", stored.key.name))
}

fn convert(resource: &Resource, object: &mut Value) {
    if resource.is_events_v1() {
        *object = objects::event::to_events_v1(object);
        return;
    }
    admit::object_mut(object).insert("apiVersion".into(), resource.api_version.as_str().into());
    if resource.custom().is_some() {
        objects::prune::prune(&resource.node, object);
        admit::normalise(resource, object, None);
    }
}

/// From the form of an API version to the form that is stored.
pub(crate) fn to_stored(resource: &Resource, mut object: Value) -> Value {
    if resource.is_events_v1() {
        return objects::event::to_core(&object);
    }
    admit::object_mut(&mut object).insert("apiVersion".into(), resource.stored_as.as_str().into());
    object
}

/// `metadata` of a list answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListMeta {
    pub revision: u64,
    pub continue_token: Option<String>,
    pub remaining: Option<usize>,
}

impl ListMeta {
    pub(super) fn to_value(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(token) = &self.continue_token {
            set_member(&mut metadata, "continue", token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            set_member(&mut metadata, "remainingItemCount", remaining.into());
        }
        metadata
    }
}

/// What goes into the `object` member of table rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowObject {
    Metadata,
    Whole,
    Nothing,
}

impl RowObject {
    /// What the caller wants in its rows; who wants no table is not asked.
    pub(crate) fn of(call: &Call) -> Result<Self, Failure> {
        match call.answer.shape {
            Shape::Table(_) => Self::parse(call.query.get("includeObject")),
            Shape::Whole | Shape::Partial | Shape::PartialList => Ok(Self::Metadata),
        }
    }

    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Whole),
            Some("None") => Ok(Self::Nothing),
            Some(other) => Err(Failure::bad_request(format!(
                "includeObject: {other:?} is not one of None, Metadata, Object"
            ))),
        }
    }
}

const JSON: &str = "application/json";

/// A finished answer body with its headers.
pub(crate) fn json_response(code: StatusCode, body: Bytes) -> Response {
    formed_response(code, JSON, body)
}

pub(crate) fn formed_response(code: StatusCode, media: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Any value in the syntax asked for.
pub(crate) fn respond(code: StatusCode, value: &Value, answer: Answer) -> Response {
    let (media, body) = match (answer.syntax, answer.pretty) {
        (Syntax::Protobuf, _) => match objects::proto::encode(value) {
            Ok(body) => return formed_response(code, PROTOBUF, body.into()),
            Err(error) => return no_protobuf(&error).into_response(),
        },
        (Syntax::Yaml, _) => ("application/yaml", yaml(value)),
        (Syntax::Json, true) => (JSON, pretty(value) + "\n"),
        (Syntax::Json, false) => (JSON, value.to_string()),
    };
    formed_response(code, media, body.into())
}

/// Blanks that are sent with an object, at most. A few bytes that are nested deeply have hundreds each.
const MAX_INDENT_BYTES: usize = 4 << 20;

/// With line ends and blanks, as people like it, unless those were more than anybody looks at.
pub(crate) fn pretty(value: &Value) -> String {
    let is_short = indent_bytes(value, 0) <= MAX_INDENT_BYTES;
    let text = is_short.then(|| serde_json::to_string_pretty(value).ok()).flatten();
    text.unwrap_or_else(|| value.to_string())
}

/// The same as YAML; every JSON document is one.
pub(crate) fn yaml(value: &Value) -> String {
    if indent_bytes(value, 0) > MAX_INDENT_BYTES {
        return value.to_string() + "\n";
    }
    objects::json::encode_yaml(value)
}

/// Blanks before the lines of a value that lies so deep.
fn indent_bytes(value: &Value, depth: usize) -> usize {
    let within = |inner: &Value| 2 * (depth + 1) + indent_bytes(inner, depth + 1);
    match value {
        Value::Array(items) => items.iter().map(within).sum(),
        Value::Object(members) => members.values().map(within).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The object as protobuf, without its envelope.
pub(crate) fn bare(resource: &Resource, stored: &Stored) -> Result<Vec<u8>, Failure> {
    let object = value(resource, stored)?;
    objects::proto::bare(&resource.api_version, &resource.kind, &object)
        .map_err(|error| no_protobuf(&error))
}

/// What was checked when it was written has such a form.
pub(crate) fn no_protobuf(error: &objects::proto::EncodeError) -> Failure {
    Failure::internal(format!("the object cannot be shown as protobuf: {error}"))
}

/// One object in the shape asked for.
pub(crate) fn object_response(
    resource: &Resource,
    code: StatusCode,
    object: &Value,
    answer: Answer,
    now: Timestamp,
    row: RowObject,
) -> Result<Response, Failure> {
    let shaped: Cow<'_, Value> = match answer.shape {
        Shape::Whole => Cow::Borrowed(object),
        Shape::Partial => Cow::Owned(partial(object)),
        Shape::PartialList => return Err(Failure::not_acceptable("application/json")),
        Shape::Table(version) => {
            let revision = admit::metadata_text(object, "resourceVersion").parse().unwrap_or(0);
            let meta = ListMeta { revision, ..ListMeta::default() };
            let rows = vec![table_row(resource, object, now, row)];
            Cow::Owned(table(resource, version, &meta, rows, true))
        }
    };
    Ok(respond(code, &shaped, answer))
}

/// Whether the stored text is the answer.
pub(crate) fn is_stored_form(resource: &Resource, stored: &Stored, answer: Answer) -> bool {
    answer == PLAIN && is_current(resource, stored)
}

const PLAIN: Answer = Answer { syntax: Syntax::Json, shape: Shape::Whole, pretty: false };

/// A stored object; its text is sent untouched where that is the answer.
pub(crate) fn stored_response(
    resource: &Resource,
    code: StatusCode,
    stored: &Stored,
    answer: Answer,
    now: Timestamp,
    row: RowObject,
) -> Result<Response, Failure> {
    if answer == PLAIN {
        return Ok(json_response(code, text(resource, stored)?));
    }
    object_response(resource, code, &value(resource, stored)?, answer, now, row)
}

/// What a write has left of an object.
#[derive(Debug)]
pub(crate) enum Left {
    /// It is stored like this.
    Stored(Arc<Stored>),
    /// It is not: the write was a dry run, or took the object with it.
    Unstored(Value),
}

impl Left {
    pub(crate) fn into_value(self, resource: &Resource) -> Result<Value, Failure> {
        match self {
            Self::Stored(stored) => value(resource, &stored),
            Self::Unstored(object) => Ok(object),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Stored(stored) => &stored.key.name,
            Self::Unstored(object) => admit::metadata_text(object, "name"),
        }
    }

    pub(crate) fn response(&self, call: &Call, code: StatusCode) -> Result<Response, Failure> {
        let (resource, answer, now) = (&*call.resource, call.answer, call.now);
        match self {
            Self::Stored(stored) => {
                stored_response(resource, code, stored, answer, now, RowObject::Metadata)
            }
            Self::Unstored(object) => {
                object_response(resource, code, object, answer, now, RowObject::Metadata)
            }
        }
    }
}

pub(super) const META_VERSION: &str = "meta.k8s.io/v1";
const PARTIAL: &str = "PartialObjectMetadata";
pub(super) const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// Kind, name, labels, owners: nothing of the contents.
pub(crate) fn partial(object: &Value) -> Value {
    let mut shown = Map::new();
    shown.insert("kind".to_owned(), PARTIAL.into());
    shown.insert("apiVersion".to_owned(), META_VERSION.into());
    let metadata = object.get("metadata").cloned();
    shown.insert("metadata".to_owned(), metadata.unwrap_or_else(|| json!({})));
    shown.into()
}

/// The part of a stored text that all API versions of a type share.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

fn head(stored: &Stored) -> Result<Head<'_>, Failure> {
    serde_json::from_slice(&stored.body).map_err(|error| unreadable(stored, &error))
}

/// Of a stored object nothing but `metadata`; the rest is passed over.
pub(crate) fn metadata(stored: &Stored) -> Result<Value, Failure> {
    let metadata: Value = serde_json::from_str(head(stored)?.metadata.get())
        .map_err(|error| unreadable(stored, &error))?;
    Ok(json!({"metadata": metadata}))
}

/// [`partial`] of a stored object as protobuf, without its envelope.
pub(crate) fn bare_partial(stored: &Stored) -> Result<Vec<u8>, Failure> {
    objects::proto::bare(META_VERSION, PARTIAL, &metadata(stored)?)
        .map_err(|error| no_protobuf(&error))
}

/// [`partial`] of a stored object, copied out of its text.
pub(crate) fn partial_text(stored: &Stored) -> Result<Bytes, Failure> {
    let head = head(stored)?;
    let metadata = head.metadata.get();
    let start =
        "{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":";
    let mut text = BytesMut::with_capacity(start.len() + metadata.len() + 1);
    text.put_slice(start.as_bytes());
    text.put_slice(metadata.as_bytes());
    text.put_u8(b'}');
    Ok(text.freeze())
}

/// A `Table` around rows; watches send the columns only once.
pub(crate) fn table(
    resource: &Resource,
    version: &str,
    meta: &ListMeta,
    rows: Vec<Value>,
    with_columns: bool,
) -> Value {
    let columns = if with_columns { columns(resource) } else { Vec::new() };
    let mut table = Map::new();
    table.insert("kind".to_owned(), "Table".into());
    table.insert("apiVersion".to_owned(), version.into());
    table.insert("metadata".to_owned(), meta.to_value());
    table.insert("columnDefinitions".to_owned(), columns.into());
    table.insert("rows".to_owned(), rows.into());
    table.into()
}

pub(super) fn columns(resource: &Resource) -> Vec<Value> {
    let columns = match &resource.origin {
        Origin::BuiltIn(kind) => table::columns(kind),
        Origin::Custom(custom) => table::custom_columns(&custom.columns),
    };
    columns.iter().map(|column| json!(column)).collect()
}

pub(crate) fn table_row(
    resource: &Resource,
    object: &Value,
    now: Timestamp,
    row: RowObject,
) -> Value {
    let cells = match &resource.origin {
        Origin::BuiltIn(kind) if resource.is_events_v1() => {
            table::cells(kind, &objects::event::to_core(object), now)
        }
        Origin::BuiltIn(kind) => table::cells(kind, object, now),
        Origin::Custom(custom) => table::custom_cells(&custom.columns, object, now),
    };
    let mut shown = Map::new();
    shown.insert("cells".to_owned(), cells.into());
    match row {
        RowObject::Nothing => {}
        RowObject::Whole => {
            shown.insert("object".to_owned(), object.clone());
        }
        RowObject::Metadata => {
            shown.insert("object".to_owned(), partial(object));
        }
    }
    shown.into()
}

/// More text than this is cut: clients refuse answers whose headers are too long.
const MAX_WARNING_BYTES: usize = 4096;
const MAX_ONE_WARNING_CHARS: usize = 256;

/// Adds `Warning` headers, each text once; control characters would break the header.
pub(crate) fn with_warnings(mut response: Response, warnings: &[String]) -> Response {
    let total: usize = warnings.iter().map(String::len).sum();
    let longest = if total > MAX_WARNING_BYTES { MAX_ONE_WARNING_CHARS } else { usize::MAX };
    let mut room = MAX_WARNING_BYTES;
    let mut sent = std::collections::HashSet::new();
    for warning in warnings {
        let text: String = warning.chars().filter(|c| !c.is_control()).take(longest).collect();
        let Some(left) = room.checked_sub(text.len()) else { break };
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes())
            && sent.insert(text)
        {
            room = left;
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// `Status: Success` of a finished deletion.
pub(crate) fn deleted_response(
    resource: &Resource,
    name: &str,
    uid: &str,
    answer: Answer,
) -> Response {
    let mut details = json!({"name": name, "kind": resource.plural, "uid": uid});
    if !resource.group.is_empty() {
        set_member(&mut details, "group", resource.group.as_str().into());
    }
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    });
    respond(StatusCode::OK, &status, answer).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(warnings: &[String]) -> Vec<String> {
        let response = with_warnings(Response::new(Body::empty()), warnings);
        let all = response.headers().get_all(header::WARNING).iter();
        all.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn what_is_nested_deeply_is_not_shown_many_times_as_long() {
        let many = Value::from(vec![1; 50_000]);
        let deep = (0..100).fold(many, |inner, _| json!([inner]));
        let compact = deep.to_string();
        for text in [pretty(&deep), yaml(&deep)] {
            assert!(text.len() <= compact.len() + 1, "{} of {}", text.len(), compact.len());
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), deep);
        }
        assert_eq!(pretty(&json!({"a": [1]})), "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(yaml(&json!({"a": {"b": 1}})), "a:\n  b: 1\n");
    }

    #[test]
    fn warnings_are_quoted_once_and_keep_within_bounds() {
        assert_eq!(
            warned(&["a \"b\" \\ \u{e9}\n".to_owned(), "x".to_owned(), "x".to_owned()]),
            ["299 - \"a \\\"b\\\" \\\\ \u{e9}\"", "299 - \"x\""]
        );
        let many: Vec<String> =
            (0..100).map(|index| format!("{index}{}", "y".repeat(999))).collect();
        let sent = warned(&many);
        assert!(!sent.is_empty() && sent.iter().map(String::len).sum::<usize>() < 6000);
    }
}
