//! A store that does not tell upper from lower case, as directories of some servers do not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use blobs::{
    Blob, Body, Capabilities, Error, Key, Level, Meta, Page, Parts, Prefix, Store, Version,
};
use bytes::Bytes;

use crate::world::{Volume, back_up, contents, delete, over};

#[derive(Debug)]
struct Folded {
    below: Arc<dyn Store>,
    /// How each key was written first.
    keys: Mutex<BTreeMap<String, Key>>,
}

impl Folded {
    fn known(&self, key: &Key) -> Key {
        let folded = key.as_str().to_ascii_lowercase();
        self.keys.lock().unwrap().get(&folded).cloned().unwrap_or_else(|| key.clone())
    }

    fn noted(&self, key: &Key) -> Key {
        let folded = key.as_str().to_ascii_lowercase();
        self.keys.lock().unwrap().entry(folded).or_insert_with(|| key.clone()).clone()
    }
}

#[async_trait]
impl Store for Folded {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.below.put_new(&self.noted(key), bytes).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        self.below.put_if_match(&self.known(key), bytes, version).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.below.put(&self.noted(key), bytes).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        self.below.put_stream(&self.noted(key), body, parts).await
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        self.below.get_range(&self.known(key), range).await
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        self.below.get_stream(&self.known(key)).await
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        self.below.head(&self.known(key)).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        self.below.list(prefix, after).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        self.below.list_level(prefix).await
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        let known = self.known(key);
        self.keys.lock().unwrap().remove(&key.as_str().to_ascii_lowercase());
        self.below.delete(&known).await
    }

    fn capabilities(&self) -> Capabilities {
        self.below.capabilities()
    }
}

#[tokio::test]
async fn a_backup_whose_name_differs_in_case_is_another() {
    let store = over(Arc::new(Folded { below: blobs::memory(), keys: Mutex::default() }));
    let mut of = Volume::new(4);
    of.write(0, 1);
    back_up(&store, &of, 0, "backup-a").await.unwrap();
    let text = back_up(&store, &of, 0, "Backup-A").await.unwrap_err().to_string();
    assert!(text.contains("it describes \"backup-a\""), "{text}");
    let deleted = delete(&store, "Backup-A").await.unwrap();
    assert!(!deleted.existed, "{deleted:?}");
    assert_eq!(contents(&store, "backup-a").await.unwrap(), of.snapshots[0].data);
    assert!(delete(&store, "backup-a").await.unwrap().existed);
}
