//! Messages of the write-ahead log and of snapshot files. Fields that etcd always writes are
//! optional here, so that a zero is written too.

use bytes::Bytes;

/// One record of the log.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Record {
    #[prost(int64, optional, tag = "1")]
    pub(super) kind: Option<i64>,
    #[prost(uint32, optional, tag = "2")]
    pub(super) crc: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) data: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct LogMetadata {
    #[prost(uint64, optional, tag = "1")]
    pub(super) node: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) cluster: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Entry {
    #[prost(int32, optional, tag = "1")]
    pub(super) kind: Option<i32>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) term: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) index: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) data: Option<Bytes>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub(super) struct HardState {
    #[prost(uint64, optional, tag = "1")]
    pub(super) term: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) vote: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) commit: Option<u64>,
}

/// A record that says that a snapshot was taken.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct LogSnapshot {
    #[prost(uint64, optional, tag = "1")]
    pub(super) index: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) term: Option<u64>,
    #[prost(message, optional, tag = "3")]
    pub(super) conf_state: Option<ConfState>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ConfState {
    #[prost(uint64, repeated, packed = "false", tag = "1")]
    pub(super) voters: Vec<u64>,
    #[prost(bool, optional, tag = "5")]
    pub(super) auto_leave: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct ConfChange {
    #[prost(uint64, optional, tag = "1")]
    pub(super) id: Option<u64>,
    #[prost(int32, optional, tag = "2")]
    pub(super) kind: Option<i32>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) node: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub(super) context: Option<Bytes>,
}

/// A snapshot file as it lies on disk.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct SnapImage {
    #[prost(uint32, optional, tag = "1")]
    pub(super) crc: Option<u32>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) data: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct Snapshot {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) data: Option<Bytes>,
    #[prost(message, optional, tag = "2")]
    pub(super) metadata: Option<SnapshotMetadata>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct SnapshotMetadata {
    #[prost(message, optional, tag = "1")]
    pub(super) conf_state: Option<ConfState>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) index: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) term: Option<u64>,
}
