//! Brings the data directory of a member into a state etcd can start from.
//!
//! Owns: looking at the directory, deciding ([`decide`]) and doing it. The old directory is only
//! ever set aside under another name, and goes when etcd has been seen at work on the new one.
//! Never: runs while an etcd holds the database, or writes to a directory that it only checks.

mod aside;
mod clean;
mod decide;
mod perform;
mod status;
mod validate;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tasks::{BlockingError, Tasks};

pub use self::aside::remove_old;
use self::decide::{Action, Backup, Cluster, Membership, Verdict};
pub use self::status::{Status, StatusCell};
pub use self::volume::VolumeError;
use super::config::RestorationConfig;
use super::metrics::{Metrics, Restoration};
use crate::control::leases::{LeaseError, Leases};
use crate::control::membership;
use crate::datadir::Origin;
use crate::etcd::{Etcd, EtcdError};
use crate::restore::RestoreError;
use crate::store::{Latest, SnapStore, StoreError};

/// How thoroughly a directory is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Full,
    Sanity,
}

impl Mode {
    /// What is no known mode is the thorough one.
    pub fn of(text: &str) -> Self {
        if text == "sanity" { Self::Sanity } else { Self::Full }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum InitializeError {
    #[error("the data directory is left alone: {0}")]
    Refused(String),
    #[error(transparent)]
    Volume(VolumeError),
    #[error("the data directory {} cannot be looked at", path.display())]
    Look { path: PathBuf, source: std::io::Error },
    #[error("the data directory {} cannot be set aside", path.display())]
    Aside { path: PathBuf, source: std::io::Error },
    #[error("the store cannot be listed")]
    Store(#[source] StoreError),
    #[error("the data directory was not restored")]
    Restore(#[source] Box<RestoreError>),
    #[error("whether this member was in the cluster cannot be told")]
    Lease(#[source] LeaseError),
    #[error("a cluster of several members needs a Kubernetes API server")]
    NoLeases,
    #[error("the cluster did not take this member")]
    Membership(#[source] EtcdError),
    #[error(transparent)]
    Blocking(#[from] BlockingError),
}

/// The cluster around this member.
#[derive(Debug, Clone)]
pub struct Neighbours {
    /// Of this member.
    pub name: String,
    pub peer_urls: Vec<String>,
    /// Members the configuration names.
    pub cluster_size: usize,
    /// Any of the members.
    pub cluster: Etcd,
    pub leases: Option<Leases>,
}

#[derive(Debug)]
pub struct Initializer {
    pub restoration: RestorationConfig,
    /// Nothing where there are no backups.
    pub store: Option<SnapStore>,
    pub store_temp_dir: PathBuf,
    /// Whose volume it must be.
    pub namespace: Option<String>,
    /// Nothing where the member is alone.
    pub neighbours: Option<Neighbours>,
    pub metrics: Arc<Metrics>,
    pub tasks: Tasks,
}

/// How long an API server may take to tell of a lease.
const LEASE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

impl Initializer {
    /// # Cancel safety
    ///
    /// May be dropped at any point; the next run goes on from what is on disk.
    pub async fn initialize(&self, mode: Mode) -> Result<(), InitializeError> {
        let cluster = self.cluster().await?;
        let is_newcomer = cluster == Cluster::Multi(Membership::Unlisted);
        let is_held = is_newcomer && self.is_held().await?;
        let action = match decide::before_validation(cluster, is_held) {
            Some(action) => action,
            None => self.look(mode, cluster).await?,
        };
        tracing::info!("the data directory: {action:?}");
        self.perform(&action).await?;
        self.clean_temporary().await
    }

    async fn look(&self, mode: Mode, cluster: Cluster) -> Result<Action, InitializeError> {
        let begun = Instant::now();
        let newest = match cluster {
            // Others have what is newer than any backup.
            Cluster::Multi(_) => None,
            Cluster::Single => self.newest_revision().await?,
        };
        let verdict = self.validate(mode, newest).await?;
        self.metrics.validation_took(verdict == Verdict::Valid, begun.elapsed());
        tracing::info!("the data directory {} is {verdict:?}", self.data_dir().display());
        let backup =
            if verdict == Verdict::Valid { Backup::NoStore } else { self.backup().await? };
        Ok(decide::decide(cluster, &verdict, backup))
    }

    fn data_dir(&self) -> &Path {
        Path::new(&self.restoration.data_dir)
    }

    async fn latest(&self) -> Result<Option<Latest>, InitializeError> {
        let Some(store) = &self.store else { return Ok(None) };
        store.latest().await.map(Some).map_err(InitializeError::Store)
    }

    /// The revision that the data must have reached; none where nothing says so.
    async fn newest_revision(&self) -> Result<Option<i64>, InitializeError> {
        let (Some(store), Some(latest)) = (&self.store, self.latest().await?) else {
            return Ok(None);
        };
        let dir = self.data_dir().to_owned();
        let read = self.tasks.blocking("look at the origin", move || Origin::read(&dir)).await?;
        let unreadable = |error| InitializeError::Look {
            path: self.data_dir().to_owned(),
            source: std::io::Error::other(error),
        };
        let origin = read.map_err(unreadable)?;
        let histories = store.histories().await.map_err(InitializeError::Store)?;
        // Written down, and stopped before its first snapshot was there: what the store holds is of the
        // history before it, whose end says nothing about this one.
        let is_of_newest =
            |origin: &Origin| histories.newest().is_some_and(|newest| newest.id == origin.id);
        let has_nothing = latest.history().is_some_and(|held| held < histories.current());
        if has_nothing && origin.as_ref().is_none_or(is_of_newest) {
            tracing::info!(
                "the history of the data directory has no snapshot yet: it is kept as it is"
            );
            return Ok(None);
        }
        let Some(origin) = origin else { return Ok(latest.last_revision()) };
        if histories.is_new(&origin.id, origin.restored_at) {
            tracing::info!(
                "the data directory is an earlier state on purpose, {}: it is kept as it is, and \
                 begins a new history",
                origin.reason
            );
            return Ok(None);
        }
        Ok(latest.last_revision())
    }

    async fn backup(&self) -> Result<Backup, InitializeError> {
        Ok(match self.latest().await? {
            None => Backup::NoStore,
            Some(latest) if latest.full.is_none() && latest.deltas.is_empty() => Backup::Empty,
            Some(_) => Backup::Present,
        })
    }

    /// What this member is to its cluster.
    async fn cluster(&self) -> Result<Cluster, InitializeError> {
        let Some(neighbours) = self.neighbours.as_ref().filter(|it| it.cluster_size > 1) else {
            return Ok(Cluster::Single);
        };
        let leases = neighbours.leases.as_ref().ok_or(InitializeError::NoLeases)?;
        let membership = match membership::is_member(&neighbours.cluster, &neighbours.name).await {
            Ok(true) => Membership::Member,
            Ok(false) => Membership::Unlisted,
            Err(error) => {
                tracing::warn!("the cluster does not answer: {}", telemetry::Chain(&error));
                let held = leases.is_held(&neighbours.name, LEASE_TIMEOUT).await;
                if held.map_err(InitializeError::Lease)? {
                    Membership::Member
                } else {
                    Membership::Unheard
                }
            }
        };
        Ok(Cluster::Multi(membership))
    }

    /// Leaves nothing of earlier uploads behind.
    async fn clean_temporary(&self) -> Result<(), InitializeError> {
        let shared = [Path::new("/tmp"), Path::new("")].contains(&self.store_temp_dir.as_path());
        if self.store.is_none() || shared {
            return Ok(());
        }
        let path = self.store_temp_dir.clone();
        let cleaned =
            self.tasks.blocking("clean the temporary directory", move || clean::clean(&path));
        if let Err(error) = cleaned.await? {
            tracing::warn!("the temporary directory was not cleaned: {}", telemetry::Chain(&error));
        }
        Ok(())
    }
}
