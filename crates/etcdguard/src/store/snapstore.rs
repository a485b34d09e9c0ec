//! A store of snapshots: where objects lie under a prefix, and what can be done with them.
//!
//! Never: a look at anything but the two layouts under its own prefix, so that neither a sibling
//! nor another store inside the same container is seen.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use blobs::{Body, Key, Meta, Prefix};
use futures::TryStreamExt;
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use super::compress::unpack;
use super::config::{Environment, Provider, StoreConfig};
use super::error::StoreError;
use super::full::Checked;
use super::name;
use super::provider::Door;
use super::snapshot::{self, Latest, Layout, Snapshot};

const SAVE_PIECE_BYTES: usize = 256 * 1024;

/// Which snapshots a listing shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Those that were not marked to be left out.
    Unmarked,
    /// All of them, as the collector needs.
    All,
}

/// Cheap to clone; all clones share what is open.
#[derive(Debug, Clone)]
pub struct SnapStore {
    door: Arc<Door>,
}

impl SnapStore {
    /// Asks nothing of the store: wrong credentials show at the first call.
    pub fn open(config: &StoreConfig, environment: &Environment) -> Result<Self, StoreError> {
        Ok(Self { door: Arc::new(Door::open(config, environment)?) })
    }

    pub fn provider(&self) -> Provider {
        self.door.provider()
    }

    /// In the order of [`Snapshot::order`]. Names that cannot be read are logged and left out.
    pub async fn list(&self, include: Include) -> Result<Vec<Snapshot>, StoreError> {
        let store = self.door.store("list snapshots")?;
        let mut found = Vec::new();
        for layout in [Layout::V1, Layout::V2] {
            let folder = self.door.folder(layout)?;
            let objects = blobs::list_all(store.as_ref(), &Prefix::from(folder.clone())).await?;
            found.extend(
                objects.iter().filter_map(|object| self.read_name(layout, &folder, object)),
            );
        }
        match include {
            // No store here gives marks away in a listing.
            Include::All | Include::Unmarked => {}
        }
        snapshot::sort(&mut found);
        Ok(found)
    }

    fn read_name(&self, layout: Layout, folder: &Key, object: &Meta) -> Option<Snapshot> {
        let below = object.key.as_str().strip_prefix(folder.as_str())?.strip_prefix('/')?;
        match name::parse(layout, below) {
            Ok(mut snapshot) => {
                snapshot.prefix = self.door.shown_prefix(folder);
                Some(snapshot)
            }
            Err(error) => {
                tracing::warn!("Invalid snapshot {} found, ignoring it: {error}", object.key);
                None
            }
        }
    }

    /// What a restore begins from.
    pub async fn latest(&self) -> Result<Latest, StoreError> {
        Ok(Latest::of(&self.list(Include::Unmarked).await?))
    }

    /// The bytes as they are stored.
    pub async fn fetch(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Pin<Box<dyn AsyncRead + Send>>, StoreError> {
        let store = self.door.store("fetch a snapshot")?;
        let (meta, stream) = blobs::read_stream(store, &self.key(snapshot)?).await?;
        tracing::debug!("fetching {}, {} bytes", meta.key, meta.len_bytes);
        let pieces = stream.map_err(io::Error::other);
        Ok(Box::pin(StreamReader::new(pieces)))
    }

    /// The bytes as they were before they were encrypted: still packed.
    pub async fn open_packed(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Pin<Box<dyn AsyncRead + Send>>, StoreError> {
        let stored = self.fetch(snapshot).await?;
        if snapshot.is_encrypted {
            return Ok(Box::pin(self.door.secret(snapshot)?.decrypt(stored)));
        }
        Ok(stored)
    }

    /// The bytes as they were before they were packed and encrypted.
    pub async fn open_plain(
        &self,
        snapshot: &Snapshot,
    ) -> Result<Pin<Box<dyn AsyncRead + Send>>, StoreError> {
        let packed = self.open_packed(snapshot).await?;
        Ok(Box::pin(unpack(snapshot.compression, packed)))
    }

    /// Reads an object to its end, and checks the checksum at the end of what was packed.
    pub async fn verify(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut plain = Checked::of(snapshot.kind, self.open_plain(snapshot).await?);
        let read = tokio::io::copy(&mut plain, &mut tokio::io::sink()).await;
        let name = snapshot.snap_name.clone();
        read.map(|_| ()).map_err(|source| StoreError::Damaged { name, source })
    }

    /// Writes an object whose bytes are packed already: whole and durable when this returns, and
    /// not at all where `body` fails. Says what it is called, which encryption changes.
    pub async fn save(
        &self,
        snapshot: &Snapshot,
        body: impl AsyncRead + Send + Unpin + 'static,
    ) -> Result<Snapshot, StoreError> {
        let store = self.door.store("save a snapshot")?;
        let mut saved = snapshot.clone();
        let body: Body = match self.door.sealing(&mut saved)? {
            Some(secret) => stream_of(secret.encrypt(body)),
            None => stream_of(body),
        };
        let key = self.key(&saved)?;
        store.put_stream(&key, body, &self.door.parts()).await?;
        Ok(saved)
    }

    /// Removes one object; one that is not there is removed already.
    pub async fn delete(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let store = self.door.store("delete a snapshot")?;
        Ok(store.delete(&self.key(snapshot)?).await?)
    }

    /// Length of the object as stored.
    pub async fn len_bytes(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        let store = self.door.store("look at a snapshot")?;
        Ok(store.head(&self.key(snapshot)?).await?.len_bytes)
    }

    fn key(&self, snapshot: &Snapshot) -> Result<Key, StoreError> {
        let folder = self.door.folder(snapshot.layout)?;
        let key = match snapshot.snap_dir.as_str() {
            "" => format!("{folder}/{}", snapshot.snap_name),
            dir => format!("{folder}/{dir}/{}", snapshot.snap_name),
        };
        Key::parse(&key).map_err(StoreError::Prefix)
    }
}

fn stream_of(body: impl AsyncRead + Send + 'static) -> Body {
    Box::pin(ReaderStream::with_capacity(body, SAVE_PIECE_BYTES))
}
