//! Locks of a volume in the store: who may use its blocks, who may delete them.
//!
//! Owns: taking a lock with patience, renewing it while work runs, ending that work when it is lost,
//! and giving it back. Times are those of the store, or counted from them by our monotonic clock: the
//! clocks of two machines are never compared. A lock that was not renewed for 150 seconds is nobody's,
//! also when its time is wrong and we only see that nobody renews it.

use std::collections::HashMap;
use std::time::Duration;

use blobs::{Key, Listing, Version, get_limited};
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::control::Control;
use crate::error::{Error, Locked};
use crate::format::layout::{self, VolumeFolder};
use crate::format::{EXPIRY, LOCK_MAX_BYTES, LockKind, LockRecord, Name, SeenLock};
use crate::store::BackupStore;

/// A volume with more is not looked at one by one.
const LOCKS_MAX: usize = 10_000;
const LOOKS_AT_ONCE: usize = 8;
/// Work ends this long before its lock does.
const MARGIN: Duration = Duration::from_secs(20);

/// The times of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockPace {
    /// How long a new lock lies in the store before its writer looks for others.
    pub settle: Duration,
    /// How often a lock that is held is renewed.
    pub renew_every: Duration,
    /// How often a lock that is wanted is tried.
    pub look_every: Duration,
    /// After how long a lock that lay unchanged before our eyes is nobody's, whatever its time.
    pub unchanged: Duration,
}

/// How long most operations wait for a lock: long enough for a short operation of somebody else, and
/// well within the three minutes that callers of servers wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

impl Default for LockPace {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(2),
            renew_every: Duration::from_mins(1),
            look_every: Duration::from_secs(2),
            unchanged: Duration::from_secs(150),
        }
    }
}

/// A lock that is held. Dropped without [`Lease::release`], it lies in the store until it ends.
#[derive(Debug)]
pub(crate) struct Lease {
    store: BackupStore,
    key: Key,
    record: LockRecord,
    state: Mutex<Renewed>,
}

#[derive(Debug, Clone)]
struct Renewed {
    version: Version,
    /// Taken before the store was asked.
    at: Instant,
}

impl BackupStore {
    /// Takes a lock; waits for others as long as `patience`.
    pub(crate) async fn lock(
        &self,
        volume: &Name,
        kind: LockKind,
        patience: Duration,
        control: &Control,
    ) -> Result<Lease, Error> {
        let folder = VolumeFolder::of(volume);
        let name = Name::new_lock();
        let key = folder.lock(&name)?;
        let record = LockRecord { name: name.to_string(), kind, acquired: false };
        let mut wanted = match Wanted::put(self, &folder, key.clone(), record).await {
            Ok(wanted) => wanted,
            Err(error) => {
                self.forget(&key).await;
                return Err(error);
            }
        };
        let taken = tokio::select! {
            taken = wanted.take(patience, control) => taken,
            () = control.cancelled() => Err(Error::Cancelled),
        };
        control.wait_for(None);
        match taken {
            Ok(state) => {
                let Wanted { key, record, .. } = wanted;
                Ok(Lease { store: self.clone(), key, record, state: Mutex::new(state) })
            }
            Err(error) => {
                self.forget(&wanted.key).await;
                Err(error)
            }
        }
    }

    /// Removes a lock of ours. Where that fails, it ends by itself.
    async fn forget(&self, key: &Key) {
        if let Err(error) = self.store.delete(key).await {
            tracing::warn!("{key} is left to its end: {error}");
        }
    }

    /// The locks that lie in the store, with those that cannot be read left out.
    pub(crate) async fn seen_locks(&self, folder: &VolumeFolder) -> Result<Vec<SeenLock>, Error> {
        let level = self.store.list_level(&folder.locks()?).await?;
        let locks = level.objects.into_iter().map(|meta| meta.key);
        let locks: Vec<Key> = locks.filter(|key| layout::lock_of(key).is_some()).collect();
        if locks.len() > LOCKS_MAX {
            let why = format!("it holds {} locks; {LOCKS_MAX} are looked at", locks.len());
            return Err(Error::Unreadable { path: folder.locks()?.to_string(), why });
        }
        stream::iter(locks)
            .map(|key| {
                async move {
                    match get_limited(self.store.as_ref(), &key, LOCK_MAX_BYTES).await {
                        Ok(blob) => Ok(LockRecord::parse(&blob.bytes)
                            .map(|record| SeenLock { record, written: blob.meta.modified })),
                        Err(error) if error.is_not_found() => Ok(None),
                        Err(blobs::Error::TooLong { .. }) => Ok(None),
                        Err(error) => Err(Error::Store(error)),
                    }
                }
                .boxed()
            })
            .buffer_unordered(LOOKS_AT_ONCE)
            .try_filter_map(|seen| async move { Ok(seen) })
            .try_collect()
            .await
    }
}

/// A lock that lies in the store and is not held yet.
struct Wanted<'s> {
    store: &'s BackupStore,
    folder: &'s VolumeFolder,
    key: Key,
    record: LockRecord,
    version: Version,
    /// The store's time of our lock, and ours when we learned it.
    written: Timestamp,
    learned: Instant,
}

impl<'s> Wanted<'s> {
    async fn put(
        store: &'s BackupStore,
        folder: &'s VolumeFolder,
        key: Key,
        record: LockRecord,
    ) -> Result<Self, Error> {
        let bytes = record.to_bytes().map_err(Error::Record)?;
        let version = store.create(&key, bytes.into()).await?;
        let found = store.store.head(&key).await.map_err(|error| Error::found(&key, error))?;
        let learned = Instant::now();
        Ok(Self { store, folder, key, record, version, written: found.modified, learned })
    }

    /// The store's clock, now.
    fn now(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.learned.elapsed()).unwrap_or(SignedDuration::MAX);
        self.written.saturating_add(since).unwrap_or(Timestamp::MAX)
    }

    fn seen(&self) -> SeenLock {
        SeenLock { record: self.record.clone(), written: self.written }
    }

    async fn write(&mut self) -> Result<Instant, Error> {
        let bytes = self.record.to_bytes().map_err(Error::Record)?;
        let before = Instant::now();
        match self.store.swap(&self.key, bytes.into(), &self.version).await {
            Ok(version) => self.version = version,
            Err(blobs::Error::Changed { key }) => {
                return Err(Error::LockLost { path: key.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        let found = self.store.store.head(&self.key).await;
        self.written = found.map_err(|error| Error::found(&self.key, error))?.modified;
        self.learned = Instant::now();
        Ok(before)
    }

    async fn take(&mut self, patience: Duration, control: &Control) -> Result<Renewed, Error> {
        let settle = self.store.pace.settle;
        let is_seen_at_once = match self.store.store.capabilities().listing {
            Listing::AtOnce => true,
            Listing::Later => false,
        };
        if is_seen_at_once
            && !settle.is_zero()
            && let Some(renewed) = self.take_at_once().await?
        {
            return Ok(renewed);
        }
        tokio::time::sleep(settle).await;
        let (begun, mut unchanged) = (Instant::now(), Unchanged::default());
        loop {
            let holder = match self.in_the_way(&mut unchanged).await? {
                Some(holder) => holder,
                None => match self.hold(&mut unchanged).await? {
                    Ok(renewed) => return Ok(renewed),
                    Err(holder) => holder,
                },
            };
            let refusal = self.refusal(&holder, begun.elapsed());
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::Locked(Box::new(refusal)));
            }
            control.wait_for(Some(refusal));
            self.step_back().await?;
            tokio::time::sleep(self.store.pace.look_every.min(left)).await;
            // A lock that is wanted ends like any other. Writing it anew loses our place among
            // those who wait, so not earlier than it must be.
            if self.learned.elapsed() > self.store.pace.renew_every {
                self.write().await?;
            }
        }
    }

    /// Takes the lock without letting it settle, where nobody wants another. Who puts theirs after
    /// we looked the second time finds ours held; who put it before that is seen by us. The time to
    /// settle is for those who look late: one who looked before ours was held, and lets it settle,
    /// has not taken it yet if we were quicker than that.
    async fn take_at_once(&mut self) -> Result<Option<Renewed>, Error> {
        let begun = Instant::now();
        if self.others().await?.iter().any(|lock| lock.excludes(&self.seen(), self.now())) {
            return Ok(None);
        }
        self.record.acquired = true;
        let at = self.write().await?;
        let others = self.others().await?;
        let is_held =
            |lock: &SeenLock| lock.record.acquired && lock.excludes(&self.seen(), self.now());
        if others.iter().any(is_held) || begun.elapsed() >= self.store.pace.settle / 2 {
            self.step_back().await?;
            return Ok(None);
        }
        Ok(Some(Renewed { version: self.version.clone(), at }))
    }

    /// All locks but ours.
    async fn others(&self) -> Result<Vec<SeenLock>, Error> {
        let mut seen = self.store.seen_locks(self.folder).await?;
        seen.retain(|lock| lock.record.name != self.record.name);
        Ok(seen)
    }

    /// Who stands in the way, of those that somebody renews.
    async fn in_the_way(&self, unchanged: &mut Unchanged) -> Result<Option<SeenLock>, Error> {
        let seen = self.store.seen_locks(self.folder).await?;
        let held = unchanged.renewed(seen, self.store.pace.unchanged);
        Ok(first_in_the_way(&held, &self.seen(), self.now()))
    }

    /// Says in the store that the lock is held, and looks once more: on a slow store, another may
    /// have come to the same conclusion at the same time.
    async fn hold(
        &mut self,
        unchanged: &mut Unchanged,
    ) -> Result<Result<Renewed, SeenLock>, Error> {
        self.record.acquired = true;
        let at = self.write().await?;
        // Only one that is held goes before one that is.
        if let Some(holder) = self.in_the_way(unchanged).await? {
            return Ok(Err(holder));
        }
        Ok(Ok(Renewed { version: self.version.clone(), at }))
    }

    /// Another holds it after all: ours is only wanted again.
    async fn step_back(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.record.acquired, false) {
            self.write().await?;
        }
        Ok(())
    }

    fn refusal(&self, holder: &SeenLock, waited: Duration) -> Locked {
        Locked {
            path: self.key.to_string(),
            kind: self.record.kind,
            holder: holder.record.name.clone(),
            holder_kind: holder.record.kind,
            renewed: holder.written,
            until: holder.expires_from(self.now()),
            waited,
        }
    }
}

/// Locks and since when each lies as it does, by our own clock.
#[derive(Debug, Default)]
struct Unchanged(HashMap<String, (Timestamp, Instant)>);

impl Unchanged {
    /// Those of `seen` that changed within `limit`, or that were not watched for so long.
    fn renewed(&mut self, seen: Vec<SeenLock>, limit: Duration) -> Vec<SeenLock> {
        let now = Instant::now();
        let is_renewed = |lock: &SeenLock| {
            let first = self.0.entry(lock.record.name.clone()).or_insert((lock.written, now));
            if first.0 != lock.written {
                *first = (lock.written, now);
            }
            now.duration_since(first.1) <= limit
        };
        seen.into_iter().filter(is_renewed).collect()
    }
}

/// The lock that stands in the way longest.
fn first_in_the_way(seen: &[SeenLock], ours: &SeenLock, now: Timestamp) -> Option<SeenLock> {
    let blocking = seen.iter().filter(|lock| lock.blocks(ours, now));
    blocking.max_by_key(|lock| lock.written).cloned()
}

impl Lease {
    /// Runs work and renews the lock meanwhile. Where it is lost the work is told to stop, and
    /// waited for, so that nothing goes on without a lock.
    ///
    /// `control` is that of the work itself, and of nothing else.
    pub(crate) async fn keep<T>(
        &self,
        control: &Control,
        mut work: BoxFuture<'_, Result<T, Error>>,
    ) -> Result<T, Error> {
        tokio::select! {
            biased;
            done = &mut work => done,
            lost = self.renew_until_lost() => {
                control.cancel();
                // Whatever it says: without the lock it does not count.
                let _ = work.await;
                Err(lost)
            }
        }
    }

    async fn renew_until_lost(&self) -> Error {
        loop {
            tokio::time::sleep(self.store.pace.renew_every).await;
            let ends = self.ends().await;
            let renewed = tokio::time::timeout_at(ends, self.renew_somehow()).await;
            match renewed {
                Ok(Ok(())) => {}
                Ok(Err(lost)) => return lost,
                Err(_) => return self.lost(),
            }
        }
    }

    /// When work must have ended.
    async fn ends(&self) -> Instant {
        let alive = Duration::try_from(EXPIRY).unwrap_or_default().saturating_sub(MARGIN);
        self.state.lock().await.at + alive
    }

    /// Tries until it is renewed, or somebody took it.
    async fn renew_somehow(&self) -> Result<(), Error> {
        loop {
            match self.renew().await {
                Err(error @ Error::LockLost { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!("{} could not be renewed: {error}", self.key);
                    tokio::time::sleep(self.store.pace.look_every).await;
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Renews it now. An error says nothing about whether it is still held, but for
    /// [`Error::LockLost`].
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let bytes = self.record.to_bytes().map_err(Error::Record)?;
        let before = Instant::now();
        match self.store.swap(&self.key, bytes.into(), &state.version).await {
            Ok(version) => {
                *state = Renewed { version, at: before };
                Ok(())
            }
            Err(blobs::Error::Changed { .. }) => Err(self.lost()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether it is still ours, asked of the store; to be called before what must not happen
    /// without it.
    pub(crate) async fn confirm(&self) -> Result<(), Error> {
        if Instant::now() >= self.ends().await {
            return Err(self.lost());
        }
        self.renew().await
    }

    fn lost(&self) -> Error {
        Error::LockLost { path: self.key.to_string() }
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    /// Gives it back. A failure is not one of the work that was done: it ends by itself.
    pub(crate) async fn release(self) {
        self.store.forget(&self.key).await;
    }
}

/// Removes locks of the volume that ended long ago, so that looking does not grow dear.
pub(crate) async fn sweep_ended(
    store: &BackupStore,
    folder: &VolumeFolder,
    lease: &Lease,
) -> Result<(), Error> {
    let ours = store.store.head(lease.key()).await.map_err(|e| Error::found(lease.key(), e))?;
    for lock in store.seen_locks(folder).await? {
        let long_ended = lock.expires().saturating_add(EXPIRY).unwrap_or(Timestamp::MAX);
        if ours.modified > long_ended
            && let Ok(name) = Name::parse(&lock.record.name)
        {
            store.store.delete(&folder.lock(&name)?).await?;
        }
    }
    Ok(())
}
