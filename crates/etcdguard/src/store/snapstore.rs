//! A store of snapshots: where objects lie under a prefix, and what can be done with them.
//!
//! Never: a look at anything but the two layouts under its own prefix, so that neither a sibling
//! nor another store inside the same container is seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blobs::holds::Held;
use blobs::{Body, Key, Prefix, Store};
use futures::TryStreamExt;
use jiff::Timestamp;
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use super::compress::unpack;
use super::config::{Environment, Provider, StoreConfig};
use super::error::StoreError;
use super::full::Checked;
use super::history::{self, Histories, History};
use super::name;
use super::provider::Door;
use super::snapshot::{self, Latest, Layout, Snapshot};

/// The tag, or the metadata, that says `true` of a snapshot that is to be left out.
const EXCLUDE: &str = "x-etcd-snapshot-exclude";
const SAVE_PIECE_BYTES: usize = 256 * 1024;
/// A start does not wait for longer to hear whether the store is to be had.
const ACCESS_TIMEOUT: Duration = Duration::from_secs(5);
/// Names of full snapshots that are remembered.
const KNOWN_MAX: usize = 4096;

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
    known: Arc<Known>,
}

/// What was learnt of the store and does not change.
#[derive(Debug, Default)]
struct Known {
    /// Beginnings of histories, by the keys of their objects.
    histories: Mutex<BTreeMap<Key, History>>,
    /// Names of full snapshots, and whether they are what they say.
    full: Mutex<BTreeMap<String, bool>>,
}

impl SnapStore {
    /// Asks nothing of the store: wrong credentials show at the first call.
    pub fn open(config: &StoreConfig, environment: &Environment) -> Result<Self, StoreError> {
        let door = Arc::new(Door::open(config, environment)?);
        Ok(Self { door, known: Arc::default() })
    }

    pub fn provider(&self) -> Provider {
        self.door.provider()
    }

    /// Fails where the store will never serve whoever has these settings and credentials. A store
    /// that does not answer, or not yet, may do so later.
    pub async fn check_access(&self) -> Result<(), StoreError> {
        let asked = tokio::time::timeout(ACCESS_TIMEOUT, self.histories()).await;
        match asked {
            Ok(Err(error)) if error.is_lasting() => Err(error),
            Ok(Err(error)) => {
                tracing::warn!("the store cannot be used yet: {}", error.chain());
                Ok(())
            }
            Ok(Ok(_)) => Ok(()),
            Err(_) => {
                tracing::warn!("the store did not answer within {ACCESS_TIMEOUT:?}");
                Ok(())
            }
        }
    }

    /// In the order of [`Snapshot::order`]. Names that cannot be read are logged and left out.
    pub async fn list(&self, include: Include) -> Result<Vec<Snapshot>, StoreError> {
        let holds = self.door.holds("list snapshots")?;
        let mut found = Vec::new();
        for layout in [Layout::V1, Layout::V2] {
            let folder = self.door.folder(layout)?;
            let objects = holds.list(&Prefix::from(folder.clone()), EXCLUDE).await?;
            let shown = objects.iter().filter(|object| match include {
                Include::All => true,
                Include::Unmarked => !object.is_excluded,
            });
            found.extend(shown.filter_map(|object| self.read_name(layout, &folder, object)));
        }
        let histories = self.histories().await?;
        for snapshot in &mut found {
            snapshot.history = histories.number_of(snapshot);
            snapshot.since = histories.of_snapshot(snapshot).map(|history| history.since);
        }
        snapshot::sort(&mut found);
        Ok(found)
    }

    /// The histories of the store. Each is read once: they do not change. Where the object is damaged
    /// its name still tells two etcds apart.
    pub async fn histories(&self) -> Result<Histories, StoreError> {
        let store = self.door.store("list histories")?;
        let folder = self.door.beside(history::FOLDER)?;
        let mut all = Vec::new();
        for object in blobs::list_all(store.as_ref(), &Prefix::from(folder)).await? {
            let known = locked(&self.known.histories).get(&object.key).cloned();
            if let Some(known) = known {
                all.push(known);
                continue;
            }
            let name = object.key.as_str().rsplit('/').next().unwrap_or_default();
            let Some(named) = History::named(name) else {
                tracing::debug!("{} is not the beginning of a history, ignoring it", object.key);
                continue;
            };
            let Some(history) = read_history(store.as_ref(), &object.key, named).await? else {
                continue;
            };
            locked(&self.known.histories).insert(object.key, history.clone());
            all.push(history);
        }
        Ok(Histories::of(all))
    }

    /// The ids of histories whose beginning was written down before `time`, by the store's clock.
    pub async fn histories_before(&self, time: Timestamp) -> Result<BTreeSet<String>, StoreError> {
        let store = self.door.store("list histories")?;
        let folder = self.door.beside(history::FOLDER)?;
        let objects = blobs::list_all(store.as_ref(), &Prefix::from(folder)).await?;
        let old = objects.iter().filter(|object| object.modified < time);
        let names = old.filter_map(|object| object.key.as_str().rsplit('/').next());
        Ok(names.filter_map(History::named).map(|history| history.id).collect())
    }

    /// Writes down that a history begins: what is saved from now on is of it.
    pub async fn begin_history(&self, history: &History) -> Result<(), StoreError> {
        let store = self.door.store("begin a history")?;
        let text = serde_json::to_vec(history).map_err(io::Error::from);
        let text = text.map_err(|source| StoreError::History { id: history.id.clone(), source })?;
        store.put(&self.history_key(history)?, text.into()).await?;
        Ok(())
    }

    /// Forgets the beginning of a history that holds nothing.
    pub async fn forget_history(&self, history: &History) -> Result<(), StoreError> {
        let store = self.door.store("forget a history")?;
        Ok(store.delete(&self.history_key(history)?).await?)
    }

    fn history_key(&self, history: &History) -> Result<Key, StoreError> {
        let folder = self.door.beside(history::FOLDER)?;
        Key::parse(&format!("{folder}/{}", history.name())).map_err(StoreError::Prefix)
    }

    /// Whether a full snapshot is known to be what its name says, or not to be.
    pub fn is_good(&self, snapshot: &Snapshot) -> Option<bool> {
        locked(&self.known.full).get(&snapshot.snap_name).copied()
    }

    /// A full snapshot was read whole, or checked on its way here.
    pub fn found(&self, snapshot: &Snapshot, is_good: bool) {
        let mut known = locked(&self.known.full);
        // Names rise with time: the newest are those that are asked for.
        while known.len() >= KNOWN_MAX {
            known.pop_first();
        }
        known.insert(snapshot.snap_name.clone(), is_good);
    }

    fn read_name(&self, layout: Layout, folder: &Key, object: &Held) -> Option<Snapshot> {
        let below = object.meta.key.as_str().strip_prefix(folder.as_str())?.strip_prefix('/')?;
        match name::parse(layout, below) {
            Ok(mut snapshot) => {
                snapshot.prefix = self.door.shown_prefix(folder);
                snapshot.immutable_until = object.locked_until;
                snapshot.version_id.clone_from(&object.version);
                snapshot.stored_at = Some(object.meta.modified);
                Some(snapshot)
            }
            Err(error) => {
                tracing::warn!("Invalid snapshot {} found, ignoring it: {error}", object.meta.key);
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
        let store = self.reading(snapshot)?;
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
        let key = self.key(snapshot)?;
        match &snapshot.version_id {
            Some(version) => self.door.holds("delete a snapshot")?.delete(&key, version).await?,
            None => self.door.store("delete a snapshot")?.delete(&key).await?,
        }
        Ok(())
    }

    /// The store as it shows the version that was listed.
    fn reading(&self, snapshot: &Snapshot) -> Result<Arc<dyn Store>, StoreError> {
        let what = "fetch a snapshot";
        let version = snapshot.version_id.as_deref();
        let pinned = match version {
            Some(version) => self.door.holds(what)?.reading(version),
            None => None,
        };
        pinned.map_or_else(|| self.door.store(what), Ok)
    }

    /// Gives up uploads that began before `time` and were never finished: whoever made them was killed.
    /// They show in no listing, and are paid for. Says how many.
    pub async fn sweep_uploads(&self, time: Timestamp) -> Result<u64, StoreError> {
        let holds = self.door.holds("list unfinished uploads")?;
        let mut swept = 0;
        for layout in [Layout::V1, Layout::V2] {
            let folder = self.door.folder(layout)?;
            swept += holds.sweep_uploads(&Prefix::from(folder), time).await?;
        }
        Ok(swept)
    }

    /// Length of the object as stored.
    pub async fn len_bytes(&self, snapshot: &Snapshot) -> Result<u64, StoreError> {
        let store = self.reading(snapshot)?;
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

/// None where it is gone.
async fn read_history(
    store: &dyn Store,
    key: &Key,
    named: History,
) -> Result<Option<History>, StoreError> {
    let told = match blobs::get_limited(store, key, history::MAX_BYTES).await {
        Ok(read) => named.told(&read.bytes),
        Err(error) if error.is_not_found() => return Ok(None),
        Err(blobs::Error::TooLong { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Some(told.unwrap_or_else(|| {
        tracing::error!("{key} is damaged: what began there is told by its name alone");
        named
    })))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stream_of(body: impl AsyncRead + Send + 'static) -> Body {
    Box::pin(ReaderStream::with_capacity(body, SAVE_PIECE_BYTES))
}
