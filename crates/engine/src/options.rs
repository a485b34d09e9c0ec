//! How a controller is told to run.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A way to reach replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// `tcp://host:port`: a replica process.
    Tcp,
    /// `file:///path`: a raw file, opened by the controller itself.
    File,
}

/// What the data connections to replicas run over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataProtocol {
    Tcp,
    Unix,
}

/// [`ControllerOptions::rebuild_timeout`] where nobody says otherwise.
pub const REBUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// The flags of `controller`.
#[allow(clippy::struct_excessive_bools, reason = "one for each flag of the dialect")]
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    pub volume: String,
    /// The global `--engine-instance-name`; empty: not checked.
    pub instance_name: String,
    /// `host:port` of the control server.
    pub listen: String,
    pub size_bytes: i64,
    pub current_size_bytes: i64,
    /// Name of the frontend to start with; empty: none.
    pub frontend: String,
    pub backends: Vec<Backend>,
    /// Replicas to start the volume with, before the control server listens.
    pub replicas: Vec<String>,
    pub upgrade: bool,
    /// The right to the volume that its manager gives: copies that were given to a later one are
    /// refused. None: the engine takes the next number by itself.
    pub claim_generation: Option<u64>,
    pub revision_counter: bool,
    pub salvage: bool,
    pub replica_timeout: Duration,
    pub data_protocol: DataProtocol,
    pub unmap_mark_snap_chain_removed: bool,
    pub file_sync_http_client_timeout: Duration,
    pub snapshot_max_count: i32,
    pub snapshot_max_size: i64,
    pub rebuild_sync_concurrent_limit: i32,
    /// How long a replica that has all files waits for whoever copied them to ask for it to be
    /// verified, before the engine does that itself.
    pub rebuild_timeout: Duration,
    pub nbd: NbdOptions,
}

/// Where frontend `nbd` listens. Neither given: TCP on 127.0.0.1, at a port of the system's choice.
#[derive(Debug, Clone, Default)]
pub struct NbdOptions {
    pub listen: Option<SocketAddr>,
    pub unix: Option<PathBuf>,
    pub tls: Option<TlsFiles>,
}

/// PEM files of the NBD server. With `client_ca`, only clients with a certificate it signed.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub client_ca: Option<PathBuf>,
}
