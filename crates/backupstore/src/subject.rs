//! What shares blocks, and is checked and cleaned as one: the backups of a volume, or all backing
//! images of a target.

use std::fmt;

use crate::error::Error;
use crate::name::Name;
use crate::store::BackupStore;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Volume(Name),
    /// Of the whole target: their blocks are shared by all of them.
    BackingImages,
}

impl Subject {
    /// What one of its records is called, and many.
    pub fn noun(&self) -> (&'static str, &'static str) {
        match self {
            Self::Volume(_) => ("backup", "backups"),
            Self::BackingImages => ("backing image", "backing images"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => volume.fmt(out),
            Self::BackingImages => out.write_str("backing images"),
        }
    }
}

impl BackupStore {
    /// All there are in the target, the volumes by their names.
    pub async fn subjects(&self) -> Result<Vec<Subject>, Error> {
        self.repository.subjects().await
    }
}
