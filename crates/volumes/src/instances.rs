//! The processes of one node: every engine and every replica is one of its own.
//!
//! Owns: starting, stopping and watching them, their ports, logs and records. Never: which of them
//! should run; that is said by resources and decided in [`crate::node`]. [`Processes`] runs real
//! ones; [`sim`] pretends to, for tests and measurements. Start at [`Instances`].

mod command;
mod find;
mod ports;
mod process;
mod record;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod tend;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::process::{OpenError, Options, Processes};

/// What kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Engine,
    Replica,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Replica => "replica",
        }
    }
}

/// Which process: the name is that of its resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    pub name: String,
}

impl Key {
    pub fn engine(name: impl Into<String>) -> Self {
        Self { kind: Kind::Engine, name: name.into() }
    }

    pub fn replica(name: impl Into<String>) -> Self {
        Self { kind: Kind::Replica, name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.kind.as_str(), self.name)
    }
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub key: Key,
    pub volume: String,
    /// The engine image, as the resource names it.
    pub image: String,
    /// The program, if it is not this one.
    pub program: Option<PathBuf>,
    pub role: Role,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Engine(EngineLaunch),
    Replica(ReplicaLaunch),
}

/// The flags of an engine.
#[allow(clippy::struct_excessive_bools, reason = "one for each flag of the dialect")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineLaunch {
    pub size_bytes: i64,
    pub current_size_bytes: i64,
    /// Whether clients are served from the start.
    pub frontend: bool,
    /// `ip:port` of each replica.
    pub replicas: Vec<String>,
    pub salvage: bool,
    /// Take the volume over from an engine that runs.
    pub upgrade: bool,
    /// The right to the volume that its resource gives: a lower one is refused.
    pub claim_generation: Option<i64>,
    pub unmap_mark_snap_chain_removed: bool,
    pub snapshot_max_count: Option<i32>,
    pub snapshot_max_size_bytes: Option<i64>,
    pub rebuild_concurrent_sync_limit: Option<i32>,
    pub replica_timeout: Option<Duration>,
    pub file_sync_timeout: Option<Duration>,
}

/// The flags of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaLaunch {
    pub dir: PathBuf,
    pub size_bytes: i64,
    pub unmap_mark_disk_chain_removed: bool,
    pub snapshot_max_count: Option<i32>,
    pub snapshot_max_size_bytes: Option<i64>,
}

/// How a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It does not answer yet.
    Starting,
    /// It answers.
    Running,
    /// It was asked to end.
    Stopping,
    /// It ended because it was asked to.
    Stopped,
    /// It ended by itself, or could not be started.
    Failed,
    /// It ended while nobody watched: this manager was not there.
    Lost,
}

impl State {
    /// Whether there is no process any more.
    pub const fn is_over(self) -> bool {
        match self {
            Self::Starting | Self::Running | Self::Stopping => false,
            Self::Stopped | Self::Failed | Self::Lost => true,
        }
    }
}

/// One process, as its host sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub key: Key,
    pub volume: String,
    pub image: String,
    pub state: State,
    /// First and last of its ports; the first is the one it is controlled by.
    pub ports: (u16, u16),
    pub pid: Option<u32>,
    /// This run of it: another start has another.
    pub run: String,
    /// Whether an engine was told to bring failed copies back.
    pub salvage: bool,
    /// Why it failed.
    pub error: Option<String>,
    /// The code it ended with by itself.
    pub exit_code: Option<i32>,
    /// The one that is to take its place.
    pub next: Option<Successor>,
}

/// A process that is to take over from one that runs, and has not yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    pub image: String,
    /// Why it never will.
    pub error: Option<String>,
}

/// A process cannot be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("{0} runs already")]
    Runs(Key),
    #[error("{0} cannot be started: its name is no name of a file")]
    Name(Key),
    #[error("{key} cannot be started: {max} processes run on this node, which is all it may have")]
    TooMany { key: Key, max: usize },
    #[error("{key} cannot be started: no {count} ports in a row are free from {first} to {last}")]
    Ports { key: Key, count: u16, first: u16, last: u16 },
    #[error("{0} does not run, and has nothing to be taken over from")]
    Idle(Key),
    #[error("{0} cannot be started: this node is ending")]
    Ending(Key),
}

/// The processes of a node. No method waits for a process: what becomes of one is told by
/// [`Instances::changed`].
#[async_trait]
pub trait Instances: Send + Sync + fmt::Debug {
    /// Begins to start a process. One of this name that is over is forgotten.
    fn start(&self, launch: Launch) -> Result<(), StartError>;

    /// Begins to start a process beside the one of this name, to take over from it. That one ends when
    /// the new one answers; if it never does, the one that runs goes on, and shows why.
    fn replace(&self, launch: Launch) -> Result<(), StartError> {
        Err(StartError::Idle(launch.key))
    }

    /// Asks a process to end; ends it by force when it takes too long.
    fn stop(&self, key: &Key);

    /// Drops one that is over, be it only a successor that failed. Its log stays.
    fn forget(&self, key: &Key);

    /// Drops one that is over, and all files but a replica's data.
    fn discard(&self, key: &Key);

    fn get(&self, key: &Key) -> Option<Instance>;

    /// Whether a replica that is started in this directory finds a volume there, and makes none. Blocks.
    fn has_volume(&self, dir: &Path) -> bool {
        let Ok(entries) = std::fs::read_dir(dir) else { return false };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        // The record, or the head from which it is made anew where it was lost.
        names.into_iter().any(|name| name == "volume.meta" || name.starts_with("volume-head-"))
    }

    fn list(&self) -> Vec<Instance>;

    /// Waits for changes, and says of which processes. For one caller: each change is told once.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost by dropping it.
    async fn changed(&self) -> Vec<Key>;

    /// Ends all of them, engines before the replicas they write to, and starts none from now on.
    async fn shutdown(&self);

    /// Where they listen.
    fn address(&self) -> IpAddr;
}
