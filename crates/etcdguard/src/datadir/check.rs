//! Whether an etcd can start from a data directory, and at which revision. Reads only.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::bolt::{self, Bolt, BoltError, Finding};

use super::current::{Current, KEY_BUCKET, META_BUCKET, current};
use super::row::{KeyValue, RowKey};
use super::snap::SnapError;
use super::wal::{WalError, WalSummary};
use super::write::CONSISTENT_INDEX;
use super::{DATABASE, SNAP, WAL, lock, snap, wal};

/// How closely to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Directories, and the database's header and last row.
    Sanity,
    /// Every page and row of the database, the snapshot files, and all of the log.
    Full,
}

/// A directory in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked {
    /// The revision of the database.
    pub revision: i64,
    /// What the log says; only a full check reads it.
    pub log: Option<WalSummary>,
    /// Entries of the log that are not in the database yet; an etcd applies them when it starts.
    /// Only a full check counts them.
    pub unapplied: u64,
    /// What is odd, but would not keep an etcd from starting.
    pub warnings: Vec<String>,
}

/// What is wrong with a directory.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    #[error("there is no data directory {}", .0.display())]
    Missing(PathBuf),
    #[error("there is no directory {}", .0.display())]
    Structure(PathBuf),
    #[error("the database is open in an etcd")]
    Locked,
    #[error("cannot look at {}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the database cannot be read")]
    Database(#[from] BoltError),
    #[error("the database is damaged: {0}; {1} findings in all")]
    Pages(Finding, usize),
    #[error("the database is damaged: {0}")]
    Rows(String),
    #[error("no snapshot file can be read")]
    Snap(#[from] SnapError),
    #[error("the log is damaged")]
    Wal(#[from] WalError),
}

/// What follows from a damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DamageKind {
    Missing,
    Structure,
    Locked,
    /// Nobody knows: the file system did not answer.
    Unknown,
    Corrupt,
}

impl Damage {
    pub const fn kind(&self) -> DamageKind {
        match self {
            Self::Missing(_) => DamageKind::Missing,
            Self::Structure(_) => DamageKind::Structure,
            Self::Locked => DamageKind::Locked,
            Self::Unreadable { .. } => DamageKind::Unknown,
            Self::Database(_) | Self::Pages(..) | Self::Rows(_) => DamageKind::Corrupt,
            Self::Snap(_) | Self::Wal(_) => DamageKind::Corrupt,
        }
    }
}

/// Checks a data directory.
pub fn check(dir: &Path, mode: Mode) -> Result<Checked, Damage> {
    if !is_dir(dir)? {
        return Err(Damage::Missing(dir.to_owned()));
    }
    for part in ["member", SNAP, WAL] {
        let path = dir.join(part);
        if !is_dir(&path)? {
            return Err(Damage::Structure(path));
        }
    }
    let file = File::open(dir.join(DATABASE));
    let file = file.map_err(|source| BoltError::Io { what: "open", source })?;
    let is_free = lock::try_share(&file);
    if !is_free.map_err(|source| Damage::Unreadable { path: dir.join(DATABASE), source })? {
        return Err(Damage::Locked);
    }
    let bolt = Bolt::from_file(file)?;
    match mode {
        Mode::Sanity => {
            let revision = standing(&bolt)?.revision;
            Ok(Checked { revision, log: None, unapplied: 0, warnings: Vec::new() })
        }
        Mode::Full => check_full(dir, &bolt),
    }
}

fn is_dir(path: &Path) -> Result<bool, Damage> {
    match path.metadata() {
        Ok(found) => Ok(found.is_dir()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Damage::Unreadable { path: path.to_owned(), source }),
    }
}

fn standing(bolt: &Bolt) -> Result<Current, Damage> {
    let found = current(bolt)?;
    found.ok_or_else(|| Damage::Rows("its last row is not a revision".to_owned()))
}

fn check_full(dir: &Path, bolt: &Bolt) -> Result<Checked, Damage> {
    let (newest, unreadable) = snap::newest(&dir.join(SNAP))?;
    let mut warnings: Vec<String> = unreadable.iter().map(ToString::to_string).collect();
    let log = wal::verify(&dir.join(WAL), newest)?;
    if log.is_torn {
        warnings.push("the last record of the log was cut off while it was written".to_owned());
    }
    let database = check_database(bolt)?;
    let applied = consistent_index(bolt)?;
    let unapplied = log.last.saturating_sub(applied.unwrap_or(log.last));
    if let Some(index) = applied.filter(|index| *index > log.commit) {
        let commit = log.commit;
        warnings.push(format!("the database is at index {index}, the log commits up to {commit}"));
    }
    let revision = database.current.revision;
    Ok(Checked { revision, log: Some(log), unapplied, warnings })
}

fn consistent_index(bolt: &Bolt) -> Result<Option<u64>, BoltError> {
    let Some(meta) = bolt.bucket(META_BUCKET)? else { return Ok(None) };
    let value = meta.get(CONSISTENT_INDEX)?;
    Ok(value.and_then(|value| value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))))
}

/// A database in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Database {
    pub current: Current,
    /// Rows of the `key` bucket.
    pub rows: u64,
}

/// Checks every page and every row of a database.
pub fn check_database(bolt: &Bolt) -> Result<Database, Damage> {
    let mut rows = 0;
    let mut bad: Option<String> = None;
    let checked = bolt::check_rows(bolt, |bucket, key, value| {
        if bucket == KEY_BUCKET {
            rows += 1;
            if !is_row(key, value) && bad.is_none() {
                bad = Some(format!("row {rows} ({key:02x?}) is not a change of a key"));
            }
        }
    })?;
    if let Some(first) = checked.findings.first() {
        return Err(Damage::Pages(first.clone(), checked.findings.len()));
    }
    match bad {
        Some(bad) => Err(Damage::Rows(bad)),
        None => Ok(Database { current: standing(bolt)?, rows }),
    }
}

/// Whether a row is one, and of the revision it lies at.
fn is_row(key: &Bytes, value: &Bytes) -> bool {
    match (RowKey::decode(key), KeyValue::read(value)) {
        (Some(at), Some(kv)) => at.is_tombstone || kv.mod_revision == at.revision.main,
        (None, _) | (_, None) => false,
    }
}
