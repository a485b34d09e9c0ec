//! Looks at one replica that is to join the volume, and opens it.
//!
//! Owns: which state a replica must be in, and how one whose engine was killed is taken over.
//! Never: whether it fits the others.

use std::path::Path;

use rpc::{Features, ptypes};

use crate::core::start::{Found, Seen};

use super::engine::CALL_LIMIT;
use super::link::{CallError, Link};

/// How a replica is to be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenAs {
    pub(super) upgrade: bool,
    pub(super) size: i64,
    /// It is the only one: a rebuild that was broken off has no source to go on from, so what is
    /// here is the volume.
    pub(super) alone: bool,
    /// What a raw file, which counts nothing, has in place of a revision counter.
    pub(super) revision_counter: bool,
}

/// A replica that was opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) features: Features,
    /// It was not closed by the engine that had it last, so it may hold what others do not.
    pub(super) unclean: bool,
    pub(super) found: Found,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("replica must be closed, cannot add in state: {0}")]
    NotClosed(String),
    #[error("replica has size {0:?}, which is no number of bytes")]
    Size(String),
    #[error("cannot open {}: {detail}", path.display())]
    File { path: std::path::PathBuf, detail: String },
}

impl ProbeError {
    pub(super) fn seen(&self, address: &str) -> Seen {
        let text = format!("{address}: {self}");
        match self {
            Self::Call(CallError::Unreachable(_)) => Seen::Unreachable(text),
            Self::Call(_) | Self::NotClosed(_) | Self::Size(_) | Self::File { .. } => {
                Seen::Failed(text)
            }
        }
    }
}

/// What to do with a replica in the state it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Open,
    /// Its engine is gone: close it first.
    CloseFirst,
    Refuse(String),
}

fn decide(seen: &ptypes::Replica) -> Way {
    // Only a Holdfast replica counts its engines; of another nothing is known.
    let abandoned = seen.holdfast_features != 0 && seen.holdfast_engines == 0;
    match seen.state.as_str() {
        "closed" => Way::Open,
        "open" | "dirty" | "rebuilding" if abandoned => Way::CloseFirst,
        other => Way::Refuse(other.to_owned()),
    }
}

/// Opens the replica behind `link`.
pub(super) async fn open(link: &Link, wanted: OpenAs) -> Result<Opened, ProbeError> {
    if let Some(path) = link.file() {
        return raw_file(path, wanted).await;
    }
    let before = link.get(CALL_LIMIT).await?;
    let way = decide(&before);
    match &way {
        Way::Open => {}
        Way::CloseFirst => {
            link.close(CALL_LIMIT).await?;
        }
        Way::Refuse(state) => return Err(ProbeError::NotClosed(state.clone())),
    }
    let mut after = link.open(CALL_LIMIT, wanted.upgrade, wanted.size).await?;
    if wanted.alone && after.rebuilding {
        after = link.set_rebuilding(CALL_LIMIT, false).await?;
    }
    // In a live upgrade the old engine has the same files open and goes on with them: dirty is
    // what they are while everything is well.
    let unclean = !wanted.upgrade && (before.dirty || way == Way::CloseFirst);
    Ok(Opened { features: Features(after.holdfast_features), unclean, found: found(&after)? })
}

fn found(replica: &ptypes::Replica) -> Result<Found, ProbeError> {
    let size = replica.size.parse().map_err(|_| ProbeError::Size(replica.size.clone()))?;
    Ok(Found {
        size_bytes: size,
        sector_size: replica.sector_size,
        usable: matches!(replica.state.as_str(), "open" | "dirty"),
        state: replica.state.clone(),
        counter: (!replica.revision_counter_disabled).then_some(replica.revision_counter),
        head_modified_ns: replica.last_modify_time,
        head_allocated_bytes: replica.head_file_size,
    })
}

/// Sector size a replica reports; a raw file has none of its own.
const SECTOR_SIZE: i64 = 512;

async fn raw_file(path: &Path, wanted: OpenAs) -> Result<Opened, ProbeError> {
    let bad = |detail: String| ProbeError::File { path: path.to_owned(), detail };
    let meta = tokio::fs::metadata(path).await.map_err(|error| bad(error.to_string()))?;
    if !meta.is_file() {
        return Err(bad("not a regular file".to_owned()));
    }
    let found = Found {
        size_bytes: i64::try_from(meta.len()).unwrap_or(i64::MAX),
        sector_size: SECTOR_SIZE,
        usable: true,
        state: "open".to_owned(),
        counter: wanted.revision_counter.then_some(1),
        head_modified_ns: 0,
        head_allocated_bytes: 0,
    };
    Ok(Opened { features: Features::NONE, unclean: false, found })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(state: &str, features: u32, engines: u32) -> ptypes::Replica {
        ptypes::Replica {
            state: state.into(),
            holdfast_features: features,
            holdfast_engines: engines,
            ..Default::default()
        }
    }

    #[test]
    fn only_a_closed_replica_or_one_without_an_engine_is_taken() {
        assert_eq!(decide(&replica("closed", 0, 0)), Way::Open);
        assert_eq!(decide(&replica("dirty", 1, 0)), Way::CloseFirst);
        assert_eq!(decide(&replica("rebuilding", 1, 0)), Way::CloseFirst);
        assert_eq!(decide(&replica("dirty", 1, 2)), Way::Refuse("dirty".into()));
        assert_eq!(decide(&replica("open", 0, 0)), Way::Refuse("open".into()));
        assert_eq!(decide(&replica("initial", 1, 0)), Way::Refuse("initial".into()));
        assert_eq!(decide(&replica("error", 1, 0)), Way::Refuse("error".into()));
    }
}
