//! A store whose listing shows nothing, once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use backupstore::Control;
use backupstore::delete::DeleteOptions;
use blobs::{
    Blob, Body, Capabilities, Error, Key, Level, Meta, Page, Parts, Prefix, Store, Version,
};
use bytes::Bytes;

use crate::world::{Volume, back_up, keys, over, volume};

#[derive(Debug)]
struct Forgetful {
    below: Arc<dyn Store>,
    forgets: AtomicBool,
}

#[async_trait]
impl Store for Forgetful {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.below.put_new(key, bytes).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        self.below.put_if_match(key, bytes, version).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.below.put(key, bytes).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.below.put_stream(key, body, parts).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        self.below.get_range(key, range).await
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        self.below.get_stream(key).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        self.below.head(key).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        self.below.list(prefix, after).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        if self.forgets.swap(false, Ordering::Relaxed) {
            return Ok(Level::default());
        }
        self.below.list_level(prefix).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        self.below.delete(key).await
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }
}

#[tokio::test]
async fn a_volume_that_one_listing_does_not_show_is_deleted_all_the_same() {
    let clean = blobs::memory();
    let forgetful = Forgetful { below: Arc::clone(&clean), forgets: AtomicBool::new(false) };
    let forgetful = Arc::new(forgetful);
    let store = over(Arc::clone(&forgetful) as Arc<dyn Store>);
    let mut of = Volume::new(4);
    of.write(0, 1);
    back_up(&store, &of, 0, "backup-1").await.unwrap();
    let (options, control) = (DeleteOptions::default(), Control::default());
    forgetful.forgets.store(true, Ordering::Relaxed);
    store.delete_volume(&volume(), &options, &control).await.unwrap();
    assert_eq!(keys(&clean, "").await, []);
}
