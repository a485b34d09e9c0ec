//! Everything a decision about a volume looks at. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::condition;
use api::longhorn::{
    Backup, BackupState, BackupTarget, BackupVolume, EngineImage, EngineImageState, InstanceState,
    Node, Replica, Volume, VolumeState,
};
use backupstore::{BackupUrl, TargetUrl};
use jiff::Timestamp;
use kube::ResourceExt;
use reconcile::{Failure, Key, OrFail as _};

use super::draft::{Image, Seen, Source, has_failed, is_set, node_of};
use super::original::original;
use super::{World, is_new};
use crate::node::has_disk;
use crate::target::{self, DEFAULT, place};
use crate::{NAMESPACE, engine, schedule};

/// What of a node matters to volumes.
pub(super) fn standing(node: &Node) -> (bool, bool, [Vec<String>; 2]) {
    let status = node.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let disks = status.and_then(|it| it.disk_status.as_ref());
    let those = |kind: &str| {
        let all = disks.into_iter().flatten().filter(|(_, disk)| {
            condition::holds(disk.conditions.as_deref().unwrap_or_default(), kind)
        });
        all.map(|(name, _)| name.clone()).collect()
    };
    (
        condition::holds(conditions, "Ready"),
        condition::holds(conditions, "Schedulable") && node.spec.allow_scheduling == Some(true),
        [those("Ready"), those("Schedulable")],
    )
}

pub(super) async fn observe(world: &World, volume: &Volume) -> Result<Seen, Failure> {
    let name = volume.name_any();
    let nodes = world.nodes.list();
    let is_ready =
        |node: &Arc<Node>| standing(node).0 && node.metadata.deletion_timestamp.is_none();
    let up: BTreeSet<String> =
        nodes.iter().filter(|node| is_ready(node)).map(|node| node.name_any()).collect();
    let images = images(world);
    let current = volume.status.as_ref().and_then(|it| it.current_image.as_ref());
    let program = current.and_then(|it| images.get(it));
    let candidates = schedule::candidates(
        &nodes,
        |node| up.contains(node),
        |node| program.is_none_or(|it| it.is_on(node)),
    );
    let replicas: Vec<Replica> =
        world.replicas.by("volume", &name).iter().map(|it| it.as_ref().clone()).collect();
    let (source, backup_volume) = source(world, volume).await?;
    let newest_is_known = newest_is_known(world, volume, backup_volume.as_ref()).await?;
    Ok(Seen {
        now: Timestamp::now(),
        volume: volume.clone(),
        attachment: world
            .attachments
            .get(&Key::new(NAMESPACE, &name))
            .map(|it| it.as_ref().clone()),
        engine: engine::active(&world.engines, &name).map(|it| it.as_ref().clone()),
        no_disk: without_disk(world, &replicas),
        replicas,
        has_snapshots: !world.snapshots.by("volume", &name).is_empty(),
        candidates,
        settings: world.settings(),
        images,
        rebuilding: rebuilding(world),
        up,
        source,
        original: original(world, volume),
        backup_volume,
        newest_is_known,
    })
}

/// Copies that their nodes cannot start where their data is.
fn without_disk(world: &World, replicas: &[Replica]) -> BTreeSet<String> {
    let lacks = |replica: &&Replica| {
        let node = node_of(replica).and_then(|it| world.nodes.get(&Key::new(NAMESPACE, it)));
        node.is_some_and(|node| !has_disk(replica, &node))
    };
    replicas.iter().filter(lacks).map(ResourceExt::name_any).collect()
}

/// Engine images that are deployed.
fn images(world: &World) -> BTreeMap<String, Image> {
    world.images.list().iter().filter_map(|it| image(it)).collect()
}

/// An engine image by its name, if it is deployed.
pub(super) fn image(object: &EngineImage) -> Option<(String, Image)> {
    let status = object.status.as_ref()?;
    let name = object.spec.image.clone()?;
    let nodes = status.node_deployment_map.iter().flatten();
    let found = Image {
        cli: status.cli_api_version.unwrap_or(0),
        controller: (
            status.controller_api_min_version.unwrap_or(0),
            status.controller_api_version.unwrap_or(0),
        ),
        is_own: name == crate::image::DEFAULT,
        nodes: nodes.filter(|(_, is)| **is).map(|(node, _)| node.clone()).collect(),
    };
    (status.state == Some(EngineImageState::Deployed)).then_some((name, found))
}

/// Copies that are being filled: a few of very many.
pub(super) const FILLING: &str = "filling";

/// All under one name: they are counted for each node.
pub(super) fn filling(replica: &Replica) -> Vec<String> {
    let fills = replica.spec.rebuild_retry_count.unwrap_or(0) != 0
        && !is_set(replica.spec.healthy_at.as_ref())
        && !has_failed(replica)
        && replica.spec.instance.desire_state == Some(InstanceState::Running);
    if fills { vec![String::new()] } else { Vec::new() }
}

/// How many are being filled on each node.
fn rebuilding(world: &World) -> BTreeMap<String, i64> {
    let mut all: BTreeMap<String, i64> = BTreeMap::new();
    for replica in world.replicas.by(FILLING, "") {
        if let Some(node) = node_of(&replica) {
            *all.entry(node.to_owned()).or_default() += 1;
        }
    }
    all
}

/// The URL of a backup, and the names of its volume and of itself.
fn read_url(url: &str) -> Option<(TargetUrl, String, String)> {
    let url = BackupUrl::parse(url).ok()?;
    let (volume, backup) = (url.volume?.to_string(), url.backup?.to_string());
    Some((url.target, volume, backup))
}

async fn source(world: &World, volume: &Volume) -> Result<(Source, Option<BackupVolume>), Failure> {
    let url = volume.spec.from_backup.as_deref().unwrap_or_default();
    let status = volume.status.clone().unwrap_or_default();
    let initiated = status.restore_initiated == Some(true);
    let restores = status.restore_required == Some(true);
    // One that was made otherwise never becomes another's.
    let is_new = is_new(status.state.as_ref().unwrap_or(&VolumeState::Unset));
    if url.is_empty() || (initiated && !restores) || (!initiated && !is_new) {
        let target = volume.spec.backup_target_name.as_deref().unwrap_or(DEFAULT);
        return Ok((Source::None, stored(world, &volume.name_any(), &[target])));
    }
    let Some((at, from, backup)) = read_url(url) else {
        let why = format!(
            "spec.fromBackup {url:?} names no volume and backup: write it as the url of a Backup has it"
        );
        return Ok((Source::Missing(why), None));
    };
    if initiated {
        let target = volume.spec.backup_target_name.as_deref().unwrap_or(DEFAULT);
        let stored = stored(world, &from, &[target]);
        return Ok((Source::Found { volume: from, backup, backup_volume_size: None }, stored));
    }
    let targets = targets_at(&world.targets.list(), &at);
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let Some(stored) = stored(world, &from, &targets) else {
        let why = if targets.is_empty() {
            format!("no backup target is at {}: make one for it", place(&at))
        } else {
            format!(
                "cannot get backup volume for backup target of {url}: no BackupVolume of {from}"
            )
        };
        return Ok((Source::Missing(why), None));
    };
    let found = world.backup(&backup).await.or_fail(|| format!("get backup {backup}"))?;
    Ok((found_backup(found.as_ref(), from, backup), Some(stored)))
}

/// What can be restored of a backup.
fn found_backup(found: Option<&Backup>, volume: String, backup: String) -> Source {
    let missing = |why: &str| Source::Missing(format!("cannot get backup {backup}: {why}"));
    let Some(found) = found else { return missing("it does not exist") };
    let status = found.status.clone().unwrap_or_default();
    if found.metadata.deletion_timestamp.is_some() || status.state == Some(BackupState::Deleting) {
        return missing("it is being deleted");
    }
    match status.volume_size.as_ref().and_then(|it| it.parse().ok()) {
        None => missing("it is not read from the store yet"),
        size => Source::Found { volume, backup, backup_volume_size: size },
    }
}

/// The targets whose own URL leads to the same place. Nothing else is ever gone to: who may make a
/// volume may not choose where nodes connect to, and with whose keys.
fn targets_at(all: &[Arc<BackupTarget>], wanted: &TargetUrl) -> Vec<String> {
    let is_there = |it: &&Arc<BackupTarget>| {
        target::url(it.as_ref()).is_ok_and(|url| place(&url) == place(wanted))
    };
    all.iter().filter(is_there).map(|it| it.name_any()).collect()
}

/// What the stores of these targets have of a volume.
fn stored(world: &World, volume: &str, targets: &[&str]) -> Option<BackupVolume> {
    let all = world.backup_volumes.by("volume", volume);
    let fits = |it: &&Arc<BackupVolume>| {
        targets.contains(&it.spec.backup_target_name.as_deref().unwrap_or(DEFAULT))
    };
    all.iter().find(fits).map(|it| it.as_ref().clone())
}

/// Whether the newest backup in the store has an object, where that is asked.
async fn newest_is_known(
    world: &World,
    volume: &Volume,
    stored: Option<&BackupVolume>,
) -> Result<bool, Failure> {
    let status = volume.status.clone().unwrap_or_default();
    let activates = status.is_standby == Some(true) && volume.spec.standby != Some(true);
    let newest = stored.and_then(|it| it.status.as_ref()?.last_backup_name.clone());
    let Some(newest) = newest.filter(|name| activates && !name.is_empty()) else { return Ok(true) };
    let found = world.backup(&newest).await.or_fail(|| format!("get backup {newest}"))?;
    Ok(found.is_some_and(|it| it.metadata.deletion_timestamp.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_volume_and_backup_in_any_order() {
        let names = |url: &str| read_url(url).map(|(_, volume, backup)| (volume, backup));
        let both = Some(("v-1".to_owned(), "b-1".to_owned()));
        assert_eq!(names("s3://x@r/?backup=b-1&volume=v-1"), both);
        assert_eq!(names("vfs:///d?volume=v-1&x=y&backup=b-1"), both);
        assert_eq!(names("vfs:///d?volume=v-1"), None);
        assert_eq!(names("vfs:///d?volume=v-1&backup="), None);
        assert_eq!(names("vfs:///d?volume=v-1&backup=../secrets"), None);
        assert_eq!(names("--help?volume=v-1&backup=b-1"), None);
        assert_eq!(names("vfs:///d"), None);
    }

    #[test]
    fn a_url_leads_to_targets_of_its_very_place_and_to_nothing_else() {
        let target = |name: &str, url: &str| {
            let mut made = BackupTarget::default();
            made.metadata.name = Some(name.to_owned());
            made.spec.backup_target_url = Some(url.to_owned());
            Arc::new(made)
        };
        let all = [
            target("default", "cifs://files.example/share?cifsOptions=vers%3D3"),
            target("second", "vfs:///mnt/store/"),
            target("empty", ""),
        ];
        for (url, wanted) in [
            ("vfs:///mnt/store?backup=b-1&volume=v-1", &["second"][..]),
            ("cifs://files.example/share/?backup=b-1&volume=v-1", &["default"]),
            ("cifs://evil.example/share?backup=b-1&volume=v-1", &[]),
            ("vfs:///mnt?backup=b-1&volume=v-1", &[]),
            ("nfs://inside.example:/export?backup=b-1&volume=v-1&nfsOptions=x", &[]),
        ] {
            let (place, _, _) = read_url(url).unwrap();
            assert_eq!(targets_at(&all, &place), wanted, "{url}");
        }
    }

    #[test]
    fn nothing_is_restored_of_a_backup_that_is_being_deleted() {
        let mut backup = Backup::default();
        backup.status.get_or_insert_default().volume_size = Some("4096".to_owned());
        let found = |backup: &Backup| found_backup(Some(backup), "v".into(), "b".into());
        assert!(matches!(found(&backup), Source::Found { backup_volume_size: Some(4096), .. }));
        backup.status.get_or_insert_default().state = Some(BackupState::Deleting);
        assert!(matches!(found(&backup), Source::Missing(why) if why.contains("being deleted")));
    }
}
