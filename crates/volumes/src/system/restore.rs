//! Making again what a system backup holds and is not there.

use std::sync::Arc;

use api::longhorn::{Backup, BackupState, SystemRestore};
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::archive::unpack;
use super::save::{KINDS, resource};
use super::{End, World, named};
use crate::backup::state_of;
use crate::{NAMESPACE, label, target};

pub(super) async fn restore(world: Arc<World>, restore: Arc<SystemRestore>) -> Result<End, String> {
    let name = restore.spec.system_backup.clone().unwrap_or_default();
    let door = world.open().await?;
    let archive = door.store.download_system_backup(&named(&name)?).await;
    let files = unpack(&archive.map_err(|error| target::text(&error))?)?;
    let (mut made, mut kept, mut failed) = (0_usize, 0_usize, Vec::new());
    for (kind, plural) in KINDS {
        let Some((_, bytes)) = files.iter().find(|(name, _)| *name == format!("{plural}.json"))
        else {
            continue;
        };
        let list: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        for item in list.get("items").and_then(Value::as_array).into_iter().flatten() {
            match one(&world, kind, plural, item.clone()).await {
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
async fn one(world: &World, kind: &str, plural: &str, mut item: Value) -> Result<bool, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(world.client.0.clone(), NAMESPACE, &resource(kind, plural));
    let told = |error: kube::Error| error.to_string();
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
        from_backup(world, &name, &mut item);
    }
    let object: DynamicObject = serde_json::from_value(item).map_err(|error| error.to_string())?;
    api.create(&PostParams::default(), &object)
        .await
        .map_err(|error| format!("{kind} {name}: {error}"))?;
    Ok(true)
}

/// The newest backup that is there and stays.
fn newest(all: Vec<Arc<Backup>>) -> Option<Arc<Backup>> {
    let made = |it: &Arc<Backup>| it.status.as_ref()?.backup_created_at.as_ref()?.get();
    let stays = |it: &Arc<Backup>| {
        state_of(it) == BackupState::Completed && it.metadata.deletion_timestamp.is_none()
    };
    all.into_iter().filter(|it| stays(it) && made(it).is_some()).max_by_key(made)
}

/// A volume comes back with the data of its newest backup, where there is one.
fn from_backup(world: &World, volume: &str, item: &mut Value) {
    let newest = newest(world.backups.by("volume", volume));
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
}

#[cfg(test)]
mod tests {
    use api::scalar::Stamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

    use super::*;

    /// Else the volume would wait for ever for what is gone by then.
    #[test]
    fn a_volume_does_not_come_back_from_a_backup_that_goes() {
        let backup = |name: &str, hour: u8, state: BackupState| {
            let mut backup = Backup::default();
            backup.metadata.name = Some(name.to_owned());
            let status = backup.status.get_or_insert_default();
            status.state = Some(state);
            let made = format!("2026-01-01T{hour:02}:00:00Z");
            status.backup_created_at = Some(Stamp::from(made.as_str()));
            backup
        };
        let mut leaving = backup("leaving", 4, BackupState::Completed);
        leaving.metadata.deletion_timestamp = Some(meta::Time(crate::backup::now()));
        let all = [
            backup("old", 1, BackupState::Completed),
            backup("good", 2, BackupState::Completed),
            backup("failed", 3, BackupState::Error),
            leaving,
        ];
        let found = newest(all.into_iter().map(Arc::new).collect());
        assert_eq!(found.unwrap().name_any(), "good");
    }
}
