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

/// A lock as it was found.
#[derive(Debug, Clone)]
pub(crate) struct FoundLock {
    pub(crate) key: Key,
    version: Version,
    pub(crate) seen: SeenLock,
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
        let Some(ours) =
            self.read(key.clone()).await?.filter(|it| it.seen.record.name == record.name)
        else {
            return Ok(None);
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
    pub(crate) async fn read(&self, key: Key) -> Result<Option<FoundLock>, Error> {
        match get_limited(self.repository.store.as_ref(), &key, LOCK_MAX_BYTES).await {
            Ok(blob) => Ok(parse_lock(&blob.bytes).map(|record| FoundLock {
                seen: SeenLock { record, written: blob.meta.modified },
                version: blob.meta.version,
                key,
            })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(blobs::Error::TooLong { .. }) => Ok(None),
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// Makes a lock nobody's: first in a way that its holder, who may only sleep, must notice when it
    /// renews it. False if it was renewed just then.
    pub(crate) async fn end(&self, lock: &FoundLock) -> Result<bool, Error> {
        match self.repository.swap(&lock.key, Bytes::from_static(ENDED), &lock.version).await {
            Ok(_) => {}
            Err(blobs::Error::Changed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.remove(&lock.key).await?;
        Ok(true)
    }

    pub(crate) async fn remove(&self, key: &Key) -> Result<(), blobs::Error> {
        self.repository.store.delete(key).await
    }
}
