//! The engine of one volume as the control side knows it: options, replica list, state that is
//! shown to callers, and the order in which changes are made.
//!
//! Owns: which address is which member of the data path, and the one lock under which the replica
//! set and its snapshots change. Never: waits for a replica while it holds the state, so what is
//! only shown never waits either.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpc::{SharedClaim, ptypes};
use tasks::{CancellationToken, Tasks};
use tokio::sync::{Semaphore, watch};

use crate::ControllerOptions;
use crate::core::{Command, Fault, Hold, Member, Mode, ReplicaId, Settings};
use crate::frontend::FrontendState;
use crate::volume::{HoldGuard, Volume};

use super::handover::Offer;
use super::link::Link;
use super::mend::{MendFrom, Mending};

/// One volume, its replicas and its frontend. Made by [`Engine::launch`].
#[derive(Debug)]
pub struct Engine {
    pub(super) options: ControllerOptions,
    pub(super) volume: Volume,
    pub(super) tasks: Tasks,
    /// Held by whatever changes the replica set, a snapshot or the size, from its first check to
    /// its last effect.
    pub(super) order: tokio::sync::Mutex<()>,
    /// Where the replica is that this engine fills now.
    pub(super) filling: watch::Sender<Option<String>>,
    /// Places for changes that go on though their callers are gone.
    pub(super) changes: Arc<Semaphore>,
    pub(super) mending: watch::Sender<Mending>,
    pub(super) mend_stop: tokio::sync::Mutex<CancellationToken>,
    /// Where mending waits for a frontend: see [`Self::begin_mending`].
    pub(super) mend_later: tokio::sync::Mutex<Option<MendFrom>>,
    /// The right under which replicas are called; none before the first start.
    pub(super) claim: SharedClaim,
    /// Drawn for this process, to tell its claims from those of others.
    pub(super) name: String,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    pub(super) size: u64,
    pub(super) expansion: Expansion,
    pub(super) unmap_mark: bool,
    pub(super) snapshot_max_count: i32,
    pub(super) snapshot_max_size: i64,
    pub(super) rebuild_sync_limit: i32,
    /// A start takes over from an engine that still runs: only the first of this process can.
    pub(super) takes_over: bool,
    /// The frontend the volume is to have, whether or not it is up.
    pub(super) frontend: String,
    /// Clients of the engine that this one takes over from.
    pub(super) offer: Option<Offer>,
}

#[derive(Debug, Default)]
pub(super) struct Expansion {
    pub(super) running: bool,
    pub(super) error: String,
    pub(super) failed_at: String,
}

/// A replica in the list. Without a member it was refused at the start of the volume.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) address: String,
    pub(super) link: Link,
    pub(super) member: Option<ReplicaId>,
}

/// A replica as it is at this moment.
#[derive(Debug, Clone)]
pub(super) struct Replica {
    pub(super) address: String,
    pub(super) link: Link,
    pub(super) member: Option<ReplicaId>,
    pub(super) mode: Mode,
}

impl Engine {
    /// # Errors
    /// If the data thread cannot be started.
    pub(super) fn new(options: ControllerOptions, tasks: Tasks) -> std::io::Result<Self> {
        let settings = Settings {
            replica_timeout: options.replica_timeout,
            ping_interval: PING_INTERVAL,
            write_through: false,
        };
        let volume = Volume::start(&options.volume, settings)?;
        let state = State {
            entries: Vec::new(),
            size: 0,
            expansion: Expansion::default(),
            unmap_mark: options.unmap_mark_snap_chain_removed,
            snapshot_max_count: options.snapshot_max_count,
            snapshot_max_size: options.snapshot_max_size,
            rebuild_sync_limit: options.rebuild_sync_concurrent_limit,
            takes_over: options.upgrade,
            frontend: options.frontend.clone(),
            offer: None,
        };
        Ok(Self {
            options,
            volume,
            tasks,
            order: tokio::sync::Mutex::new(()),
            filling: watch::Sender::new(None),
            changes: Arc::new(Semaphore::new(CHANGES_MAX)),
            mending: watch::Sender::new(Mending::Equal),
            mend_stop: tokio::sync::Mutex::default(),
            mend_later: tokio::sync::Mutex::default(),
            claim: SharedClaim::default(),
            name: uuid::Uuid::new_v4().to_string(),
            state: Mutex::new(state),
        })
    }

    /// The data path of this volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a replica may take for a call while requests of the volume wait for it, before it
    /// is failed for it.
    pub(super) fn hold_limit(&self) -> Duration {
        self.options.replica_timeout.saturating_mul(2)
    }

    /// Keeps requests out, once those under way have ended. The last replica that can be read is
    /// never given up for slowness, but an operation that waits for it is.
    pub(super) async fn hold(&self, hold: Hold) -> Result<HoldGuard, Busy> {
        let limit = self.hold_limit().saturating_mul(2);
        tokio::time::timeout(limit, self.volume.hold(hold)).await.map_err(|_| Busy(limit))
    }

    /// All replicas, in the order they were added.
    pub(super) fn replicas(&self) -> Vec<Replica> {
        let members = self.members();
        let entries = self.state().entries.clone();
        let with_mode = |Entry { address, link, member }: Entry| {
            let mode = mode_of(&members, member);
            Replica { address, link, member, mode }
        };
        entries.into_iter().map(with_mode).collect()
    }

    /// Those that take writes.
    pub(super) fn live(&self) -> Vec<Replica> {
        let mut replicas = self.replicas();
        replicas.retain(|replica| replica.mode != Mode::Err);
        replicas
    }

    pub(super) fn readable(&self) -> Vec<Replica> {
        let mut replicas = self.replicas();
        replicas.retain(|replica| replica.mode == Mode::Rw);
        replicas
    }

    pub(super) fn find(&self, address: &str) -> Option<Replica> {
        self.replicas().into_iter().find(|replica| replica.address == address)
    }

    pub(super) fn members(&self) -> Arc<[Member]> {
        self.volume.members().borrow().clone()
    }

    /// Tells all replicas who holds the volume, and returns when they have it on disk.
    pub(super) async fn record(&self) -> Result<(), Fault> {
        self.volume.submit(Command::Record).await.map(|_| ())
    }

    /// Takes a replica out of use; it stays in the list as ERR.
    pub(super) async fn fail(&self, replica: &Replica, reason: &str) {
        if let Some(member) = replica.member {
            self.volume.set_mode(member, Mode::Err, reason).await;
        }
    }

    /// The volume as callers see it; asks nobody.
    pub(super) fn show(&self) -> ptypes::Volume {
        let frontend = self.volume.frontend();
        let state = self.state();
        let (name, shown) = match frontend.state {
            FrontendState::None if state.frontend.is_empty() => (String::new(), ""),
            // Known, and waiting for the volume to start.
            FrontendState::None => (state.frontend.clone(), "down"),
            FrontendState::Up => (frontend.name, "up"),
            FrontendState::Down => (frontend.name, "down"),
        };
        ptypes::Volume {
            name: self.options.volume.clone(),
            size: i64::try_from(state.size).unwrap_or(i64::MAX),
            replica_count: i32::try_from(state.entries.len()).unwrap_or(i32::MAX),
            endpoint: frontend.endpoint,
            frontend: name,
            frontend_state: shown.to_owned(),
            is_expanding: state.expansion.running,
            last_expansion_error: state.expansion.error.clone(),
            last_expansion_failed_at: state.expansion.failed_at.clone(),
            unmap_mark_snap_chain_removed: state.unmap_mark,
            snapshot_max_count: state.snapshot_max_count,
            snapshot_max_size: state.snapshot_max_size,
        }
    }
}

/// Requests to a replica that does not answer are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("requests under way did not end within {} ms; try again", .0.as_millis())]
pub(super) struct Busy(Duration);

/// More changes than any caller has under way at once; what comes then waits as long as its caller.
const CHANGES_MAX: usize = 64;

const PING_INTERVAL: Duration = Duration::from_secs(2);

/// How long a call may take for which nothing waits but its caller.
pub(super) const CALL_LIMIT: Duration = Duration::from_mins(3);

fn mode_of(members: &[Member], member: Option<ReplicaId>) -> Mode {
    let known = |id| members.iter().find(|known| known.id == id);
    member.and_then(known).map_or(Mode::Err, |known| known.mode)
}

/// Now, as replicas write times: UTC, whole seconds.
pub(super) fn created_now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
