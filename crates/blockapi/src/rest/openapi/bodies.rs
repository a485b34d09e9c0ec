//! What requests carry: the bodies of 3.72. Earlier versions know fewer keys.

use serde_json::{Value, json};

use crate::model::status::{ATTACH_STATUSES, BackupStatus, MIGRATION_STATUSES, STATUSES};
use crate::rest::input::SIZE_MAX;
use crate::store::qos::CONSUMERS;

const TEXT_CHARS: usize = 255;
const METADATA_KEY: &str = "^[a-zA-Z0-9_:. /-]{1,255}$";

/// The body of an operation, if it has one.
pub(super) fn schema(method: &str, path: &str) -> Option<Value> {
    let schema = match (method, path) {
        ("post", "/volumes") => volume(),
        ("put", "/volumes/{id}") => {
            wrapped("volume", named_with(json!({"metadata": pairs()})), &[])
        }
        ("post", "/volumes/{id}/action") => actions(),
        ("post" | "put", "/volumes/{id}/metadata") => {
            json!({"type": "object", "required": ["metadata"], "additionalProperties": false,
                "properties": {"metadata": pairs()}})
        }
        ("put", "/volumes/{id}/metadata/{key}") => {
            let mut one = pairs();
            put(&mut one, "minProperties", json!(1));
            put(&mut one, "maxProperties", json!(1));
            json!({"type": "object", "required": ["meta"], "additionalProperties": false,
                "properties": {"meta": one}})
        }
        // Other keys are passed over here.
        ("post", "/snapshots") => json!({"type": "object", "required": ["snapshot"],
        "additionalProperties": false, "properties": {"snapshot": {
            "type": "object", "required": ["volume_id"],
            "properties": named_with(json!({
                "volume_id": uuid(), "force": truth(), "metadata": pairs()})),
        }}}),
        ("put", "/snapshots/{id}") => wrapped("snapshot", named_with(json!({})), &[]),
        ("post", "/snapshots/{id}/action") => json!({"oneOf": [
            action("os-reset_status", &object(json!({"status": {"type": "string"}}), &["status"])),
            action("os-update_snapshot_status", &json!({"type": "object", "required": ["status"],
                "properties": {"status": {"type": "string"}, "progress": {}}})),
            action("os-force_delete", &json!({})),
        ]}),
        ("post", "/backups") => wrapped(
            "backup",
            json!({
                "volume_id": uuid(), "snapshot_id": maybe(&uuid()), "name": text(),
                "description": text(), "container": text(), "availability_zone": text(),
                "incremental": truth(), "force": truth(), "metadata": pairs(),
            }),
            &["volume_id"],
        ),
        ("put", "/backups/{id}") => wrapped(
            "backup",
            json!({"name": text(), "description": text(), "metadata": pairs()}),
            &[],
        ),
        ("post", "/backups/{id}/restore") => {
            wrapped("restore", json!({"volume_id": maybe(&uuid()), "name": text()}), &[])
        }
        ("post", "/backups/{id}/action") => json!({"oneOf": [
            action("os-reset_status",
                &object(json!({"status": {"enum": ["available", "error"]}}), &["status"])),
            action("os-force_delete", &json!({})),
        ]}),
        ("post", "/backups/import_record") => wrapped(
            "backup-record",
            json!({"backup_service": {"type": "string"}, "backup_url": {"type": "string"}}),
            &["backup_service", "backup_url"],
        ),
        ("post", "/attachments") => wrapped(
            "attachment",
            json!({
                "volume_uuid": uuid(), "instance_uuid": maybe(&uuid()),
                "connector": {"type": ["object", "null"]}, "mode": {"enum": ["rw", "ro", null]},
            }),
            &["volume_uuid"],
        ),
        ("put", "/attachments/{id}") => wrapped(
            "attachment",
            json!({"connector": {"type": "object", "minProperties": 1}}),
            &["connector"],
        ),
        ("post", "/attachments/{id}/action") => action("os-complete", &json!({})),
        (_, path) if path.starts_with("/types") || path.starts_with("/qos-specs") => {
            return of_types(method, path);
        }
        ("put", "/os-quota-sets/{project}") => json!({"type": "object", "required": ["quota_set"],
            "properties": {"quota_set": {"type": "object", "additionalProperties": {
                "type": "integer", "minimum": -1, "maximum": SIZE_MAX}}}}),
        ("post", "/volume-transfers") => wrapped(
            "transfer",
            json!({"volume_id": uuid(), "name": text(), "no_snapshots": truth()}),
            &["volume_id"],
        ),
        ("post", "/volume-transfers/{id}/accept") => {
            wrapped("accept", json!({"auth_key": {"type": "string"}}), &["auth_key"])
        }
        _ => return None,
    };
    Some(schema)
}

/// Types, and what they are given: encryption and limits.
fn of_types(method: &str, path: &str) -> Option<Value> {
    Some(match (method, path) {
        ("post", "/types") => json!({"type": "object", "required": ["volume_type"],
        "properties": {"volume_type": {"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
            "description": text(), "extra_specs": pairs(),
            "os-volume-type-access:is_public": truth(),
        }}}}),
        ("put", "/types/{id}") => wrapped(
            "volume_type",
            json!({"name": text(), "description": text(), "is_public": truth()}),
            &[],
        ),
        ("post", "/types/{id}/extra_specs") => {
            json!({"type": "object", "required": ["extra_specs"], "additionalProperties": false,
                "properties": {"extra_specs": pairs()}})
        }
        ("post", "/types/{id}/encryption") => wrapped("encryption", encryption(), &["provider"]),
        ("put", "/types/{id}/encryption/{key}") => wrapped("encryption", encryption(), &[]),
        ("post", "/qos-specs") => qos(&["name"]),
        ("put", "/qos-specs/{id}") => qos(&[]),
        ("put", "/qos-specs/{id}/delete_keys") => json!({"type": "object", "required": ["keys"],
            "properties": {"keys": {"type": "array", "items": {"type": "string"}}}}),
        _ => return None,
    })
}

fn put(object: &mut Value, key: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.to_owned(), value);
    }
}

fn text() -> Value {
    json!({"type": ["string", "null"], "maxLength": TEXT_CHARS})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

/// Or null.
fn maybe(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

fn truth() -> Value {
    json!({"type": ["boolean", "null"]})
}

fn size() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": SIZE_MAX})
}

fn pairs() -> Value {
    json!({"type": "object",
        "propertyNames": {"pattern": METADATA_KEY},
        "additionalProperties": {"type": "string", "maxLength": TEXT_CHARS}})
}

/// These keys and no others.
fn object(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "additionalProperties": false});
    put(&mut schema, "properties", properties);
    if !required.is_empty() {
        put(&mut schema, "required", json!(required));
    }
    schema
}

/// `{"<name>": {…}}`
fn wrapped(name: &str, properties: Value, required: &[&str]) -> Value {
    object(json!({ name: object(properties, required) }), &[name])
}

/// The names a thing has in both spellings, and more.
fn named_with(more: Value) -> Value {
    let mut all = json!({"name": text(), "description": text(), "display_name": text(),
        "display_description": text()});
    if let Value::Object(more) = more {
        for (key, value) in more {
            put(&mut all, &key, value);
        }
    }
    all
}

fn encryption() -> Value {
    json!({
        "provider": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS}, "cipher": text(),
        "key_size": {"type": ["integer", "null"], "minimum": 0, "maximum": SIZE_MAX},
        "control_location": {"enum": ["front-end", "back-end"]},
    })
}

/// Values, and who keeps them.
fn qos(required: &[&str]) -> Value {
    let mut specs = pairs();
    put(&mut specs, "properties", json!({"consumer": {"enum": CONSUMERS}}));
    put(&mut specs, "required", json!(required));
    object(json!({ "qos_specs": specs }), &["qos_specs"])
}

fn volume() -> Value {
    let mut properties = named_with(json!({
        "size": maybe(&size()), "volume_type": text(), "metadata": pairs(),
        "snapshot_id": maybe(&uuid()), "source_volid": maybe(&uuid()), "backup_id": maybe(&uuid()),
        "imageRef": text(), "image_id": text(), "availability_zone": text(),
        "multiattach": truth(), "group_id": maybe(&uuid()), "consistencygroup_id": maybe(&uuid()),
    }));
    // Sent by some clients, and not looked at.
    put(&mut properties, "project_id", json!({}));
    put(&mut properties, "user_id", json!({}));
    let mut body = wrapped("volume", properties, &[]);
    if let Some(outer) = body.get_mut("properties") {
        put(outer, "OS-SCH-HNT:scheduler_hints", json!({}));
    }
    put(&mut body, "examples", json!([{"volume": {"size": 1, "name": "data"}}]));
    body
}

/// `{"<name>": …}`
fn action(name: &str, arguments: &Value) -> Value {
    object(json!({ name: arguments }), &[name])
}

fn actions() -> Value {
    let connector = json!({"type": "object", "required": ["connector"],
        "properties": {"connector": {"type": "object"}}});
    let backup: Vec<Value> =
        BackupStatus::ALL.iter().map(|it| json!(it.as_str())).chain([Value::Null]).collect();
    let reset = object(
        json!({
            "status": {"enum": STATUSES}, "backup_status": {"enum": backup},
            "attach_status": {"enum": ATTACH_STATUSES},
            "migration_status": {"enum": MIGRATION_STATUSES},
        }),
        &[],
    );
    json!({"oneOf": [
        action("os-extend", &object(json!({"new_size": size()}), &["new_size"])),
        action("os-reset_status", &reset),
        action("os-force_delete", &json!({})),
        action("os-reserve", &json!({})),
        action("os-unreserve", &json!({})),
        action("os-begin_detaching", &json!({})),
        action("os-roll_detaching", &json!({})),
        action("os-attach", &json!({"type": "object", "required": ["mountpoint"], "properties": {
            "mountpoint": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
            "instance_uuid": maybe(&uuid()), "host_name": text(), "mode": {"enum": ["rw", "ro"]},
        }})),
        action("os-detach", &json!({"type": ["object", "null"],
            "properties": {"attachment_id": maybe(&uuid())}})),
        action("os-force_detach", &json!({"type": ["object", "null"], "properties": {
            "attachment_id": maybe(&uuid()), "connector": {"type": ["object", "null"]}}})),
        action("os-initialize_connection", &connector),
        action("os-terminate_connection", &connector),
        action("os-set_bootable", &json!({"type": "object", "required": ["bootable"],
            "properties": {"bootable": {"type": "boolean"}}})),
        action("os-update_readonly_flag", &json!({"type": "object", "required": ["readonly"],
            "properties": {"readonly": {"type": "boolean"}}})),
        action("os-retype", &json!({"type": "object", "required": ["new_type"], "properties": {
            "new_type": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
            "migration_policy": {"enum": ["never", "on-demand"]}}})),
        action("os-migrate_volume", &json!({"type": "object", "required": ["host"], "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
            "force_host_copy": truth(), "lock_volume": truth()}})),
        action("revert", &json!({"type": "object", "required": ["snapshot_id"],
            "properties": {"snapshot_id": uuid()}})),
        action("os-volume_upload_image", &object(json!({
            "image_name": {"type": "string", "minLength": 1, "maxLength": TEXT_CHARS},
            "force": truth(), "disk_format": {"enum": ["raw"]}, "container_format": text(),
            "visibility": text(), "protected": truth()}), &["image_name"])),
        action("os-reimage", &object(json!({"image_id": uuid(), "reimage_reserved": truth()}),
            &["image_id"])),
        action("os-set_image_metadata", &json!({"type": "object", "required": ["metadata"],
            "properties": {"metadata": pairs()}})),
        action("os-show_image_metadata", &json!({})),
        action("os-unset_image_metadata", &json!({"type": "object", "required": ["key"],
            "properties": {"key": {"type": "string"}}})),
    ]})
}
