//! Lists of volumes and backups.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::inspect::{BackupInfo, VolumeInfo};
use crate::error::Error;
use crate::format::Name;
use crate::format::layout::{self, VolumeFolder};
use crate::store::BackupStore;

/// Folders that are listed at a time.
const LISTS_AT_ONCE: usize = 16;

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
                let names = self.backups(volume).await?.into_keys();
                let blank = |name: Name| (name.to_string(), BackupInfo::default());
                info.backups = names.map(blank).collect();
            }
        }
        Ok(info)
    }
}
