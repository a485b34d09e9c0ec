//! What is known of one volume or backup, in the words that tools read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::block::{BlockSize, Compression};
use crate::error::Error;
use crate::name::Name;
use crate::repository::{BackupRecord, VolumeRecord};
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
    /// When the snapshot was taken, where the record says so. Not of the dialect.
    #[serde(skip)]
    pub snapshot_taken: String,
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
        Ok(volume_info(self.repository.required_volume(volume).await?))
    }

    pub async fn inspect_backup(&self, volume: &Name, backup: &Name) -> Result<BackupInfo, Error> {
        let of = self.repository.required_volume(volume).await?;
        let record = self.repository.complete_backup(volume, backup).await?;
        let url = self.url.backup_url(volume, backup);
        Ok(backup_info(record, of, url))
    }

    /// When the record of a backup, or of a volume, was last written.
    pub async fn head(&self, volume: &Name, backup: Option<&Name>) -> Result<Head, Error> {
        Ok(Head { modification_time: self.repository.modified(volume, backup).await? })
    }
}

fn volume_info(record: VolumeRecord) -> VolumeInfo {
    VolumeInfo {
        name: record.name,
        size: record.size_bytes,
        labels: record.labels,
        created: record.created,
        last_backup_name: record.last_backup,
        last_backup_at: record.last_backup_at,
        data_stored: record.block_count.saturating_mul(BlockSize::DEFAULT.bytes()),
        messages: BTreeMap::new(),
        backups: BTreeMap::new(),
        backing_image_name: record.backing_image,
        backing_image_checksum: record.backing_image_checksum,
        storage_class_name: record.storage_class,
        data_engine: record.data_engine,
    }
}

fn backup_info(record: BackupRecord, of: VolumeRecord, url: String) -> BackupInfo {
    BackupInfo {
        name: record.name,
        url,
        snapshot_name: record.snapshot,
        snapshot_created: record.started,
        snapshot_taken: record.taken,
        created: record.completed,
        size: record.size_bytes,
        labels: record.labels,
        parameters: record.parameters,
        is_incremental: record.is_incremental,
        compression_method: Some(record.packing.compression),
        newly_uploaded_data_size: record.new_bytes,
        re_uploaded_data_size: record.again_bytes,
        volume_name: of.name,
        volume_size: of.size_bytes,
        volume_created: of.created,
        volume_backing_image_name: of.backing_image,
        messages: None,
    }
}
