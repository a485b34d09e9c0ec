//! What a replica's data port understands beyond the common frames.

use std::ops::{BitOr, BitOrAssign};

/// A set of extensions, sent as `Replica.holdfast_features`. A peer that has never heard of the
/// field leaves it at none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features(pub u32);

impl Features {
    /// Nothing beyond the common frames.
    pub const NONE: Self = Self(0);
    /// Flush frames. A replica with this feature may keep writes in memory between flushes; one
    /// without writes through, so a flush of it has nothing to do.
    pub const FLUSH: Self = Self(1);
    /// Write-zeroes frames.
    pub const ZERO: Self = Self(1 << 1);
    /// Block-status frames.
    pub const STATUS: Self = Self(1 << 2);
    /// Requests of one connection take effect in the order they were sent.
    pub const ORDERED: Self = Self(1 << 3);
    /// The service `holdfast.replica.v1.Upkeep`.
    pub const UPKEEP: Self = Self(1 << 4);
    /// Also listens for data on the abstract unix socket [`local_data_socket`].
    pub const LOCAL: Self = Self(1 << 5);

    /// Discard frames: unmaps whose answers tell replicas apart that may disagree about them.
    pub const DISCARD: Self = Self(1 << 6);

    /// Claims and records: `wire::membership`, hello and record frames.
    pub const MEMBERSHIP: Self = Self(1 << 7);
    /// The offset in the answer to a write that failed says up to where it was done.
    pub const PARTIAL: Self = Self(1 << 8);

    /// Its agent listens: that it cannot be asked means that something is wrong.
    pub const AGENT: Self = Self(1 << 9);

    #[must_use]
    pub const fn without(self, unwanted: Self) -> Self {
        Self(self.0 & !unwanted.0)
    }

    /// Whether every feature of `wanted` is here.
    pub fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl BitOr for Features {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// Name of the abstract unix socket beside the data port `port`.
pub fn local_data_socket(port: u16) -> String {
    format!("holdfast-replica-data-{port}")
}
