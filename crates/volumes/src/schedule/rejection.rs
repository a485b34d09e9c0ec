//! Why there is no place for a copy, in the words of the dialect.

use std::collections::BTreeSet;
use std::fmt;

/// One reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    NoNode,
    NodesUnavailable,
    HardAffinity,
    NoImage,
    Topology,
    Tags,
    NoDisk,
    DisksUnavailable,
    VolumeSize,
    Storage,
    /// There is room, but only where copies of the volume are and may not be shared with.
    Neighbours,
}

impl Reason {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoNode => "node not found",
            Self::NodesUnavailable => "nodes are unavailable",
            Self::HardAffinity => "hard affinity cannot be satisfied",
            Self::NoImage => "none of the node candidates contains a ready engine image",
            Self::Topology => "topology requirement cannot be satisfied",
            Self::Tags => "tags not fulfilled",
            Self::NoDisk => "disk not found",
            Self::DisksUnavailable => "disks are unavailable",
            Self::VolumeSize => "incompatible volume size",
            Self::Storage => "insufficient storage",
            Self::Neighbours => "replica scheduling failed",
        }
    }
}

/// Every reason, each once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rejection(BTreeSet<Reason>);

impl Rejection {
    pub fn add(&mut self, reason: Reason) {
        self.0.insert(reason);
    }

    pub fn reasons(&self) -> impl Iterator<Item = Reason> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, reason) in self.0.iter().enumerate() {
            let part = if index == 0 { "" } else { ";" };
            write!(out, "{part}{}", reason.as_str())?;
        }
        Ok(())
    }
}

impl std::error::Error for Rejection {}
