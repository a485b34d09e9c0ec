//! What a store can do, found out by trying.

use blobs::{Key, Listing, Prefix, Store, Version};
use bytes::Bytes;

use super::places;
use crate::error::Error;
use crate::store::Abilities;

impl Abilities {
    /// Tries what locks and records build upon with objects of its own, and removes them. What a store
    /// says it cannot do is not tried.
    pub async fn probe(store: &dyn Store) -> Result<Self, Error> {
        let stated = Self::stated_by(store);
        let key = places::probe(rand::random())?;
        let found = Probe { store, key: &key }.run(stated).await;
        // Whatever came of it: nothing is left behind.
        let removed = store.delete(&key).await;
        let found = found?;
        removed?;
        Ok(found)
    }
}

struct Probe<'s> {
    store: &'s dyn Store,
    key: &'s Key,
}

impl Probe<'_> {
    async fn run(&self, stated: Abilities) -> Result<Abilities, Error> {
        let conditional_put = stated.conditional_put && self.keeps_conditions().await?;
        self.store.put(self.key, Bytes::from_static(b"probe")).await?;
        let listing = match stated.listing {
            Listing::AtOnce if self.is_listed().await? => Listing::AtOnce,
            Listing::AtOnce | Listing::Later => Listing::Later,
        };
        Ok(Abilities { conditional_put, listing, ..stated })
    }

    /// Whether an object is created once, and replaced only as the version that is given.
    async fn keeps_conditions(&self) -> Result<bool, Error> {
        let first = match self.store.put_new(self.key, Bytes::from_static(b"first")).await {
            Ok(version) => version,
            Err(blobs::Error::Unsupported { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        match self.store.put_new(self.key, Bytes::from_static(b"again")).await {
            Err(blobs::Error::Exists { .. }) => {}
            Ok(_) | Err(blobs::Error::Unsupported { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let second = self.store.put_if_match(self.key, Bytes::from_static(b"second"), &first).await;
        let second = match second {
            Ok(second) => second,
            Err(blobs::Error::Changed { .. } | blobs::Error::Unsupported { .. }) => {
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if !self.is_refused("third", &first).await? {
            return Ok(false);
        }
        // Some look at conditions only where there is an object: a record that was removed would come back.
        self.store.delete(self.key).await?;
        self.is_refused("fourth", &second).await
    }

    async fn is_refused(&self, text: &'static str, version: &Version) -> Result<bool, Error> {
        match self.store.put_if_match(self.key, text.into(), version).await {
            Err(blobs::Error::Changed { .. }) => Ok(true),
            Ok(_) | Err(blobs::Error::Unsupported { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether what was just written is listed, and what was just removed is not.
    async fn is_listed(&self) -> Result<bool, Error> {
        let folder: Prefix = places::probes()?;
        let listed = self.store.list_level(&folder).await?;
        let is_there = listed.objects.iter().any(|meta| meta.key == *self.key);
        self.store.delete(self.key).await?;
        let listed = self.store.list_level(&folder).await?;
        Ok(is_there && listed.objects.iter().all(|meta| meta.key != *self.key))
    }
}
