//! What a backup or a restore has of volumes, and how it goes.

use std::time::Duration;

use api::longhorn::{Backup as VolumeBackup, BackupState, Snapshot, Volume};
use api::velero::{Backup, Restore};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::{LOOK_EVERY, OF_RESTORE_UID, Owners, Record, Stored, ours};
use crate::door::{code, words};
use crate::names;
use crate::world::World;

/// Data goes in the background; what is not gone by then is told, and asked for again.
const WITHIN: Duration = Duration::from_mins(10);
const PAGE: u32 = 500;

/// All backups of volumes that a record fits. None where the cluster knows no such kind.
async fn found(
    world: &World,
    fits: impl Fn(&str, &Record) -> bool,
) -> Result<Vec<VolumeBackup>, kube::Error> {
    let api: Api<VolumeBackup> = ours(world);
    let mut found = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = match api.list(&params).await {
            Ok(page) => page,
            Err(error) if code(&error) == Some(404) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let next = page.metadata.continue_.filter(|it| !it.is_empty());
        let wanted = page
            .items
            .into_iter()
            .filter(|it| Record::of(it).is_some_and(|record| fits(&it.name_any(), &record)));
        found.extend(wanted);
        match next {
            Some(next) => params = params.continue_token(&next),
            None => return Ok(found),
        }
    }
}

/// Deletes the data of volumes that a backup has, and nothing that it merely says it has. The reason
/// where it is not all gone.
pub(crate) async fn delete(
    world: &World,
    backup: &Backup,
    stored: &Stored,
    owners: &Owners,
) -> Option<String> {
    let (name, uid) = (backup.name_any(), backup.uid().unwrap_or_default());
    let fits =
        |handle: &str, record: &Record| record.belongs(handle, (&name, &uid), stored, owners);
    let found = match found(world, fits).await {
        Ok(found) => found,
        Err(error) => return Some(format!("error listing volumes' backups: {}", words(&error))),
    };
    for it in &found {
        remove_with_snapshot(world, it).await;
    }
    let api: Api<VolumeBackup> = ours(world);
    let began = Instant::now();
    for it in found {
        let own = it.name_any();
        loop {
            let why = match api.get_opt(&own).await {
                Ok(None) => break,
                Ok(Some(left)) => {
                    let status = left.status.unwrap_or_default();
                    let said = status.messages.and_then(|mut it| it.remove("error"));
                    if status.state == Some(BackupState::Error)
                        && let Some(said) = said
                    {
                        return Some(format!("error deleting the volume's backup {own}: {said}"));
                    }
                    "it is still there".to_owned()
                }
                Err(error) => words(&error),
            };
            if began.elapsed() > WITHIN {
                return Some(format!("error deleting the volume's backup {own}: {why}"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    None
}

async fn remove_with_snapshot(world: &World, backup: &VolumeBackup) {
    let backups: Api<VolumeBackup> = ours(world);
    if let Err(error) = backups.delete(&backup.name_any(), &DeleteParams::default()).await {
        tracing::debug!(error = %words(&error), "a volume's backup is not deleted yet");
    }
    let snapshot = backup.spec.snapshot_name.as_deref().unwrap_or_default();
    if !snapshot.is_empty() {
        let snapshots: Api<Snapshot> = ours(world);
        let _ = snapshots.delete(snapshot, &DeleteParams::default()).await;
    }
}

/// Removes what a backup that failed had of volumes, by the identity of that very object.
pub(crate) async fn discard(world: &World, backup: &Backup) {
    let Some(uid) = backup.metadata.uid.clone() else { return };
    match found(world, |_, record| record.backup_uid == uid).await {
        Ok(found) => {
            for it in found {
                remove_with_snapshot(world, &it).await;
            }
        }
        Err(error) => {
            tracing::warn!(error = %words(&error), "data of volumes of a failed backup may stay");
        }
    }
    // A snapshot whose backup was never asked for.
    let snapshots: Api<Snapshot> = ours(world);
    let marked = ListParams::default().labels(&format!("{}={uid}", names::BACKUP_UID));
    for it in snapshots.list_metadata(&marked).await.map(|it| it.items).unwrap_or_default() {
        let _ = snapshots.delete(&it.name_any(), &DeleteParams::default()).await;
    }
}

/// Removes the volumes of a restore that nobody carries on: those that no claim has.
pub(crate) async fn abandon(world: &World, restore: &Restore) {
    let Some(uid) = restore.metadata.uid.as_deref() else { return };
    let marked = ListParams::default().labels(&format!("{OF_RESTORE_UID}={uid}"));
    let volumes: Api<Volume> = ours(world);
    for it in volumes.list_metadata(&marked).await.map(|it| it.items).unwrap_or_default() {
        if let Err(error) = remove_unclaimed(world, &it.name_any()).await {
            tracing::warn!(volume.name = it.name_any(), error = %words(&error), "a volume of an abandoned restore stays");
        }
    }
}

/// A volume and its persistent volume, unless a claim has it.
pub(super) async fn remove_unclaimed(world: &World, name: &str) -> Result<(), kube::Error> {
    let client = &world.context.client;
    let persistent: Api<PersistentVolume> = Api::all(client.clone());
    if let Some(found) = persistent.get_opt(name).await? {
        let kept = found.spec.as_ref().and_then(|it| it.claim_ref.clone()).unwrap_or_default();
        let namespace = kept.namespace.unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
        let claim = claims.get_opt(&kept.name.unwrap_or_default()).await?;
        let named = claim.and_then(|it| it.spec).and_then(|it| it.volume_name);
        if named.as_deref() == Some(name) || kept.uid.is_some_and(|it| !it.is_empty()) {
            return Ok(());
        }
        gone(persistent.delete(name, &DeleteParams::default()).await)?;
    }
    let volumes: Api<Volume> = ours(world);
    gone(volumes.delete(name, &DeleteParams::default()).await)
}

fn gone<T>(done: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match done {
        Err(error) if code(&error) != Some(404) => Err(error),
        _ => Ok(()),
    }
}
