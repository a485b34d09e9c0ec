//! Making and removing a system backup.

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    Backup, BackupSpec, BackupState, Snapshot, SnapshotSpec, SystemBackup, SystemState, Volume,
    VolumeBackupPolicy, VolumeState,
};
use backupstore::format::SystemBackupCfg;
use bytes::Bytes;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use reconcile::Key;
use serde_json::{Value, json};

use super::archive::pack;
use super::{End, World, named};
use crate::backup::now;
use crate::{NAMESPACE, label, target};

/// The kinds that are saved, in the order in which they are made again.
pub(super) const KINDS: [(&str, &str); 4] = [
    ("Setting", "settings"),
    ("BackupTarget", "backuptargets"),
    ("RecurringJob", "recurringjobs"),
    ("Volume", "volumes"),
];
/// How long the backups of all volumes may take.
const VOLUMES: Duration = Duration::from_hours(24);
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn save(world: Arc<World>, save: Arc<SystemBackup>) -> Result<End, String> {
    let name = save.name_any();
    let id = named(&name)?;
    let door = world.open().await?;
    match door.store.system_backup(&id).await {
        Ok(found) => return Ok(End::Saved { version: found.version, created: found.created_at }),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(target::text(&error)),
    }
    let policy = save.spec.volume_backup_policy.clone().unwrap_or(VolumeBackupPolicy::Unset);
    if policy != VolumeBackupPolicy::Disabled {
        world.show_save(&name, SystemState::VolumeBackup).await;
        let all = back_up_volumes(&world, policy == VolumeBackupPolicy::Always);
        tokio::time::timeout(VOLUMES, all)
            .await
            .map_err(|_| "volumes were not backed up in time")??;
    }
    world.show_save(&name, SystemState::Generating).await;
    let mut files = Vec::new();
    for (kind, plural) in KINDS {
        let objects = objects(&world, kind, plural).await?;
        let bytes = serde_json::to_vec_pretty(
            &json!({"apiVersion": "v1", "kind": "List", "items": objects}),
        );
        files.push((format!("{plural}.json"), bytes.map_err(|error| error.to_string())?));
    }
    world.show_save(&name, SystemState::Uploading).await;
    let record = SystemBackupCfg {
        created_at: now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        backup_target_url: door.url.to_string(),
        ..SystemBackupCfg::default()
    };
    let uploaded = door.store.upload_system_backup(&id, Bytes::from(pack(&files)?), record).await;
    let record = uploaded.map_err(|error| target::text(&error))?;
    Ok(End::Saved { version: record.version, created: record.created_at })
}

pub(super) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "longhorn.io".to_owned(),
        version: "v1beta2".to_owned(),
        api_version: "longhorn.io/v1beta2".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

async fn objects(world: &World, kind: &str, plural: &str) -> Result<Vec<Value>, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.client.0.clone(), NAMESPACE, &resource(kind, plural));
    let listed = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    let plain = |object: DynamicObject| {
        let mut value = object.data;
        if let Value::Object(fields) = &mut value {
            fields.remove("status");
            fields.insert("apiVersion".to_owned(), json!("longhorn.io/v1beta2"));
            fields.insert("kind".to_owned(), json!(kind));
            let meta = json!({"name": object.metadata.name, "namespace": NAMESPACE,
                "labels": object.metadata.labels.unwrap_or_default()});
            fields.insert("metadata".to_owned(), meta);
        }
        value
    };
    Ok(listed.items.into_iter().map(plain).collect())
}

/// Backs up those that have no backup, or all.
async fn back_up_volumes(world: &World, always: bool) -> Result<(), String> {
    let mut asked = Vec::new();
    for volume in world.volumes.list() {
        let status = volume.status.clone().unwrap_or_default();
        let has_backup = status.last_backup.is_some_and(|it| !it.is_empty());
        if status.state == Some(VolumeState::Attached)
            && (always || !has_backup)
            && status.restore_required != Some(true)
        {
            asked.push(back_up(world, &volume).await?);
        }
    }
    for backup in asked {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(found) = world.backups.get(&Key::new(NAMESPACE, &backup)) else {
                return Err(format!("backup {backup} was deleted before it was complete"));
            };
            let status = found.status.clone().unwrap_or_default();
            match status.state {
                Some(BackupState::Completed) => break,
                Some(BackupState::Error | BackupState::Unknown | BackupState::Deleting) => {
                    return Err(format!(
                        "backup {backup} failed: {}",
                        status.error.unwrap_or_default()
                    ));
                }
                Some(_) | None => {}
            }
        }
    }
    Ok(())
}

async fn back_up(world: &World, volume: &Volume) -> Result<String, String> {
    let told = |failure: reconcile::Failure| telemetry::Chain(&failure).to_string();
    let (of, id) = (volume.name_any(), format!("{:016x}", rand::random::<u64>()));
    let (snapshot, backup) = (format!("system-{id}"), format!("backup-{id}"));
    let mut object = Snapshot {
        spec: SnapshotSpec { volume: Some(of.clone()), create_snapshot: Some(true), labels: None },
        ..Snapshot::default()
    };
    object.metadata.name = Some(snapshot.clone());
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    object.labels_mut().insert(label::VOLUME.to_owned(), of.clone());
    world.snapshots.create(&object).await.map_err(told)?;
    let mut object = Backup {
        spec: BackupSpec { snapshot_name: Some(snapshot), ..BackupSpec::default() },
        ..Backup::default()
    };
    object.metadata.name = Some(backup.clone());
    object.metadata.namespace = Some(NAMESPACE.to_owned());
    let target = volume.spec.backup_target_name.clone().filter(|it| !it.is_empty());
    let target = target.unwrap_or_else(|| target::DEFAULT.to_owned());
    object.labels_mut().insert(label::BACKUP_VOLUME.to_owned(), of);
    object.labels_mut().insert(label::BACKUP_TARGET.to_owned(), target);
    world.backups.create(&object).await.map_err(told)?;
    Ok(backup)
}

/// What was never stored is removed already.
pub(super) async fn remove(world: Arc<World>, save: Arc<SystemBackup>) -> Result<End, String> {
    let door = world.open().await?;
    let id = named(&save.name_any())?;
    match door.store.delete_system_backup(&id).await {
        Ok(()) => Ok(End::Removed),
        Err(error) if error.is_not_found() => Ok(End::Removed),
        Err(error) => Err(target::text(&error)),
    }
}
