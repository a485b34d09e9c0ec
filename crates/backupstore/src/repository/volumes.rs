//! Volumes of a store: which there are, what their records say, and what goes with one.

use blobs::{Key, Permit, Prefix};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::v1::layout::{self, VolumeFolder};
use super::v1::{VolumeCfg, from_bytes, to_bytes};
use super::{Found, Repository, VolumeRecord};
use crate::block::Compression;
use crate::error::Error;
use crate::name::Name;

/// Folders that are listed at a time.
const LISTS_AT_ONCE: usize = 16;
/// Writers that change one record at the same time before we give up.
const SWAPS_MAX: usize = 32;

/// Whether a listing shows the record of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listed {
    There,
    /// As errors name it.
    Missing {
        path: String,
    },
}

/// What a volume leaves behind, in the order in which it goes: records before blocks, and its own
/// record last, so that it is listed until then and can be deleted again.
#[derive(Debug, Clone)]
pub(crate) struct Removal {
    pub(crate) records: Prefix,
    /// Everything of the volume; what is spared comes later, or ends by itself.
    pub(crate) all: Prefix,
    pub(crate) spared: [Prefix; 2],
    last: Key,
}

#[expect(clippy::unused_self, reason = "another format may need to look where it is")]
impl Repository {
    /// All of them, by name. It asks for folders only, and reads no record.
    pub(crate) async fn volumes(&self) -> Result<Vec<Name>, Error> {
        let mut folders = vec![layout::volumes()?];
        // Two levels of digits, then the volumes.
        for _ in 0..3 {
            let levels = stream::iter(folders)
                .map(|folder| async move { self.store.list_level(&folder).await }.boxed())
                .buffer_unordered(LISTS_AT_ONCE)
                .map_ok(|level| level.folders);
            let below: Vec<_> = levels.try_concat().await?;
            folders = below.into_iter().map(Prefix::from).collect();
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
        let mut volumes: Vec<Name> = volumes.collect();
        volumes.sort_unstable();
        Ok(volumes)
    }

    pub(crate) async fn listed_volume(&self, volume: &Name) -> Result<Listed, Error> {
        let folder = VolumeFolder::of(volume);
        let (level, key) = (self.store.list_level(&folder.prefix()?).await?, folder.cfg()?);
        Ok(if level.objects.iter().any(|meta| meta.key == key) {
            Listed::There
        } else {
            Listed::Missing { path: key.to_string() }
        })
    }

    /// Whether nothing of it is there. A listing alone does not say so: some are late, or leave things out.
    pub(crate) async fn is_volume_gone(&self, volume: &Name) -> Result<bool, Error> {
        let level = self.store.list_level(&VolumeFolder::of(volume).prefix()?).await?;
        if !(level.folders.is_empty() && level.objects.is_empty()) {
            return Ok(false);
        }
        match self.modified(volume, None).await {
            Ok(_) => Ok(false),
            Err(Error::NotFound { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// As errors name it.
    pub(crate) fn volume_path(&self, volume: &Name) -> Result<String, Error> {
        Ok(VolumeFolder::of(volume).cfg()?.to_string())
    }

    pub(crate) async fn volume(&self, volume: &Name) -> Result<Found<VolumeRecord>, Error> {
        Ok(self.volume_cfg(volume).await?.map(VolumeCfg::into_record))
    }

    /// One that must be there.
    pub(crate) async fn required_volume(&self, volume: &Name) -> Result<VolumeRecord, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        Ok(self.volume(volume).await?.required(&key)?.0)
    }

    async fn volume_cfg(&self, volume: &Name) -> Result<Found<VolumeCfg>, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        let parse = |bytes: &[u8]| from_bytes(bytes).map_err(|error| error.to_string());
        self.read_short(&key, parse).await
    }

    /// Its record; a new one where there is none.
    pub(crate) async fn volume_or_new(
        &self,
        volume: &Name,
        size_bytes: u64,
        compression: Compression,
    ) -> Result<VolumeRecord, Error> {
        if let Found::Missing = self.volume_cfg(volume).await? {
            let cfg = VolumeCfg::new(volume, size_bytes, compression);
            let bytes = to_bytes(&cfg).map_err(Error::Record)?;
            match self.create(&VolumeFolder::of(volume).cfg()?, bytes.into()).await {
                // Another writer of the same volume was faster; its choice of packing counts.
                Ok(_) | Err(blobs::Error::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.required_volume(volume).await
    }

    /// Changes the record of a volume, which must be there, and not after a permit has ended; again, where
    /// another was faster.
    pub(crate) async fn change_volume(
        &self,
        volume: &Name,
        permit: Option<&Permit>,
        change: impl Fn(&mut VolumeRecord),
    ) -> Result<(), Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        for _ in 0..SWAPS_MAX {
            let (old, stored) = match self.volume_cfg(volume).await? {
                Found::Missing => return Err(Error::VolumeNotFound { path: key.to_string() }),
                found => found.required(&key)?,
            };
            let mut record = old.clone().into_record();
            change(&mut record);
            let mut new = old.clone();
            new.change_to(record);
            if new == old {
                return Ok(());
            }
            let bytes = to_bytes(&new).map_err(Error::Record)?;
            permit.map_or(Ok(()), Permit::check)?;
            match self.swap(&key, bytes.into(), &stored.version).await {
                Ok(_) => return Ok(()),
                Err(blobs::Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended { path: key.to_string() })
    }

    /// When the record of a backup, or of a volume, was last written.
    pub(crate) async fn modified(
        &self,
        volume: &Name,
        backup: Option<&Name>,
    ) -> Result<Timestamp, Error> {
        let folder = VolumeFolder::of(volume);
        let key = backup.map_or_else(|| folder.cfg(), |backup| folder.backup(backup))?;
        let found = self.store.head(&key).await.map_err(|error| Error::found(&key, error))?;
        Ok(found.modified)
    }

    pub(crate) fn removal_of(&self, volume: &Name) -> Result<Removal, Error> {
        let folder = VolumeFolder::of(volume);
        let last = folder.cfg()?;
        Ok(Removal {
            records: folder.backups()?,
            all: folder.prefix()?,
            spared: [folder.locks()?, Prefix::from(last.clone())],
            last,
        })
    }

    /// Removes the volume's own record.
    pub(crate) async fn remove_last(
        &self,
        removal: &Removal,
        permit: &Permit,
    ) -> Result<(), Error> {
        Ok(self.store.delete_within(&removal.last, permit).await?)
    }

    /// One by one, for those that are replaced by their versions.
    pub(crate) async fn remove_records(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        for key in keys {
            self.store.delete_within(key, permit).await?;
        }
        Ok(())
    }

    /// For blocks, and what else is never replaced by its version.
    pub(crate) async fn remove_objects(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        Ok(self.store.delete_many(keys, permit).await?)
    }
}
