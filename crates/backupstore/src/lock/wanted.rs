//! A lock that lies in the store and is not held yet.

use std::ops::Range;
use std::time::Duration;

use blobs::{Key, Listing, Version};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};

use super::decide::{Standing, Term, is_long_gone, over_at, seems_ended, standing};
use super::record::{LockKind, LockRecord, SeenLock};
use super::{Deletions, Found, Watched};
use crate::control::{Control, Wait};
use crate::error::{Error, Locked};
use crate::repository::{End, FoundLock, Locks, Trace};
use crate::store::BackupStore;

/// Locks of the dead that are made nobody's before a look is worth nothing any more.
const LOOKS_MAX: usize = 16;

/// Locks of the dead that are taken away together, and of those beside ours in one look: the next takes
/// more.
const PASSED_AT_ONCE: usize = 64;
const CALLS_AT_ONCE: usize = 8;

pub(super) struct Wanted {
    store: BackupStore,
    pub(super) locks: Locks,
    pub(super) key: Key,
    pub(super) record: LockRecord,
    pub(super) version: Version,
    pub(super) writes: u64,
    /// When it was last written.
    term: Term,
    watched: Watched,
    pub(super) deletions: Deletions,
    /// Whether anything of others lay there at any look.
    pub(super) met_others: bool,
    /// Whether it took locks away under which records may have been written.
    pub(super) has_passed_users: bool,
}

/// Who is there beside us.
#[derive(Debug, Default)]
struct Look {
    /// The one that goes first, and whether it is watched until its end is sure.
    first: Option<(SeenLock, bool)>,
    /// Whether somebody else wants, or holds, what excludes ours.
    is_disputed: bool,
}

impl Wanted {
    pub(super) async fn put(
        store: &BackupStore,
        locks: Locks,
        key: Key,
        record: LockRecord,
    ) -> Result<Self, Error> {
        let asked = store.clock.now();
        let version = locks.create(&key, &record).await?;
        let stamped = locks.written(&key).await.map_err(|error| Error::found(&key, error))?;
        let term = Term { asked, answered: store.clock.now(), stamped };
        let (store, watched) = (store.clone(), Watched::default());
        let (writes, deletions) = (0, Deletions::default());
        let (met_others, has_passed_users) = (false, false);
        Ok(Self {
            store,
            locks,
            key,
            record,
            version,
            writes,
            term,
            watched,
            deletions,
            met_others,
            has_passed_users,
        })
    }

    fn seen(&self) -> SeenLock {
        SeenLock { record: self.record.clone(), written: self.term.stamped }
    }

    async fn write(&mut self) -> Result<(), Error> {
        let asked = self.store.clock.now();
        self.writes += 1;
        match self.locks.renew(&self.key, &self.record, self.writes, &self.version).await? {
            Some(version) => self.version = version,
            None => return Err(Error::LockLost { path: self.key.to_string() }),
        }
        let written = self.locks.written(&self.key).await;
        let stamped = written.map_err(|error| Error::found(&self.key, error))?;
        self.term = Term { asked, answered: self.store.clock.now(), stamped };
        Ok(())
    }

    pub(super) async fn take(
        &mut self,
        timeout: Duration,
        control: &Control,
    ) -> Result<Term, Error> {
        let schedule = self.store.schedule;
        let is_seen_at_once = match self.store.abilities().listing {
            Listing::AtOnce => true,
            Listing::Later => false,
        };
        if is_seen_at_once && !schedule.settle.is_zero() && self.take_at_once().await? {
            return Ok(self.term);
        }
        self.store.clock.sleep(schedule.settle).await;
        let begun = self.store.clock.now();
        loop {
            let mut first = self.look().await?.first;
            if first.is_none() {
                self.mark(true).await?;
                // On a slow store, another may have come to the same conclusion at the same time. Only
                // one that is held goes before one that is.
                first = self.look().await?.first;
            }
            let Some((holder, is_watched)) = first else { return Ok(self.term) };
            let waited = self.store.clock.now().saturating_sub(begun);
            let locked = self.locked(&holder, waited);
            // What seems dead is watched to the end: nobody would else ever get past it.
            let longest = if is_watched { timeout.max(schedule.unchanged * 2) } else { timeout };
            let left = longest.saturating_sub(waited);
            if left.is_zero() {
                return Err(Error::Locked(Box::new(locked)));
            }
            control.wait_for(Some(Wait::Lock(locked)));
            self.mark(false).await?;
            self.store.clock.sleep(schedule.look_every.min(left)).await;
            self.stay_alive().await?;
        }
    }

    /// A lock that is wanted ends like any other. Writing it anew loses our place among those who wait,
    /// so not earlier than it must be.
    async fn stay_alive(&mut self) -> Result<(), Error> {
        let age = self.store.clock.now().saturating_sub(self.term.asked);
        if age > self.store.schedule.renew_every { self.write().await } else { Ok(()) }
    }

    /// Takes the lock without letting it settle, where nobody wants another. Who puts theirs after
    /// we looked the second time finds ours held; who put it before that is seen by us. The time to
    /// settle is for those who look late: one who looked before ours was held, and lets it settle,
    /// has not taken it yet if we were quicker than that.
    async fn take_at_once(&mut self) -> Result<bool, Error> {
        let begun = self.store.clock.now();
        if self.look().await?.is_disputed {
            return Ok(false);
        }
        self.mark(true).await?;
        let is_held = self.look().await?.first.is_some();
        let took = self.store.clock.now().saturating_sub(begun);
        if is_held || took >= self.store.schedule.settle / 2 {
            self.mark(false).await?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Says in the store whether the lock is held, or only wanted.
    async fn mark(&mut self, acquired: bool) -> Result<(), Error> {
        if std::mem::replace(&mut self.record.acquired, acquired) != acquired {
            self.write().await?;
        }
        Ok(())
    }

    /// Looks at all other locks, and ends those of the dead.
    async fn look(&mut self) -> Result<Look, Error> {
        'again: for _ in 0..LOOKS_MAX {
            let (mut look, mut ended, mut litter) = (Look::default(), Vec::new(), Vec::new());
            let asked = self.store.clock.now();
            let Found { locks, traces } = self.locks.found().await?;
            let looked = asked..self.store.clock.now();
            let is_other = |lock: &FoundLock| lock.seen.record.name != self.record.name;
            self.met_others |= !traces.is_empty() || locks.iter().any(is_other);
            self.note_traces(traces, &looked).await?;
            for other in locks {
                if other.seen.record.name == self.record.name {
                    continue;
                }
                match self.standing(&other, &looked) {
                    Standing::Beside => {}
                    Standing::First => {
                        look.is_disputed = true;
                        look.add(&other.seen, self.is_watched(&other.seen));
                    }
                    Standing::Second => look.is_disputed = true,
                    Standing::Ended => ended.push(other),
                    Standing::Litter => litter.push(other),
                }
            }
            // One call waits for the other only where our own lock has to be written in between.
            for some in ended.chunks(PASSED_AT_ONCE) {
                if !self.pass_all(some, &looked).await? {
                    continue 'again;
                }
                self.stay_alive().await?;
            }
            litter.truncate(PASSED_AT_ONCE);
            self.pass_all(&litter, &looked).await?;
            return Ok(look);
        }
        Err(Error::Contended { path: self.locks.path()? })
    }

    /// Others have passed deletions, and may not have outlasted them. One whose trace was seen first at the
    /// end of a look had its lock confirmed before that.
    async fn note_traces(
        &mut self,
        traces: Vec<Trace>,
        looked: &Range<Duration>,
    ) -> Result<(), Error> {
        let at = self.term.store_time(looked.start);
        for trace in traces {
            if is_long_gone(trace.written, at) {
                self.locks.remove_trace(&trace.key).await?;
            } else if trace.is_of_deletion && !self.deletions.traces.contains_key(&trace.key) {
                let over = over_at(looked.end, None, false, looked.end);
                self.deletions.add(over, Some(trace.key));
            }
        }
        Ok(())
    }

    /// When a deletion is over whose lock is passed; nothing where that is so already, or it is none.
    fn over_at(&mut self, lock: &FoundLock, looked: &Range<Duration>) -> Option<Duration> {
        let now = self.store.clock.now();
        match lock.seen.record.kind {
            LockKind::Use => None,
            LockKind::Delete => {
                let since = self.watched.since(&lock.seen).unwrap_or(looked.end);
                let processes = self.store.processes.as_ref();
                let gone = self.watched.gone_since(&lock.seen, processes, now);
                let at = self.term.store_time(looked.start);
                over_at(since, gone, is_long_gone(lock.seen.written, at), now)
            }
        }
    }

    /// False if one of them was renewed just then.
    async fn pass_all(
        &mut self,
        locks: &[FoundLock],
        looked: &Range<Duration>,
    ) -> Result<bool, Error> {
        let overs: Vec<_> = locks.iter().map(|lock| self.over_at(lock, looked)).collect();
        let now = self.store.clock.now();
        let end_of = |over: Option<Duration>| {
            if over.is_none_or(|over| over <= now) { End::Gone } else { End::Traced }
        };
        let ends: Vec<_> = locks.iter().cloned().zip(overs.iter().copied().map(end_of)).collect();
        let passed = stream::iter(ends.clone()).map(|(lock, end)| {
            let locks = self.locks.clone();
            async move { locks.pass(&lock, end).await }.boxed()
        });
        let passed: Vec<bool> = passed.buffered(CALLS_AT_ONCE).try_collect().await?;
        for (((lock, end), over), _) in ends.into_iter().zip(overs).zip(&passed).filter(|it| *it.1)
        {
            self.has_passed_users |= lock.seen.record.kind == LockKind::Use;
            let trace = Some(lock.key).filter(|_| end == End::Traced);
            self.deletions.add(over, trace);
        }
        Ok(passed.into_iter().all(|it| it))
    }

    /// As it was when it was looked at: it may be another since, however long that took.
    fn standing(&mut self, other: &FoundLock, looked: &Range<Duration>) -> Standing {
        let unchanged = self.watched.unchanged(other, looked);
        let (ours, at) = (self.seen(), self.term.store_time(looked.start));
        let (schedule, times) = (self.store.schedule, self.store.abilities().times);
        let now = self.store.clock.now();
        let gone = self.watched.gone_since(&other.seen, self.store.processes.as_ref(), now);
        let gone = gone.map(|since| now.saturating_sub(since));
        standing(&other.seen, &ours, at, (unchanged, schedule.unchanged), gone, times)
    }

    /// Whether only our own eyes can tell that it has ended.
    fn is_watched(&self, other: &SeenLock) -> bool {
        seems_ended(other, self.term.store_time(self.store.clock.now()))
    }

    fn locked(&self, holder: &SeenLock, waited: Duration) -> Locked {
        Locked {
            path: self.key.to_string(),
            kind: self.record.kind,
            holder: holder.record.name.clone(),
            holder_kind: holder.record.kind,
            renewed: holder.written,
            until: holder.expires_from(self.term.store_time(self.store.clock.now())),
            waited,
        }
    }
}

impl Look {
    /// Of several, the one that stands in the way longest is told.
    fn add(&mut self, lock: &SeenLock, is_watched: bool) {
        if self.first.as_ref().is_none_or(|(first, _)| first.written < lock.written) {
            self.first = Some((lock.clone(), is_watched));
        }
    }
}
