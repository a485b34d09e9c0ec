//! What is shown of rows, by microversion and caller: views of one model.

mod volume;

use serde_json::{Map, Value, json};

use super::request::Request;
use crate::model::status::shown;
use crate::model::translate::to_legacy;
use crate::store::attachments::Attachment;
use crate::store::backups::Backup;
use crate::store::messages::{Message, text};
use crate::store::snapshots::Snapshot;
use crate::store::transfers::Transfer;
use crate::store::types::VolumeType;
use crate::store::volumes::Volume;
pub(crate) use volume::{Extent, VolumeView};

fn put(map: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = map.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

/// The status a client of this version sees.
pub(crate) fn status_of<'a>(request: &Request, volume: &'a Volume) -> &'a str {
    let status = volume.status.as_str();
    if request.version.has_backup_status() {
        return shown(status);
    }
    shown(to_legacy(status, volume.backup_status.as_deref()))
}

pub(crate) fn volume_summary(request: &Request, volume: &Volume) -> Value {
    let mut view = json!({
        "id": volume.id,
        "name": volume.name,
        "links": request.links.of("volumes", &volume.id),
    });
    if request.version.has_backup_status() {
        put(&mut view, "backup_status", volume.backup_status.clone());
    }
    view
}

fn since(view: &mut Value, shown: bool, key: &str, value: impl Into<Value>) {
    if shown {
        put(view, key, value);
    }
}

pub(crate) fn snapshot(request: &Request, it: &Snapshot, detail: bool, extended: bool) -> Value {
    let version = request.version;
    let mut view = json!({
        "id": it.id,
        "created_at": it.created_at,
        "updated_at": it.updated_at,
        "name": it.name,
        "description": it.description,
        "volume_id": it.volume_id,
        "status": it.status,
        "size": it.size,
        "metadata": it.metadata,
    });
    if detail {
        since(&mut view, version.has(14), "group_snapshot_id", it.group_snapshot_id.clone());
        since(&mut view, version.has(41), "user_id", it.user_id.clone());
        since(&mut view, version.has(65), "consumes_quota", it.consumes_quota);
    }
    if extended {
        put(&mut view, "os-extended-snapshot-attributes:project_id", it.project_id.clone());
        put(&mut view, "os-extended-snapshot-attributes:progress", it.progress.clone());
    }
    view
}

pub(crate) fn backup_summary(request: &Request, id: &str, name: Option<&str>) -> Value {
    json!({"id": id, "name": name, "links": request.links.of("backups", id)})
}

pub(crate) fn backup(request: &Request, it: &Backup) -> Value {
    let version = request.version;
    let is_admin = request.caller.is_admin();
    let mut view = json!({
        "id": it.id,
        "status": it.status,
        "size": it.size,
        "object_count": it.object_count,
        "availability_zone": it.availability_zone,
        "container": it.container,
        "created_at": it.created_at,
        "updated_at": it.updated_at,
        "name": it.name,
        "description": it.description,
        "fail_reason": it.fail_reason,
        "volume_id": it.volume_id,
        "links": request.links.of("backups", &it.id),
        "is_incremental": it.parent_id.is_some(),
        "has_dependent_backups": it.dependents > 0,
        "snapshot_id": it.snapshot_id,
        "data_timestamp": it.data_timestamp,
    });
    let project = it.project_id.clone();
    since(&mut view, version.has(18) && is_admin, "os-backup-project-attr:project_id", project);
    since(&mut view, version.has(43), "metadata", json!(it.metadata));
    since(&mut view, version.has(56) && is_admin, "user_id", it.user_id.clone());
    view
}

pub(crate) fn attachment_summary(it: &Attachment) -> Value {
    json!({"id": it.id, "status": it.status, "instance": it.instance, "volume_id": it.volume_id})
}

/// How to reach the data is told to those who may change it.
pub(crate) fn attachment(request: &Request, it: &Attachment) -> Value {
    let mut view = attachment_summary(it);
    put(&mut view, "attached_at", it.attached_at.clone().unwrap_or_default());
    put(&mut view, "detached_at", it.detached_at.clone().unwrap_or_default());
    put(&mut view, "attach_mode", it.mode.clone().unwrap_or_else(|| "null".to_owned()));
    let caller = &request.caller;
    let may = caller.is_admin() || caller.is_service || caller.has("member");
    let known = it
        .connection_info
        .as_deref()
        .filter(|_| may)
        .and_then(|text| serde_json::from_str(text).ok());
    put(&mut view, "connection_info", known.unwrap_or_else(|| Value::Object(Map::new())));
    view
}

pub(crate) fn volume_type(request: &Request, it: &VolumeType) -> Value {
    let mut view = json!({
        "id": it.id,
        "name": it.name,
        "is_public": it.is_public,
        "description": it.description,
        "os-volume-type-access:is_public": it.is_public,
        "extra_specs": it.extra_specs,
    });
    since(&mut view, request.caller.is_admin(), "qos_specs_id", it.qos_specs_id.clone());
    view
}

pub(crate) fn message(request: &Request, it: &Message) -> Value {
    json!({
        "id": it.id,
        "event_id": it.event_id,
        "user_message": text(&it.action_id, &it.detail_id),
        "message_level": it.level,
        "created_at": it.created_at,
        "guaranteed_until": it.expires_at,
        "request_id": it.request_id,
        "resource_type": it.resource_type,
        "resource_uuid": it.resource_uuid,
        "links": request.links.of("messages", &it.id),
    })
}

pub(crate) fn transfer_summary(request: &Request, it: &Transfer) -> Value {
    json!({
        "id": it.id,
        "volume_id": it.volume_id,
        "name": it.name,
        "links": request.links.of("os-volume-transfer", &it.id),
    })
}

pub(crate) fn transfer(request: &Request, it: &Transfer) -> Value {
    let version = request.version;
    let mut view = transfer_summary(request, it);
    put(&mut view, "created_at", it.created_at.clone());
    since(&mut view, version.has(55), "no_snapshots", it.no_snapshots);
    if version.has(57) {
        put(&mut view, "source_project_id", it.source_project_id.clone());
        put(&mut view, "destination_project_id", it.destination_project_id.clone());
        put(&mut view, "accepted", it.accepted);
    }
    view
}
