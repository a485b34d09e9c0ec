//! Commands about single snapshots: `snapshot ls`, `create`, `rm`, `revert`, `info`.

use std::collections::BTreeMap;

use replica::DiskName;
use rpc::Deadline;
use rpc::ptypes::{
    DiskInfo, DiskMarkAsRemovedRequest, Replica, ReplicaMode, SnapshotHashCancelRequest,
    VolumeRevertRequest, VolumeSnapshotRequest,
};
use serde::Serialize;

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::{Member, Session, all_well, each};
use super::table::flags as f;
use super::value;

/// How the head is called among snapshots.
pub(crate) const HEAD: &str = "volume-head";

/// The snapshot the command is about.
pub(crate) fn name(line: &Line) -> Result<String, Error> {
    line.arguments.first().cloned().ok_or_else(|| Error::refused("snapshot name is required"))
}

pub(crate) async fn ls(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let replicas = healthy(session).await?;
    let mut text = "ID\n".to_owned();
    for name in common(&replicas) {
        text.push_str(&name);
        text.push('\n');
    }
    console.print(&text)
}

/// What all replicas that serve reads say of themselves.
async fn healthy(session: &Session) -> Result<Vec<Replica>, Error> {
    let mut members = session.working_members().await?;
    members.retain(|member| member.mode == ReplicaMode::Rw);
    let looked = each(&members, |member| session.look(&member.address, "")).await;
    looked.into_iter().map(|(_, replica)| replica).collect()
}

/// The snapshots every replica has, in the order of the first one's chain.
fn common(replicas: &[Replica]) -> Vec<String> {
    let Some((first, others)) = replicas.split_first() else { return Vec::new() };
    let in_all = |disk: &&String| others.iter().all(|other| other.chain.contains(disk));
    first.chain.iter().filter(in_all).filter_map(|disk| snapshot_name(disk)).collect()
}

fn snapshot_name(disk: &str) -> Option<String> {
    DiskName::parse(disk).ok()?.snapshot().map(str::to_owned)
}

pub(crate) async fn create(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let labels = value::labels(&line.flags.list(&f::LABEL)).map_err(Error::Refused)?;
    let request = VolumeSnapshotRequest {
        name: line.arguments.first().cloned().unwrap_or_default(),
        labels,
        freeze_filesystem: line.flags.switch(&f::FREEZE_FS),
    };
    let reply = session.controller()?.volume_snapshot(request).await;
    let reply = reply.or_failed("failed to create snapshot")?;
    console.say(&reply.name)
}

pub(crate) async fn rm(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    name(line)?;
    let members = session.members().await?;
    let mut failed = Ok(());
    for name in &line.arguments {
        if !line.is_peer() {
            require(session, &members, name).await?;
        }
        if let Err(error) = mark_removed(session, &members, name).await {
            let text = error.to_string();
            console.log("error", &format!("Failed to remove snapshot {name}"), &[("error", &text)]);
            failed = Err(Error::Refused(format!("failed to remove snapshot {name}: {text}")));
        }
    }
    failed
}

/// Some replica has it.
async fn require(session: &Session, members: &[Member], name: &str) -> Result<(), Error> {
    let disk = DiskName::of_snapshot(name).map_err(|it| Error::refused(it.to_string()))?;
    for (_, look) in each(members, |member| session.look(&member.address, "")).await {
        if look?.disks.contains_key(disk.as_str()) {
            return Ok(());
        }
    }
    let hint = "`holdfast engine snapshot ls` lists those that are".to_owned();
    Err(Error::NotFound { what: format!("the snapshot {name}"), hint })
}

async fn mark_removed(session: &Session, members: &[Member], name: &str) -> Result<(), Error> {
    if let Some(other) = members.iter().find(|member| member.mode != ReplicaMode::Rw) {
        let (address, mode) = (&other.address, other.mode.as_str_name());
        let text = format!("cannot remove a snapshot while replica {address} is in mode {mode}");
        return Err(Error::Refused(text));
    }
    all_well(each(members, |member| mark_removed_in(session, member, name)).await)
}

async fn mark_removed_in(session: &Session, member: &Member, name: &str) -> Result<(), Error> {
    // A hash of it is of no use any more; whether one could be stopped does not matter.
    let request = SnapshotHashCancelRequest { snapshot_name: name.to_owned() };
    let mut agent = session.agent(&member.address, "", Deadline::Usual)?;
    let _ = agent.snapshot_hash_cancel(request).await;
    let request = DiskMarkAsRemovedRequest { name: name.to_owned() };
    let reply = session.replica(&member.address, "")?.disk_mark_as_removed(request).await;
    reply.or_failed(format!("failed to mark snapshot {name} as removed"))?;
    Ok(())
}

pub(crate) async fn revert(session: &Session, line: &Line) -> Result<(), Error> {
    let name = name(line)?;
    let doing = format!("failed to revert to snapshot {name}");
    let reply = session.controller()?.volume_revert(VolumeRevertRequest { name }).await;
    reply.or_failed(doing)?;
    Ok(())
}

#[derive(Debug, Serialize)]
struct Info {
    name: String,
    parent: String,
    children: BTreeMap<String, bool>,
    removed: bool,
    usercreated: bool,
    created: String,
    size: String,
    labels: BTreeMap<String, String>,
}

pub(crate) async fn info(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let replicas = healthy(session).await?;
    // Of two with as many disks, the one that was added first.
    let widest = replicas.into_iter().rev().max_by_key(|replica| replica.disks.len());
    console.json(&widest.map(described).unwrap_or_default())
}

fn described(replica: Replica) -> BTreeMap<String, Info> {
    let disks = replica.disks.into_iter();
    disks.filter_map(|(disk, info)| Some((known_name(&disk)?, info))).map(describe).collect()
}

fn describe((name, disk): (String, DiskInfo)) -> (String, Info) {
    let child = |(child, is_child): (String, bool)| Some((known_name(&child)?, is_child));
    let info = Info {
        name: name.clone(),
        parent: known_name(&disk.parent).unwrap_or_default(),
        children: disk.children.into_iter().filter_map(child).collect(),
        removed: disk.removed,
        usercreated: disk.user_created,
        created: disk.created,
        size: disk.size,
        labels: disk.labels.into_iter().collect(),
    };
    (name, info)
}

/// The head or a snapshot; nothing for a backing file.
fn known_name(disk: &str) -> Option<String> {
    let name = DiskName::parse(disk).ok()?;
    if name.is_head() { Some(HEAD.to_owned()) } else { name.snapshot().map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(chain: &[&str]) -> Replica {
        let chain = chain.iter().map(|disk| (*disk).to_owned()).collect();
        Replica { chain, ..Replica::default() }
    }

    #[test]
    fn only_what_all_have_is_listed_newest_first() {
        let first = replica(&[
            "volume-head-003.img",
            "volume-snap-c.img",
            "volume-snap-b.img",
            "volume-snap-a.img",
        ]);
        let second = replica(&["volume-head-001.img", "volume-snap-c.img", "volume-snap-a.img"]);
        assert_eq!(common(&[first.clone(), second]), ["c", "a"]);
        assert_eq!(common(std::slice::from_ref(&first)), ["c", "b", "a"]);
        assert_eq!(common(&[first, replica(&[])]), Vec::<String>::new());
        assert_eq!(common(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_backing_file_is_no_snapshot() {
        let mut only = Replica::default();
        let base = DiskInfo { name: "/base.qcow2".into(), ..DiskInfo::default() };
        only.disks.insert("/base.qcow2".into(), base);
        let head = DiskInfo {
            parent: "/base.qcow2".into(),
            children: [("volume-snap-x.img".to_owned(), true)].into(),
            ..DiskInfo::default()
        };
        only.disks.insert("volume-head-000.img".into(), head);
        let described = described(only);
        let info = described.get(HEAD).unwrap();
        assert_eq!(described.len(), 1);
        assert_eq!(info.parent, "");
        assert_eq!(info.children.keys().collect::<Vec<_>>(), ["x"]);
    }
}
