//! The write-ahead log: segments of records whose checksums run through all of them.

mod read;
mod verify;
mod write;

pub use read::read_segment;
pub use verify::{WalSummary, verify};
pub(super) use write::{FIRST, initial};

use std::io;
use std::path::PathBuf;

/// Kinds of records.
const METADATA: i64 = 1;
const ENTRY: i64 = 2;
const STATE: i64 = 3;
const CRC: i64 = 4;
const SNAPSHOT: i64 = 5;

/// Etcd makes segments of this length and begins the next beyond it.
const SEGMENT_LENGTH: u64 = 64_000_000;
/// The longest record: far above the largest request an etcd can be told to take.
const RECORD_MAX: u64 = 128 << 20;

#[derive(Debug, thiserror::Error)]
pub enum WalError {
    #[error("cannot read the log at {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the log has no segment that reaches back to index {index}")]
    NoSegment { index: u64 },
    #[error("the log lacks a segment before {0}")]
    Gap(String),
    #[error("log segment {segment} is damaged at byte {offset}: {what}")]
    Damaged { segment: String, offset: u64, what: &'static str },
    #[error("the log does not know the snapshot at index {index}")]
    NoSnapshot { index: u64 },
    #[error("the log says it is committed up to {commit}, and has entries from {first} to {last}")]
    Commit { commit: u64, first: u64, last: u64 },
}
