//! Everything a decision about a volume looks at. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::condition;
use api::longhorn::{
    AccessMode, Backup, BackupDeletion, BackupState, BackupStatus, BackupTarget, BackupVolume,
    Engine, EngineImage, EngineImageState, InstanceState, Node, Replica, Volume, VolumeState,
};
use backupstore::{BackupUrl, TargetUrl};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use reconcile::{Failure, Key, OrFail as _};

use super::draft::{Image, Seen, Source, has_failed, is_set, node_of};
use super::original::original;
use super::{World, is_new};
use crate::node::{has_disk, has_lost_data};
use crate::target::{self, DEFAULT, place};
use crate::{NAMESPACE, backup, engine, label, schedule};

/// What of a node matters to volumes.
pub(super) fn standing(node: &Node) -> (bool, bool, [Vec<String>; 3]) {
    let status = node.status.as_ref();
    let conditions = status.and_then(|it| it.conditions.as_deref()).unwrap_or_default();
    let disks = status.and_then(|it| it.disk_status.as_ref());
    let those = |kind: &str| {
        let all = disks.into_iter().flatten().filter(|(_, disk)| {
            condition::holds(disk.conditions.as_deref().unwrap_or_default(), kind)
        });
        all.map(|(name, _)| name.clone()).collect()
    };
    let whole = node.spec.eviction_requested == Some(true);
    let emptied = node.spec.disks.iter().flatten();
    let emptied = emptied.filter(|(_, disk)| whole || disk.eviction_requested == Some(true));
    let emptied = emptied.map(|(name, _)| name.clone()).collect();
    (
        condition::holds(conditions, "Ready"),
        condition::holds(conditions, "Schedulable") && node.spec.allow_scheduling == Some(true),
        [those("Ready"), those("Schedulable"), emptied],
    )
}

/// It can be worked with: it is heard of, and stays.
pub(crate) fn is_ready(node: &Node) -> bool {
    standing(node).0 && node.metadata.deletion_timestamp.is_none()
}

impl World {
    pub(crate) fn is_up(&self, node: &str) -> bool {
        self.nodes.get(&Key::new(NAMESPACE, node)).is_some_and(|it| is_ready(&it))
    }
}

pub(super) async fn observe(world: &World, volume: &Volume) -> Result<Seen, Failure> {
    let name = volume.name_any();
    let nodes = world.nodes.list();
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
    let replicas = world.replicas.by("volume", &name);
    let replicas = replicas.iter().filter(|it| !is_of_another(it.as_ref(), volume));
    let replicas: Vec<Replica> = replicas.map(|it| it.as_ref().clone()).collect();
    let engines = world.engines.by(engine::BY_VOLUME, &name);
    let own: Vec<_> = engines.iter().filter(|it| !is_of_another(it.as_ref(), volume)).collect();
    let engine = own.iter().find(|it| it.spec.active == Some(true)).or_else(|| own.first());
    let (source, backup_volume) = source(world, volume).await?;
    let newest_is_known = newest_is_known(world, volume, backup_volume.as_ref()).await?;
    let target = target_of_source(world, volume);
    Ok(Seen {
        now: Timestamp::now(),
        volume: volume.clone(),
        attachment: world
            .attachments
            .get(&Key::new(NAMESPACE, &name))
            .map(|it| it.as_ref().clone()),
        engine: engine.map(|it| Engine::clone(it)),
        no_disk: without_disk(world, &replicas),
        evicting: evicting(world, &replicas),
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
        target,
        newest_is_known,
    })
}

/// Whose an object is that names a volume as its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Volumes,
    /// Of an earlier volume of this name, which was removed by force.
    Earlier,
    /// Of a volume of another name: somebody has changed which one it names.
    Foreign,
}

/// One that names no owner was made by hand, and is the volume's that it names.
pub(super) fn whose(object: &impl ResourceExt, volume: &Volume) -> Whose {
    let mut owners = object.owner_references().iter().filter(|it| it.kind == "Volume").peekable();
    let is_own = |it: &OwnerReference| volume.metadata.uid.as_ref() == Some(&it.uid);
    if owners.peek().is_none() || owners.clone().any(is_own) {
        Whose::Volumes
    } else if owners.any(|it| it.name == volume.name_any()) {
        Whose::Earlier
    } else {
        Whose::Foreign
    }
}

pub(super) fn is_of_another(object: &impl ResourceExt, volume: &Volume) -> bool {
    whose(object, volume) != Whose::Volumes
}

/// The volume that owns it, if it is there: that one's data goes by its word alone.
pub(super) fn living_owner(world: &World, object: &impl ResourceExt) -> Option<String> {
    let owners = object.owner_references().iter().filter(|it| it.kind == "Volume");
    let mut there = owners.filter(|it| {
        let volume = world.volumes.get(&Key::new(NAMESPACE, &it.name));
        volume.is_some_and(|found| found.metadata.uid.as_ref() == Some(&it.uid))
    });
    there.next().map(|it| it.name.clone())
}

/// Copies that their nodes cannot start where their data is, or that are not there any more. One that has
/// failed is filled anew before it counts: that it holds nothing is no reason against it.
fn without_disk(world: &World, replicas: &[Replica]) -> BTreeSet<String> {
    let lacks = |replica: &&Replica| {
        let node = node_of(replica).and_then(|it| world.nodes.get(&Key::new(NAMESPACE, it)));
        node.is_some_and(|node| !has_disk(replica, &node)) || is_emptied(replica)
    };
    replicas.iter().filter(lacks).map(ResourceExt::name_any).collect()
}

/// Copies on nodes or disks that somebody wants empty.
fn evicting(world: &World, replicas: &[Replica]) -> BTreeSet<String> {
    let is_to_go = |replica: &&Replica| {
        let node = node_of(replica).and_then(|it| world.nodes.get(&Key::new(NAMESPACE, it)));
        node.is_some_and(|node| is_evicted_from(replica, &node))
    };
    replicas.iter().filter(is_to_go).map(ResourceExt::name_any).collect()
}

fn is_evicted_from(replica: &Replica, node: &Node) -> bool {
    let id = replica.spec.disk_id.as_deref().filter(|id| !id.is_empty());
    let statuses = node.status.as_ref().and_then(|it| it.disk_status.as_ref());
    let is_its_disk = |name: &String| {
        id.is_some() && statuses.and_then(|it| it.get(name)?.disk_uuid.as_deref()) == id
    };
    let mut disks = node.spec.disks.iter().flatten();
    node.spec.eviction_requested == Some(true)
        || disks.any(|(name, disk)| disk.eviction_requested == Some(true) && is_its_disk(name))
}

fn is_emptied(replica: &Replica) -> bool {
    let status = replica.status.as_ref();
    is_set(replica.spec.healthy_at.as_ref())
        && !has_failed(replica)
        && status.is_some_and(|it| has_lost_data(&it.instance))
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
        let known =
            Source::Found { volume: from, backup, backup_volume_size: None, access_mode: None };
        return Ok((known, stored));
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
    Ok((found_backup(found.as_ref(), &stored, from, backup), Some(stored)))
}

/// What can be restored of a backup.
fn found_backup(
    found: Option<&Backup>,
    stored: &BackupVolume,
    volume: String,
    name: String,
) -> Source {
    let missing = |why: &str| Source::Missing(format!("cannot get backup {name}: {why}"));
    let Some(found) = found else { return missing("it does not exist") };
    let status = found.status.clone().unwrap_or_default();
    if let Some(other) = other_volume(found, &volume) {
        return missing(&format!("it is a backup of volume {other}, and not of {volume}"));
    }
    let goes =
        |leaves: bool, deletion: Option<&BackupDeletion>| leaves && !backup::is_untouched(deletion);
    if status.state == Some(BackupState::Deleting)
        || goes(found.metadata.deletion_timestamp.is_some(), status.deletion.as_ref())
    {
        return missing("it is being deleted");
    }
    let deletion = stored.status.as_ref().and_then(|it| it.deletion.as_ref());
    if goes(stored.metadata.deletion_timestamp.is_some(), deletion) {
        return missing("it is being deleted with all backups of its volume");
    }
    match status.volume_size.as_ref().and_then(|it| it.parse().ok()) {
        None => missing("it is not read from the store yet"),
        size => Source::Found {
            access_mode: access_mode(&status),
            volume,
            backup: name,
            backup_volume_size: size,
        },
    }
}

/// As the volume had it that was backed up. What is stored may say anything.
fn access_mode(status: &BackupStatus) -> Option<AccessMode> {
    let said = AccessMode::from(status.labels.as_ref()?.get(label::ACCESS_MODE)?.as_str());
    match said {
        AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod | AccessMode::ReadWriteMany => {
            Some(said)
        }
        AccessMode::Unset | AccessMode::Other(_) => None,
    }
}

/// The volume a backup is of, if that is another: by its label, by what was read of it, and by where it lies.
fn other_volume(backup: &Backup, volume: &str) -> Option<String> {
    let status = backup.status.as_ref();
    let lies = status.and_then(|it| read_url(it.url.as_deref()?)).map(|(_, volume, _)| volume);
    let label = backup.labels().get(crate::label::BACKUP_VOLUME).cloned();
    let read = status.and_then(|it| it.volume_name.clone());
    [label, read, lies].into_iter().flatten().find(|it| !it.is_empty() && it != volume)
}

/// The targets whose own URL leads to the same place. Nothing else is ever gone to: who may make a
/// volume may not choose where nodes connect to, and with whose keys.
fn targets_at(all: &[Arc<BackupTarget>], wanted: &TargetUrl) -> Vec<String> {
    all.iter().filter(|it| leads_to(it, wanted)).map(|it| it.name_any()).collect()
}

/// The target of a volume that follows another, if what it follows lies there: one that leads elsewhere by now
/// knows nothing of it.
fn target_of_source(world: &World, volume: &Volume) -> Option<BackupTarget> {
    let (at, _, _) = read_url(volume.spec.from_backup.as_deref()?)?;
    let name = volume.spec.backup_target_name.as_deref().unwrap_or(DEFAULT);
    let target = world.targets.get(&Key::new(NAMESPACE, name))?;
    leads_to(&target, &at).then(|| target.as_ref().clone())
}

fn leads_to(target: &BackupTarget, wanted: &TargetUrl) -> bool {
    target::url(target).is_ok_and(|url| place(&url) == place(wanted))
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
    use api::longhorn::{Disk, DiskStatus};
    use api::scalar::Stamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

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
    fn a_whole_copy_whose_node_finds_nothing_of_it_is_not_there() {
        let now = api::scalar::Time::new(Timestamp::UNIX_EPOCH);
        let whole = |reason: &str| {
            let mut replica = Replica::default();
            replica.spec.healthy_at = Some(Stamp::from(now));
            let status = replica.status.get_or_insert_default();
            crate::node::say_creation(&mut status.instance, Some((reason, "why")), now);
            replica
        };
        assert!(is_emptied(&whole("DataGone")));
        assert!(!is_emptied(&whole("FailedStarting")), "written before the disks were looked at");
        let mut failed = whole("DataGone");
        failed.spec.failed_at = Some(Stamp::from(now));
        assert!(!is_emptied(&failed), "it is filled anew");
        let mut filled = whole("DataGone");
        filled.spec.healthy_at = Some(Stamp::never());
        assert!(!is_emptied(&filled));
    }

    #[test]
    fn copies_leave_nodes_and_disks_that_are_to_be_emptied() {
        let mut replica = Replica::default();
        replica.spec.disk_id = Some("u1".to_owned());
        let mut node = Node::default();
        let statuses = node.status.get_or_insert_default().disk_status.get_or_insert_default();
        for (name, uuid) in [("d1", "u1"), ("d2", "u2")] {
            node.spec.disks.get_or_insert_default().insert(name.to_owned(), Disk::default());
            let status = DiskStatus { disk_uuid: Some(uuid.to_owned()), ..DiskStatus::default() };
            statuses.insert(name.to_owned(), status);
        }
        let told = |on: Option<&str>, whole: bool| {
            let mut node = node.clone();
            node.spec.eviction_requested = Some(whole);
            for (name, disk) in node.spec.disks.iter_mut().flatten() {
                disk.eviction_requested = Some(on == Some(name));
            }
            (is_evicted_from(&replica, &node), standing(&node) != standing(&Node::default()))
        };
        assert!(!told(None, false).0);
        assert!(!told(Some("d2"), false).0);
        assert_eq!(told(Some("d1"), false), (true, true));
        assert_eq!(told(None, true), (true, true));
    }

    #[test]
    fn what_an_earlier_volume_of_the_name_left_is_not_the_volumes() {
        let mut volume = Volume::default();
        volume.metadata.uid = Some("new".to_owned());
        let owner = |kind: &str, uid: &str| meta::OwnerReference {
            kind: kind.to_owned(),
            uid: uid.to_owned(),
            ..meta::OwnerReference::default()
        };
        for (owners, wanted) in [
            (vec![], false),
            (vec![owner("Volume", "new")], false),
            (vec![owner("Volume", "old")], true),
            (vec![owner("Volume", "old"), owner("Volume", "new")], false),
            (vec![owner("Node", "old")], false),
        ] {
            let mut replica = Replica::default();
            let text = format!("{owners:?}");
            replica.metadata.owner_references = Some(owners);
            assert_eq!(is_of_another(&replica, &volume), wanted, "{text}");
        }
    }

    #[test]
    fn a_copy_of_another_volume_is_left_out_and_one_of_an_earlier_of_the_name_is_waited_for() {
        let mut volume = Volume::default();
        (volume.metadata.name, volume.metadata.uid) = (Some("v".into()), Some("new".into()));
        let of = |name: &str, uid: &str| {
            let mut replica = Replica::default();
            let owner = meta::OwnerReference {
                kind: "Volume".to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
                ..meta::OwnerReference::default()
            };
            replica.metadata.owner_references = Some(vec![owner]);
            whose(&replica, &volume)
        };
        assert_eq!(of("v", "new"), Whose::Volumes);
        assert_eq!(of("v", "old"), Whose::Earlier);
        assert_eq!(of("w", "other"), Whose::Foreign);
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
    fn a_backup_of_another_volume_is_none() {
        let mut backup = Backup::default();
        let found = |backup: &Backup| {
            found_backup(Some(backup), &BackupVolume::default(), "v".into(), "b".into())
        };
        let status = backup.status.get_or_insert_default();
        (status.volume_size, status.volume_name) = (Some("4096".to_owned()), Some("v".to_owned()));
        backup.labels_mut().insert(crate::label::BACKUP_VOLUME.to_owned(), "v".to_owned());
        assert!(matches!(found(&backup), Source::Found { .. }));
        let is_refused = |backup: &Backup| {
            let told = "backup of volume w";
            matches!(found(backup), Source::Missing(why) if why.contains(told))
        };
        let mut other = backup.clone();
        other.status.get_or_insert_default().volume_name = Some("w".to_owned());
        assert!(is_refused(&other));
        let mut other = backup.clone();
        other.labels_mut().insert(crate::label::BACKUP_VOLUME.to_owned(), "w".to_owned());
        assert!(is_refused(&other));
        let mut other = backup;
        other.status.get_or_insert_default().url =
            Some("vfs:///d?backup=b-1&volume=w-1".to_owned());
        assert!(is_refused(&other));
    }

    #[test]
    fn a_backup_knows_who_might_use_its_volume() {
        let said = |word: &str| {
            let mut backup = Backup::default();
            let status = backup.status.get_or_insert_default();
            status.volume_size = Some("4096".to_owned());
            status.labels = Some([(label::ACCESS_MODE.to_owned(), word.to_owned())].into());
            let stored = BackupVolume::default();
            match found_backup(Some(&backup), &stored, "v".into(), "b".into()) {
                Source::Found { access_mode, .. } => access_mode,
                Source::None | Source::Missing(_) => panic!("not found"),
            }
        };
        assert_eq!(said("rwx"), Some(AccessMode::ReadWriteMany));
        assert_eq!(said("rwop"), Some(AccessMode::ReadWriteOncePod));
        assert_eq!((said("all"), said("")), (None, None));
    }

    #[test]
    fn nothing_is_restored_of_a_backup_that_is_being_deleted() {
        let mut backup = Backup::default();
        backup.status.get_or_insert_default().volume_size = Some("4096".to_owned());
        let stored = BackupVolume::default();
        let found = |backup: &Backup| found_backup(Some(backup), &stored, "v".into(), "b".into());
        assert!(matches!(found(&backup), Source::Found { backup_volume_size: Some(4096), .. }));
        backup.status.get_or_insert_default().state = Some(BackupState::Deleting);
        assert!(matches!(found(&backup), Source::Missing(why) if why.contains("being deleted")));
    }

    #[test]
    fn a_deletion_that_waits_for_the_volume_is_not_waited_for_by_it() {
        let (mut backup, mut stored) = (Backup::default(), BackupVolume::default());
        let found_in = |backup: &Backup, stored: &BackupVolume| {
            let found = found_backup(Some(backup), stored, "v".into(), "b".into());
            matches!(found, Source::Found { .. })
        };
        let found = |backup: &Backup| found_in(backup, &BackupVolume::default());
        let status = backup.status.get_or_insert_default();
        (status.volume_size, status.state) =
            (Some("4096".to_owned()), Some(BackupState::Completed));
        backup.metadata.deletion_timestamp = Some(meta::Time(Timestamp::UNIX_EPOCH));
        assert!(!found(&backup), "nobody has seen it yet: it may begin at any moment");
        let deletion = BackupDeletion {
            waits_for: Some("volume v is restoring from backup b".to_owned()),
            ..BackupDeletion::default()
        };
        backup.status.get_or_insert_default().deletion = Some(deletion.clone());
        assert!(found(&backup));
        stored.metadata.deletion_timestamp = Some(meta::Time(Timestamp::UNIX_EPOCH));
        assert!(!found_in(&backup, &stored), "all backups of the volume may go");
        stored.status.get_or_insert_default().deletion = Some(deletion.clone());
        assert!(found_in(&backup, &stored));
        let tried = BackupDeletion { attempt: Some("1".to_owned()), ..deletion };
        backup.status.get_or_insert_default().deletion = Some(tried);
        assert!(!found(&backup), "some of it may be gone");
    }
}
