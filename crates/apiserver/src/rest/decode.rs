//! Bodies into objects of one type: syntax, kind, JSON types, unknown members.

use http::HeaderMap;
use objects::cause::{Cause, Reason};
use objects::{json, proto, prune, validate};
use serde_json::Value;

use super::options::FieldValidation;
use crate::failure::{Failure, Subject};
use crate::negotiate::{self, BodyForm};
use crate::registry::Resource;

/// A decoded body and what is doubtful about it.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub value: Value,
    /// Members given twice, as paths.
    pub duplicates: Vec<String>,
}

/// Any JSON, YAML or protobuf body.
pub(crate) fn body(headers: &HeaderMap, bytes: &[u8], protobuf: bool) -> Result<Decoded, Failure> {
    let form = negotiate::body_form(headers, protobuf)?;
    if bytes.is_empty() {
        return Err(Failure::bad_request("the request has no body"));
    }
    let decoded = match form {
        BodyForm::Json => json::decode(bytes),
        BodyForm::Yaml => json::decode_yaml(bytes),
        BodyForm::Protobuf => {
            let decoded = proto::decode(bytes).map_err(|error| {
                Failure::bad_request(format!("the protobuf body cannot be read: {error}"))
            })?;
            let mut value = decoded.value;
            if let Some(members) = value.as_object_mut() {
                members.insert("apiVersion".into(), decoded.api_version.into());
                members.insert("kind".into(), decoded.kind.into());
            }
            return Ok(Decoded { value, duplicates: Vec::new() });
        }
    };
    let decoded = decoded
        .map_err(|error| Failure::bad_request(format!("the body cannot be read: {error}")))?;
    Ok(Decoded { value: decoded.value, duplicates: decoded.duplicates })
}

/// A body that is one object of `resource`. Warnings for doubtful members are added.
pub(crate) fn object(
    resource: &Resource,
    headers: &HeaderMap,
    bytes: &[u8],
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<Value, Failure> {
    let decoded = body(headers, bytes, resource.built_in().is_some())?;
    let mut value = decoded.value;
    check_kind(resource, &mut value)?;
    shape(resource, &mut value, decoded.duplicates, validation, warnings)?;
    Ok(value)
}

/// A kind that is sent but never stored: options, a scale, a request for a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
}

pub(crate) const DELETE_OPTIONS: Sent = Sent { group: "", version: "v1", kind: "DeleteOptions" };
pub(crate) const SCALE: Sent = Sent { group: "autoscaling", version: "v1", kind: "Scale" };
pub(crate) const TOKEN_REQUEST: Sent =
    Sent { group: "authentication.k8s.io", version: "v1", kind: "TokenRequest" };

/// A body of such a kind, decoded by its type: what is spelled wrong is refused, never ignored.
/// No body is an empty one.
pub(crate) fn sent(
    sent: Sent,
    resource: &Resource,
    headers: &HeaderMap,
    bytes: &[u8],
) -> Result<Value, Failure> {
    if bytes.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let value = body(headers, bytes, true)?.value;
    check_sent(sent, resource, &value)?;
    Ok(value)
}

/// Is this value of that kind?
pub(crate) fn check_sent(sent: Sent, resource: &Resource, value: &Value) -> Result<(), Failure> {
    let Sent { group, version, kind } = sent;
    let refuse = |why: String| {
        let text = format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
        Err(Failure::bad_request(text))
    };
    if !value.is_object() {
        return refuse("the body is not an object".to_owned());
    }
    let node = objects::builtin::node(group, version, kind)
        .ok_or_else(|| Failure::internal(format!("{kind} is not a known type")))?;
    if let Err(error) = validate::types(&node, value) {
        return refuse(error.to_string());
    }
    let given = |member: &str| value.get(member).and_then(Value::as_str).unwrap_or_default();
    if !matches!(given("kind"), "") && given("kind") != kind {
        return refuse(format!("its kind is {:?}", given("kind")));
    }
    if !speaks_of(sent, resource, given("apiVersion")) {
        return refuse(format!("its apiVersion is {:?}", given("apiVersion")));
    }
    Ok(())
}

/// Options may carry the version of what they are about: each client library has its own habit.
fn speaks_of(sent: Sent, resource: &Resource, api_version: &str) -> bool {
    let own = crate::registry::api_version(sent.group, sent.version);
    let of_resource = sent.kind == DELETE_OPTIONS.kind
        && match api_version.split_once('/') {
            Some((group, _)) => group == resource.group || group == "meta.k8s.io",
            None => false,
        };
    api_version.is_empty() || api_version == own || of_resource
}

/// Checks JSON types and removes what the type does not know.
pub(crate) fn shape(
    resource: &Resource,
    value: &mut Value,
    duplicates: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    if let Some(kind) = resource.built_in() {
        validate::types(&resource.node, value)
            .map_err(|error| cannot_be_handled(resource, &error.to_string()))?;
        if let Some(text) = objects::kinds::decode_errors(kind, value) {
            return Err(Failure::bad_request(text));
        }
        objects::kinds::fill_map_nulls(kind, value);
    } else {
        let nothing = Value::Object(serde_json::Map::new());
        let metadata = value.get("metadata").filter(|m| !m.is_null()).unwrap_or(&nothing);
        validate::types(&objects::builtin::object_meta(), metadata)
            .map_err(|error| cannot_be_handled(resource, &format!("metadata: {error}")))?;
    }
    let unknown = prune::prune(&resource.node, value);
    report_doubtful(resource, unknown, duplicates, validation, warnings)
}

fn report_doubtful(
    resource: &Resource,
    unknown: Vec<String>,
    duplicates: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Result<(), Failure> {
    let texts: Vec<String> = duplicates
        .into_iter()
        .map(|path| format!("duplicate field {path:?}"))
        .chain(unknown.into_iter().map(|path| format!("unknown field {path:?}")))
        .collect();
    match validation {
        FieldValidation::Strict if !texts.is_empty() => {
            let text = format!("strict decoding error: {}", texts.join(", "));
            Err(cannot_be_handled(resource, &text))
        }
        FieldValidation::Warn => {
            warnings.extend(texts);
            Ok(())
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(()),
    }
}

fn cannot_be_handled(resource: &Resource, why: &str) -> Failure {
    Failure::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        resource.kind, resource.version, resource.kind
    ))
}

/// Built-in bodies may leave out kind and apiVersion, custom resources may not.
pub(crate) fn check_kind(resource: &Resource, value: &mut Value) -> Result<(), Failure> {
    let Some(members) = value.as_object_mut() else {
        return Err(Failure::bad_request("the body is not a JSON object"));
    };
    for (member, expected) in [("kind", &resource.kind), ("apiVersion", &resource.api_version)] {
        let given = members.get(member).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            if resource.custom().is_some() {
                let name = if member == "kind" { "Kind" } else { member };
                return Err(Failure::bad_request(format!(
                    "Object '{name}' is missing in the body: it should be {expected:?}"
                )));
            }
            members.insert(member.to_owned(), expected.as_str().into());
        } else if given != expected {
            return Err(wrong_kind(resource, member, given, expected, members));
        }
    }
    Ok(())
}

fn wrong_kind(
    resource: &Resource,
    member: &str,
    given: &str,
    expected: &str,
    members: &serde_json::Map<String, Value>,
) -> Failure {
    if member == "kind" && resource.custom().is_some() {
        let name = members
            .get("metadata")
            .and_then(|metadata| metadata.get("name"))
            .and_then(Value::as_str)
            .unwrap_or_default();
        let text = format!("Invalid value: {given:?}: must be {expected}");
        let cause = Cause::new(Reason::Invalid, "kind", text);
        return Failure::invalid(Subject::new(&resource.group, &resource.kind, name), &[cause]);
    }
    Failure::bad_request(format!(
        "the {member} in the body ({given}) does not match the one of this path ({expected})"
    ))
}
