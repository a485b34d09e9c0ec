//! Why a command failed.

use std::io;
use std::path::PathBuf;

use super::verify::Trouble;
use crate::control::SnapshotError;
use crate::etcd::EtcdError;
use crate::restore::RestoreError;
use crate::server::ServeError;
use crate::server::config::ConfigError;
use crate::server::controllers::KubeError;
use crate::server::initialize::InitializeError;
use crate::server::member::MemberError;
use crate::store::StoreError;

impl CommandError {
    /// What to do about it, where that is known.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Usage(_) | Self::Config(_) => {
                Some("--help behind the command shows what it takes")
            }
            Self::Etcd(_) => Some("is the etcd up? Name it with --endpoints"),
            Self::Store(_) => {
                Some("look at --storage-provider, --store-container and the credentials")
            }
            Self::NotWell { trouble, .. } => trouble.hint(),
            Self::Start(_)
            | Self::Interrupted
            | Self::Serve(_)
            | Self::Snapshot(_)
            | Self::Copy { .. }
            | Self::Initialize(_)
            | Self::Member(_)
            | Self::Kube(_)
            | Self::Restore(_)
            | Self::Drill
            | Self::Output(_) => None,
        }
    }
}

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
    #[error("{} {}", path.display(), trouble.words())]
    NotWell { path: PathBuf, trouble: Trouble },
    #[error("the drill failed")]
    Drill,
    #[error("cannot print the result")]
    Output(#[source] io::Error),
}
