//! The API as an OpenAPI document, served at `/v3/openapi.json`. Paths come from one table, which a
//! test holds against the router; bodies are described in [`bodies`], which a test holds against what
//! handlers take.

mod bodies;
mod replies;

use serde_json::{Map, Value, json};

use super::version::Version;
use crate::model::status::{BackupStatus, STATUSES};

/// (method, path after `/v3`, tag, success, what it does)
pub(super) const PATHS: &[(&str, &str, &str, &str, &str)] = &[
    ("get", "/volumes", "volumes", "200", "List volumes: id, name, links; from 3.72 backup_status"),
    (
        "post",
        "/volumes",
        "volumes",
        "202",
        "Create a volume: empty, or from a snapshot, volume, backup or raw image",
    ),
    ("get", "/volumes/detail", "volumes", "200", "List volumes whole"),
    ("get", "/volumes/summary", "volumes", "200", "Count volumes and their gibibytes (3.12)"),
    ("get", "/volumes/{id}", "volumes", "200", "Show a volume"),
    ("put", "/volumes/{id}", "volumes", "200", "Rename or describe a volume"),
    (
        "delete",
        "/volumes/{id}",
        "volumes",
        "202",
        "Delete a volume; refused while a backup or a restore runs",
    ),
    (
        "post",
        "/volumes/{id}/action",
        "volumes",
        "202",
        "An action: os-extend, os-reset_status, os-attach, …",
    ),
    ("get", "/volumes/{id}/metadata", "volumes", "200", "Show metadata"),
    ("post", "/volumes/{id}/metadata", "volumes", "200", "Add metadata"),
    ("put", "/volumes/{id}/metadata", "volumes", "200", "Replace metadata"),
    ("get", "/volumes/{id}/metadata/{key}", "volumes", "200", "Show one pair"),
    ("put", "/volumes/{id}/metadata/{key}", "volumes", "200", "Set one pair"),
    ("delete", "/volumes/{id}/metadata/{key}", "volumes", "200", "Remove one pair"),
    ("get", "/snapshots", "snapshots", "200", "List snapshots"),
    ("post", "/snapshots", "snapshots", "202", "Create a snapshot; allowed while a backup runs"),
    ("get", "/snapshots/detail", "snapshots", "200", "List snapshots whole"),
    ("get", "/snapshots/{id}", "snapshots", "200", "Show a snapshot"),
    ("put", "/snapshots/{id}", "snapshots", "200", "Rename or describe a snapshot"),
    ("delete", "/snapshots/{id}", "snapshots", "202", "Delete a snapshot"),
    ("post", "/snapshots/{id}/action", "snapshots", "202", "An action on a snapshot"),
    ("get", "/backups", "backups", "200", "List backups"),
    (
        "post",
        "/backups",
        "backups",
        "202",
        "Back up a volume or a snapshot; one at a time of a volume",
    ),
    ("get", "/backups/detail", "backups", "200", "List backups whole"),
    ("post", "/backups/import_record", "backups", "201", "Import a backup's record"),
    ("get", "/backups/{id}", "backups", "200", "Show a backup"),
    ("put", "/backups/{id}", "backups", "200", "Rename or describe a backup (3.9)"),
    ("delete", "/backups/{id}", "backups", "202", "Delete a backup"),
    (
        "post",
        "/backups/{id}/restore",
        "backups",
        "202",
        "Restore a backup, to a new volume or into one",
    ),
    ("get", "/backups/{id}/export_record", "backups", "200", "Export a backup's record"),
    ("post", "/backups/{id}/action", "backups", "202", "os-reset_status, os-force_delete"),
    ("get", "/attachments", "attachments", "200", "List attachments (3.27)"),
    (
        "post",
        "/attachments",
        "attachments",
        "200",
        "Reserve or connect a volume; allowed while a backup runs",
    ),
    ("get", "/attachments/detail", "attachments", "200", "List attachments whole"),
    ("get", "/attachments/{id}", "attachments", "200", "Show an attachment"),
    ("put", "/attachments/{id}", "attachments", "200", "Connect a reserved volume"),
    ("delete", "/attachments/{id}", "attachments", "200", "End an attachment"),
    ("post", "/attachments/{id}/action", "attachments", "204", "os-complete (3.44)"),
    ("get", "/types", "types", "200", "List volume types"),
    ("post", "/types", "types", "200", "Create a type"),
    ("get", "/types/{id}", "types", "200", "Show a type, or the default one"),
    ("put", "/types/{id}", "types", "200", "Change a type"),
    ("delete", "/types/{id}", "types", "202", "Delete a type"),
    ("get", "/types/{id}/extra_specs", "types", "200", "Show extra specs"),
    ("post", "/types/{id}/extra_specs", "types", "200", "Add extra specs"),
    ("get", "/types/{id}/encryption", "types", "200", "Show how volumes of a type are encrypted"),
    ("post", "/types/{id}/encryption", "types", "200", "Say how volumes of a type are encrypted"),
    ("get", "/types/{id}/encryption/{key}", "types", "200", "Show one field of it"),
    ("put", "/types/{id}/encryption/{key}", "types", "200", "Change it, by its id"),
    ("delete", "/types/{id}/encryption/{key}", "types", "202", "Remove it, by its id"),
    ("get", "/qos-specs", "qos", "200", "List QoS specs"),
    ("post", "/qos-specs", "qos", "200", "Create QoS specs"),
    ("get", "/qos-specs/{id}", "qos", "200", "Show QoS specs"),
    ("put", "/qos-specs/{id}", "qos", "200", "Set values of QoS specs"),
    ("delete", "/qos-specs/{id}", "qos", "202", "Delete QoS specs"),
    ("put", "/qos-specs/{id}/delete_keys", "qos", "202", "Remove values of QoS specs"),
    ("get", "/qos-specs/{id}/associations", "qos", "200", "List the types that have them"),
    ("get", "/qos-specs/{id}/associate", "qos", "202", "Give them to a type (vol_type_id)"),
    ("get", "/qos-specs/{id}/disassociate", "qos", "202", "Take them from a type (vol_type_id)"),
    ("get", "/qos-specs/{id}/disassociate_all", "qos", "202", "Take them from all types"),
    ("get", "/os-quota-sets/{project}", "quotas", "200", "Show limits of a project"),
    ("put", "/os-quota-sets/{project}", "quotas", "200", "Change limits of a project"),
    ("delete", "/os-quota-sets/{project}", "quotas", "200", "Back to the default limits"),
    ("get", "/limits", "quotas", "200", "Show limits and what is used"),
    ("get", "/volume-transfers", "transfers", "200", "List transfers"),
    ("post", "/volume-transfers", "transfers", "202", "Offer a volume to another project"),
    ("get", "/volume-transfers/{id}", "transfers", "200", "Show a transfer"),
    ("delete", "/volume-transfers/{id}", "transfers", "202", "Withdraw an offer"),
    ("post", "/volume-transfers/{id}/accept", "transfers", "202", "Accept an offer"),
    ("get", "/messages", "messages", "200", "List messages about failed work (3.3)"),
    ("get", "/messages/{id}", "messages", "200", "Show a message"),
    ("delete", "/messages/{id}", "messages", "204", "Delete a message"),
    ("get", "/os-availability-zone", "service", "200", "List availability zones"),
    ("get", "/os-services", "service", "200", "List services"),
    ("get", "/scheduler-stats/get_pools", "service", "200", "List pools"),
    ("get", "/extensions", "service", "200", "List extensions"),
    ("get", "/resource_filters", "service", "200", "List filters (3.33)"),
];

fn parameters(path: &str, tag: &str) -> Vec<Value> {
    let text = json!({"type": "string"});
    let mut all = vec![json!({
        "name": "OpenStack-API-Version", "in": "header", "required": false,
        "schema": {"type": "string", "pattern": "^volume (3\\.[0-9]+|latest)$"},
        "description": "volume 3.0 to 3.72; without it 3.0",
    })];
    for name in path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}')) {
        all.push(json!({"name": name, "in": "path", "required": true, "schema": text}));
    }
    let is_list = !path.contains('{') && ["volumes", "snapshots", "backups"].contains(&tag);
    if is_list && !path.ends_with("summary") && !path.ends_with("record") {
        for (name, schema) in [
            ("limit", json!({"type": "integer", "minimum": 0})),
            ("marker", text.clone()),
            ("sort", text.clone()),
            ("status", text.clone()),
        ] {
            all.push(json!({"name": name, "in": "query", "required": false, "schema": schema}));
        }
        if tag == "volumes" {
            all.push(json!({
                "name": "backup_status", "in": "query", "required": false, "schema": text,
                "description": "From 3.72: one of the four values, or null.",
            }));
        }
    }
    all
}

fn volume() -> Value {
    let text = json!({"type": ["string", "null"]});
    let backup: Vec<Value> =
        BackupStatus::ALL.iter().map(|it| json!(it.as_str())).chain([Value::Null]).collect();
    json!({
        "type": "object",
        "required": ["id", "status", "size", "links"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "name": text, "description": text,
            "size": {"type": "integer", "description": "Gibibytes"},
            "status": {"type": "string", "examples": STATUSES,
                "description": "What is being done to the volume itself. Below 3.72 a running or \
                 failed backup or restore shows here while the volume is available or in-use."},
            "backup_status": {"enum": backup,
                "description": "From 3.72: what a backup or a restore is doing to the volume."},
            "volume_type": text, "availability_zone": text,
            "snapshot_id": text, "source_volid": text,
            "bootable": {"enum": ["true", "false"]},
            "multiattach": {"type": "boolean"},
            "encrypted": {"type": "boolean"},
            "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
            "attachments": {"type": "array", "items": {"type": "object"}},
            "links": {"type": "array", "items": {"type": "object"}},
            "created_at": text, "updated_at": text,
        },
    })
}

fn backup() -> Value {
    let text = json!({"type": ["string", "null"]});
    json!({
        "type": "object",
        "required": ["id", "status", "volume_id", "size"],
        "properties": {
            "id": {"type": "string", "format": "uuid"},
            "status": {"enum": ["creating", "available", "deleting", "error", "restoring", "error_deleting"]},
            "volume_id": {"type": "string", "format": "uuid"},
            "snapshot_id": text, "name": text, "description": text, "fail_reason": text,
            "size": {"type": "integer"},
            "is_incremental": {"type": "boolean"},
            "has_dependent_backups": {"type": "boolean"},
            "data_timestamp": text, "created_at": text, "updated_at": text,
        },
    })
}

/// `{"badRequest": {"code": 400, "message": "…"}}`; of a path that is nothing, the three keys alone.
fn fault_body() -> Value {
    json!({
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"anyOf": [
            {"type": "object", "required": ["code", "message"], "properties": {
                "code": {"type": "integer"}, "message": {"type": "string"}}},
            {"type": ["string", "integer"]},
        ]},
    })
}

/// The whole document.
pub(super) fn document() -> Value {
    let fault = json!({
        "description": "Refused or failed: one key that names the fault, with its code and message",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}},
    });
    let offer = json!({
        "description": "Without a token, where there is no identity service: the one to come with",
        "headers": {"X-Auth-Token": {"schema": {"type": "string"}}},
    });
    let mut paths: Map<String, Value> = Map::new();
    for (method, path, tag, success, summary) in PATHS {
        let mut granted = json!({"description": "Done or accepted"});
        if let (Some(schema), Some(granted)) =
            (replies::schema(method, path, success), granted.as_object_mut())
        {
            granted.insert("content".to_owned(), json!({"application/json": {"schema": schema}}));
        }
        let mut operation = json!({
            "tags": [tag], "summary": summary, "parameters": parameters(path, tag),
            "responses": {"204": offer, *success: granted, "default": fault},
        });
        if let Some(schema) = bodies::schema(method, path) {
            let content = json!({"application/json": {"schema": schema}});
            if let Some(operation) = operation.as_object_mut() {
                let body = json!({"required": true, "content": content});
                operation.insert("requestBody".to_owned(), body);
            }
        }
        let entry = paths.entry(format!("/v3{path}")).or_insert_with(|| json!({}));
        if let Some(entry) = entry.as_object_mut() {
            entry.insert((*method).to_owned(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Block Storage v3",
            "version": Version::MAX.to_string(),
            "description": "Every path is also served with the project after /v3.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Volume": volume(), "Backup": backup(), "Fault": fault_body()},
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
        },
        "security": [{"token": []}],
    })
}
