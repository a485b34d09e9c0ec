//! A volume as it is looked at more often than anything else: written from its row, without a value in
//! between.

use std::collections::BTreeMap;

use serde::Serialize;

use super::status_of;
use crate::rest::request::{Link, Request};
use crate::store::attachments::Attachment;
use crate::store::volumes::Volume;

/// How much of a volume is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// In lists and when looked at.
    Whole,
    /// In replies to a creation or a change.
    Reply,
}

/// A key that not every caller is shown, at not every version.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Told<T> {
    Not,
    As(T),
}

impl<T> Told<T> {
    fn when(told: bool, value: T) -> Self {
        if told { Self::As(value) } else { Self::Not }
    }

    const fn is_not(&self) -> bool {
        matches!(self, Self::Not)
    }
}

type Text<'a> = Option<&'a str>;

#[derive(Debug, Serialize)]
pub(crate) struct VolumeView<'a> {
    id: &'a str,
    name: Text<'a>,
    description: Text<'a>,
    size: i64,
    availability_zone: Text<'a>,
    created_at: &'a str,
    updated_at: Text<'a>,
    user_id: Text<'a>,
    status: &'a str,
    volume_type: &'a str,
    snapshot_id: Text<'a>,
    source_volid: Text<'a>,
    consistencygroup_id: Text<'a>,
    replication_status: Text<'a>,
    metadata: BTreeMap<&'a str, &'a str>,
    links: [Link; 2],
    attachments: Vec<AttachedView<'a>>,
    bootable: &'static str,
    encrypted: bool,
    multiattach: bool,
    #[serde(skip_serializing_if = "Told::is_not")]
    backup_status: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    migration_status: Told<Text<'a>>,
    #[serde(rename = "os-vol-tenant-attr:tenant_id", skip_serializing_if = "Told::is_not")]
    project_id: Told<&'a str>,
    #[serde(rename = "os-vol-host-attr:host", skip_serializing_if = "Told::is_not")]
    host: Told<Text<'a>>,
    #[serde(rename = "os-vol-mig-status-attr:migstat", skip_serializing_if = "Told::is_not")]
    migstat: Told<Text<'a>>,
    #[serde(rename = "os-vol-mig-status-attr:name_id", skip_serializing_if = "Told::is_not")]
    name_id: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    volume_image_metadata: Told<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    group_id: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    provider_id: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    shared_targets: Told<Option<bool>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    service_uuid: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    cluster_name: Told<Text<'a>>,
    #[serde(skip_serializing_if = "Told::is_not")]
    volume_type_id: Told<&'a str>,
    #[serde(skip_serializing_if = "Told::is_not")]
    consumes_quota: Told<bool>,
}

impl<'a> VolumeView<'a> {
    pub(crate) fn of(request: &Request, volume: &'a Volume, extent: Extent) -> Self {
        let version = request.version;
        let is_admin = request.caller.is_admin();
        let is_whole = extent == Extent::Whole;
        let mut metadata: BTreeMap<&str, &str> =
            volume.metadata.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        for key in ["readonly", "attached_mode"] {
            if let Some(value) = volume.admin_metadata.get(key) {
                metadata.insert(key, value);
            }
        }
        let attached = volume.attachments.iter().filter(|it| it.status == "attached");
        let shared = match volume.shared_targets {
            None if version.has(69) => None,
            None => Some(true),
            Some(shared) => Some(shared != 0),
        };
        let image = &volume.image_metadata;
        Self {
            id: &volume.id,
            name: volume.name.as_deref(),
            description: volume.description.as_deref(),
            size: volume.size,
            availability_zone: volume.availability_zone.as_deref(),
            created_at: &volume.created_at,
            updated_at: volume.updated_at.as_deref(),
            user_id: volume.user_id.as_deref(),
            status: status_of(request, volume),
            volume_type: volume.volume_type.as_deref().unwrap_or(&volume.volume_type_id),
            snapshot_id: volume.snapshot_id.as_deref(),
            source_volid: volume.source_volid.as_deref(),
            consistencygroup_id: volume.consistencygroup_id.as_deref(),
            replication_status: volume.replication_status.as_deref(),
            metadata,
            links: request.links.pair("volumes", &volume.id),
            attachments: attached.map(|it| AttachedView::of(request, it)).collect(),
            bootable: if volume.bootable { "true" } else { "false" },
            encrypted: false,
            multiattach: volume.multiattach,
            backup_status: Told::when(version.has_backup_status(), volume.backup_status.as_deref()),
            migration_status: Told::when(is_admin, volume.migration_status.as_deref()),
            project_id: Told::when(is_whole, &volume.project_id),
            host: Told::when(is_whole && is_admin, volume.host.as_deref()),
            migstat: Told::when(is_whole && is_admin, volume.migration_status.as_deref()),
            name_id: Told::when(is_whole && is_admin, volume.name_id.as_deref()),
            volume_image_metadata: Told::when(is_whole && !image.is_empty(), image),
            group_id: Told::when(version.has(13), volume.group_id.as_deref()),
            provider_id: Told::when(version.has(21) && is_admin, volume.provider_id.as_deref()),
            shared_targets: Told::when(version.has(48), shared),
            service_uuid: Told::when(version.has(48), volume.service_uuid.as_deref()),
            cluster_name: Told::when(version.has(61) && is_admin, volume.cluster_name.as_deref()),
            volume_type_id: Told::when(version.has(63), &volume.volume_type_id),
            consumes_quota: Told::when(version.has(65), volume.consumes_quota),
        }
    }
}

/// An attachment inside a volume.
#[derive(Debug, Serialize)]
struct AttachedView<'a> {
    id: &'a str,
    attachment_id: &'a str,
    volume_id: &'a str,
    server_id: Text<'a>,
    host_name: Text<'a>,
    device: Text<'a>,
    attached_at: Text<'a>,
}

impl<'a> AttachedView<'a> {
    fn of(request: &Request, it: &'a Attachment) -> Self {
        let sees_host = request.caller.is_admin() || request.caller.is_service;
        Self {
            id: &it.volume_id,
            attachment_id: &it.id,
            volume_id: &it.volume_id,
            server_id: it.instance.as_deref(),
            host_name: it.host.as_deref().filter(|_| sees_host),
            device: it.mountpoint.as_deref(),
            attached_at: it.attached_at.as_deref(),
        }
    }
}
