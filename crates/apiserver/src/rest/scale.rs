//! The `/scale` endpoint: a small object that reads and writes the replica count of a big one.

use axum::response::Response;
use http::StatusCode;
use jiff::Timestamp;
use objects::crd::Scale;
use objects::jsonpath::Path;
use objects::{kinds, patch, table};
use serde_json::{Value, json};

use super::admit::{self, Endpoint};
use super::options::WriteOptions;
use super::view::RowObject;
use super::{Call, decode, read, update, view};
use crate::failure::Failure;
use crate::negotiate::{self, Answer, PatchForm, Shape};
use crate::registry::Resource;
use crate::server::Server;
use crate::set_member;

pub(crate) fn get(
    server: &Server,
    call: &Call,
    name: &str,
    paths: &Scale,
) -> Result<Response, Failure> {
    let stored = read::find(server, &call.resource, call.namespace(), name)?;
    let object = view::value(&call.resource, &stored)?;
    respond(call, &scale_of(&call.resource, &object, paths))
}

fn respond(call: &Call, scale: &Value) -> Result<Response, Failure> {
    let answer = Answer { shape: Shape::Whole, ..call.answer };
    match call.answer.shape {
        Shape::Whole => Ok(view::respond(StatusCode::OK, scale, answer)),
        Shape::Table(version) => {
            let row = RowObject::of(call)?;
            let table = table_of(scale, version, row, call.now);
            Ok(view::respond(StatusCode::OK, &table, answer))
        }
        Shape::Partial | Shape::PartialList => Err(Failure::not_acceptable("application/json")),
    }
}

/// The `Table` of one `Scale`, whatever it scales.
fn table_of(scale: &Value, version: &str, row: RowObject, now: Timestamp) -> Value {
    let column = |name: &str, kind: &str, format: &str, description: &str| {
        json!({
            "name": name,
            "type": kind,
            "format": format,
            "description": description,
            "priority": 0,
        })
    };
    let created = admit::metadata_text(scale, "creationTimestamp");
    let number = |pointer: &str| scale.pointer(pointer).cloned().unwrap_or_default();
    let mut line = json!({"cells": [
        admit::metadata_text(scale, "name"),
        number("/spec/replicas"),
        number("/status/replicas"),
        table::age(created, now),
    ]});
    match row {
        RowObject::Nothing => {}
        RowObject::Metadata => set_member(&mut line, "object", view::partial(scale)),
        RowObject::Whole => set_member(&mut line, "object", scale.clone()),
    }
    json!({
        "kind": "Table",
        "apiVersion": version,
        "metadata": {"resourceVersion": admit::metadata_text(scale, "resourceVersion")},
        "columnDefinitions": [
            column("Name", "string", "name", "Name of the scaled object."),
            column("Desired", "integer", "", "Replicas that are wanted."),
            column("Available", "integer", "", "Replicas that are there."),
            column("Age", "string", "", "Time since the object was made."),
        ],
        "rows": [line],
    })
}

/// The `Scale` of an object.
fn scale_of(resource: &Resource, object: &Value, paths: &Scale) -> Value {
    let at = |path: &str| Path::parse(path).ok().and_then(|path| path.get(object).cloned());
    let number = |path: &str| at(path).and_then(|value| value.as_i64()).unwrap_or(0);
    let mut metadata = json!({});
    for member in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get("metadata").and_then(|metadata| metadata.get(member)) {
            set_member(&mut metadata, member, value.clone());
        }
    }
    let mut status = json!({"replicas": number(&paths.status_path)});
    let selector = match &paths.selector_path {
        Some(path) => at(path).and_then(|value| value.as_str().map(str::to_owned)),
        None if resource.built_in().is_some() => {
            Some(kinds::selector_text(object, "spec.selector"))
        }
        None => None,
    };
    if let Some(selector) = selector {
        set_member(&mut status, "selector", selector.into());
    }
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": number(&paths.spec_path)},
        "status": status,
    })
}

pub(crate) async fn put(
    server: &Server,
    call: &Call,
    name: &str,
    paths: &Scale,
) -> Result<Response, Failure> {
    if call.body.is_empty() {
        return Err(Failure::bad_request("the request has no body"));
    }
    let body = decode::sent(decode::SCALE, &call.resource, &call.headers, &call.body)?;
    write(server, call, name, paths, "UpdateOptions", |_| Ok(body.clone())).await
}

pub(crate) async fn patch(
    server: &Server,
    call: &Call,
    name: &str,
    paths: &Scale,
) -> Result<Response, Failure> {
    let form = negotiate::patch_form(&call.headers, call.resource.built_in().is_some())?;
    let decoded = objects::json::decode(&call.body)
        .or_else(|_| objects::json::decode_yaml(&call.body))
        .map_err(|error| Failure::bad_request(format!("the patch cannot be read: {error}")))?;
    write(server, call, name, paths, "PatchOptions", |scale| {
        let mut scale = scale.clone();
        match form {
            PatchForm::Json => patch::json_patch(&mut scale, &decoded.value)
                .map_err(|error| Failure::unprocessable(error.to_string()))?,
            PatchForm::Merge | PatchForm::Strategic | PatchForm::Apply => {
                patch::merge(&mut scale, &decoded.value);
            }
        }
        Ok(scale)
    })
    .await
}

async fn write(
    server: &Server,
    call: &Call,
    name: &str,
    paths: &Scale,
    kind: &str,
    change: impl Fn(&Value) -> Result<Value, Failure>,
) -> Result<Response, Failure> {
    let options = WriteOptions::parse(kind, &call.query, &call.headers)?;
    let mut warnings = Vec::new();
    let edit = |object: &mut Value| {
        let scale = change(&scale_of(&call.resource, object, paths))?;
        decode::check_sent(decode::SCALE, &call.resource, &scale)?;
        check_same_object(name, &scale)?;
        let replicas = wanted(call, name, &scale)?;
        let version = admit::metadata_text(&scale, "resourceVersion");
        if !version.is_empty() {
            admit::metadata_mut(object).insert("resourceVersion".into(), version.into());
        }
        let path = Path::parse(&paths.spec_path).map_err(Failure::internal)?;
        if path.set(object, replicas.into()) {
            return Ok(Vec::new());
        }
        Err(Failure::internal(format!("{} cannot be set", paths.spec_path)))
    };
    let object =
        update::patch_object(server, call, name, Endpoint::Scale, &options, edit, &mut warnings)
            .await?;
    let object = object.into_value(&call.resource)?;
    respond(call, &scale_of(&call.resource, &object, paths))
}

/// A scale that names another object is not meant for this one.
fn check_same_object(name: &str, scale: &Value) -> Result<(), Failure> {
    let given = admit::metadata_text(scale, "name");
    if given.is_empty() || given == name {
        return Ok(());
    }
    Err(super::create::name_mismatch(given, name))
}

fn wanted(call: &Call, name: &str, scale: &Value) -> Result<i64, Failure> {
    let replicas = match scale.pointer("/spec/replicas") {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().unwrap_or_default(),
    };
    if replicas < 0 {
        let cause = objects::cause::Cause::invalid(
            "spec.replicas",
            &replicas.into(),
            "must be greater than or equal to 0",
        );
        return Err(admit::invalid(&call.resource, name, &[cause]));
    }
    Ok(replicas)
}
