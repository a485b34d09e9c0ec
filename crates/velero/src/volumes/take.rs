//! The data of the claims of a backup: a snapshot and a backup of each volume behind them.

use std::path::Path;
use std::time::Duration;

use api::longhorn::{
    BackupSpec, BackupTarget, BackupTargetSpec, Replica, Snapshot, SnapshotSpec, Volume,
};
use api::scalar::Time;
use api::velero::Backup;
use futures::StreamExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::decide::{self, Left, Stand};
use super::{FAILED, LOOK_EVERY, NAMESPACE, Record, TYPE, made, name, ours, text};
use crate::backup::Counts;
use crate::backup::queue::KIND;
use crate::door::words;
use crate::journal::{Journal, Place, about};
use crate::names;
use crate::world::World;

const SOURCE: &str = "velero/volumes";
/// Volumes that are worked on at the same time.
const AT_ONCE: usize = 4;
/// The target that administrators set up, and the one that is made on the machine of `up` where they
/// did not.
const TARGET: &str = "default";
const OWN_TARGET: &str = "velero";
const TARGET_WITHIN: Duration = Duration::from_mins(1);
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// For claims that were made together with their backup to get a volume, and that a place: all of one
/// backup together.
const SETTLED_WITHIN: Duration = Duration::from_secs(15);
const SNAPSHOT_WITHIN: Duration = Duration::from_mins(10);
const BACKUP_WITHIN: Duration = Duration::from_hours(4);

/// What is known of the volumes of a backup when all was tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taken {
    /// For the list of volumes.
    pub(crate) volumes: Vec<Value>,
    /// For the list of snapshots.
    pub(crate) snapshots: Vec<Value>,
}

/// A claim whose data can be taken.
#[derive(Debug)]
struct Claimed {
    namespace: String,
    name: String,
    uid: String,
    persistent: PersistentVolume,
    volume: String,
}

/// A claim, when it was begun with, and the name of its backup or why there is none.
type One<'o> = (&'o Claimed, Timestamp, Result<String, String>);

/// Takes the data of claims. What is not taken is said, in the list and in the journal.
pub(crate) async fn take(
    world: &World,
    begun: &Backup,
    claims: &[Value],
    journal: &mut Journal,
    counts: &watch::Sender<Counts>,
) -> Taken {
    let mut taken = Taken::default();
    let mut wanted = Vec::new();
    let settled = Instant::now() + SETTLED_WITHIN;
    for claim in claims {
        let claim = &Box::pin(settle(world, begun, claim, settled)).await;
        match Box::pin(sort(world, begun, claim)).await {
            Ok(found) => wanted.push(found),
            Err(left) => leave(claim, &left, journal, &mut taken),
        }
    }
    if wanted.is_empty() {
        return taken;
    }
    let attempted = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    counts.send_modify(|it| it.volumes = attempted);
    let target = match target(world).await {
        Ok(Some(target)) => Ok(target),
        // Nobody set up a place for volumes, and nobody insists on them.
        Ok(None) if begun.spec.snapshot_volumes != Some(true) => {
            let left = Left::Warned("no backup target is set up for the data of volumes");
            for claimed in &wanted {
                leave(&claimed.as_value(), &left, journal, &mut taken);
            }
            counts.send_modify(|it| it.volumes = 0);
            return taken;
        }
        Ok(None) => Err(format!(
            "no backup target is set up; set spec.backupTargetURL of the BackupTarget {TARGET} in \
             {NAMESPACE}"
        )),
        Err(why) => Err(why),
    };
    let work: Vec<BoxFuture<'_, One<'_>>> = wanted
        .iter()
        .map(|claimed| {
            let target = target.clone();
            let one = async move {
                let start = Timestamp::now();
                let done = match target {
                    Ok(target) => one(world, begun, (claimed, settled), &target).await,
                    Err(why) => Err(why),
                };
                if done.is_ok() {
                    counts.send_modify(|it| it.volumes_done += 1);
                }
                (claimed, start, done)
            };
            Box::pin(one) as BoxFuture<'_, One<'_>>
        })
        .collect();
    let mut done = futures::stream::iter(work).buffered(AT_ONCE);
    while let Some((claimed, start, done)) = done.next().await {
        match done {
            Ok(handle) => {
                let more = [
                    ("name", claimed.name.as_str()),
                    ("namespace", claimed.namespace.as_str()),
                    ("snapshot", handle.as_str()),
                ];
                journal.info(SOURCE, "Backed up the data of the claim", &more);
                taken.snapshots.push(snapshot_entry(begun, claimed, &handle));
                taken.volumes.push(volume_entry(claimed, start, Ok(&handle)));
            }
            Err(why) => {
                let message = about(
                    "persistentvolumeclaims",
                    &claimed.name,
                    "Error backing up the data",
                    Some(&why),
                );
                journal.error(Place::Namespace(&claimed.namespace), SOURCE, &message);
                taken.volumes.push(volume_entry(claimed, start, Err(&why)));
            }
        }
    }
    taken
}

/// A claim that is as young as the backup may be about to get its volume: as it is then, or at the end.
async fn settle(world: &World, begun: &Backup, claim: &Value, end: Instant) -> Value {
    let (at, mut now) = (|path: &str| text(claim, path).unwrap_or_default(), claim.clone());
    let (namespace, name) = (at("/metadata/namespace"), at("/metadata/name"));
    let api: Api<PersistentVolumeClaim> = Api::namespaced(world.context.client.clone(), namespace);
    let is_wanted = begun.spec.snapshot_volumes != Some(false);
    while is_wanted && decide::may_yet_bind(&now, Timestamp::now()) && Instant::now() < end {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(Some(found)) = api.get_opt(name).await else { continue };
        if found.metadata.uid.as_deref() != Some(at("/metadata/uid")) {
            break;
        }
        now = serde_json::to_value(found).unwrap_or_else(|_| claim.clone());
    }
    now
}

/// Whether the data of a claim is to be taken, and whence.
async fn sort(world: &World, begun: &Backup, claim: &Value) -> Result<Claimed, Left> {
    if begun.spec.snapshot_volumes == Some(false) {
        return Err(Left::Quietly("snapshotVolumes is false"));
    }
    let api: Api<PersistentVolume> = Api::all(world.context.client.clone());
    let named = text(claim, "/spec/volumeName").unwrap_or_default();
    let persistent = if named.is_empty() {
        None
    } else {
        let asked = asked_again(|| api.get_opt(named)).await;
        asked.map_err(|error| {
            Left::Failed(format!("its persistent volume {named}: {}", words(&error)))
        })?
    };
    let volume = decide::behind(claim, persistent.as_ref())?;
    let own = |path: &str| text(claim, path).unwrap_or_default().to_owned();
    Ok(Claimed {
        namespace: own("/metadata/namespace"),
        name: own("/metadata/name"),
        uid: own("/metadata/uid"),
        persistent: persistent.unwrap_or_default(),
        volume,
    })
}

/// One answer that did not come says nothing: a server may be starting again.
async fn asked_again<T, F: Future<Output = Result<T, kube::Error>>>(
    ask: impl Fn() -> F,
) -> Result<T, kube::Error> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(_) if began.elapsed() < ANSWER_WITHIN => tokio::time::sleep(LOOK_EVERY).await,
            answer => return answer,
        }
    }
}

fn leave(claim: &Value, left: &Left, journal: &mut Journal, taken: &mut Taken) {
    let at = |path: &str| text(claim, path).unwrap_or_default();
    let (namespace, name) = (at("/metadata/namespace"), at("/metadata/name"));
    let why = match left {
        Left::Failed(why) => {
            let what = "Error backing up the data";
            let message = about("persistentvolumeclaims", name, what, Some(why));
            journal.error(Place::Namespace(namespace), SOURCE, &message);
            taken.volumes.push(json!({"pvcName": name, "pvcNamespace": namespace,
                "pvName": at("/spec/volumeName"), "skipped": false, "result": FAILED}));
            return;
        }
        Left::Quietly(why) => *why,
        Left::Warned(why) => {
            let message = about("persistentvolumeclaims", name, why, None);
            journal.warn(Place::Namespace(namespace), SOURCE, &message);
            why
        }
    };
    taken.volumes.push(json!({"pvcName": name, "pvcNamespace": namespace,
        "pvName": at("/spec/volumeName"), "skipped": true, "skippedReason": why}));
}

impl Claimed {
    fn as_value(&self) -> Value {
        json!({"metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"volumeName": self.persistent.name_any()}})
    }
}

/// Where the data goes: what administrators set up, else, beside `up`, a directory of its machine.
async fn target(world: &World) -> Result<Option<String>, String> {
    let api: Api<BackupTarget> = ours(world);
    let told = |error: kube::Error| words(&error);
    let chosen = if decide::has_url(api.get_opt(TARGET).await.map_err(told)?.as_ref()) {
        TARGET
    } else if let Some(directory) = &world.settings.volumes {
        let (found, url) = (api.get_opt(OWN_TARGET).await.map_err(told)?, url(directory)?);
        // A directory that was moved, and one that was once written down from where its server began.
        if let Some(mut found) = found.clone()
            && found.spec.backup_target_url.as_ref() != Some(&url)
        {
            found.spec.backup_target_url = Some(url.clone());
            found.metadata.managed_fields = None;
            let name = found.name_any();
            api.replace(&name, &PostParams::default(), &found).await.map_err(told)?;
        }
        if found.is_none() {
            durable::create_dir_private(directory)
                .map_err(|error| format!("no directory for volumes: {error}"))?;
            let spec = BackupTargetSpec {
                backup_target_url: Some(url),
                poll_interval: Some(Duration::from_mins(5).into()),
                ..BackupTargetSpec::default()
            };
            let target = BackupTarget::new(OWN_TARGET, spec);
            made(api.create(&PostParams::default(), &target).await)?;
        }
        OWN_TARGET
    } else {
        return Ok(None);
    };
    let ready = until(TARGET_WITHIN, &api, chosen, decide::target).await;
    ready.map(|()| Some(chosen.to_owned())).map_err(|why| format!("{chosen}: {why}"))
}

/// Engines have a directory of their own to begin from: the address is whole.
fn url(directory: &Path) -> Result<String, String> {
    let whole = std::path::absolute(directory);
    let whole = whole.map_err(|error| format!("no directory for volumes: {error}"))?;
    Ok(format!("vfs://{}", whole.display()))
}

/// The name of the backup of one volume, when it is complete. What a failed try made is removed.
async fn one(
    world: &World,
    begun: &Backup,
    (claimed, settled): (&Claimed, Instant),
    target: &str,
) -> Result<String, String> {
    while let Some(why) = Box::pin(unplaced(world, &claimed.volume)).await? {
        // One that was just made may be about to get its place.
        if Instant::now() > settled {
            return Err(why);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let uid = begun.metadata.uid.as_deref().unwrap_or_default();
    let handle = name("backup", &[uid, &claimed.uid]);
    let snapshot = name("velero", &[uid, &claimed.uid]);
    let done = snapshot_and_backup(world, begun, claimed, target, &snapshot, &handle).await;
    let snapshots: Api<Snapshot> = ours(world);
    match done {
        Ok(()) => {
            // The newest is kept: the next backup sends what differs from it.
            let older = format!("longhornvolume={},{}", claimed.volume, names::BACKUP_UID);
            let found = snapshots.list_metadata(&ListParams::default().labels(&older)).await;
            let found = found.map(|it| it.items).unwrap_or_default().into_iter().map(|it| {
                let backup = it.labels().get(names::BACKUP_UID).cloned().unwrap_or_default();
                (it.name_any(), backup)
            });
            let known = world.backups.list();
            let reads_on = |uid: &str| {
                let mut all = known.iter().filter(|it| it.metadata.uid.as_deref() == Some(uid));
                all.any(|it| world.running.has(KIND, &it.name_any()))
            };
            for old in decide::superseded(found, &snapshot, reads_on) {
                let _ = snapshots.delete(&old, &DeleteParams::default()).await;
            }
            Ok(handle)
        }
        Err(why) => {
            let backups: Api<api::longhorn::Backup> = ours(world);
            let _ = backups.delete(&handle, &DeleteParams::default()).await;
            let _ = snapshots.delete(&snapshot, &DeleteParams::default()).await;
            Err(why)
        }
    }
}

/// Why no data can be had of a volume, as it is now.
async fn unplaced(world: &World, volume: &str) -> Result<Option<String>, String> {
    let volumes: Api<Volume> = ours(world);
    let found = volumes.get_opt(volume).await.map_err(|error| words(&error))?;
    let found = found.ok_or_else(|| format!("the volume {volume} is not there"))?;
    let replicas: Api<Replica> = ours(world);
    let copies = ListParams::default().labels(&format!("longhornvolume={volume}"));
    let copies = replicas.list(&copies).await.map_err(|error| words(&error))?;
    Ok(decide::unplaced(&found, &copies.items))
}

async fn snapshot_and_backup(
    world: &World,
    begun: &Backup,
    claimed: &Claimed,
    target: &str,
    snapshot: &str,
    handle: &str,
) -> Result<(), String> {
    let velero = begun.name_any();
    let uid = begun.metadata.uid.clone().unwrap_or_default();
    let marks = [
        (names::BACKUP_NAME.to_owned(), names::label_value(&velero)),
        (names::BACKUP_UID.to_owned(), uid.clone()),
    ];
    let spec = SnapshotSpec {
        volume: Some(claimed.volume.clone()),
        create_snapshot: Some(true),
        ..SnapshotSpec::default()
    };
    let mut wanted = Snapshot::new(snapshot, spec);
    wanted.labels_mut().extend(marks.clone());
    wanted.labels_mut().insert("longhornvolume".to_owned(), claimed.volume.clone());
    let snapshots: Api<Snapshot> = ours(world);
    made(snapshots.create(&PostParams::default(), &wanted).await)?;
    let notes = begun.metadata.annotations.as_ref();
    let is_tenants = notes.is_some_and(|it| it.contains_key(names::TENANT_BACKUP_NAMESPACE));
    let asked = begun.spec.csi_snapshot_timeout.as_ref().and_then(|it| it.get().ok());
    let within = decide::within(asked, SNAPSHOT_WITHIN, is_tenants);
    until(within, &snapshots, snapshot, decide::snapshot).await?;
    let record = Record {
        backup: velero,
        backup_uid: uid,
        namespace: claimed.namespace.clone(),
        claim: claimed.name.clone(),
    };
    let spec = BackupSpec {
        snapshot_name: Some(snapshot.to_owned()),
        labels: Some(record.labels()),
        ..BackupSpec::default()
    };
    let mut wanted = api::longhorn::Backup::new(handle, spec);
    wanted.labels_mut().extend(marks);
    wanted.labels_mut().insert("backup-volume".to_owned(), claimed.volume.clone());
    wanted.labels_mut().insert("backup-target".to_owned(), target.to_owned());
    let backups: Api<api::longhorn::Backup> = ours(world);
    made(backups.create(&PostParams::default(), &wanted).await)?;
    let asked = begun.spec.item_operation_timeout.as_ref().and_then(|it| it.get().ok());
    let within = decide::within(asked, BACKUP_WITHIN, is_tenants);
    until(within, &backups, handle, decide::backup).await
}

/// Looks until it is over, or for so long. A server that does not answer is asked again.
pub(super) async fn until<K>(
    within: Duration,
    api: &Api<K>,
    name: &str,
    judge: fn(Option<&K>) -> Stand,
) -> Result<(), String>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let began = Instant::now();
    loop {
        let why = match api.get_opt(name).await {
            Ok(found) => match judge(found.as_ref()) {
                Stand::Done => return Ok(()),
                Stand::Failed(why) => return Err(why),
                Stand::Waits(why) => why,
            },
            Err(error) => words(&error),
        };
        if began.elapsed() > within {
            return Err(format!("not done after {} s: {why}", within.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn snapshot_entry(begun: &Backup, claimed: &Claimed, handle: &str) -> Value {
    json!({
        "spec": {
            "backupName": begun.name_any(), "backupUID": begun.metadata.uid,
            "location": TYPE, "persistentVolumeName": claimed.persistent.name_any(),
            "providerVolumeID": claimed.volume, "volumeType": TYPE,
        },
        "status": {"providerSnapshotID": handle, "phase": "Completed"},
    })
}

fn volume_entry(claimed: &Claimed, start: Timestamp, done: Result<&str, &str>) -> Value {
    let spec = claimed.persistent.spec.as_ref();
    let (handle, phase, result) = match done {
        Ok(handle) => (handle, "Completed", "succeeded"),
        Err(_) => ("", "Failed", FAILED),
    };
    json!({
        "pvcName": claimed.name, "pvcNamespace": claimed.namespace,
        "pvName": claimed.persistent.name_any(),
        "backupMethod": "NativeSnapshot", "snapshotDataMoved": false, "skipped": false,
        "startTimestamp": Time::new(start), "completionTimestamp": Time::new(Timestamp::now()),
        "result": result,
        "nativeSnapshotInfo": {"snapshotHandle": handle, "volumeType": TYPE, "volumeAZ": "",
            "iops": "", "Phase": phase},
        "pvInfo": {
            "reclaimPolicy": spec.and_then(|it| it.persistent_volume_reclaim_policy.clone()),
            "labels": claimed.persistent.metadata.labels.clone().unwrap_or_default(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_directory_is_whole_wherever_the_server_began() {
        let here = std::env::current_dir().unwrap();
        let wanted = format!("vfs://{}/data/volume-backups", here.display());
        assert_eq!(url(Path::new("data/volume-backups")), Ok(wanted));
        assert_eq!(url(Path::new("/var/lib/x")), Ok("vfs:///var/lib/x".to_owned()));
    }
}
