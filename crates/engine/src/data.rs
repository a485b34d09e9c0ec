//! The data thread: one current-thread runtime that owns the [`Core`](crate::core), the
//! connections to replicas and the frontends' sockets, so that no request hops between threads.
//!
//! [`Volume`] is the handle by which the control side reaches it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rpc::{Address, Features};
use tokio::sync::watch;

use crate::core::{Command, Done, Fault, Hold, Member, Mode, ReplicaId, Settings};
use crate::frontend::{FrontendError, FrontendOptions, FrontendStatus};

/// Where a replica's data is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataTarget {
    Tcp(Address),
    Unix(PathBuf),
    /// A raw file opened by this process, as large as the volume.
    File(PathBuf),
}

/// Handle on the data thread of one volume. Clones are the same volume.
#[derive(Debug, Clone)]
pub struct Volume {}

/// Keeps a [`Hold`] in force until dropped.
#[derive(Debug)]
pub struct HoldGuard {}

/// Throughput and latency of the last complete second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub read_count: u64,
    pub write_count: u64,
    /// Means, in nanoseconds.
    pub read_latency_ns: u64,
    pub write_latency_ns: u64,
}

impl Volume {
    /// Starts the data thread of a volume of no size and no replicas.
    pub fn start(_name: &str, _settings: Settings) -> io::Result<Self> {
        unimplemented!()
    }

    /// Connects to a replica that is open and adds it to the set.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub async fn attach(
        &self,
        _target: &DataTarget,
        _features: Features,
        _mode: Mode,
    ) -> io::Result<ReplicaId> {
        unimplemented!()
    }

    /// Takes a replica out of the set and closes its connections. Unknown: nothing happens.
    pub async fn detach(&self, _replica: ReplicaId) {
        unimplemented!()
    }

    /// Moves a replica to `Rw` or `Err` (with the reason). One in `Err` stays there.
    pub async fn set_mode(&self, _replica: ReplicaId, _mode: Mode, _reason: &str) {
        unimplemented!()
    }

    /// The replica set, newest state; changes wake the receiver.
    pub fn members(&self) -> watch::Receiver<Arc<[Member]>> {
        unimplemented!()
    }

    /// Waits until what `hold` keeps out is no longer in flight, and keeps it out.
    pub async fn hold(&self, _hold: Hold) -> HoldGuard {
        unimplemented!()
    }

    /// One request, as a frontend would make it.
    pub async fn submit(&self, _command: Command) -> Result<Done, Fault> {
        unimplemented!()
    }

    /// Sets the size that requests are checked against, the frontend's first: if that cannot
    /// grow, nothing does.
    pub async fn resize(&self, _size_bytes: u64) -> Result<(), FrontendError> {
        unimplemented!()
    }

    /// While set, unmaps are refused.
    pub async fn set_expanding(&self, _expanding: bool) {
        unimplemented!()
    }

    /// Starts the frontend of that name (`socket`, `nbd`, `tgt-blockdev`, `tgt-iscsi`, `rest`).
    pub async fn start_frontend(
        &self,
        _name: &str,
        _options: &FrontendOptions,
    ) -> Result<(), FrontendError> {
        unimplemented!()
    }

    /// Stops the frontend and waits for the requests it had taken; its name stays known, state
    /// down.
    pub async fn stop_frontend(&self) -> Result<(), FrontendError> {
        unimplemented!()
    }

    /// The frontend that was started last.
    pub fn frontend(&self) -> FrontendStatus {
        unimplemented!()
    }

    pub fn traffic(&self) -> Traffic {
        unimplemented!()
    }

    /// Writes the last requests seen (all of them when `limit` is 0) to the log.
    pub async fn log_journal(&self, _limit: u64) {
        unimplemented!()
    }

    /// Stops the frontend, forgets the replicas and ends the thread.
    pub async fn stop(&self) {
        unimplemented!()
    }
}
