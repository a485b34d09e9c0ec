//! The handle of one backup store, and the few ways in which its objects are read and written.

use std::sync::Arc;

use blobs::{Key, Listing, Store, Times, Version, get_limited};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::OnceCell;

use crate::clock::{BootClock, Clock};
use crate::error::Error;
use crate::format::layout::VolumeFolder;
use crate::format::{BackupCfg, CFG_MAX_BYTES, Name, VolumeCfg, from_bytes, to_bytes};
use crate::lock::LockSchedule;
use crate::target::{TargetUrl, Trust};

/// Writers that change one record at the same time before we give up.
const SWAPS_MAX: usize = 32;

/// One backup store. Clones are the same store.
#[derive(Debug, Clone)]
pub struct BackupStore {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) url: TargetUrl,
    pub(crate) schedule: LockSchedule,
    /// How it is known what the store can do, and what that is.
    pub(crate) trust: Trust,
    pub(crate) learned: Arc<OnceCell<Abilities>>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What the protocol of locks and records builds upon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Writes can be made conditional on what they replace.
    pub conditional_put: bool,
    pub listing: Listing,
    pub times: Times,
}

impl Abilities {
    /// What the store says of itself.
    pub fn stated_by(store: &dyn Store) -> Self {
        let stated = store.capabilities();
        let (conditional_put, listing) = (stated.conditional_put, stated.listing);
        Self { conditional_put, listing, times: stated.times }
    }

    /// Whether nothing has to be made up for by waiting.
    pub(crate) fn is_strong(self) -> bool {
        self.conditional_put && self.listing == Listing::AtOnce && self.times == Times::OfStore
    }
}

/// The very write that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) version: Version,
    pub(crate) modified: Timestamp,
}

/// What was found under a name.
#[derive(Debug)]
pub(crate) enum Found<T> {
    Readable(T, Stored),
    Unreadable { why: String },
    Missing,
}

impl<T> Found<T> {
    /// The value, or why there is none.
    pub(crate) fn required(self, key: &Key) -> Result<(T, Stored), Error> {
        match self {
            Self::Readable(value, stored) => Ok((value, stored)),
            Self::Unreadable { why } => Err(Error::Unreadable { path: key.to_string(), why }),
            Self::Missing => Err(Error::NotFound { path: key.to_string() }),
        }
    }
}

impl BackupStore {
    /// A store that is open already; `url` is what backup URLs are made of.
    pub fn new(store: Arc<dyn Store>, url: TargetUrl) -> Self {
        let (schedule, clock) = (LockSchedule::default(), Arc::new(BootClock));
        Self { store, url, schedule, trust: Trust::Stated, learned: Arc::default(), clock }
    }

    /// With other times for locks, for tests: peers keep to the usual ones.
    #[must_use]
    pub fn with_schedule(mut self, schedule: LockSchedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// With what the store was found to be able to, whatever it says.
    #[must_use]
    pub fn with_abilities(mut self, abilities: Abilities) -> Self {
        self.learned = Arc::new(OnceCell::new_with(Some(abilities)));
        self
    }

    /// That has to be tried, or may be set by hand.
    #[must_use]
    pub(crate) fn trusted(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// What was learned, or what the store says until then.
    pub(crate) fn abilities(&self) -> Abilities {
        let stated = || Abilities::stated_by(self.store.as_ref());
        self.learned.get().copied().unwrap_or_else(stated)
    }

    /// With another clock for leases, for tests.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
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
        max_bytes: u64,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<Found<T>, Error> {
        let blob = match get_limited(self.store.as_ref(), key, max_bytes).await {
            Ok(blob) => blob,
            Err(error) if error.is_not_found() => return Ok(Found::Missing),
            Err(blobs::Error::TooLong { len_bytes, max_bytes, .. })
                if max_bytes >= CFG_MAX_BYTES =>
            {
                let why = format!("it has {len_bytes} bytes; {max_bytes} are allowed");
                return Ok(Found::Unreadable { why });
            }
            Err(error) => return Err(error.into()),
        };
        let stored = Stored { version: blob.meta.version, modified: blob.meta.modified };
        Ok(match parse(&blob.bytes) {
            Ok(value) => Found::Readable(value, stored),
            Err(why) => Found::Unreadable { why },
        })
    }

    pub(crate) async fn read_volume(&self, volume: &Name) -> Result<Found<VolumeCfg>, Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        let parse = |bytes: &[u8]| from_bytes(bytes).map_err(|error| error.to_string());
        self.read(&key, CFG_MAX_BYTES, parse).await
    }

    pub(crate) async fn read_backup(
        &self,
        volume: &Name,
        backup: &Name,
        max_bytes: u64,
    ) -> Result<Found<BackupCfg>, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        self.read(&key, max_bytes, |bytes| {
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
        let (cfg, _) = self.read_backup(volume, backup, CFG_MAX_BYTES).await?.required(&key)?;
        if cfg.is_in_progress() {
            return Err(Error::InProgress { backup: backup.to_string() });
        }
        Ok(cfg)
    }

    /// Creates an object, as atomically as the store can.
    pub(crate) async fn create(&self, key: &Key, bytes: Bytes) -> Result<Version, blobs::Error> {
        if self.abilities().conditional_put {
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
        if self.abilities().conditional_put {
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
            let (old, stored) = match self.read_volume(volume).await? {
                Found::Missing => return Err(Error::VolumeNotFound { path: key.to_string() }),
                found => found.required(&key)?,
            };
            let mut new = old.clone();
            change(&mut new);
            if new == old {
                return Ok(());
            }
            let bytes = to_bytes(&new).map_err(Error::Record)?;
            match self.swap(&key, bytes.into(), &stored.version).await {
                Ok(_) => return Ok(()),
                Err(blobs::Error::Changed { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Error::Contended { path: key.to_string() })
    }
}
