//! Lists of volumes and backups.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::inspect::{BackupInfo, VolumeInfo};
use crate::error::Error;
use crate::name::Name;
use crate::repository::Listed;
use crate::store::BackupStore;
use crate::subject::Subject;

/// Volumes that are listed at a time.
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
        let volumes = self.repository.volumes().await?;
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
        let mut info = VolumeInfo::default();
        match self.repository.listed_volume(volume).await? {
            Listed::There => {}
            Listed::Missing { path } => {
                let text = Error::NotFound { path }.to_string();
                info.messages.insert("error".to_owned(), text);
            }
        }
        match shown {
            Shown::VolumesOnly => {}
            Shown::Backups => {
                let of = Subject::Volume(volume.clone());
                let names = self.repository.records(&of).await?.into_keys();
                let blank = |name: Name| (name.to_string(), BackupInfo::default());
                info.backups = names.map(blank).collect();
            }
        }
        Ok(info)
    }
}
