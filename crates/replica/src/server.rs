//! The replica process: control server (gRPC), data server (frames), and the sync agent beside.

use std::path::PathBuf;

/// The flags of `replica`.
#[allow(clippy::struct_excessive_bools, reason = "one for each flag of the dialect")]
#[derive(Debug, Clone)]
pub struct ReplicaOptions {
    pub dir: PathBuf,
    /// The global `--volume-name`; empty: not checked.
    pub volume_name: String,
    pub instance_name: String,
    /// `host:port` of the control server; data is served at the next port, the agent at the one
    /// after that.
    pub listen: String,
    pub backing_file: Option<PathBuf>,
    /// Given: the directory and its head are made before listening, if there is none yet.
    pub size_bytes: Option<i64>,
    pub sync_agent: bool,
    pub sync_agent_port_count: u16,
    pub revision_counter: bool,
    /// Data on a unix socket instead of the port.
    pub data_unix: bool,
    pub unmap_mark_disk_chain_removed: bool,
    pub snapshot_max_count: i32,
    pub snapshot_max_size: i64,
    pub encrypted: bool,
}
