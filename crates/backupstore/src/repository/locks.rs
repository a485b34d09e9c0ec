//! Lock objects of a volume, or of all backing images.

use blobs::{Key, Meta, Version, get_limited};
use bytes::Bytes;
use jiff::Timestamp;

use super::Repository;
use super::v1::layout::{self, VolumeFolder};
use super::v1::{LOCK_MAX_BYTES, lock_bytes, parse_lock};
use crate::error::Error;
use crate::lock::{LockRecord, SeenLock};
use crate::name::Name;

/// What stands in the place of a lock that was ended, until it is removed: no lock, to any reader.
const ENDED: &[u8] = b"ended\n";
/// The same for that of a deletion which may be at work still. It stays until that is over, so that all
/// who come learn of it.
const ENDED_DELETION: &[u8] = b"ended deletion\n";

/// A lock as it was found.
#[derive(Debug, Clone)]
pub(crate) struct FoundLock {
    pub(crate) key: Key,
    pub(crate) version: Version,
    pub(crate) seen: SeenLock,
}

/// What tells of a lock that was ended.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    pub(crate) key: Key,
    /// When it was ended, by the clock of the store.
    pub(crate) written: Timestamp,
    pub(crate) is_of_deletion: bool,
}

/// What lies under the name of a lock.
#[derive(Debug, Clone)]
pub(crate) enum Lying {
    Lock(FoundLock),
    Trace(Trace),
}

/// What becomes of a lock that is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Gone,
    /// Its trace stays.
    Traced,
}

#[derive(Debug, Clone)]
pub(crate) struct Locks {
    repository: Repository,
    folder: VolumeFolder,
}

impl Locks {
    pub(super) fn new(repository: Repository, folder: VolumeFolder) -> Self {
        Self { repository, folder }
    }

    pub(crate) fn key(&self, lock: &Name) -> Result<Key, Error> {
        self.folder.lock(lock)
    }

    /// As errors name it.
    pub(crate) fn path(&self) -> Result<String, Error> {
        Ok(self.folder.locks()?.to_string())
    }

    pub(crate) async fn create(&self, key: &Key, record: &LockRecord) -> Result<Version, Error> {
        let bytes = lock_bytes(record, 0).map_err(Error::Record)?;
        Ok(self.repository.create(key, bytes.into()).await?)
    }

    /// Writes it anew, as the very version that was written last; nothing if somebody else has written it.
    /// No two writes have the same text: where equal texts have equal versions, one that was renewed just
    /// now would else be passed as the one that was seen before.
    pub(crate) async fn renew(
        &self,
        key: &Key,
        record: &LockRecord,
        writes: u64,
        version: &Version,
    ) -> Result<Option<Version>, Error> {
        let bytes = Bytes::from(lock_bytes(record, writes).map_err(Error::Record)?);
        match self.repository.swap(key, bytes.clone(), version).await {
            Ok(version) => return Ok(Some(version)),
            Err(blobs::Error::Changed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // A write of ours whose answer was lost: nobody else writes a lock of that name.
        let ours = match self.read(key.clone()).await? {
            Some(Lying::Lock(lock)) if lock.seen.record.name == record.name => lock,
            Some(Lying::Lock(_) | Lying::Trace(_)) | None => return Ok(None),
        };
        match self.repository.swap(key, bytes, &ours.version).await {
            Ok(version) => Ok(Some(version)),
            Err(blobs::Error::Changed { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// When it was last written, by the clock of the store.
    pub(crate) async fn written(&self, key: &Key) -> Result<Timestamp, blobs::Error> {
        Ok(self.repository.store.head(key).await?.modified)
    }

    pub(crate) async fn list(&self) -> Result<Vec<Meta>, Error> {
        let mut locks = self.repository.store.list_level(&self.folder.locks()?).await?.objects;
        locks.retain(|meta| layout::lock_of(&meta.key).is_some());
        Ok(locks)
    }

    /// Nothing where it is gone, or is none.
    pub(crate) async fn read(&self, key: Key) -> Result<Option<Lying>, Error> {
        match get_limited(self.repository.store.as_ref(), &key, LOCK_MAX_BYTES).await {
            Ok(blob) => {
                let (written, version) = (blob.meta.modified, blob.meta.version);
                let trace = |is_of_deletion| Trace { key: key.clone(), written, is_of_deletion };
                Ok(match blob.bytes.as_ref() {
                    ENDED => Some(Lying::Trace(trace(false))),
                    ENDED_DELETION => Some(Lying::Trace(trace(true))),
                    text => parse_lock(text).zip(layout::lock_of(&key)).map(|(record, name)| {
                        // Whatever it says: two that say the same would be taken for one.
                        let record = LockRecord { name: name.to_string(), ..record };
                        let seen = SeenLock { record, written };
                        Lying::Lock(FoundLock { key: key.clone(), version, seen })
                    }),
                })
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(blobs::Error::TooLong { .. }) => Ok(None),
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// Makes a lock nobody's: first in a way that its holder, who may only sleep, must notice when it
    /// renews it. False if it was renewed just then.
    pub(crate) async fn end(&self, lock: &FoundLock, end: End) -> Result<bool, Error> {
        let text = match end {
            End::Gone => ENDED,
            End::Traced => ENDED_DELETION,
        };
        match self.repository.swap(&lock.key, Bytes::from_static(text), &lock.version).await {
            Ok(_) => {}
            Err(blobs::Error::Changed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        match end {
            End::Gone => self.remove(&lock.key).await?,
            End::Traced => {}
        }
        Ok(true)
    }

    /// Removes what tells of a lock that was ended. Where a store keeps no conditions, a holder may have
    /// written its lock over it.
    pub(crate) async fn remove_trace(&self, key: &Key) -> Result<(), Error> {
        match self.read(key.clone()).await? {
            Some(Lying::Trace(_)) => Ok(self.remove(key).await?),
            Some(Lying::Lock(_)) | None => Ok(()),
        }
    }

    pub(crate) async fn remove(&self, key: &Key) -> Result<(), blobs::Error> {
        self.repository.store.delete(key).await
    }
}
