//! OpenAPI documents of the served types: version 3 for kubectl (one document a group-version,
//! cached by its hash), version 2 as one JSON document for older tools.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::registry::{GroupVersion, Registry, Resource};
use crate::set_member;

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
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in &one.resources {
        let name = schema_name(resource);
        schemas.insert(name.clone(), schema(resource, "#/components/schemas/"));
        add_paths(&mut paths, resource, &name);
    }
    schemas.insert(
        META_NAME.to_owned(),
        objects::schema::to_openapi(&objects::builtin::object_meta()),
    );
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Holdfast", "version": crate::KUBERNETES_VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

const META_NAME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Reverse-domain name of a schema: unique, and its last part is what `kubectl explain` shows.
fn schema_name(resource: &Resource) -> String {
    if resource.built_in().is_some() {
        let group = resource.group.split('.').next().unwrap_or_default();
        let group = if group.is_empty() { "core" } else { group };
        format!("io.k8s.api.{group}.{}.{}", resource.version, resource.kind)
    } else {
        let mut parts: Vec<&str> = resource.group.split('.').collect();
        parts.reverse();
        format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
    }
}

fn schema(resource: &Resource, prefix: &str) -> Value {
    let mut schema = objects::schema::to_openapi(&resource.node);
    if let Some(kind) = resource.built_in() {
        set_member(&mut schema, "description", kind.description.into());
    }
    set_member(&mut schema, "x-kubernetes-group-version-kind", json!([gvk(resource)]));
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let text = |description: &str| json!({"type": "string", "description": description});
        properties
            .insert("apiVersion".to_owned(), text("Group and version of this object's form."));
        properties.insert("kind".to_owned(), text("The type of this object."));
        if properties.contains_key("metadata") {
            properties.insert(
                "metadata".to_owned(),
                json!({
                    "description": "Name, labels, owners and life cycle of the object.",
                    "allOf": [{"$ref": format!("{prefix}{META_NAME}")}],
                    "default": {},
                }),
            );
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

/// `/openapi/v2` as JSON: definitions only, for tools that look types up there.
pub(crate) fn version_2(registry: &Registry) -> Bytes {
    let make = || {
        let mut definitions = Map::new();
        for one in registry.groups().iter().flat_map(|group| &group.versions) {
            for resource in &one.resources {
                definitions.insert(schema_name(resource), schema(resource, "#/definitions/"));
            }
        }
        definitions.insert(
            META_NAME.to_owned(),
            objects::schema::to_openapi(&objects::builtin::object_meta()),
        );
        let document = json!({
            "swagger": "2.0",
            "info": {"title": "Holdfast", "version": crate::KUBERNETES_VERSION},
            "paths": {},
            "definitions": definitions,
        });
        Bytes::from(document.to_string())
    };
    registry.openapi_v2.get_or_init(make).clone()
}
