//! Disks: what a directory says of the file system it is on, and how that is shown. Reading blocks;
//! the rest is pure.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use api::condition::{self, Verdict};
use api::longhorn::{Disk, DiskStatus, DiskType};
use api::scalar::Time;
use serde::{Deserialize, Serialize};

use super::launch::REPLICAS;
use crate::schedule::{Room, Rules};

/// Identity of a disk, in a file on it.
const CONFIG: &str = "longhorn-disk.cfg";
const MAX_CONFIG_BYTES: usize = 64 * 1024;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    #[serde(rename = "diskName", default)]
    disk_name: String,
    #[serde(rename = "diskUUID", default)]
    disk_uuid: String,
}

/// What is found where a disk should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) uuid: String,
    pub(super) maximum_bytes: i64,
    pub(super) available_bytes: i64,
    pub(super) filesystem: String,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{0} is no absolute path")]
    Path(String),
    #[error("cannot make {path}")]
    Make { path: String, source: durable::Error },
    #[error("cannot read the identity of the disk at {path}")]
    Config { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot ask for the space at {path}")]
    Space { path: String, source: io::Error },
    /// It had an identity, and now there is a place without one: another file system, or none.
    #[error("{path} has no identity any more: is its file system mounted?")]
    Changed { path: String },
}

/// Looks at the disk at `path`. One that was never seen gets an identity; one that was (`known`) must
/// still have it.
pub(super) fn read(name: &str, path: &str, known: Option<&str>) -> Result<Reading, ReadError> {
    let dir = Path::new(path);
    if !dir.is_absolute() {
        return Err(ReadError::Path(path.to_owned()));
    }
    let file = dir.join(CONFIG);
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| ReadError::Config {
        path: path.to_owned(),
        source,
    };
    let uuid = match durable::read_limited(&file, MAX_CONFIG_BYTES) {
        Ok(bytes) => {
            let config: Config =
                serde_json::from_slice(&bytes).map_err(|error| failed(Box::new(error)))?;
            config.disk_uuid
        }
        Err(error) if error.is_not_found() && known.is_some() => {
            return Err(ReadError::Changed { path: path.to_owned() });
        }
        Err(error) if error.is_not_found() => {
            let make = |source| ReadError::Make { path: path.to_owned(), source };
            durable::create_dir_private(dir.join(REPLICAS)).map_err(make)?;
            let disk_uuid = uuid::Uuid::new_v4().to_string();
            let config = Config { disk_name: name.to_owned(), disk_uuid: disk_uuid.clone() };
            let text = serde_json::to_vec(&config).map_err(|error| failed(Box::new(error)))?;
            durable::replace_private(&file, &text).map_err(make)?;
            disk_uuid
        }
        Err(error) => return Err(failed(Box::new(error))),
    };
    let space = |source: rustix::io::Errno| ReadError::Space {
        path: path.to_owned(),
        source: source.into(),
    };
    let found = rustix::fs::statvfs(dir).map_err(space)?;
    let kind = rustix::fs::statfs(dir).map_err(space)?;
    let bytes =
        |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
    // What is used and what may still be: blocks kept back for others can never hold a copy.
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Reading {
        uuid,
        maximum_bytes: bytes(used.saturating_add(found.f_bavail)),
        available_bytes: bytes(found.f_bavail),
        filesystem: filesystem(kind.f_type),
    })
}

/// Who the disk at `path` says it is, if it says so.
pub(super) fn identity(path: &Path) -> Option<String> {
    let bytes = durable::read_limited(path.join(CONFIG), MAX_CONFIG_BYTES).ok()?;
    let config: Config = serde_json::from_slice(&bytes).ok()?;
    Some(config.disk_uuid)
}

fn filesystem(magic: i64) -> String {
    match magic {
        0xEF53 => "ext2/ext3",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794c_7630 => "overlayfs",
        0x6969 => "nfs",
        0x2FC1_2FC1 => "zfs",
        _ => return format!("{magic:#x}"),
    }
    .to_owned()
}

/// What is known of a disk at one moment.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) node: &'a str,
    pub(super) name: &'a str,
    pub(super) disk: &'a Disk,
    pub(super) reading: Result<&'a Reading, String>,
    pub(super) before: Option<&'a DiskStatus>,
    /// Copies on it: name and nominal size.
    pub(super) replicas: BTreeMap<String, i64>,
    /// Another disk of this node with the same identity.
    pub(super) twin: Option<&'a str>,
    pub(super) rules: &'a Rules,
    pub(super) manager: &'a str,
    pub(super) now: Time,
}

/// The status of a disk, from what was found.
pub(super) fn status(seen: &Seen<'_>) -> DiskStatus {
    let mut status = seen.before.cloned().unwrap_or_default();
    let path = seen.disk.path.clone().unwrap_or_default();
    status.disk_name = Some(seen.name.to_owned());
    status.disk_path = Some(path.clone());
    status.kind = Some(seen.disk.disk_type.clone().unwrap_or(DiskType::Filesystem));
    status.disk_driver = Some(seen.disk.disk_driver.clone().unwrap_or_default());
    status.instance_manager_name = Some(seen.manager.to_owned());
    status.storage_scheduled =
        Some(seen.replicas.values().fold(0, |sum, size| i64::saturating_add(sum, *size)));
    status.scheduled_replica = Some(seen.replicas.clone());
    status.scheduled_backing_image = Some(BTreeMap::new());
    let mut conditions = status.conditions.take().unwrap_or_default();
    let known = seen.before.and_then(|it| it.disk_uuid.as_deref()).filter(|it| !it.is_empty());
    let ready = readiness(seen, known, &path);
    let is_ready = ready.status == api::condition::Status::True;
    condition::set(&mut conditions, &ready, seen.now);
    if is_ready && let Ok(reading) = &seen.reading {
        status.disk_uuid = Some(reading.uuid.clone());
        status.storage_available = Some(reading.available_bytes);
        status.storage_maximum = Some(reading.maximum_bytes);
        status.filesystem_type = Some(reading.filesystem.clone());
    } else {
        status.storage_available = Some(0);
        status.storage_maximum = Some(0);
    }
    let schedulable = if is_ready {
        let room = Room {
            maximum_bytes: status.storage_maximum.unwrap_or_default(),
            available_bytes: status.storage_available.unwrap_or_default(),
            scheduled_bytes: status.storage_scheduled.unwrap_or_default(),
            reserved_bytes: seen.disk.storage_reserved.unwrap_or_default(),
        };
        match seen.rules.refuses(&room, 0, 0) {
            None => Verdict::new("Schedulable", true, "", ""),
            Some(why) => {
                let message = format!(
                    "Disk {} ({path}) on the node {} is not schedulable for more replica; {why}",
                    seen.name, seen.node
                );
                Verdict::new("Schedulable", false, "DiskPressure", message)
            }
        }
    } else {
        let message = format!("Disk {} ({path}) on the node {} is not ready", seen.name, seen.node);
        Verdict::new("Schedulable", false, "DiskNotReady", message)
    };
    condition::set(&mut conditions, &schedulable, seen.now);
    status.conditions = Some(conditions);
    status
}

fn readiness(seen: &Seen<'_>, known: Option<&str>, path: &str) -> Verdict {
    let not = |reason: &str, why: String| {
        let message =
            format!("Disk {} ({path}) on node {} is not ready: {why}", seen.name, seen.node);
        Verdict::new("Ready", false, reason, message)
    };
    if seen.disk.disk_type == Some(DiskType::Block) {
        return not("NoDiskInfo", "this node keeps copies on file systems only".to_owned());
    }
    match (&seen.reading, known) {
        (Err(why), _) => not("NoDiskInfo", why.clone()),
        (Ok(reading), Some(known)) if reading.uuid != known => not(
            "DiskFilesystemChanged",
            format!(
                "record diskUUID doesn't match the one on the disk, {known} and {}",
                reading.uuid
            ),
        ),
        (Ok(_), _) => seen.twin.map_or_else(
            || {
                let message = format!("Disk {} ({path}) on node {} is ready", seen.name, seen.node);
                Verdict::new("Ready", true, "", message)
            },
            |twin| not("DiskFilesystemChanged", format!("disk {twin} is the same one")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_keeps_its_identity_and_one_that_lost_it_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("disk").display().to_string();
        let first = read("d", &path, None).unwrap();
        assert!(first.maximum_bytes >= first.available_bytes && first.available_bytes > 0);
        let again = read("d", &path, Some(&first.uuid)).unwrap();
        assert_eq!(again.uuid, first.uuid);
        assert_eq!(identity(Path::new(&path)), Some(first.uuid.clone()));
        durable::remove(Path::new(&path).join(CONFIG)).unwrap();
        let error = read("d", &path, Some(&first.uuid)).unwrap_err();
        assert!(matches!(error, ReadError::Changed { .. }), "{error}");
        assert_eq!(identity(Path::new(&path)), None);
        assert!(matches!(read("d", "relative", None), Err(ReadError::Path(_))));
    }

    fn reading() -> Reading {
        Reading {
            uuid: "u1".into(),
            maximum_bytes: 1000,
            available_bytes: 600,
            filesystem: "xfs".into(),
        }
    }

    fn shown(
        reading: Result<&Reading, String>,
        before: Option<&DiskStatus>,
        twin: Option<&str>,
    ) -> DiskStatus {
        let disk = Disk { path: Some("/d".into()), storage_reserved: Some(300), ..Disk::default() };
        let seen = Seen {
            node: "n1",
            name: "disk-1",
            disk: &disk,
            reading,
            before,
            replicas: BTreeMap::from([("r".to_owned(), 100), ("s".to_owned(), 50)]),
            twin,
            rules: &Rules { over_provisioning_percent: 100, minimal_available_percent: 25 },
            manager: "im",
            now: Time::new(jiff::Timestamp::UNIX_EPOCH),
        };
        status(&seen)
    }

    fn reason(status: &DiskStatus, kind: &str) -> (bool, String) {
        let all = status.conditions.as_deref().unwrap();
        let found = condition::get(all, kind).unwrap();
        (condition::holds(all, kind), found.reason.clone().unwrap_or_default())
    }

    #[test]
    fn a_good_disk_shows_its_space() {
        let status = shown(Ok(&reading()), None, None);
        assert_eq!(status.storage_scheduled, Some(150));
        assert_eq!(status.storage_available, Some(600));
        assert_eq!(status.disk_uuid.as_deref(), Some("u1"));
        assert!(reason(&status, "Ready").0 && reason(&status, "Schedulable").0);
    }

    #[test]
    fn a_disk_says_why_it_is_not_used() {
        let full = Reading { available_bytes: 250, ..reading() };
        let status = shown(Ok(&full), None, None);
        assert_eq!(reason(&status, "Schedulable"), (false, "DiskPressure".into()));
        let known = DiskStatus { disk_uuid: Some("u0".into()), ..DiskStatus::default() };
        let status = shown(Ok(&reading()), Some(&known), None);
        assert_eq!(reason(&status, "Ready"), (false, "DiskFilesystemChanged".into()));
        assert_eq!(reason(&status, "Schedulable"), (false, "DiskNotReady".into()));
        // What it was known as stays: copies on it are looked for by that.
        assert_eq!(status.disk_uuid.as_deref(), Some("u0"));
        let status = shown(Err("gone".into()), Some(&known), None);
        assert_eq!(reason(&status, "Ready"), (false, "NoDiskInfo".into()));
        let status = shown(Ok(&reading()), None, Some("disk-0"));
        assert_eq!(reason(&status, "Ready"), (false, "DiskFilesystemChanged".into()));
    }
}
