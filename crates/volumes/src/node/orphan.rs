//! Directories of replicas that no object accounts for: shown as `Orphan`, removed when that is
//! deleted. Nothing is removed that nobody asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::longhorn::{DataEngine, Node, Orphan, OrphanSpec, OrphanType, Replica};
use kube::ResourceExt;
use reconcile::{Failure, Key, OrFail as _};
use sha2::{Digest, Sha256};

use super::launch::{REPLICAS, is_directory_name};
use super::{Agent, directory};
use crate::{FINALIZER, NAMESPACE};

const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Orphans shown of one disk; the rest are when these are gone.
const SHOWN_MAX: usize = 1000;

const DISK_NAME: &str = "DiskName";
const DISK_UUID: &str = "DiskUUID";
const DISK_PATH: &str = "DiskPath";
const DATA_NAME: &str = "DataName";

/// Looks at the disks now and then, and whenever an orphan is to go.
pub(super) async fn run(agent: Arc<Agent>) {
    let wake = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&wake);
    agent.orphans.listen(move |_, _, now| {
        if now.is_some_and(|it| it.metadata.deletion_timestamp.is_some()) {
            told.notify_one();
        }
    });
    tokio::join!(agent.orphans.ready(), agent.replicas.ready(), agent.nodes.ready());
    loop {
        if let Err(failure) = pass(&agent).await {
            tracing::warn!(error = %telemetry::Chain(&failure), "cannot look for orphans");
        }
        let _ = tokio::time::timeout(LOOK_EVERY, wake.notified()).await;
    }
}

async fn pass(agent: &Agent) -> Result<(), Failure> {
    let Some(node) = agent.node().filter(|_| agent.lease.is_held()) else { return Ok(()) };
    let disks = ready_disks(&node);
    let listed = disks.clone();
    let list = move || {
        listed.into_iter().filter_map(|disk| Some((directories(&disk)?, disk))).collect::<Vec<_>>()
    };
    let found = agent.context.tasks.blocking("orphans", list).await;
    let found = found.or_fail(|| "look for orphans".to_owned())?;
    // Asked after the directories were listed: an object comes before its directory.
    let owned: Vec<Arc<Replica>> = agent.replicas.list();
    let unreadable = agent.replicas.broken();
    if let Some(one) = unreadable.first() {
        tracing::warn!(replica = %one.key.name, why = one.why,
            "a replica cannot be read: no directory is taken for an orphan");
    }
    let mut sights = Sights { known: known_disks(&node), ..Sights::default() };
    for (names, disk) in found.into_iter().filter(|_| unreadable.is_empty()) {
        let mut shown = 0;
        for name in orphans(names, &owned) {
            let orphan = described(&node.name_any(), &disk, &name);
            sights.lying.insert(orphan.name_any());
            shown += 1;
            if shown <= SHOWN_MAX && agent.orphans.get(&Key::of(&orphan)).is_none() {
                agent.orphans.create(&orphan).await?;
            }
        }
        sights.listed.insert(disk.uuid);
    }
    for orphan in agent.orphans.list() {
        let is_mine = orphan.spec.node_id.as_deref() == Some(agent.options.name.as_str())
            && orphan.spec.orphan_type == Some(OrphanType::ReplicaData);
        if !is_mine {
            continue;
        }
        let leaves = orphan.metadata.deletion_timestamp.is_some();
        match fate(leaves, sights.of(&orphan)) {
            Fate::Keep => {
                if !leaves {
                    agent.orphans.add_finalizer(&orphan, FINALIZER).await?;
                }
            }
            Fate::Remove => {
                remove(agent, &disks, &orphan).await?;
                agent.orphans.remove_finalizer(&orphan, FINALIZER).await?;
            }
            Fate::Release => agent.orphans.remove_finalizer(&orphan, FINALIZER).await?,
            Fate::Drop => {
                // What is deleted with the finalizer is a wish to remove the data; this is none.
                agent.orphans.remove_finalizer(&orphan, FINALIZER).await?;
                agent.orphans.delete(&orphan).await?;
            }
        }
    }
    Ok(())
}

/// What is known of the directory that an orphan tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// It lies there, and is nobody's.
    Lies,
    /// It is not there, belongs to somebody again, or this node has no such disk any more.
    Gone,
    /// Its disk could not be looked at, or whose it is could not be told.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Keep,
    /// Somebody has deleted it: the directory goes, and the object with it.
    Remove,
    /// Somebody has deleted it, and there is nothing to remove.
    Release,
    /// There is nothing to tell of any more.
    Drop,
}

/// What becomes of an orphan, and of what it tells of. A pass that saw nothing decides nothing.
fn fate(leaves: bool, sight: Sight) -> Fate {
    match (leaves, sight) {
        (_, Sight::Unknown) | (false, Sight::Lies) => Fate::Keep,
        (true, Sight::Lies) => Fate::Remove,
        (true, Sight::Gone) => Fate::Release,
        (false, Sight::Gone) => Fate::Drop,
    }
}

/// What one pass saw.
#[derive(Debug, Default)]
struct Sights {
    /// Names of the orphans whose directories lie there.
    lying: BTreeSet<String>,
    /// Disks that this node has, and those of them of which everything was seen.
    known: BTreeSet<String>,
    listed: BTreeSet<String>,
}

impl Sights {
    fn of(&self, orphan: &Orphan) -> Sight {
        let disk = parameter(orphan, DISK_UUID);
        if self.lying.contains(&orphan.name_any()) {
            Sight::Lies
        } else if self.known.contains(&disk) && !self.listed.contains(&disk) {
            Sight::Unknown
        } else {
            Sight::Gone
        }
    }
}

/// The directories of replicas on a disk; nothing if that cannot be told.
fn directories(disk: &Disk) -> Option<Vec<String>> {
    match directory::list(Path::new(&disk.path)) {
        Ok(names) => Some(names),
        Err(error) => {
            tracing::warn!(disk = disk.name, path = disk.path, %error, "a disk cannot be listed");
            None
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Disk {
    name: String,
    uuid: String,
    path: String,
}

fn ready_disks(node: &Node) -> Vec<Disk> {
    let statuses = node.status.as_ref().and_then(|it| it.disk_status.as_ref());
    let disks = node.spec.disks.iter().flatten();
    disks
        .filter_map(|(name, disk)| {
            let status = statuses?.get(name)?;
            let conditions = status.conditions.as_deref().unwrap_or_default();
            let uuid = status.disk_uuid.clone().filter(|it| !it.is_empty())?;
            let path = disk.path.clone()?;
            let is_ready = api::condition::holds(conditions, "Ready");
            is_ready.then(|| Disk { name: name.clone(), uuid, path })
        })
        .collect()
}

/// The identities of all disks that this node has, whether they can be used or not.
fn known_disks(node: &Node) -> BTreeSet<String> {
    let statuses = node.status.as_ref().and_then(|it| it.disk_status.as_ref());
    let disks = node.spec.disks.iter().flatten();
    disks.filter_map(|(name, _)| statuses?.get(name)?.disk_uuid.clone()).collect()
}

/// The directories of a disk that no replica has. Replicas count wherever they say they are: better
/// one orphan too few than data of somebody's.
fn orphans(names: Vec<String>, replicas: &[Arc<Replica>]) -> Vec<String> {
    let owned: BTreeSet<&str> =
        replicas.iter().filter_map(|it| it.spec.data_directory_name.as_deref()).collect();
    names.into_iter().filter(|name| !owned.contains(name.as_str())).collect()
}

fn described(node: &str, disk: &Disk, directory: &str) -> Orphan {
    let identity = format!("{node}/{}/{directory}", disk.uuid);
    let digest = Sha256::digest(identity.as_bytes());
    let hash = digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    });
    let parameters = [
        (DISK_NAME, disk.name.as_str()),
        (DISK_UUID, &disk.uuid),
        (DISK_PATH, &disk.path),
        (DATA_NAME, directory),
    ];
    let parameters = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let spec = OrphanSpec {
        node_id: Some(node.to_owned()),
        orphan_type: Some(OrphanType::ReplicaData),
        data_engine: Some(DataEngine::V1),
        parameters: Some(BTreeMap::from(parameters)),
    };
    let mut orphan = Orphan::new(&format!("orphan-{hash}"), spec);
    orphan.metadata.namespace = Some(NAMESPACE.to_owned());
    orphan.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    orphan
}

fn parameter(orphan: &Orphan, key: &str) -> String {
    orphan.spec.parameters.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
}

/// Removes what an orphan tells of. The disk is looked up again: an object may say anything.
async fn remove(agent: &Agent, disks: &[Disk], orphan: &Orphan) -> Result<(), Failure> {
    let (uuid, name) = (parameter(orphan, DISK_UUID), parameter(orphan, DATA_NAME));
    let Some(disk) = disks.iter().find(|it| it.uuid == uuid) else { return Ok(()) };
    if !is_directory_name(&name)
        || orphan.name_any() != described(&agent.options.name, disk, &name).name_any()
    {
        return Ok(());
    }
    let path = Path::new(&disk.path).join(REPLICAS).join(&name);
    let doing = || format!("remove orphan {}", orphan.name_any());
    let removal = agent.context.tasks.blocking("remove", move || directory::remove(&path)).await;
    removal.or_fail(doing)?.or_fail(doing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::longhorn::ReplicaSpec;

    #[test]
    fn only_what_no_replica_names_is_an_orphan() {
        let disk = Disk { name: "d".into(), uuid: "u".into(), path: "/d".into() };
        let replica = |directory: &str| {
            let spec = ReplicaSpec {
                data_directory_name: Some(directory.into()),
                ..ReplicaSpec::default()
            };
            Arc::new(Replica::new("r", spec))
        };
        let names = vec!["v-1".to_owned(), "v-2".to_owned()];
        assert_eq!(orphans(names, &[replica("v-1")]), ["v-2"]);
        let orphan = described("n", &disk, "v-2");
        assert_eq!(orphan.name_any().len(), "orphan-".len() + 64);
        assert_ne!(orphan.name_any(), described("n", &disk, "v-1").name_any());
    }
    #[test]
    fn a_directory_goes_only_by_a_persons_wish_and_only_while_it_is_seen() {
        for (leaves, sight, wanted) in [
            (false, Sight::Lies, Fate::Keep),
            (false, Sight::Gone, Fate::Drop),
            (false, Sight::Unknown, Fate::Keep),
            (true, Sight::Lies, Fate::Remove),
            (true, Sight::Gone, Fate::Release),
            (true, Sight::Unknown, Fate::Keep),
        ] {
            assert_eq!(fate(leaves, sight), wanted, "{leaves} {sight:?}");
        }
    }

    #[test]
    fn what_a_pass_did_not_see_is_unknown_and_not_gone() {
        let disk = |uuid: &str| Disk { name: "d".into(), uuid: uuid.into(), path: "/d".into() };
        let orphan = |uuid: &str, name: &str| described("n", &disk(uuid), name);
        let known = ["away", "here"].map(str::to_owned).into();
        let lying = [orphan("here", "v-1").name_any()].into();
        let sights = Sights { lying, known, listed: ["here".to_owned()].into() };
        for (uuid, name, wanted) in [
            ("here", "v-1", Sight::Lies),
            ("here", "v-2", Sight::Gone),
            ("away", "v-1", Sight::Unknown),
            ("of another day", "v-1", Sight::Gone),
        ] {
            assert_eq!(sights.of(&orphan(uuid, name)), wanted, "{uuid} {name}");
        }
    }

    #[test]
    fn a_disk_that_cannot_be_listed_is_not_an_empty_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        let disk = Disk { name: "d".into(), uuid: "u".into(), path };
        assert_eq!(directories(&disk), None);
        std::fs::create_dir(dir.path().join(REPLICAS)).unwrap();
        assert_eq!(directories(&disk), Some(Vec::new()));
    }
}
