//! Where a database stands: its revision, and how far its history was dropped.

use crate::bolt::{Bolt, BoltError};

use super::row::{Revision, RowKey};

/// The bucket of all changes.
pub const KEY_BUCKET: &[u8] = b"key";
/// The bucket of etcd's own bookkeeping.
pub const META_BUCKET: &[u8] = b"meta";
pub(super) const SCHEDULED: &[u8] = b"scheduledCompactRev";
pub(super) const FINISHED: &[u8] = b"finishedCompactRev";
/// What an etcd that never stored anything is at.
const EMPTY: i64 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Current {
    pub revision: i64,
    /// History up to here was dropped, all of it.
    pub compacted: Option<i64>,
    /// History up to here was to be dropped, and part of it may have been.
    pub compacting: Option<i64>,
}

impl Current {
    /// The first revision whose state can still be read.
    pub fn oldest(&self) -> i64 {
        self.compacted.max(self.compacting).unwrap_or(0)
    }
}

/// Reads where a database stands. A compaction may have taken the last rows, so its marks count.
pub fn current(bolt: &Bolt) -> Result<Option<Current>, BoltError> {
    let Some(keys) = bolt.bucket(KEY_BUCKET)? else { return Ok(None) };
    let last = match keys.last()? {
        None => EMPTY,
        Some(row) => match RowKey::decode(&row.key) {
            Some(key) => key.revision.main,
            None => return Ok(None),
        },
    };
    let (mut compacted, mut compacting) = (None, None);
    if let Some(meta) = bolt.bucket(META_BUCKET)? {
        let mark = |key| Ok::<_, BoltError>(meta.get(key)?.and_then(|it| Revision::decode(&it)));
        compacted = mark(FINISHED)?.map(|revision| revision.main);
        compacting = mark(SCHEDULED)?.map(|revision| revision.main);
    }
    let revision = last.max(compacted.unwrap_or(0)).max(compacting.unwrap_or(0));
    Ok(Some(Current { revision, compacted, compacting }))
}
