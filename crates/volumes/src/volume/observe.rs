//! Everything a decision about a volume looks at. Reads only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::condition;
use api::longhorn::{BackupVolume, InstanceState, Node, Volume};
use jiff::Timestamp;
use kube::ResourceExt;
use reconcile::{Failure, Key, OrFail as _};

use super::World;
use super::draft::{Seen, Source, has_failed, is_set, node_of};
use super::original::original;
use crate::{NAMESPACE, engine, schedule};

/// What of a node matters to volumes.
pub(super) fn standing(node: &Node) -> (bool, bool, Vec<String>) {
    let conditions = node.status.as_ref().and_then(|it| it.conditions.clone()).unwrap_or_default();
    let disks = node.status.as_ref().and_then(|it| it.disk_status.clone()).unwrap_or_default();
    let open = disks.iter().filter(|(_, disk)| {
        condition::holds(disk.conditions.as_deref().unwrap_or_default(), "Schedulable")
    });
    (
        condition::holds(&conditions, "Ready"),
        condition::holds(&conditions, "Schedulable") && node.spec.allow_scheduling == Some(true),
        open.map(|(name, _)| name.clone()).collect(),
    )
}

pub(super) async fn observe(world: &World, volume: &Volume) -> Result<Seen, Failure> {
    let name = volume.name_any();
    let nodes = world.nodes.list();
    let is_ready =
        |node: &Arc<Node>| standing(node).0 && node.metadata.deletion_timestamp.is_none();
    let up: BTreeSet<String> =
        nodes.iter().filter(|node| is_ready(node)).map(|node| node.name_any()).collect();
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
        replicas: world.replicas.by("volume", &name).iter().map(|it| it.as_ref().clone()).collect(),
        has_snapshots: !world.snapshots.by("volume", &name).is_empty(),
        candidates: schedule::candidates(&nodes, |node| up.contains(node), |_| true),
        settings: world.settings(),
        rebuilding: rebuilding(world),
        up,
        source,
        original: original(world, volume),
        backup_volume,
        newest_is_known,
    })
}

/// Copies that are being filled, by node.
fn rebuilding(world: &World) -> BTreeMap<String, i64> {
    let mut all: BTreeMap<String, i64> = BTreeMap::new();
    for replica in world.replicas.list() {
        let filling = replica.spec.rebuild_retry_count.unwrap_or(0) != 0
            && !is_set(replica.spec.healthy_at.as_ref())
            && !has_failed(&replica)
            && replica.spec.instance.desire_state == Some(InstanceState::Running);
        if let Some(node) = node_of(&replica).filter(|_| filling) {
            *all.entry(node.to_owned()).or_default() += 1;
        }
    }
    all
}

/// The volume and the backup that a URL names.
pub(super) fn read_url(url: &str) -> Option<(String, String)> {
    let (_, query) = url.split_once('?')?;
    let value = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    Some((filled(value("volume"))?, filled(value("backup"))?))
}

async fn source(world: &World, volume: &Volume) -> Result<(Source, Option<BackupVolume>), Failure> {
    let url = volume.spec.from_backup.as_deref().unwrap_or_default();
    let initiated = volume.status.as_ref().is_some_and(|it| it.restore_initiated == Some(true));
    let restores = volume.status.as_ref().is_some_and(|it| it.restore_required == Some(true));
    if url.is_empty() || (initiated && !restores) {
        let own = stored(world, &volume.name_any(), volume.spec.backup_target_name.as_deref(), "");
        return Ok((Source::None, own));
    }
    let Some((from, backup)) = read_url(url) else {
        let why = format!(
            "spec.fromBackup {url:?} names no volume and backup: write it as the url of a Backup has it"
        );
        return Ok((Source::Missing(why), None));
    };
    let target = volume.spec.backup_target_name.as_deref().filter(|_| initiated);
    let stored = stored(world, &from, target, url);
    if initiated {
        return Ok((Source::Found { volume: from, backup, backup_volume_size: None }, stored));
    }
    if stored.is_none() {
        let why = format!(
            "cannot get backup volume for backup target of {url}: no BackupVolume of {from}"
        );
        return Ok((Source::Missing(why), None));
    }
    let found = world.backup(&backup).await.or_fail(|| format!("get backup {backup}"))?;
    let Some(found) = found else {
        return Ok((
            Source::Missing(format!("cannot get backup {backup}: it does not exist")),
            stored,
        ));
    };
    let size = found.status.as_ref().and_then(|it| it.volume_size.as_ref()?.parse().ok());
    if size.is_none() {
        let why = format!("cannot get backup {backup}: it is not read from the store yet");
        return Ok((Source::Missing(why), stored));
    }
    Ok((Source::Found { volume: from, backup, backup_volume_size: size }, stored))
}

/// What a store has of a volume: at the target that is named, or at the one the URL leads to.
fn stored(world: &World, volume: &str, target: Option<&str>, url: &str) -> Option<BackupVolume> {
    let all = world.backup_volumes.by("volume", volume);
    let base = url.split_once('?').map_or(url, |(base, _)| base).trim_end_matches('/');
    let at = |name: Option<&String>| {
        let found = name.and_then(|name| world.targets.get(&Key::new(NAMESPACE, name)));
        let at = found.and_then(|it| it.spec.backup_target_url.clone()).unwrap_or_default();
        at.split_once('?').map_or(at.as_str(), |(base, _)| base).trim_end_matches('/').to_owned()
    };
    let fits = |it: &&Arc<BackupVolume>| match target {
        Some(target) => it.spec.backup_target_name.as_deref().unwrap_or("default") == target,
        None => base.is_empty() || at(it.spec.backup_target_name.as_ref()) == base,
    };
    let found = all.iter().find(fits);
    // A URL may be written in another way than the target's.
    let only = all.first().filter(|_| all.len() == 1 && target.is_none());
    found.or(only).map(|it| it.as_ref().clone())
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
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_volume_and_backup_in_any_order() {
        let both = Some(("v".to_owned(), "b".to_owned()));
        assert_eq!(read_url("s3://x@r/?backup=b&volume=v"), both);
        assert_eq!(read_url("vfs:///d?volume=v&x=y&backup=b"), both);
        assert_eq!(read_url("vfs:///d?volume=v"), None);
        assert_eq!(read_url("vfs:///d?volume=v&backup="), None);
        assert_eq!(read_url("vfs:///d"), None);
    }
}
