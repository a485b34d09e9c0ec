//! The log of a cluster that begins: its members join, and are committed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use prost::Message;

use super::super::identity::Cluster;
use super::super::raft::{ConfChange, Entry, HardState, LogMetadata, LogSnapshot, Record};
use super::super::snap;
use super::{CRC, ENTRY, METADATA, SEGMENT_LENGTH, SNAPSHOT, STATE};

/// An entry that changes the membership.
const CONF_CHANGE: i32 = 1;
/// A change that adds a voting member.
const ADD_NODE: i32 = 0;

/// Name of the first segment.
pub(in super::super) const FIRST: &str = "0000000000000000-0000000000000000.wal";

/// Writes the first segment. The file is empty; it is not synced.
pub(in super::super) fn initial(file: &File, cluster: &Cluster, term: u64) -> io::Result<()> {
    let bytes = records(cluster, term)?;
    file.write_all_at(&bytes, 0)?;
    reserve(file)
}

/// The bytes of the first segment, as far as it is written.
fn records(cluster: &Cluster, term: u64) -> io::Result<Vec<u8>> {
    let mut log = Log::default();
    let metadata = LogMetadata { node: Some(cluster.own), cluster: Some(cluster.id) };
    log.push(CRC, None);
    log.push(METADATA, Some(metadata.encode_to_vec()));
    let start = LogSnapshot { index: Some(0), term: Some(0), conf_state: None };
    log.push(SNAPSHOT, Some(start.encode_to_vec()));
    for (member, index) in cluster.members.iter().zip(1..) {
        let change = ConfChange {
            id: Some(0),
            kind: Some(ADD_NODE),
            node: Some(member.id),
            context: Some(serde_json::to_vec(member)?.into()),
        };
        let entry = Entry {
            kind: Some(CONF_CHANGE),
            term: Some(term),
            index: Some(index),
            data: Some(change.encode_to_vec().into()),
        };
        log.push(ENTRY, Some(entry.encode_to_vec()));
    }
    let last = u64::try_from(cluster.members.len()).map_err(io::Error::other)?;
    let vote = cluster.members.first().map(|member| member.id);
    let state = HardState { term: Some(term), vote, commit: Some(last) };
    log.push(STATE, Some(state.encode_to_vec()));
    let conf_state = Some(snap::voters(cluster));
    let taken = LogSnapshot { index: Some(last), term: Some(term), conf_state };
    log.push(SNAPSHOT, Some(taken.encode_to_vec()));
    Ok(log.bytes)
}

/// Takes the room of a whole segment, so that a full disk shows now; where that is not possible,
/// only the length.
fn reserve(file: &File) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(file, FallocateFlags::empty(), 0, SEGMENT_LENGTH) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(SEGMENT_LENGTH),
        Err(error) => Err(error.into()),
    }
}

#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    crc: u32,
}

impl Log {
    fn push(&mut self, kind: i64, data: Option<Vec<u8>>) {
        let data = data.map(Bytes::from);
        if let Some(data) = &data {
            self.crc = crc32c::crc32c_append(self.crc, data);
        }
        let record = Record { kind: Some(kind), crc: Some(self.crc), data }.encode_to_vec();
        let padding = record.len().next_multiple_of(8) - record.len();
        let [length, pad] = [record.len(), padding].map(|it| u64::try_from(it).unwrap_or(0));
        let frame = if pad == 0 { length } else { length | (0x80 | pad) << 56 };
        self.bytes.extend_from_slice(&frame.to_le_bytes());
        self.bytes.extend_from_slice(&record);
        self.bytes.resize(self.bytes.len() + padding, 0);
    }
}
