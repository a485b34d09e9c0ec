//! What a restored data directory says of itself: that it is an earlier state on purpose, and begins
//! a history of its own. Without it nobody could tell such a directory from one that lost its end.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Beside the log and the database, where etcd looks at nothing but these.
const NAME: &str = "member/history.json";
const MAX_BYTES: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    version: u32,
    /// Of the history that begins here.
    pub id: String,
    pub restored_at: Timestamp,
    pub revision: i64,
    /// For people.
    pub reason: String,
}

impl Origin {
    pub fn new(id: String, restored_at: Timestamp, revision: i64, reason: String) -> Self {
        Self { version: 1, id, restored_at, revision, reason }
    }

    pub fn write(&self, data_dir: &Path) -> Result<(), durable::Error> {
        let path = path(data_dir);
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        durable::replace_private(&path, &bytes)
    }

    /// None where the directory says nothing, or there is none.
    pub fn read(data_dir: &Path) -> Result<Option<Self>, durable::Error> {
        match durable::read_limited(path(data_dir), MAX_BYTES) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(NAME)
}
