//! The revision a database is at.

use std::fs::File;

use crate::bolt::{Bolt, BoltError};

/// Rows of keys; named by the revision that wrote them.
const KEYS: &[u8] = b"key";
const META: &[u8] = b"meta";
/// A compaction may have removed the last rows, and then it alone tells how far history went.
const COMPACTIONS: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];
/// Of a store that nobody wrote to.
const EMPTY: i64 = 1;

pub(super) fn of(database: File) -> Result<i64, BoltError> {
    let bolt = Bolt::from_file(database)?;
    let mut newest = EMPTY;
    if let Some(last) = bolt.bucket(KEYS)?.map(|keys| keys.last()).transpose()?.flatten() {
        newest = newest.max(main_revision(&last.key));
    }
    if let Some(meta) = bolt.bucket(META)? {
        for name in COMPACTIONS {
            newest = newest.max(meta.get(name)?.map_or(EMPTY, |row| main_revision(&row)));
        }
    }
    Ok(newest)
}

/// The first eight bytes, the highest first.
fn main_revision(row: &[u8]) -> i64 {
    row.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_begin_with_their_revision() {
        assert_eq!(main_revision(&[0, 0, 0, 0, 0, 0, 1, 2, b'_', 0]), 258);
        assert_eq!(main_revision(b"short"), 0);
    }
}
