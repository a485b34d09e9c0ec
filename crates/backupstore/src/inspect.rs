//! Lists, and what is known of one volume or backup, in the words that tools read.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use crate::error::Error;
use crate::format::layout::{self, VolumeFolder};
use crate::format::{BackupCfg, BlockSize, Compression, Name, VolumeCfg};
use crate::store::BackupStore;

/// Folders that are listed at a time.
const LISTS_AT_ONCE: usize = 16;

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

/// What a list shows of each volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    VolumesOnly,
    Backups,
}

impl BackupStore {
    /// All volumes, by name. It asks for folders only, and reads no record.
    pub async fn list(&self, shown: Shown) -> Result<BTreeMap<String, VolumeInfo>, Error> {
        let mut folders = vec![layout::volumes()?];
        // Two levels of digits, then the volumes.
        for _ in 0..3 {
            let levels = stream::iter(folders)
                .map(|folder| async move { self.store.list_level(&folder).await }.boxed())
                .buffer_unordered(LISTS_AT_ONCE)
                .map_ok(|level| level.folders);
            let below: Vec<_> = levels.try_concat().await?;
            folders = below.into_iter().map(blobs::Prefix::from).collect();
        }
        let volumes = folders.iter().filter_map(|folder| {
            let name = layout::last_part(folder.folder()?);
            let volume = Name::parse(name).ok();
            let in_place =
                volume.filter(|it| VolumeFolder::of(it).prefix().is_ok_and(|at| at == *folder));
            if in_place.is_none() {
                tracing::warn!("{folder} is not the folder of a volume");
            }
            // What the locks of backing images lie under is no volume.
            in_place.filter(|volume| volume.as_str() != layout::BACKING_IMAGES_LOCK)
        });
        let volumes: Vec<Name> = volumes.collect();
        stream::iter(volumes)
            .map(|volume| {
                async move {
                    let listed = self.list_volume(&volume, shown).await?;
                    Ok((volume.to_string(), listed))
                }
                .boxed()
            })
            .buffer_unordered(LISTS_AT_ONCE)
            .try_collect()
            .await
    }

    /// One volume as in a list, whether it is there or not.
    pub async fn list_volume(&self, volume: &Name, shown: Shown) -> Result<VolumeInfo, Error> {
        let folder = VolumeFolder::of(volume);
        let (level, cfg) = (self.store.list_level(&folder.prefix()?).await?, folder.cfg()?);
        let mut info = VolumeInfo::default();
        if !level.objects.iter().any(|meta| meta.key == cfg) {
            let text = Error::NotFound { path: cfg.to_string() }.to_string();
            info.messages.insert("error".to_owned(), text);
        }
        match shown {
            Shown::VolumesOnly => {}
            Shown::Backups => {
                let names = self.backup_names(volume).await?;
                let blank = |name: Name| (name.to_string(), BackupInfo::default());
                info.backups = names.into_iter().map(blank).collect();
            }
        }
        Ok(info)
    }

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
