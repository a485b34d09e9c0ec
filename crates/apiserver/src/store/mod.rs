//! The object store of the embedded API server: JSON objects by key, one revision counter, one
//! `SQLite` file, one writer with group commit; reads and watches are answered from memory.
//!
//! Owns: what is durable, the order of changes, conflicts, snapshots, the history behind watches.
//! Never: knows HTTP, schemas or who may do what; shows a change before it is durable; repairs or
//! recreates a file it does not trust.
//!
//! Start reading at [`Store`]; then `desk` (whose thread writes), `writer` (how a write happens),
//! `state` (what is in memory), `disk` and `open` (what is in the file), `watch`.

mod desk;
mod disk;
mod error;
mod health;
mod mark;
mod object;
mod open;
mod quota;
mod reserve;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::borrow::Borrow;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, mpsc, oneshot};

pub use error::{OpenError, StorageError, TooOld, WriteError};
pub use health::Condition;
pub use object::{Event, EventKind, FOREGROUND, Key, Meta, Stored};
pub use quota::{Exceeded, Quota};
pub use state::{Budget, Page, Size, Snapshot};
pub use stats::{Figures, Stats};
pub use watch::Watcher;

use desk::{Desk, Tried};
use health::Health;
use object::Draft;
use state::{Range, State};
use writer::{Message, Request, Writer};

/// Writes that may wait for the writer.
const QUEUE_WRITES: usize = 1024;
/// The bytes they may hold together, counted in units of 1 KiB.
const QUEUE_KIB: usize = 32 << 10;

/// What an object that is being deleted may be larger than others: the mark of its deletion, and what
/// is said about it, must always fit, or it could never go.
const DELETION_BYTES: usize = 64 << 10;

/// How a store behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// History kept for watches and older snapshots, over all resources.
    pub history: Budget,
    /// History kept for [`Store::watch_all`].
    pub feed: Budget,
    /// The largest object, encoded. One that is being deleted may be a little larger, and a deletion
    /// itself has no limit.
    pub max_object_bytes: usize,
    /// How much may be stored.
    pub quota: Quota,
    /// The largest file, in pages of 4 KiB; unlimited when unset.
    pub max_pages: Option<u32>,
    #[cfg(test)]
    pub(crate) faults: disk::faults::Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Budget { events: 20_000, bytes: 8 << 20 },
            feed: Budget { events: 4_096, bytes: 2 << 20 },
            max_object_bytes: 3 << 20,
            quota: Quota::default(),
            max_pages: None,
            #[cfg(test)]
            faults: disk::faults::Faults::default(),
        }
    }
}

/// What must be true of an object for a write to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Absent,
    Revision(u64),
}

/// Another object that must still be there, unchanged, when the write is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Require {
    pub key: Key,
    pub revision: u64,
}

/// What a write does. The store sets `metadata.resourceVersion`.
#[derive(Clone)]
pub enum Change {
    Put(Value),
    /// The last state, as watchers will see it.
    Delete(Value),
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The object may be a secret.
        f.write_str(match self {
            Self::Put(_) => "Put",
            Self::Delete(_) => "Delete",
        })
    }
}

/// One change of one object, and what it depends on.
#[derive(Clone, Debug)]
pub struct Write {
    pub key: Key,
    pub expected: Expected,
    pub require: Vec<Require>,
    pub change: Change,
}

/// What readers, watchers and the writer share.
struct Shared {
    state: RwLock<State>,
    /// The newest revision in `state`.
    revision: tokio::sync::watch::Sender<u64>,
    stats: Stats,
    follower: OnceLock<Follower>,
    health: Health,
}

/// What must keep step with the changes.
type Follower = Box<dyn Fn(&Event) + Send + Sync>;

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.read();
        f.debug_struct("Shared")
            .field("revision", &state.revision())
            .field("objects", &state.total())
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle to an open store; clones share it. The last one to go closes the file.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
    max_object_bytes: usize,
}

#[derive(Debug)]
struct Handle {
    queue: Mutex<Option<mpsc::Sender<Message>>>,
    room: Arc<Semaphore>,
    desk: Arc<Desk>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

/// Who waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The writer's thread.
    Queue,
    /// This one, where nothing else is being written.
    Here,
}

impl Store {
    /// Opens the file, or makes it where there is none. Blocks while it verifies and reads.
    ///
    /// # Errors
    ///
    /// When the file is not wholly what was last committed to it, or not ours, or in use.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (disk, loaded) = open::open(path, options)?;
        let mut state = State::new(loaded.counter, options.history, options.feed);
        for object in loaded.objects {
            state.load(object);
        }
        let objects = state.total();
        let shared = Arc::new(Shared {
            state: RwLock::new(state),
            revision: tokio::sync::watch::Sender::new(loaded.counter),
            stats: Stats::default(),
            follower: OnceLock::new(),
            health: Health::new(),
        });
        shared.stats.holds(objects, 0, 0);
        let (queue, receiver) = mpsc::channel(QUEUE_WRITES);
        let start =
            writer::Start { totals: loaded.totals, durable: loaded.revision, last: loaded.counter };
        let writer = Writer::new(Arc::clone(&shared), disk, start, options.quota.clone());
        let place = Desk::new(writer);
        let at = Arc::clone(&place);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || at.run(receiver))
            .map_err(|source| OpenError::Thread { path: path.to_owned(), source })?;
        let handle = Handle {
            queue: Mutex::new(Some(queue)),
            room: Arc::new(Semaphore::new(QUEUE_KIB)),
            desk: place,
            writer: Mutex::new(Some(thread)),
        };
        let max_object_bytes = options.max_object_bytes;
        Ok(Self { shared, handle: Arc::new(handle), max_object_bytes })
    }

    /// Makes a change durable and visible. Returns the object as it is now; of a deletion the last
    /// state, carrying the deletion's revision.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped the write happens once or not at all; which, only a read tells.
    pub async fn write(&self, write: impl Borrow<Write>) -> Result<Arc<Stored>, WriteError> {
        self.write_at(Place::Queue, write).await
    }

    /// [`Self::write`] by a task that does nothing else meanwhile: when no other write is under way,
    /// this thread waits for the disk, and the runtime goes on with another.
    ///
    /// # Cancel safety
    ///
    /// As that of [`Self::write`].
    pub async fn write_here(&self, write: impl Borrow<Write>) -> Result<Arc<Stored>, WriteError> {
        self.write_at(Place::Here, write).await
    }

    async fn write_at(
        &self,
        place: Place,
        write: impl Borrow<Write>,
    ) -> Result<Arc<Stored>, WriteError> {
        let (kind, draft) = self.encode(&write.borrow().change)?;
        let Write { key, expected, require, .. } = write.borrow();
        let (key, expected, require) = (key.clone(), *expected, require.clone());
        // An object that was given away is not kept while its write waits.
        drop(write);
        let turn = self.handle.desk.begin();
        let queue = self.handle.queue().ok_or(WriteError::Stopped)?;
        let kib = draft.size_bytes().div_ceil(1024).clamp(1, QUEUE_KIB);
        let kib = u32::try_from(kib).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.handle.room).acquire_many_owned(kib).await;
        let room = room.map_err(|_closed| WriteError::Stopped)?;
        let (reply, answer) = oneshot::channel();
        let request = Box::new(Request { key, expected, require, kind, draft, reply, room });
        let tried = match place {
            Place::Here => self.handle.desk.do_here(request, &turn),
            Place::Queue => Tried::Busy(request),
        };
        match tried {
            Tried::Done { is_untidy: false } => {}
            // A full queue is reason enough for the writer's thread to look.
            Tried::Done { is_untidy: true } => drop(queue.try_send(Message::Look)),
            Tried::Busy(request) => {
                let sent = queue.send(Message::Write(request)).await;
                sent.map_err(|_closed| WriteError::Stopped)?;
            }
        }
        // Held on, a sender would keep the writer of a dropped store alive.
        drop(queue);
        answer.await.unwrap_or(Err(WriteError::Stopped))
    }

    fn encode(&self, change: &Change) -> Result<(EventKind, Draft), WriteError> {
        let (kind, object, limit_bytes) = match change {
            Change::Put(object) => {
                let more = if is_marked(object) { DELETION_BYTES } else { 0 };
                (EventKind::Put, object, self.max_object_bytes.saturating_add(more))
            }
            Change::Delete(object) => (EventKind::Delete, object, usize::MAX),
        };
        Ok((kind, Draft::encode(object, limit_bytes)?))
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.shared.read().get(resource, namespace, name).cloned()
    }

    /// [`Self::get`] as a list of one or none, with the revision at which that was so.
    pub fn list_one(&self, resource: &str, namespace: &str, name: &str) -> Snapshot {
        let state = self.shared.read();
        let items = state.get(resource, namespace, name).cloned().into_iter().collect();
        Snapshot { revision: state.revision(), items }
    }

    /// All objects of a resource, or those of a namespace, by namespace and name.
    pub fn list(&self, resource: &str, namespace: Option<&str>) -> Snapshot {
        self.shared.read().list(resource, namespace)
    }

    /// The first `limit` objects behind the one named by `after` (namespace, name).
    pub fn list_page(
        &self,
        resource: &str,
        namespace: Option<&str>,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Page {
        self.shared.read().page(resource, Range { namespace, after, limit })
    }

    /// All objects as they were at `revision`. A revision that is yet to come gives the newest
    /// state under its own revision: look at [`Self::revision`] first where that matters.
    pub fn list_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Result<Snapshot, TooOld> {
        let page = self.list_page_at(resource, namespace, revision, None, usize::MAX)?;
        Ok(Snapshot { revision: page.revision, items: page.items })
    }

    /// A page of [`Self::list_at`]. Costs what it returns, the history since `revision`, and a
    /// count of what follows.
    pub fn list_page_at(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
        after: Option<(&str, &str)>,
        limit: usize,
    ) -> Result<Page, TooOld> {
        self.shared.read().page_at(resource, Range { namespace, after, limit }, revision)
    }

    /// The newest revision that can be read.
    pub fn revision(&self) -> u64 {
        self.shared.read().revision()
    }

    /// Waits until the counter has reached `revision`; false when it has not within `timeout`.
    pub async fn wait_for(&self, revision: u64, timeout: Duration) -> bool {
        let mut newest = self.shared.revision.subscribe();
        let reached = newest.wait_for(|newest| *newest >= revision);
        matches!(tokio::time::timeout(timeout, reached).await, Ok(Ok(_)))
    }

    pub fn by_uid(&self, uid: &str) -> Option<Arc<Stored>> {
        self.shared.read().by_uid(uid).cloned()
    }

    /// The objects that name `owner_uid` in their `ownerReferences`.
    pub fn dependents(&self, owner_uid: &str) -> Vec<Arc<Stored>> {
        self.shared.read().dependents(owner_uid)
    }

    /// The resources of which there are objects.
    pub fn resources(&self) -> Vec<Arc<str>> {
        self.shared.read().resources()
    }

    /// The revision of the last change of a resource that a reader can see; that of the opening
    /// if there was none since.
    pub fn changed_at(&self, resource: &str) -> u64 {
        self.shared.read().changed_at(resource)
    }

    /// How much there is of everything.
    pub fn total(&self) -> Size {
        self.shared.read().all()
    }

    /// How much there is of a resource.
    pub fn size(&self, resource: &str) -> Size {
        self.shared.read().size(resource)
    }

    pub fn count(&self, resource: &str) -> usize {
        self.shared.read().count(resource)
    }

    /// Follows the changes of a resource after revision `from`, which may lie in the future. The
    /// resource must be one that exists: each name asked for is remembered.
    ///
    /// # Errors
    ///
    /// When changes after `from` may have been forgotten.
    pub fn watch(
        &self,
        resource: &str,
        namespace: Option<&str>,
        from: u64,
    ) -> Result<Watcher, TooOld> {
        Watcher::of_resource(Arc::clone(&self.shared), resource, namespace, from)
    }

    /// Follows the changes of all resources; for those inside that keep up.
    pub fn watch_all(&self, from: u64) -> Result<Watcher, TooOld> {
        Watcher::of_all(Arc::clone(&self.shared), from)
    }

    /// Has the writer tell of every change, in order, after it is durable and before anyone can see
    /// it. It must be quick and must not ask the store; the first who asks to be told is.
    pub fn follow(&self, follower: impl Fn(&Event) + Send + Sync + 'static) {
        if self.shared.follower.set(Box::new(follower)).is_err() {
            tracing::error!("the object store is followed already");
        }
    }

    pub fn stats(&self) -> &Stats {
        &self.shared.stats
    }

    /// How the writer is.
    pub fn condition(&self) -> Condition {
        self.shared.health.condition()
    }

    /// Has a writer that lost its file try to open it again. Does not wait.
    pub fn recover(&self) {
        if let Some(queue) = self.handle.queue() {
            // A full queue is reason enough for the writer to try.
            let _ = queue.try_send(Message::Look);
        }
    }

    /// Finishes the writes under way, refuses new ones, and leaves one complete file. Reads go on.
    pub async fn close(&self) {
        let Some(queue) = self.handle.queue() else { return };
        let (closed, done) = oneshot::channel();
        if queue.send(Message::Close(closed)).await.is_ok() {
            // An error says that the writer has ended, which is what we wait for.
            let _ = done.await;
        }
    }
}

/// Is the object being deleted?
fn is_marked(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

impl Handle {
    fn queue(&self) -> Option<mpsc::Sender<Message>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // With the last sender gone the writer drains its queue, closes the file and ends.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_panic)) = writer.map(JoinHandle::join) {
            tracing::error!("the writer of the object store panicked");
        }
    }
}
