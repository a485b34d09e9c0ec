//! Making again what a system backup holds and is not there.

use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{Backup, BackupState, BackupTarget, BackupVolume, SystemRestore};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use reconcile::Key;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::archive::unpack;
use super::save::{KINDS, resource};
use super::{End, World, find, version_of};
use crate::backup::{Names, backup_volume_name, state_of};
use crate::{NAMESPACE, label, target};

/// How long stores are waited for that were not read yet.
const READING: Duration = Duration::from_mins(3);
const LOOK: Duration = Duration::from_millis(500);

pub(super) async fn restore(world: Arc<World>, restore: Arc<SystemRestore>) -> Result<End, String> {
    let name = restore.spec.system_backup.clone().unwrap_or_default();
    let door = world.open().await?;
    let object = world.saves.get(&Key::new(NAMESPACE, &name));
    let found = find(&door.store, &name, version_of(object.as_deref())).await?;
    let (id, _) =
        found.ok_or_else(|| format!("the default backup target has no system backup {name}"))?;
    let archive = door.store.download_system_backup(&id).await;
    let files = unpack(&archive.map_err(|error| target::text(&error))?)?;
    let until = Instant::now() + READING;
    let (mut made, mut kept, mut failed) = (0_usize, 0_usize, Vec::new());
    for (kind, plural) in KINDS {
        let Some((_, bytes)) = files.iter().find(|(name, _)| *name == format!("{plural}.json"))
        else {
            continue;
        };
        let list: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        for item in list.get("items").and_then(Value::as_array).into_iter().flatten() {
            match one(&world, kind, plural, item.clone(), until).await {
                Ok(true) => made += 1,
                Ok(false) => kept += 1,
                // It keeps none of the others from coming back.
                Err(why) => failed.push(why),
            }
        }
    }
    if !failed.is_empty() {
        let all = failed.join("; ");
        return Err(format!(
            "{made} objects were made, {kept} were there, {} could not be made: {all}",
            failed.len()
        ));
    }
    Ok(End::Restored(format!("{made} objects were made, {kept} were there and stay as they are")))
}

/// Says whether it was made. Settings are there always, and get the value they had.
async fn one(
    world: &World,
    kind: &str,
    plural: &str,
    mut item: Value,
    until: Instant,
) -> Result<bool, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.client.0.clone(), NAMESPACE, &resource(kind, plural));
    let name =
        item.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if api.get_opt(&name).await.map_err(told)?.is_some() {
        if let ("Setting", Some(value)) = (kind, item.get("value")) {
            let patch = Patch::Merge(json!({ "value": value }));
            api.patch(&name, &PatchParams::default(), &patch).await.map_err(told)?;
        }
        return Ok(false);
    }
    if kind == "Volume" {
        from_backup(world, &name, &mut item, until).await?;
    }
    let object: DynamicObject = serde_json::from_value(item).map_err(|error| error.to_string())?;
    api.create(&PostParams::default(), &object)
        .await
        .map_err(|error| format!("{kind} {name}: {error}"))?;
    Ok(true)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn told(error: kube::Error) -> String {
    error.to_string()
}

/// Why it is not known whether a store has backups of a volume; nothing if it is.
fn unread(target: Option<&BackupTarget>, stored: Option<&BackupVolume>) -> Option<String> {
    let Some(target) = target else { return Some("it does not exist".to_owned()) };
    if target.spec.backup_target_url.as_deref().is_none_or(|it| it.trim().is_empty()) {
        return None;
    }
    let status = target.status.clone().unwrap_or_default();
    if status.available != Some(true) {
        let conditions = status.conditions.unwrap_or_default();
        let why = conditions.into_iter().find(|it| it.kind == "Unavailable");
        let why = why.and_then(|it| it.message).filter(|it| !it.is_empty());
        return Some(why.unwrap_or_else(|| "it was not looked at yet".to_owned()));
    }
    let is_read =
        |it: &BackupVolume| it.status.as_ref().is_some_and(|it| it.last_synced_at.is_some());
    let lacks = stored.is_some_and(|it| !is_read(it));
    lacks.then(|| "what it has of the volume was not read yet".to_owned())
}

/// Waits until it is known whether the store of a target has backups of a volume: targets that were made a moment
/// ago were not looked at yet, and a volume that has backups must not come back empty.
async fn wait_for_store(
    world: &World,
    volume: &str,
    target: &str,
    until: Instant,
) -> Result<(), String> {
    let targets: Api<BackupTarget> = Api::namespaced(world.client.0.clone(), NAMESPACE);
    let stored: Api<BackupVolume> = Api::namespaced(world.client.0.clone(), NAMESPACE);
    let names = Names { target: target.to_owned(), volume: volume.to_owned() };
    loop {
        let found = targets.get_opt(target).await.map_err(told)?;
        let volume_of = stored.get_opt(&backup_volume_name(&names)).await.map_err(told)?;
        let Some(why) = unread(found.as_ref(), volume_of.as_ref()) else { return Ok(()) };
        if Instant::now() >= until {
            return Err(format!(
                "Volume {volume} is not made, since it would be empty: whether backup target {target} has a backup of it is not known: {why}"
            ));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The newest backup that is there and stays: of the target that the volume has, if there is one. Elsewhere another
/// volume may have had its name.
fn newest(all: Vec<Backup>, target: &str) -> Option<Backup> {
    let made = |it: &Backup| it.status.as_ref()?.backup_created_at.as_ref()?.get();
    let stays = |it: &Backup| {
        state_of(it) == BackupState::Completed && it.metadata.deletion_timestamp.is_none()
    };
    let is_near =
        |it: &Backup| it.labels().get(label::BACKUP_TARGET).is_some_and(|it| it == target);
    let all = all.into_iter().filter(|it| stays(it) && made(it).is_some());
    all.max_by_key(|it| (is_near(it), made(it)))
}

/// A volume comes back with the data of its newest backup, where there is one.
async fn from_backup(
    world: &World,
    volume: &str,
    item: &mut Value,
    until: Instant,
) -> Result<(), String> {
    let target = item.pointer("/spec/backupTargetName").and_then(Value::as_str);
    let target = target.filter(|it| !it.is_empty()).unwrap_or(target::DEFAULT).to_owned();
    wait_for_store(world, volume, &target, until).await?;
    let backups: Api<Backup> = Api::namespaced(world.client.0.clone(), NAMESPACE);
    let of_it = ListParams::default().labels(&format!("{}={volume}", label::BACKUP_VOLUME));
    let newest = newest(backups.list(&of_it).await.map_err(told)?.items, &target);
    let url = newest.as_ref().and_then(|it| it.status.as_ref()?.url.clone());
    if let (Some(url), Some(Value::Object(spec))) = (url, item.get_mut("spec")) {
        spec.insert("fromBackup".to_owned(), json!(url));
        // It is made from the backup, whatever it was first made from.
        for name in ["nodeID", "dataSource"] {
            spec.remove(name);
        }
        let target = newest.and_then(|it| it.labels().get(label::BACKUP_TARGET).cloned());
        if let Some(target) = target {
            spec.insert("backupTargetName".to_owned(), json!(target));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use api::scalar::Stamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    fn backup(name: &str, hour: u8, state: BackupState) -> Backup {
        let mut backup = Backup::default();
        backup.metadata.name = Some(name.to_owned());
        let status = backup.status.get_or_insert_default();
        status.state = Some(state);
        let made = format!("2026-01-01T{hour:02}:00:00Z");
        status.backup_created_at = Some(Stamp::from(made.as_str()));
        backup
    }

    /// Else the volume would wait for ever for what is gone by then.
    #[test]
    fn a_volume_does_not_come_back_from_a_backup_that_goes() {
        let mut leaving = backup("leaving", 4, BackupState::Completed);
        leaving.metadata.deletion_timestamp = Some(meta::Time(crate::backup::now()));
        let all = [
            backup("old", 1, BackupState::Completed),
            backup("good", 2, BackupState::Completed),
            backup("failed", 3, BackupState::Error),
            leaving,
        ];
        let found = newest(all.into(), "t");
        assert_eq!(found.unwrap().name_any(), "good");
    }

    /// Another cluster's volume of that name, whose store is a target here as well.
    #[test]
    fn a_volume_comes_back_from_its_own_target_while_that_has_anything() {
        let at = |name: &str, hour: u8, target: &str| {
            let mut made = backup(name, hour, BackupState::Completed);
            made.labels_mut().insert(label::BACKUP_TARGET.to_owned(), target.to_owned());
            made
        };
        let all = || vec![at("own", 1, "t"), at("others", 2, "u")];
        assert_eq!(newest(all(), "t").unwrap().name_any(), "own");
        assert_eq!(newest(all(), "w").unwrap().name_any(), "others");
    }

    /// It would come back empty, and nobody would say so.
    #[test]
    fn a_volume_waits_until_the_store_was_read_that_may_have_its_backups() {
        let target = |url: &str, available: Option<bool>| {
            let mut target = BackupTarget::default();
            target.spec.backup_target_url = Some(url.to_owned());
            target.status.get_or_insert_default().available = available;
            target
        };
        let mut stored = BackupVolume::default();
        let read = target("vfs:///d", Some(true));
        assert_eq!(unread(Some(&target("", None)), None), None, "it has no store");
        assert!(unread(None, None).is_some());
        assert!(unread(Some(&target("vfs:///d", None)), None).is_some());
        assert!(unread(Some(&target("vfs:///d", Some(false))), None).is_some());
        assert_eq!(unread(Some(&read), None), None, "it has nothing of the volume");
        assert!(unread(Some(&read), Some(&stored)).is_some());
        let now = api::scalar::Time::new(crate::backup::now());
        stored.status.get_or_insert_default().last_synced_at = Some(now);
        assert_eq!(unread(Some(&read), Some(&stored)), None);
    }
}
