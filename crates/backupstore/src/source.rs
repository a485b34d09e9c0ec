//! Where the data of a backup comes from. The calls block, and are made on threads that may.

use std::io;
use std::ops::Range;

/// The changed parts of a volume, ascending and apart; empty ones are skipped.
pub type Extents = Box<dyn Iterator<Item = io::Result<Range<u64>>> + Send>;

/// A snapshot that is backed up, and the chain below it. It does not change while it is read.
pub trait Source: Send + Sync + 'static {
    fn size_bytes(&self) -> u64;

    /// Whether the chain below this snapshot holds `snapshot`.
    fn has_snapshot(&self, snapshot: &str) -> io::Result<bool>;

    /// Every part of the volume that may have changed since `base`, or that may hold data where
    /// there is no base. It is walked while blocks are uploaded: it should find its parts as it
    /// goes, not before.
    fn changed_since(&self, base: Option<&str>) -> io::Result<Extents>;

    /// Fills `buffer` from `offset`; what was never written is zeros.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}
