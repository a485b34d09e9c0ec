//! System backups: an archive and its record, stored and given back whole.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use blobs::{Key, get_limited};
use bytes::Bytes;

use super::v1::SystemBackupCfg;
use super::v1::layout;
use crate::error::Error;
use crate::name::{Name, hex};
use crate::store::BackupStore;

const RECORD: &str = "system-backup.cfg";
const ARCHIVE: &str = "system-backup.zip";
/// Archives hold records, not data.
pub const ARCHIVE_MAX_BYTES: u64 = 1 << 30;

/// Which system backup: `<target>/backupstore/system-backups/<version>/<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SystemBackup {
    pub version: Name,
    pub name: Name,
}

impl SystemBackup {
    fn folder(&self) -> Result<Key, Error> {
        layout::system_backup(&self.version, &self.name)
    }
}

impl BackupStore {
    /// Stores an archive; an existing one is never replaced. The record comes last, with the checksum
    /// filled in.
    pub async fn upload_system_backup(
        &self,
        backup: &SystemBackup,
        archive: Bytes,
        mut record: SystemBackupCfg,
    ) -> Result<SystemBackupCfg, Error> {
        let folder = backup.folder()?;
        let key = layout::below(&folder, ARCHIVE)?;
        record.checksum = sha256(&archive);
        record.name = backup.name.to_string();
        record.version = backup.version.to_string();
        match self.repository.create(&key, archive).await {
            Ok(_) => {}
            Err(blobs::Error::Exists { key }) => {
                return Err(Error::Exists { what: key.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        let bytes = record.to_bytes().map_err(Error::Record)?;
        self.repository.store.put(&layout::below(&folder, RECORD)?, bytes.into()).await?;
        Ok(record)
    }

    /// The archive, checked against its record.
    pub async fn download_system_backup(&self, backup: &SystemBackup) -> Result<Bytes, Error> {
        let record = self.system_backup(backup).await?;
        let key = layout::below(&backup.folder()?, ARCHIVE)?;
        let found = get_limited(self.repository.store(), &key, ARCHIVE_MAX_BYTES).await;
        let archive = found.map_err(|error| Error::found(&key, error))?.bytes;
        let found = sha256(&archive);
        if found != record.checksum {
            let (path, expected) = (key.to_string(), record.checksum);
            return Err(Error::Archive { path, found, expected });
        }
        Ok(archive)
    }

    pub async fn system_backup(&self, backup: &SystemBackup) -> Result<SystemBackupCfg, Error> {
        let key = layout::below(&backup.folder()?, RECORD)?;
        let found = self.repository.read_short(&key, SystemBackupCfg::parse).await?;
        Ok(found.required(&key)?.0)
    }

    /// Where each lies, by name.
    pub async fn list_system_backups(&self) -> Result<BTreeMap<String, String>, Error> {
        let mut found = BTreeMap::new();
        for version in self.repository.store.list_level(&layout::system_backups()?).await?.folders {
            for folder in self.repository.store.list_level(&version.into()).await?.folders {
                if let Ok(name) = Name::parse(layout::last_part(&folder)) {
                    found.insert(name.to_string(), folder.to_string());
                }
            }
        }
        Ok(found)
    }

    /// The record first: without it there is no backup.
    pub async fn delete_system_backup(&self, backup: &SystemBackup) -> Result<(), Error> {
        let folder = backup.folder()?;
        for part in [RECORD, ARCHIVE] {
            self.repository.store.delete(&layout::below(&folder, part)?).await?;
        }
        Ok(())
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}
