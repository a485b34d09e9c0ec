//! Locks of a volume in the store: who may use its blocks, who may delete them.
//!
//! Owns: taking a lock, renewing it while work runs, ending that work when it is lost, and giving it
//! back; [`mod@decide`] has the rules, `docs/formats/locking.md` what they assume. Ages are differences of
//! the store's own times where it has a clock, and else of what lay before our eyes: the clocks of two
//! machines are never compared.

mod decide;
mod holder;
mod lease;
mod record;
mod wanted;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use blobs::{Key, Version};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

pub(crate) use self::decide::MARGIN;
pub(crate) use self::holder::SystemProcesses;
pub use self::holder::{Holder, Processes};
pub(crate) use self::lease::Lease;
pub(crate) use self::record::SeenLock;
pub use self::record::{LockKind, LockRecord};
use self::wanted::Wanted;
use crate::control::Control;
use crate::error::Error;
use crate::name::Name;
use crate::repository::{End, FoundLock, Locks, Lying, Trace};
use crate::store::BackupStore;

/// Those of dead processes are taken away long before there are more. All are looked at: the one that is
/// held may be any of them.
const LOCKS_USUAL: usize = 10_000;
const LOOKS_AT_ONCE: usize = 8;

/// The times of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockSchedule {
    /// How long a new lock lies in the store before its writer looks for others.
    pub settle: Duration,
    /// How often a lock that is held is renewed.
    pub renew_every: Duration,
    /// How often a lock that is wanted is tried.
    pub look_every: Duration,
    /// After how long a lock that lay unchanged before our eyes is nobody's, whatever its time.
    pub unchanged: Duration,
    /// How long the lock of a deletion is kept after a removal that was not answered: it is done by then, or
    /// never.
    pub unanswered: Duration,
}

/// How long most operations wait for a lock: long enough for a short operation of somebody else, and
/// well within the three minutes that callers of servers wait.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

impl Default for LockSchedule {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(2),
            renew_every: Duration::from_mins(1),
            look_every: Duration::from_secs(2),
            unchanged: Duration::from_secs(150),
            unanswered: decide::MARGIN,
        }
    }
}

impl BackupStore {
    /// Does `work` under a lock, which is renewed meanwhile and given back. Where it is lost the work is
    /// told to stop. The control that work is given is its own.
    pub(crate) async fn with_lock<T, W>(
        &self,
        volume: &Name,
        kind: LockKind,
        timeout: Duration,
        control: &Control,
        work: impl FnOnce(Arc<Lease>, Control) -> W,
    ) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Error>> + Send,
    {
        let lease = match kind {
            LockKind::Use => self.lock(volume, kind, timeout, control).await?,
            LockKind::Delete => self.lock_also_when_full(volume, kind, timeout, control).await?,
        };
        lease.work(control, work).await
    }

    /// Takes a lock; waits for others as long as `timeout`.
    pub(crate) async fn lock(
        &self,
        volume: &Name,
        kind: LockKind,
        timeout: Duration,
        control: &Control,
    ) -> Result<Lease, Error> {
        self.learn().await?;
        let locks = self.repository.locks(volume);
        let name = Name::new_lock();
        let key = locks.key(&name)?;
        let holder = self.processes.this();
        let record = LockRecord { name: name.to_string(), kind, acquired: false, holder };
        let mut wanted = match Wanted::put(self, locks.clone(), key.clone(), record).await {
            Ok(wanted) => wanted,
            Err(error) => {
                locks.forget(&key).await;
                return Err(error);
            }
        };
        let taken = tokio::select! {
            taken = wanted.take(timeout, control) => taken,
            () = control.cancelled() => Err(Error::Cancelled),
        };
        control.wait_for(None);
        match taken {
            Ok(term) => Ok(Lease::new(self.clone(), wanted, term)),
            Err(error) => {
                locks.forget(&key).await;
                Err(error)
            }
        }
    }

    /// The same for what must be possible on a disk that is full: else nobody could free anything, or get
    /// anything back.
    pub(crate) async fn lock_also_when_full(
        &self,
        volume: &Name,
        kind: LockKind,
        timeout: Duration,
        control: &Control,
    ) -> Result<Lease, Error> {
        match self.lock(volume, kind, timeout, control).await {
            Err(error) if error.is_of_a_full_disk() && self.give_up_reserve().await => {
                Ok(self.lock(volume, kind, timeout, control).await?.laying_by_again())
            }
            done => done,
        }
    }
}

impl Locks {
    /// Removes a lock of ours. Where that fails, it ends by itself.
    async fn forget(&self, key: &Key) {
        if let Err(error) = self.remove(key).await {
            tracing::warn!("{key} is left to its end: {error}");
        }
    }

    /// What lies in the store, with what cannot be read left out.
    async fn found(&self) -> Result<Found, Error> {
        let locks = self.list().await?;
        if locks.len() > LOCKS_USUAL {
            tracing::warn!("{} locks lie there", locks.len());
        }
        let mut lying = stream::iter(locks)
            .map(|meta| self.read(meta.key).boxed())
            .buffer_unordered(LOOKS_AT_ONCE);
        let mut found = Found::default();
        while let Some(one) = lying.try_next().await? {
            match one {
                Some(Lying::Lock(lock)) => found.locks.push(lock),
                Some(Lying::Trace(trace)) => found.traces.push(trace),
                None => {}
            }
        }
        Ok(found)
    }

    /// Takes a lock that has ended away. False if it was renewed just then.
    async fn pass(&self, lock: &FoundLock, end: End) -> Result<bool, Error> {
        let is_ended = self.end(lock, end).await?;
        if is_ended {
            tracing::info!("{} was not renewed since {}: removed", lock.key, lock.seen.written);
        }
        Ok(is_ended)
    }
}

/// All that was found among the locks.
#[derive(Debug, Default)]
struct Found {
    locks: Vec<FoundLock>,
    traces: Vec<Trace>,
}

/// Deletions whose locks were taken away, by us or by others, and that may be at work still.
#[derive(Debug, Clone, Default)]
struct Deletions {
    /// When the last of them is over, by our clock.
    over: Option<Duration>,
    /// What tells of them, and may go when each is over.
    traces: HashMap<Key, Duration>,
}

impl Deletions {
    fn add(&mut self, over: Option<Duration>, trace: Option<Key>) {
        self.over = self.over.max(over);
        self.traces.extend(trace.zip(over));
    }
}

/// Locks and since when each lies as it does, and since when its process is gone, by our own clock.
#[derive(Debug, Default)]
struct Watched {
    lying: HashMap<String, (Written, Duration)>,
    gone: HashMap<String, Duration>,
}

/// Which write it was. Some stores have times of whole seconds, and some peers write the same text.
type Written = (Timestamp, Version);

impl Watched {
    /// How long it has lain unchanged before our eyes, at least: from the end of the look that saw it
    /// first to the beginning of this one.
    fn unchanged(&mut self, lock: &FoundLock, looked: &Range<Duration>) -> Duration {
        let written = (lock.seen.written, lock.version.clone());
        let name = lock.seen.record.name.clone();
        let first = self.lying.entry(name).or_insert_with(|| (written.clone(), looked.end));
        if first.0 != written {
            *first = (written, looked.end);
        }
        looked.start.saturating_sub(first.1)
    }

    /// Since when it lies as it does, as far as was seen.
    fn since(&self, lock: &SeenLock) -> Option<Duration> {
        self.lying.get(&lock.record.name).map(|(_, since)| *since)
    }

    /// Since when its process is known to be gone.
    fn gone_since(
        &mut self,
        lock: &SeenLock,
        processes: &dyn Processes,
        now: Duration,
    ) -> Option<Duration> {
        let is_gone = lock.record.holder.as_ref().is_some_and(|it| processes.is_gone(it));
        if !is_gone {
            self.gone.remove(&lock.record.name);
            return None;
        }
        Some(*self.gone.entry(lock.record.name.clone()).or_insert(now))
    }
}
