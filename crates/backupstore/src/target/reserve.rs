//! A little of the disk that backups leave alone: on one that is full nobody could else write a lock, free
//! anything or get anything back.

use blobs::Key;
use bytes::Bytes;

use super::known::Trust;
use super::places;
use crate::error::Error;
use crate::store::BackupStore;

/// For locks, and the records that a deletion writes anew, by whole blocks of any file system.
const RESERVE_BYTES: usize = 256 << 10;

impl BackupStore {
    /// Lays it by, where that is not done yet. Without it a backup is one all the same.
    pub(crate) async fn lay_by(&self) {
        if !self.is_on_a_disk() {
            return;
        }
        if let Err(error) = self.lay_by_now().await {
            tracing::warn!("nothing is laid by for when the disk is full: {error}");
        }
    }

    async fn lay_by_now(&self) -> Result<(), Error> {
        let (key, store) = (places::reserve()?, self.repository.store());
        match store.head(&key).await {
            Err(error) if error.is_not_found() => {}
            found => return Ok(found.map(drop)?),
        }
        // Whatever a file system makes of zeros, or of what repeats.
        let mut bytes = vec![0; RESERVE_BYTES];
        rand::fill(&mut bytes[..]);
        match store.put_new(&key, Bytes::from(bytes)).await {
            Ok(_) | Err(blobs::Error::Exists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives it up; false where there was none.
    pub(crate) async fn give_up_reserve(&self) -> bool {
        self.is_on_a_disk()
            && match self.give_up_now().await {
                Ok(was_there) => was_there,
                Err(error) => {
                    tracing::warn!("what was laid by cannot be given up: {error}");
                    false
                }
            }
    }

    async fn give_up_now(&self) -> Result<bool, Error> {
        let (key, store): (Key, _) = (places::reserve()?, self.repository.store());
        match store.head(&key).await {
            Err(error) if error.is_not_found() => return Ok(false),
            found => drop(found?),
        }
        store.delete(&key).await?;
        tracing::warn!(target = %self.url, "the disk is full: what was laid by is given up");
        Ok(true)
    }

    fn is_on_a_disk(&self) -> bool {
        match self.trust {
            Trust::Settable => true,
            Trust::Stated | Trust::Probed { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::ops::Range;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use blobs::{
        Blob, Body, Capabilities, Level, Meta, Page, Parts, Prefix, Store, Version, list_all,
    };

    use super::*;
    use crate::control::Control;
    use crate::delete::DeleteOptions;
    use crate::lock::LockKind;
    use crate::name::Name;
    use crate::target::TargetUrl;

    /// Of a limited size.
    #[derive(Debug)]
    struct Disk {
        below: Arc<dyn Store>,
        most: AtomicU64,
    }

    impl Disk {
        async fn used(&self) -> u64 {
            let all = list_all(self.below.as_ref(), &Prefix::ROOT).await.unwrap();
            all.iter().map(|meta| meta.len_bytes).sum()
        }

        async fn fill(&self) {
            self.most.store(self.used().await, Ordering::Relaxed);
        }

        /// A file is written beside the one that it takes the place of.
        async fn check(&self, bytes: &Bytes) -> Result<(), blobs::Error> {
            if self.used().await + bytes.len() as u64 <= self.most.load(Ordering::Relaxed) {
                return Ok(());
            }
            let source = io::ErrorKind::StorageFull.into();
            let (operation, path) = (durable::Operation::Write, PathBuf::from("/full"));
            Err(durable::Error::Io { operation, path, source }.into())
        }
    }

    #[async_trait]
    impl Store for Disk {
        async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, blobs::Error> {
            self.check(&bytes).await?;
            self.below.put_new(key, bytes).await
        }

        async fn put_if_match(
            &self,
            key: &Key,
            bytes: Bytes,
            version: &Version,
        ) -> Result<Version, blobs::Error> {
            self.check(&bytes).await?;
            self.below.put_if_match(key, bytes, version).await
        }

        async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, blobs::Error> {
            self.check(&bytes).await?;
            self.below.put(key, bytes).await
        }

        async fn put_stream(&self, _: &Key, _: Body, _: &Parts) -> Result<Version, blobs::Error> {
            panic!("locks and records are put whole")
        }

        async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, blobs::Error> {
            self.below.get_range(key, range).await
        }

        async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), blobs::Error> {
            self.below.get_stream(key).await
        }

        async fn head(&self, key: &Key) -> Result<Meta, blobs::Error> {
            self.below.head(key).await
        }

        async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, blobs::Error> {
            self.below.list(prefix, after).await
        }

        async fn list_level(&self, prefix: &Prefix) -> Result<Level, blobs::Error> {
            self.below.list_level(prefix).await
        }

        async fn delete(&self, key: &Key) -> Result<(), blobs::Error> {
            self.below.delete(key).await
        }

        fn capabilities(&self) -> Capabilities {
            self.below.capabilities()
        }
    }

    #[tokio::test]
    async fn a_disk_that_is_full_can_be_read_and_freed() {
        let disk = Arc::new(Disk { below: blobs::memory(), most: AtomicU64::new(u64::MAX) });
        let url = TargetUrl::parse("vfs:///store").unwrap();
        let target = BackupStore::new(Arc::clone(&disk) as _, url).trusted(Trust::Settable);
        let (volume, control) = (Name::parse("vol-1").unwrap(), Control::default());
        let folder = target.repository.volume_path(&volume).unwrap();
        let block = Key::parse(&folder.replace("volume.cfg", "blocks/old")).unwrap();
        disk.below.put(&block, vec![1; 1 << 20].into()).await.unwrap();
        let options = DeleteOptions::default();
        // Before anything was laid by there is nothing to go by.
        disk.fill().await;
        let refused = target.delete_volume(&volume, &options, &control).await.unwrap_err();
        assert!(refused.is_of_a_full_disk(), "{refused}");
        disk.most.store(u64::MAX, Ordering::Relaxed);
        target.lay_by().await;
        target.lay_by().await;
        disk.fill().await;
        // Who reads gives back what was laid by; who writes does not get it.
        let timeout = options.lock_timeout;
        let lock = target.lock_also_when_full(&volume, LockKind::Use, timeout, &control).await;
        lock.unwrap().release().await;
        let writer = target.lock(&volume, LockKind::Use, timeout, &control).await;
        assert!(writer.unwrap_err().is_of_a_full_disk());
        target.delete_volume(&volume, &options, &control).await.unwrap();
        assert_eq!(disk.used().await, RESERVE_BYTES as u64);
    }
}
