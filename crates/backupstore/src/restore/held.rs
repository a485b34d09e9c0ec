//! What a backup holds, whatever it is called: its name may have been given again.

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::name::hex;
use crate::repository::BackupRecord;

/// As long as a name of a block: nobody finds two lists that share one.
const CONTENT_BYTES: usize = 32;

/// Kept by who restored a backup, and compared with what the store has under its name later.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Held {
    /// Names all blocks and their places: the data is the same where this is.
    pub content: String,
    /// As the record has it: when the backup was started, and when it was complete.
    pub started: String,
    pub completed: String,
}

impl Held {
    pub(crate) fn of(record: &BackupRecord) -> Self {
        let mut hash = digest::Context::new(&digest::SHA512);
        hash.update(&record.packing.size.bytes().to_le_bytes());
        for block in &record.blocks {
            hash.update(&block.offset.to_le_bytes());
            hash.update(block.checksum.bytes());
        }
        let sum = hash.finish();
        let content = hex(sum.as_ref().get(..CONTENT_BYTES).unwrap_or_default());
        let (started, completed) = (record.started.clone(), record.completed.clone());
        Self { content, started, completed }
    }

    /// Whether the data of both is the same, whoever made them and when.
    pub fn is_same(&self, other: &Self) -> bool {
        !self.content.is_empty() && self.content == other.content
    }
}
