//! The handle of one backup store, and the few ways in which its objects are read and written.

use std::sync::Arc;

use blobs::{Key, Store, Version, get_limited};
use bytes::Bytes;

use crate::error::Error;
use crate::format::layout::VolumeFolder;
use crate::format::{BackupCfg, CFG_MAX_BYTES, Name, VolumeCfg, from_bytes, to_bytes};
use crate::lock::LockPace;
use crate::target::TargetUrl;

/// Writers that change one record at the same time before we give up.
const SWAPS_MAX: usize = 32;

/// One backup store. Clones are the same store.
#[derive(Debug, Clone)]
pub struct BackupStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: TargetUrl,
    pub(crate) pace: LockPace,
}

/// What was found under a name.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Readable(T, Version),
    Unreadable { why: String },
    Missing,
}

impl<T> Found<T> {
    /// The value, or why there is none.
    pub(crate) fn required(self, key: &Key) -> Result<(T, Version), Error> {
        match self {
            Self::Readable(value, version) => Ok((value, version)),
            Self::Unreadable { why } => Err(Error::Unreadable { path: key.to_string(), why }),
            Self::Missing => Err(Error::NotFound { path: key.to_string() }),
        }
    }
}

impl BackupStore {
    /// A store that is open already; `url` is what backup URLs are made of.
    pub fn new(store: Arc<dyn Store>, url: TargetUrl) -> Self {
        Self { store, url, pace: LockPace::default() }
    }

    /// With other times for locks, for tests: peers keep to the usual ones.
    #[must_use]
    pub fn with_pace(mut self, pace: LockPace) -> Self {
        self.pace = pace;
        self
    }

    pub fn url(&self) -> &TargetUrl {
        &self.url
    }

    /// Asks the store for its first level: fails where it cannot be reached or refuses us.
    pub async fn check(&self) -> Result<(), Error> {
        self.store.list_level(&blobs::Prefix::ROOT).await?;
        Ok(())
    }

    pub(crate) async fn read<T>(
        &self,
        key: &Key,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Found<T>, Error> {
        let blob = match get_limited(self.store.as_ref(), key, CFG_MAX_BYTES).await {
            Ok(blob) => blob,
            Err(error) if error.is_not_found() => return Ok(Found::Missing),
            Err(blobs::Error::TooLong { len_bytes, max_bytes, .. }) => {
                let why = format!("it has {len_bytes} bytes; {max_bytes} are allowed");
                return Ok(Found::Unreadable { why });
            }
            Err(error) => return Err(error.into()),
        };
        let version = blob.meta.version;
        Ok(match parse(&blob.bytes) {
            Ok(value) => Found::Readable(value, version),
            Err(why) => Found::Unreadable { why },
        })
    }

    pub(crate) async fn read_volume(&self, volume: &Name) -> Result<Found<VolumeCfg>, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        self.read(&key, |bytes| from_bytes(bytes).map_err(|error| error.to_string())).await
    }

    pub(crate) async fn read_backup(
        &self,
        volume: &Name,
        backup: &Name,
    ) -> Result<Found<BackupCfg>, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        self.read(&key, |bytes| {
            let cfg = BackupCfg::parse(bytes)?;
            // A record of another name or volume would be restored, or counted, as what it is not.
            if cfg.name == backup.as_str() && cfg.volume_name == volume.as_str() {
                Ok(cfg)
            } else {
                Err(format!("it describes {:?} of {:?}", cfg.name, cfg.volume_name))
            }
        })
        .await
    }

    /// A backup that is complete.
    pub(crate) async fn load_backup(
        &self,
        volume: &Name,
        backup: &Name,
    ) -> Result<BackupCfg, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        let (cfg, _) = self.read_backup(volume, backup).await?.required(&key)?;
        if cfg.is_in_progress() {
            return Err(Error::InProgress { backup: backup.to_string() });
        }
        Ok(cfg)
    }

    /// Creates an object, as atomically as the store can.
    pub(crate) async fn create(&self, key: &Key, bytes: Bytes) -> Result<Version, blobs::Error> {
        if self.store.capabilities().conditional_put {
            match self.store.put_new(key, bytes.clone()).await {
                Err(blobs::Error::Unsupported { .. }) => {}
                done => return done,
            }
        }
        match self.store.head(key).await {
            Ok(_) => Err(blobs::Error::Exists { key: key.clone() }),
            Err(error) if error.is_not_found() => self.store.put(key, bytes).await,
            Err(error) => Err(error),
        }
    }

    /// Replaces that version, as atomically as the store can.
    pub(crate) async fn swap(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, blobs::Error> {
        if self.store.capabilities().conditional_put {
            match self.store.put_if_match(key, bytes.clone(), version).await {
                Err(blobs::Error::Unsupported { .. }) => {}
                done => return done,
            }
        }
        match self.store.head(key).await {
            Ok(found) if found.version == *version => self.store.put(key, bytes).await,
            Ok(_) => Err(blobs::Error::Changed { key: key.clone() }),
            Err(error) if error.is_not_found() => Err(blobs::Error::Changed { key: key.clone() }),
            Err(error) => Err(error),
        }
    }

    /// Changes the record of a volume, which must be there; again, where another was faster.
    pub(crate) async fn change_volume(
        &self,
        volume: &Name,
        change: impl Fn(&mut VolumeCfg),
    ) -> Result<(), Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        for _ in 0..SWAPS_MAX {
            let (old, version) = match self.read_volume(volume).await? {
                Found::Missing => return Err(Error::VolumeNotFound { path: key.to_string() }),
                found => found.required(&key)?,
            };
            let mut new = old.clone();
            change(&mut new);
            if new == old {
                return Ok(());
            }
            let bytes = to_bytes(&new).map_err(Error::Record)?;
            match self.swap(&key, bytes.into(), &version).await {
                Ok(_) => return Ok(()),
                Err(blobs::Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended { path: key.to_string() })
    }
}
