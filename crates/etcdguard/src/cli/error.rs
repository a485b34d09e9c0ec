//! Why a command failed.

use std::io;
use std::path::PathBuf;

use crate::control::SnapshotError;
use crate::etcd::EtcdError;
use crate::restore::RestoreError;
use crate::server::ServeError;
use crate::server::config::ConfigError;
use crate::server::controllers::KubeError;
use crate::server::initialize::InitializeError;
use crate::server::member::MemberError;
use crate::store::StoreError;

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("cannot start")]
    Start(#[source] io::Error),
    #[error("told to end before it was done")]
    Interrupted,
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{failed} snapshots were not copied")]
    Copy { failed: usize },
    #[error(transparent)]
    Initialize(#[from] InitializeError),
    #[error(transparent)]
    Member(#[from] MemberError),
    #[error(transparent)]
    Kube(#[from] KubeError),
    #[error(transparent)]
    Restore(#[from] RestoreError),
    #[error("{} is damaged", path.display())]
    Damaged { path: PathBuf },
    #[error("the drill failed")]
    Drill,
    #[error("cannot print the result")]
    Output(#[source] io::Error),
}
