//! OpenAPI documents of the served types: version 3 for kubectl (one document a group-version,
//! cached by its hash), version 2 as one JSON document for older tools.

mod version_2;
mod words;

use std::sync::Arc;

use bytes::Bytes;
use objects::builtin::openapi::{Schemas, Version};
use serde_json::{Map, Value, json};

use crate::registry::{GroupVersion, Registry, Resource};
use crate::set_member;
pub(crate) use version_2::MEDIA as VERSION_2_PROTOBUF;
use words::Published;

/// `/openapi/v3`
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for group in registry.groups() {
        for one in &group.versions {
            let path = document_path(&group.name, &one.version);
            let url =
                format!("/openapi/v3/{path}?hash={}-{:016X}", crate::BUILD_HASH, one.fingerprint);
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn document_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/G/V`
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Option<Bytes> {
    let one = registry.group_version(group, version)?;
    Some(one.openapi(|| Bytes::from(make_document(one).to_string())))
}

fn make_document(one: &GroupVersion) -> Value {
    let mut paths = Map::new();
    let (schemas, names) = schemas(one.resources.iter(), Version::V3);
    for (resource, name) in one.resources.iter().zip(&names) {
        add_paths(&mut paths, resource, name);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Holdfast", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

/// The schemas of types and of what they are made of, and the name of each type's own.
fn schemas<'a>(
    resources: impl Iterator<Item = &'a Arc<Resource>>,
    version: Version,
) -> (Map<String, Value>, Vec<String>) {
    let words = Published::read();
    let mut built_in = Schemas::new(version, &words);
    let metadata = built_in.add_object_meta().unwrap_or_default();
    let metadata = version.reference(&metadata);
    let mut custom = Map::new();
    let mut names = Vec::new();
    for resource in resources {
        let known = resource
            .built_in()
            .and_then(|kind| built_in.add_kind(kind.group, kind.version, kind.kind));
        names.push(known.unwrap_or_else(|| {
            let name = custom_name(resource);
            custom.insert(name.clone(), custom_schema(resource, metadata.clone(), version));
            name
        }));
    }
    let mut all = built_in.finish();
    all.extend(custom);
    (all, names)
}

/// Reverse-domain name of a schema: unique, and its last part is what `kubectl explain` shows.
fn custom_name(resource: &Resource) -> String {
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

fn custom_schema(resource: &Resource, metadata: Value, version: Version) -> Value {
    let mut schema = objects::schema::to_openapi(&resource.node);
    set_member(&mut schema, "x-kubernetes-group-version-kind", json!([gvk(resource)]));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let text = |description: &str| json!({"type": "string", "description": description});
        properties
            .insert("apiVersion".to_owned(), text("Group and version of this object's form."));
        properties.insert("kind".to_owned(), text("The type of this object."));
        if properties.contains_key("metadata") {
            let mut metadata = match version {
                Version::V2 => metadata,
                Version::V3 => json!({"allOf": [metadata], "default": {}}),
            };
            let about = "Name, labels, owners and life cycle of the object.";
            set_member(&mut metadata, "description", about.into());
            properties.insert("metadata".to_owned(), metadata);
        }
    }
    schema
}

fn gvk(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, schema_name: &str) {
    let root = document_path(&resource.group, &resource.version);
    let collection = if resource.namespaced {
        format!("/{root}/namespaces/{{namespace}}/{}", resource.plural)
    } else {
        format!("/{root}/{}", resource.plural)
    };
    let body = json!({"application/json": {
        "schema": {"$ref": format!("#/components/schemas/{schema_name}")},
    }});
    let operation = |action: &str, write: bool| {
        let mut parameters = vec![parameter("pretty")];
        if write {
            parameters.extend(["dryRun", "fieldManager", "fieldValidation"].map(parameter));
        }
        if action == "patch" {
            parameters.push(parameter("force"));
        }
        json!({
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": body}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk(resource),
        })
    };
    let mut on_collection = Map::new();
    let mut on_item = Map::new();
    for verb in &resource.verbs {
        match *verb {
            "list" => on_collection.insert("get".to_owned(), operation("list", false)),
            "create" => on_collection.insert("post".to_owned(), operation("post", true)),
            "deletecollection" => {
                on_collection.insert("delete".to_owned(), operation("deletecollection", true))
            }
            "get" => on_item.insert("get".to_owned(), operation("get", false)),
            "update" => on_item.insert("put".to_owned(), operation("put", true)),
            "patch" => on_item.insert("patch".to_owned(), operation("patch", true)),
            "delete" => on_item.insert("delete".to_owned(), operation("delete", true)),
            _ => None,
        };
    }
    if !on_item.is_empty() {
        paths.insert(format!("{collection}/{{name}}"), on_item.into());
    }
    paths.insert(collection, on_collection.into());
}

fn parameter(name: &str) -> Value {
    json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}})
}

/// `/openapi/v2` as JSON.
pub(crate) fn version_2(registry: &Registry) -> Bytes {
    registry.openapi_v2.get_or_init(|| Bytes::from(make_version_2(registry).to_string())).clone()
}

/// `/openapi/v2` as protobuf, which kubectl before 1.34 asks for.
pub(crate) fn version_2_protobuf(registry: &Registry) -> Bytes {
    let make = || Bytes::from(version_2::encode(&make_version_2(registry)));
    registry.openapi_v2_protobuf.get_or_init(make).clone()
}

/// Every type in one document.
fn make_version_2(registry: &Registry) -> Value {
    let resources = || {
        let versions = registry.groups().iter().flat_map(|group| &group.versions);
        versions.flat_map(|one| &one.resources)
    };
    let (definitions, names) = schemas(resources(), Version::V2);
    let mut paths = Map::new();
    for (resource, name) in resources().zip(&names) {
        add_paths(&mut paths, resource, name);
    }
    paths.values_mut().for_each(older_operations);
    json!({
        "swagger": "2.0",
        "info": {"title": "Holdfast", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "definitions": definitions,
    })
}

/// Operations as version 2 writes them: types of parameters beside their names, no contents.
fn older_operations(path: &mut Value) {
    for operation in path.as_object_mut().into_iter().flat_map(|methods| methods.values_mut()) {
        let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
        for parameter in parameters.into_iter().flatten() {
            let schema = parameter.as_object_mut().and_then(|one| one.remove("schema"));
            if let (Some(parameter), Some(Value::Object(schema))) =
                (parameter.as_object_mut(), schema)
            {
                parameter.extend(schema);
            }
        }
        set_member(operation, "responses", json!({"200": {"description": "OK"}}));
    }
}
