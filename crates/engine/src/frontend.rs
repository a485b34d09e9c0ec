//! How bytes come in.

use std::time::Duration;

use crate::NbdOptions;

/// What a frontend needs to know besides the volume.
#[derive(Debug, Clone)]
pub struct FrontendOptions {
    pub volume: String,
    pub nbd: NbdOptions,
    /// The frontend takes over from that of an engine that still runs.
    pub upgrade: bool,
    pub replica_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FrontendState {
    /// None was ever started.
    #[default]
    None,
    Up,
    Down,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontendStatus {
    /// Empty if none was ever started.
    pub name: String,
    /// Where clients find the volume while the frontend is up.
    pub endpoint: String,
    pub state: FrontendState,
}

/// Texts are those callers match.
#[derive(Debug, thiserror::Error)]
pub enum FrontendError {
    #[error("cannot start empty frontend")]
    Empty,
    #[error("frontend {running} is already started, cannot be set as {wanted}")]
    Other { running: String, wanted: String },
    #[error("failed to find frontend: {0}: unsupported frontend type: {0}")]
    Unknown(String),
    #[error("expand is not supported")]
    CannotExpand,
    #[error("{0}")]
    Failed(String),
}
