//! Looks at one replica that is to join the volume, and opens it.
//!
//! Owns: which state a replica must be in, and how one whose engine was killed is taken over.
//! Never: whether it fits the others.

use std::path::Path;

use rpc::{Features, ptypes};
use wire::membership::{Claim, Standing};

use crate::core::start::{Found, Layer, Seen};

use super::engine::CALL_LIMIT;
use super::link::{CallError, Link};

/// How a replica is to be opened.
#[allow(clippy::struct_excessive_bools, reason = "each is a wish of its own")]
#[derive(Debug, Clone)]
pub(super) struct OpenAs {
    pub(super) upgrade: bool,
    pub(super) size: i64,
    /// It is the only one: a rebuild that was broken off has no source to go on from, so what is
    /// here is the volume.
    pub(super) alone: bool,
    /// What a raw file, which counts nothing, has in place of a revision counter.
    pub(super) revision_counter: bool,
    /// For replicas that know claims.
    pub(super) claim: Claim,
    /// It joins to be filled.
    pub(super) adopt: bool,
    pub(super) salvage: bool,
}

/// A replica as it was before anybody touched it.
#[derive(Debug, Clone)]
pub(super) struct Looked {
    pub(super) replica: ptypes::Replica,
    /// None: it is of a kind that keeps none.
    pub(super) standing: Option<Standing>,
    /// Why a live upgrade leaves it alone, if it does.
    pub(super) passed_over: Option<String>,
}

impl Looked {
    /// An engine is at work on it, as far as it can tell.
    pub(super) fn is_driven(&self) -> bool {
        self.standing.is_some() && self.replica.holdfast_engines > 0
    }
}

/// A replica that was opened.
#[derive(Debug, Clone)]
pub(super) struct Opened {
    pub(super) features: Features,
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
    #[error("cannot read what the replica says of its engines: {0}")]
    Standing(String),
    #[error("{0}")]
    PassedOver(String),
    #[error("cannot open {}: {detail}", path.display())]
    File { path: std::path::PathBuf, detail: String },
}

impl ProbeError {
    pub(super) fn seen(&self, address: &str, looked: Option<&Looked>) -> Seen {
        let why = format!("{address}: {self}");
        match self {
            Self::Call(CallError::Unreachable(_)) => Seen::Unreachable(why),
            Self::Call(_)
            | Self::NotClosed(_)
            | Self::Size(_)
            | Self::Standing(_)
            | Self::PassedOver(_)
            | Self::File { .. } => {
                // One that was looked at and keeps no records holds none that could be newer.
                let standing = looked.map(|looked| looked.standing.clone().unwrap_or_default());
                Seen::Failed { why, standing: standing.map(Box::new) }
            }
        }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_cut_off())
    }
}

/// What to do with a replica in the state it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Open,
    /// Its engine is gone: it is claimed as it is.
    TakeOver,
    /// Its engine is gone, and it knows no claims: close it first.
    CloseFirst,
    Refuse(String),
}

fn decide(seen: &ptypes::Replica, upgrade: bool) -> Way {
    // Only a Holdfast replica counts its engines; of another nothing is known.
    let abandoned = seen.holdfast_features != 0 && seen.holdfast_engines == 0;
    let claimable = Features(seen.holdfast_features).has(Features::MEMBERSHIP);
    match seen.state.as_str() {
        "closed" => Way::Open,
        "open" | "dirty" | "rebuilding" if claimable && (abandoned || upgrade) => Way::TakeOver,
        "open" | "dirty" | "rebuilding" if abandoned => Way::CloseFirst,
        other => Way::Refuse(other.to_owned()),
    }
}

/// Looks at the replica behind `link` and changes nothing; `None` for a raw file.
pub(super) async fn look(link: &Link) -> Result<Option<Looked>, ProbeError> {
    if link.file().is_some() {
        return Ok(None);
    }
    let replica = link.get(CALL_LIMIT).await?;
    let standing = standing(&replica)?;
    Ok(Some(Looked { replica, standing, passed_over: None }))
}

/// What a look shows of a replica that nobody has opened for us yet.
pub(super) fn seen_before(address: &str, looked: &Result<Option<Looked>, ProbeError>) -> Seen {
    match looked {
        Err(error) => error.seen(address, None),
        Ok(None) => Seen::Opened(raw_found(0, None, address)),
        Ok(Some(looked)) => match found(&looked.replica, address) {
            Ok(found) => Seen::Opened(found),
            Err(error) => error.seen(address, Some(looked)),
        },
    }
}

pub(super) fn standing(replica: &ptypes::Replica) -> Result<Option<Standing>, ProbeError> {
    if !Features(replica.holdfast_features).has(Features::MEMBERSHIP) {
        return Ok(None);
    }
    let read = serde_json::from_str(&replica.holdfast_standing);
    read.map(Some).map_err(|error| ProbeError::Standing(error.to_string()))
}

/// Opens the replica behind `link`, which was looked at before.
pub(super) async fn open(
    link: &Link,
    looked: Option<&Looked>,
    wanted: &OpenAs,
    address: &str,
) -> Result<Opened, ProbeError> {
    let before = match (link.file(), looked) {
        (Some(path), _) => return raw_file(path, wanted, address).await,
        (None, Some(looked)) => looked.replica.clone(),
        (None, None) => link.get(CALL_LIMIT).await?,
    };
    let way = decide(&before, wanted.upgrade);
    match &way {
        Way::Open | Way::TakeOver => {}
        Way::CloseFirst => {
            link.close(CALL_LIMIT).await?;
        }
        Way::Refuse(state) => return Err(ProbeError::NotClosed(state.clone())),
    }
    let mut after = link.open(CALL_LIMIT, request(&before, wanted)).await?;
    if wanted.alone && after.rebuilding {
        after = link.set_rebuilding(CALL_LIMIT, false).await?;
    }
    // In a live upgrade the old engine has the same files open and goes on with them: dirty is
    // what they are while everything is well.
    let unclean = !wanted.upgrade && (before.dirty || way != Way::Open);
    let found = Found { unclean, ..found(&after, address)? };
    Ok(Opened { features: Features(after.holdfast_features), found })
}

/// Only a replica that knows claims is told one.
fn request(before: &ptypes::Replica, wanted: &OpenAs) -> ptypes::ReplicaOpenRequest {
    let plain = ptypes::ReplicaOpenRequest {
        is_upgrade: wanted.upgrade,
        expected_backend_size: wanted.size,
        ..Default::default()
    };
    if !Features(before.holdfast_features).has(Features::MEMBERSHIP) {
        return plain;
    }
    ptypes::ReplicaOpenRequest {
        holdfast_generation: wanted.claim.generation,
        holdfast_engine: wanted.claim.engine.clone(),
        holdfast_adopt: wanted.adopt,
        holdfast_salvage: wanted.salvage,
        ..plain
    }
}

fn found(replica: &ptypes::Replica, address: &str) -> Result<Found, ProbeError> {
    let size = replica.size.parse().map_err(|_| ProbeError::Size(replica.size.clone()))?;
    Ok(Found {
        size_bytes: size,
        sector_size: replica.sector_size,
        usable: matches!(replica.state.as_str(), "open" | "dirty"),
        state: replica.state.clone(),
        counter: (!replica.revision_counter_disabled).then_some(replica.revision_counter),
        head_modified_ns: replica.last_modify_time,
        head_allocated_bytes: replica.head_file_size,
        unclean: false,
        address: address.to_owned(),
        standing: standing(replica)?,
        layers: layers(replica),
    })
}

/// What the head sits on, top first.
fn layers(replica: &ptypes::Replica) -> Vec<Layer> {
    let layer = |name: &String| {
        let disk = replica.disks.get(name);
        let kept = disk.is_some_and(|disk| disk.user_created && !disk.removed);
        Layer { name: name.clone(), kept }
    };
    replica.chain.iter().filter(|name| **name != replica.head).map(layer).collect()
}

/// Sector size a replica reports; a raw file has none of its own.
const SECTOR_SIZE: i64 = 512;

async fn raw_file(path: &Path, wanted: &OpenAs, address: &str) -> Result<Opened, ProbeError> {
    let bad = |detail: String| ProbeError::File { path: path.to_owned(), detail };
    let meta = tokio::fs::metadata(path).await.map_err(|error| bad(error.to_string()))?;
    if !meta.is_file() {
        return Err(bad("not a regular file".to_owned()));
    }
    let size = i64::try_from(meta.len()).unwrap_or(i64::MAX);
    let found = raw_found(size, wanted.revision_counter.then_some(1), address);
    Ok(Opened { features: Features::NONE, found })
}

fn raw_found(size_bytes: i64, counter: Option<i64>, address: &str) -> Found {
    Found {
        size_bytes,
        sector_size: SECTOR_SIZE,
        usable: true,
        state: "open".to_owned(),
        counter,
        head_modified_ns: 0,
        head_allocated_bytes: 0,
        unclean: false,
        address: address.to_owned(),
        standing: None,
        layers: Vec::new(),
    }
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
        let way = |state, features, engines| decide(&replica(state, features, engines), false);
        assert_eq!(way("closed", 0, 0), Way::Open);
        assert_eq!(way("dirty", 1, 0), Way::CloseFirst);
        assert_eq!(way("rebuilding", 1, 0), Way::CloseFirst);
        assert_eq!(way("dirty", 1, 2), Way::Refuse("dirty".into()));
        assert_eq!(way("open", 0, 0), Way::Refuse("open".into()));
        assert_eq!(way("initial", 1, 0), Way::Refuse("initial".into()));
        assert_eq!(way("error", 1, 0), Way::Refuse("error".into()));
    }

    #[test]
    fn one_that_knows_claims_is_not_closed_first_and_gives_way_to_an_upgrade() {
        let knows = Features::MEMBERSHIP.0;
        assert_eq!(decide(&replica("dirty", knows, 0), false), Way::TakeOver);
        assert_eq!(decide(&replica("dirty", knows, 1), false), Way::Refuse("dirty".into()));
        assert_eq!(decide(&replica("dirty", knows, 1), true), Way::TakeOver);
        assert_eq!(decide(&replica("dirty", 1, 1), true), Way::Refuse("dirty".into()));
    }
}
