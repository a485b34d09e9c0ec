//! Files of raft snapshots: where the log may begin, and who the members were then.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use prost::Message;
use serde_json::{Map, Value, json};

use super::identity::Cluster;
use super::raft::{ConfState, SnapImage, Snapshot, SnapshotMetadata};

/// The longest file that is read. They hold the membership; a few KiB are usual.
const LENGTH_MAX: u64 = 64 << 20;
/// Events the old store remembers. Etcd expects room for all of them.
const HISTORY: usize = 1000;
/// What the old store has for "never".
const NEVER: &str = "0001-01-01T00:00:00Z";

/// What a snapshot file says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapFile {
    pub index: u64,
    pub term: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapError {
    #[error("cannot read snapshot file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("snapshot file {} is longer than {LENGTH_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("snapshot file {} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: &'static str },
}

/// Reads and checks a snapshot file's bytes.
pub fn read_snap(bytes: Bytes) -> Result<SnapFile, &'static str> {
    let image = SnapImage::decode(bytes).map_err(|_| "it is not a message")?;
    let data = image.data.filter(|data| !data.is_empty()).ok_or("it is empty")?;
    if image.crc != Some(crc32c::crc32c(&data)) {
        return Err("its checksum is wrong");
    }
    let snapshot = Snapshot::decode(data).map_err(|_| "its body is not a message")?;
    let metadata = snapshot.metadata.ok_or("it does not say where it was taken")?;
    let (index, term) = (metadata.index.unwrap_or(0), metadata.term.unwrap_or(0));
    Ok(SnapFile { index, term })
}

fn load(path: &Path) -> Result<SnapFile, SnapError> {
    let read = |source| SnapError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(read)?;
    let mut bytes = Vec::new();
    file.take(LENGTH_MAX + 1).read_to_end(&mut bytes).map_err(read)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > LENGTH_MAX) {
        return Err(SnapError::TooLong { path: path.to_owned() });
    }
    read_snap(bytes.into()).map_err(|what| SnapError::Damaged { path: path.to_owned(), what })
}

/// The newest snapshot file that can be read, and what is wrong with newer ones.
pub(super) fn newest(dir: &Path) -> Result<(Option<SnapFile>, Vec<SnapError>), SnapError> {
    let list = |source| SnapError::Read { path: dir.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(list)? {
        let name = entry.map_err(list)?.file_name();
        names.extend(name.to_str().filter(|name| is_snap(name)).map(str::to_owned));
    }
    names.sort_unstable_by(|a, b| b.cmp(a));
    let mut damaged = Vec::new();
    for name in names {
        match load(&dir.join(name)) {
            Ok(found) => return Ok((Some(found), damaged)),
            Err(error) => damaged.push(error),
        }
    }
    Ok((None, damaged))
}

/// `<term>-<index>.snap`, sixteen hexadecimal digits each: they sort by age.
fn is_snap(name: &str) -> bool {
    let numbers = name.strip_suffix(".snap").and_then(|stem| stem.split_once('-'));
    let is_number = |it: &str| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    numbers.is_some_and(|(term, index)| is_number(term) && is_number(index))
}

/// The name and bytes of the snapshot file of a new cluster.
pub(super) fn initial(cluster: &Cluster, term: u64) -> (String, Vec<u8>) {
    let index = u64::try_from(cluster.members.len()).unwrap_or(u64::MAX);
    let metadata = SnapshotMetadata {
        conf_state: Some(voters(cluster)),
        index: Some(index),
        term: Some(term),
    };
    let store = old_store(cluster).to_string();
    let snapshot = Snapshot { data: Some(store.into_bytes().into()), metadata: Some(metadata) };
    let data = Bytes::from(snapshot.encode_to_vec());
    let image = SnapImage { crc: Some(crc32c::crc32c(&data)), data: Some(data) };
    (format!("{term:016x}-{index:016x}.snap"), image.encode_to_vec())
}

pub(super) fn voters(cluster: &Cluster) -> ConfState {
    let voters = cluster.members.iter().map(|member| member.id).collect();
    ConfState { voters, auto_leave: Some(false) }
}

/// The store of etcd 2, which still carries the membership.
fn old_store(cluster: &Cluster) -> Value {
    let mut members = Map::new();
    for (member, index) in cluster.members.iter().zip(1u64..) {
        let path = format!("/0/members/{:016x}", member.id);
        let urls = json!({ "peerURLs": member.peer_urls }).to_string();
        let attributes = node(&format!("{path}/raftAttributes"), index, &urls, &Value::Null);
        let children = json!({ "raftAttributes": attributes });
        members.insert(format!("{:016x}", member.id), node(&path, index, "", &children));
    }
    let last = cluster.members.len();
    let members = node("/0/members", 1, "", &members.into());
    let zero = node("/0", 0, "", &json!({ "members": members }));
    let one = node("/1", 0, "", &json!({}));
    let queue = json!({
        "Events": vec![Value::Null; HISTORY],
        "Size": 0, "Front": 0, "Back": 0, "Capacity": HISTORY,
    });
    json!({
        "Root": node("/", 0, "", &json!({ "0": zero, "1": one })),
        "WatcherHub": { "EventHistory": { "Queue": queue, "StartIndex": 0, "LastIndex": 0 } },
        "CurrentIndex": last,
        "Stats": {
            "getsSuccess": 0, "getsFail": 0, "setsSuccess": 0, "setsFail": 0,
            "deleteSuccess": 0, "deleteFail": 0, "updateSuccess": 0, "updateFail": 0,
            "createSuccess": last, "createFail": 0,
            "compareAndSwapSuccess": 0, "compareAndSwapFail": 0,
            "compareAndDeleteSuccess": 0, "compareAndDeleteFail": 0,
            "expireCount": 0, "watchers": 0,
        },
        "CurrentVersion": 2,
    })
}

fn node(path: &str, index: u64, value: &str, children: &Value) -> Value {
    json!({
        "Path": path, "CreatedIndex": index, "ModifiedIndex": index,
        "ExpireTime": NEVER, "Value": value, "Children": children,
    })
}
