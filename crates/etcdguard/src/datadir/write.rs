//! Makes a data directory from a database: the member joins a cluster that begins with it.
//!
//! What is left is what `etcdutl snapshot restore` leaves, and all an etcd 3.5 needs.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::bolt::{self, Bolt, Editor, Row};

use super::current::META_BUCKET;
use super::identity::{Cluster, Identity, IdentityError};
use super::{SNAP, WAL, snap, wal};

/// The term a new cluster begins with.
const TERM: u64 = 1;
const MEMBERS_BUCKET: &[u8] = b"members";
const REMOVED_BUCKET: &[u8] = b"members_removed";
pub(super) const CONSISTENT_INDEX: &[u8] = b"consistent_index";
const TERM_KEY: &[u8] = b"term";

#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write {}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot describe the members")]
    Members(#[source] serde_json::Error),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error(transparent)]
    Database(#[from] bolt::WriteError),
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> WriteError {
    move |source| WriteError::Io { path: path.to_owned(), source }
}

/// Makes the directories, for their owner alone.
pub fn make_dirs(dir: &Path) -> Result<(), WriteError> {
    for part in [SNAP, WAL] {
        let path = dir.join(part);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(failed(&path))?;
    }
    Ok(())
}

/// Gives the database the members of a new cluster, whatever it had before. Not yet committed.
pub fn rejoin(bolt: &Bolt, editor: &mut Editor, identity: &Identity) -> Result<(), WriteError> {
    let cluster = identity.cluster()?;
    editor.replace_bucket(MEMBERS_BUCKET, &member_rows(&cluster)?)?;
    editor.replace_bucket(REMOVED_BUCKET, &[])?;
    editor.replace_bucket(META_BUCKET, &meta_rows(bolt, &cluster)?)?;
    Ok(())
}

fn member_rows(cluster: &Cluster) -> Result<Vec<Row>, WriteError> {
    let mut rows = Vec::new();
    for member in &cluster.members {
        let value = serde_json::to_vec(member).map_err(WriteError::Members)?;
        rows.push(Row { key: format!("{:016x}", member.id).into(), value: value.into() });
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

/// The bookkeeping as it was, at the beginning of the new log.
fn meta_rows(bolt: &Bolt, cluster: &Cluster) -> Result<Vec<Row>, WriteError> {
    let index = u64::try_from(cluster.members.len()).unwrap_or(u64::MAX);
    let mut rows = Vec::new();
    if let Some(meta) = bolt.bucket(META_BUCKET).map_err(bolt::WriteError::from)? {
        for row in meta.rows().map_err(bolt::WriteError::from)? {
            rows.push(row.map_err(bolt::WriteError::from)?);
        }
    }
    rows.retain(|row| row.key != CONSISTENT_INDEX && row.key != TERM_KEY);
    for (key, value) in [(CONSISTENT_INDEX, index), (TERM_KEY, TERM)] {
        let value = Bytes::copy_from_slice(&value.to_be_bytes());
        rows.push(Row { key: Bytes::from_static(key), value });
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(rows)
}

/// Writes log and snapshot file of the new cluster, durably.
pub fn write_log(dir: &Path, identity: &Identity) -> Result<(), WriteError> {
    let cluster = identity.cluster()?;
    let path = dir.join(WAL).join(wal::FIRST);
    let file = create(&path)?;
    wal::initial(&file, &cluster, TERM).and_then(|()| file.sync_all()).map_err(failed(&path))?;
    let (name, bytes) = snap::initial(&cluster, TERM);
    let path = dir.join(SNAP).join(name);
    let mut file = create(&path)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed(&path))?;
    for part in [SNAP, WAL, "member", ""] {
        sync_dir(&dir.join(part))?;
    }
    Ok(())
}

fn create(path: &Path) -> Result<File, WriteError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(failed(path))
}

/// Makes the entries of a directory durable.
pub fn sync_dir(path: &Path) -> Result<(), WriteError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(failed(path))
}
