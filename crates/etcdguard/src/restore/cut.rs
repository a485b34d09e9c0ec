//! Writes a database anew with some of its rows.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bytes::Bytes;

use crate::bolt::{Bolt, Row, Writer};
use crate::datadir::{KEY_BUCKET, META_BUCKET, Revision, RowKey, latest_rows};

use super::RestoreError;

/// Where etcd keeps how far history was dropped.
const MARKS: [&[u8]; 2] = [b"finishedCompactRev", b"scheduledCompactRev"];

/// Drops everything after `revision` from the database at `path`; it is replaced as a whole.
pub(super) fn cut_back(path: &Path, revision: i64) -> Result<(), RestoreError> {
    let bolt = Bolt::open(path).map_err(RestoreError::bolt)?;
    let beside = path.with_extension("cut");
    let is_kept = |_, key: RowKey| key.revision.main <= revision;
    rewrite(&bolt, &beside, is_kept, |rows| rows)?;
    std::fs::rename(&beside, path).map_err(RestoreError::io("replace", path))?;
    Ok(())
}

/// Writes to `into` what the database has now, without its history.
pub(super) fn drop_history(path: &Path, into: &Path, revision: i64) -> Result<(), RestoreError> {
    let bolt = Bolt::open(path).map_err(RestoreError::bolt)?;
    let keys = bolt.bucket(KEY_BUCKET).map_err(RestoreError::bolt)?;
    let latest = keys.map(|keys| latest_rows(&keys, revision)).transpose()?;
    let is_kept = |number, _: RowKey| latest.as_ref().is_some_and(|latest| latest.contains(number));
    let mark = Bytes::copy_from_slice(&Revision { main: revision, sub: 0 }.encode());
    rewrite(&bolt, into, is_kept, |mut rows| {
        rows.retain(|row| !MARKS.contains(&row.key.as_ref()));
        let marks = MARKS.map(|key| Row { key: Bytes::from_static(key), value: mark.clone() });
        rows.extend(marks);
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    })
}

/// Copies bucket by bucket: the keys' rows by `is_kept`, the bookkeeping through `change`.
fn rewrite(
    bolt: &Bolt,
    into: &Path,
    is_kept: impl Fn(usize, RowKey) -> bool,
    change: impl FnOnce(Vec<Row>) -> Vec<Row>,
) -> Result<(), RestoreError> {
    let mut writer = Writer::new(create(into)?, bolt.meta().page_size);
    let mut change = Some(change);
    for name in bolt.buckets().map_err(RestoreError::bolt)? {
        let Some(bucket) = bolt.bucket(&name).map_err(RestoreError::bolt)? else { continue };
        writer.bucket(&name, bucket.sequence())?;
        let rows = bucket.rows().map_err(RestoreError::bolt)?;
        if name == META_BUCKET
            && let Some(change) = change.take()
        {
            let rows: Result<Vec<Row>, _> = rows.collect();
            for row in change(rows.map_err(RestoreError::bolt)?) {
                writer.put(&row.key, &row.value)?;
            }
            continue;
        }
        for (number, row) in rows.enumerate() {
            let row = row.map_err(RestoreError::bolt)?;
            let key = if name == KEY_BUCKET { RowKey::decode(&row.key) } else { None };
            if key.is_none_or(|key| is_kept(number, key)) {
                writer.put(&row.key, &row.value)?;
            }
        }
    }
    writer.finish()?;
    Ok(())
}

pub(super) fn create(path: &Path) -> Result<File, RestoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(RestoreError::io("create", path))
}

/// A database an etcd never stored anything in.
pub(super) fn empty(path: &Path) -> Result<(), RestoreError> {
    let mut writer = Writer::new(create(path)?, crate::bolt::DEFAULT_PAGE_SIZE);
    for name in [KEY_BUCKET, META_BUCKET] {
        writer.bucket(name, 0)?;
    }
    writer.finish()?;
    Ok(())
}
