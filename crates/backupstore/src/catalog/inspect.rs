//! What is known of one volume or backup, in the words that tools read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::format::layout::VolumeFolder;
use crate::format::{BackupCfg, BlockSize, Compression, Name, VolumeCfg};
use crate::store::BackupStore;

type Labels = Option<BTreeMap<String, String>>;

/// A volume. In lists all but its messages and the names of its backups is blank.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct VolumeInfo {
    pub name: String,
    #[serde(serialize_with = "decimal")]
    pub size: u64,
    pub labels: Labels,
    pub created: String,
    pub last_backup_name: String,
    pub last_backup_at: String,
    /// The number of blocks by 2 MiB, whatever their size is.
    #[serde(serialize_with = "decimal")]
    pub data_stored: u64,
    pub messages: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub backups: BTreeMap<String, BackupInfo>,
    pub backing_image_name: String,
    pub backing_image_checksum: String,
    #[serde(rename = "StorageClassname")]
    pub storage_class_name: String,
    pub data_engine: String,
}

/// A backup.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct BackupInfo {
    pub name: String,
    #[serde(rename = "URL")]
    pub url: String,
    pub snapshot_name: String,
    pub snapshot_created: String,
    pub created: String,
    #[serde(serialize_with = "decimal")]
    pub size: u64,
    pub labels: Labels,
    pub parameters: Labels,
    pub is_incremental: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression_method: Option<Compression>,
    #[serde(serialize_with = "decimal")]
    pub newly_uploaded_data_size: u64,
    #[serde(serialize_with = "decimal")]
    pub re_uploaded_data_size: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_name: String,
    #[serde(skip_serializing_if = "is_zero", serialize_with = "decimal")]
    pub volume_size: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_created: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_backing_image_name: String,
    pub messages: Option<BTreeMap<String, String>>,
}

/// When a record was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Head {
    pub modification_time: Timestamp,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn decimal<S: Serializer>(number: &u64, out: S) -> Result<S::Ok, S::Error> {
    out.collect_str(number)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl BackupStore {
    pub async fn inspect_volume(&self, volume: &Name) -> Result<VolumeInfo, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        let (cfg, _) = self.read_volume(volume).await?.required(&key)?;
        Ok(volume_info(cfg))
    }

    pub async fn inspect_backup(&self, volume: &Name, backup: &Name) -> Result<BackupInfo, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        let (of, _) = self.read_volume(volume).await?.required(&key)?;
        let cfg = self.load_backup(volume, backup).await?;
        let url = self.url.backup_url(volume, backup);
        Ok(backup_info(cfg, of, url))
    }

    /// When the record of a backup, or of a volume, was last written.
    pub async fn head(&self, volume: &Name, backup: Option<&Name>) -> Result<Head, Error> {
        let folder = VolumeFolder::of(volume);
        let key = backup.map_or_else(|| folder.cfg(), |backup| folder.backup(backup))?;
        let found = self.store.head(&key).await.map_err(|error| Error::found(&key, error))?;
        Ok(Head { modification_time: found.modified })
    }
}

fn volume_info(cfg: VolumeCfg) -> VolumeInfo {
    VolumeInfo {
        name: cfg.name,
        size: cfg.size,
        labels: cfg.labels,
        created: cfg.created_time,
        last_backup_name: cfg.last_backup_name,
        last_backup_at: cfg.last_backup_at,
        data_stored: cfg.block_count.saturating_mul(BlockSize::DEFAULT.bytes()),
        messages: BTreeMap::new(),
        backups: BTreeMap::new(),
        backing_image_name: cfg.backing_image_name,
        backing_image_checksum: cfg.backing_image_checksum,
        storage_class_name: cfg.storage_class_name,
        data_engine: cfg.data_engine,
    }
}

fn backup_info(cfg: BackupCfg, of: VolumeCfg, url: String) -> BackupInfo {
    BackupInfo {
        name: cfg.name,
        url,
        snapshot_name: cfg.snapshot_name,
        snapshot_created: cfg.snapshot_created_at,
        created: cfg.created_time,
        size: cfg.size,
        labels: cfg.labels,
        parameters: cfg.parameters,
        is_incremental: cfg.is_incremental,
        compression_method: Some(cfg.compression_method),
        newly_uploaded_data_size: cfg.newly_uploaded_data_size,
        re_uploaded_data_size: cfg.re_uploaded_data_size,
        volume_name: of.name,
        volume_size: of.size,
        volume_created: of.created_time,
        volume_backing_image_name: of.backing_image_name,
        messages: None,
    }
}
