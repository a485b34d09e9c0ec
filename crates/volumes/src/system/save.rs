//! Making and removing a system backup.

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{
    Backup, BackupSpec, BackupState, Robustness, Snapshot, SnapshotSpec, SystemBackup, SystemState,
    Volume, VolumeBackupPolicy, VolumeState,
};
use backupstore::BackupStore;
use backupstore::format::SystemBackupCfg;
use bytes::Bytes;
use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use reconcile::Key;
use serde_json::{Value, json};

use super::archive::pack;
use super::catalog::is_found;
use super::{End, Stored, VERSION, World, find, named, version_of};
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
    let id = named(VERSION, &name)?;
    let door = world.open().await?;
    if let Some((_, found)) = find(&door.store, &name, version_of(Some(&save))).await? {
        return Ok(End::Saved { version: found.version, created: found.created_at });
    }
    // It was made for what lay there a moment ago, and nobody has asked for another.
    if is_found(&save) {
        return Ok(End::Removed);
    }
    // A run for this very object was begun, and ended with its process.
    let again = save.status.as_ref().is_some_and(|it| it.state.is_some());
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
    let record = upload(&door.store, &id, &Bytes::from(pack(&files)?), record, again).await?;
    Ok(End::Saved { version: record.version, created: record.created_at })
}

/// Stores an archive. One that has no record is left of a run that was killed, if there was one (`again`).
pub(super) async fn upload(
    store: &BackupStore,
    id: &Stored,
    archive: &Bytes,
    record: SystemBackupCfg,
    again: bool,
) -> Result<SystemBackupCfg, String> {
    let text = |error: backupstore::Error| target::text(&error);
    match store.upload_system_backup(id, archive.clone(), record.clone()).await {
        Err(backupstore::Error::Exists { .. }) if again => {
            store.delete_system_backup(id).await.map_err(text)?;
            store.upload_system_backup(id, archive.clone(), record).await.map_err(text)
        }
        uploaded => uploaded.map_err(text),
    }
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

/// A volume that is left out comes back empty. One that is detached is attached for it.
fn is_to_be_backed_up(volume: &Volume, always: bool) -> bool {
    let status = volume.status.clone().unwrap_or_default();
    let has_backup = status.last_backup.is_some_and(|it| !it.is_empty());
    let is_made = match status.state.unwrap_or(VolumeState::Unset) {
        VolumeState::Attached
        | VolumeState::Detached
        | VolumeState::Attaching
        | VolumeState::Detaching => true,
        VolumeState::Unset
        | VolumeState::Creating
        | VolumeState::Deleting
        | VolumeState::Other(_) => false,
    };
    is_made
        && status.robustness != Some(Robustness::Faulted)
        && (always || !has_backup)
        && status.restore_required != Some(true)
        && !crate::volume::is_unfinished_clone(volume)
}

/// Backs up those that have no backup, or all.
async fn back_up_volumes(world: &World, always: bool) -> Result<(), String> {
    let mut asked = Vec::new();
    for volume in world.volumes.list() {
        if is_to_be_backed_up(&volume, always) {
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
    take_away(&door.store, &save.name_any(), version_of(Some(&save))).await?;
    Ok(End::Removed)
}

/// Removes it, whatever version made it, and what a run that was killed has left of it.
pub(super) async fn take_away(
    store: &BackupStore,
    name: &str,
    version: Option<&str>,
) -> Result<(), String> {
    let id = match find(store, name, version).await? {
        Some((id, _)) => id,
        None => named(version.filter(|it| !it.is_empty()).unwrap_or(VERSION), name)?,
    };
    match store.delete_system_backup(&id).await {
        Err(error) if !error.is_not_found() => Err(target::text(&error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_that_nobody_uses_now_is_backed_up_with_the_others() {
        let volume = |state: VolumeState| {
            let mut volume = Volume::default();
            volume.status.get_or_insert_default().state = Some(state);
            volume
        };
        for state in [VolumeState::Attached, VolumeState::Detached, VolumeState::Detaching] {
            assert!(is_to_be_backed_up(&volume(state.clone()), false), "{state:?}");
        }
        for state in [VolumeState::Creating, VolumeState::Deleting] {
            assert!(!is_to_be_backed_up(&volume(state.clone()), true), "{state:?} has nothing");
        }
        let mut other = volume(VolumeState::Detached);
        other.status.get_or_insert_default().last_backup = Some("b".to_owned());
        assert!(!is_to_be_backed_up(&other, false) && is_to_be_backed_up(&other, true));
        other.status.get_or_insert_default().robustness = Some(Robustness::Faulted);
        assert!(!is_to_be_backed_up(&other, true), "nobody can read it");
        let mut other = volume(VolumeState::Attached);
        other.status.get_or_insert_default().restore_required = Some(true);
        assert!(!is_to_be_backed_up(&other, true));
    }
}
