//! A lock that is held.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use blobs::{Key, Listing, Permit, Retry, Version};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;

use super::decide::{ACT_WITHIN, Term, is_ended, unseen_for};
use super::record::LockRecord;
use super::wanted::Wanted;
use super::{Deletions, LockSchedule};
use crate::control::{Awaited, Control, Wait};
use crate::error::Error;
use crate::repository::{Locks, Ours};
use crate::store::{Abilities, BackupStore};

/// Confirmations of what is removed together, at most: each lets some go, unless a store is too slow for any.
const ROUNDS_MAX: usize = 100;
const TRACES_AT_ONCE: usize = 8;

/// Dropped without [`Lease::release`], it lies in the store until it ends.
#[derive(Debug)]
pub(crate) struct Lease {
    store: BackupStore,
    locks: Locks,
    key: Key,
    record: LockRecord,
    held: Arc<Mutex<Held>>,
    /// Renewals come one after the other.
    turn: tokio::sync::Mutex<()>,
    taken: Duration,
    deletions: Mutex<Deletions>,
    /// Whether anything of others lay among the locks when it was taken.
    met_others: bool,
    /// Whether what was laid by on a full disk had to be given up for it.
    lays_by_again: bool,
}

/// The lock was ours when it was asked for; that counts until then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed {
    until: Duration,
}

#[derive(Debug, Clone)]
struct Held {
    version: Version,
    writes: u64,
    term: Term,
    is_lost: bool,
    /// Until when removals may be done that were sent and not answered.
    unanswered: Option<Duration>,
}

impl Held {
    /// A removal was sent, and may be done from now on.
    fn was_not_answered(&mut self, now: Duration, schedule: LockSchedule) {
        self.unanswered = self.unanswered.max(Some(now.saturating_add(schedule.unanswered)));
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lease {
    pub(super) fn new(store: BackupStore, wanted: Wanted, term: Term) -> Self {
        let Wanted { locks, key, record, version, writes, deletions, met_others, .. } = wanted;
        let taken = store.clock.now();
        let mut held = Held { version, writes, term, is_lost: false, unanswered: None };
        if wanted.has_passed_users && !store.abilities().conditional_put {
            // Nothing but our lock tells of them now, and of what they may have sent.
            held.was_not_answered(taken, store.schedule);
        }
        let held = Arc::new(Mutex::new(held));
        Self {
            store,
            locks,
            key,
            record,
            held,
            turn: tokio::sync::Mutex::default(),
            taken,
            deletions: Mutex::new(deletions),
            met_others,
            lays_by_again: false,
        }
    }

    pub(super) fn laying_by_again(self) -> Self {
        Self { lays_by_again: true, ..self }
    }

    /// Does `work`, renews the lock meanwhile, and gives it back. Where it is lost the work is told to
    /// stop, and waited for, so that nothing goes on without a lock.
    pub(crate) async fn work<T, W>(
        self,
        control: &Control,
        work: impl FnOnce(Arc<Self>, Control) -> W,
    ) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Error>> + Send,
    {
        let (lease, below) = (Arc::new(self), control.below());
        let done = {
            let mut work = pin!(work(Arc::clone(&lease), below.clone()));
            tokio::select! {
                biased;
                done = &mut work => done,
                lost = lease.renew_until_lost() => {
                    below.cancel();
                    // Whatever it says: without the lock it does not count.
                    let _ = work.await;
                    Err(lost)
                }
            }
        };
        lease.give_back(control).await;
        if done.is_ok() {
            control.finished();
        }
        done
    }

    async fn renew_until_lost(&self) -> Error {
        loop {
            self.store.clock.sleep(self.store.schedule.renew_every).await;
            let left = self.left();
            tokio::select! {
                renewed = self.renew_somehow() => match renewed {
                    Ok(()) => {}
                    Err(lost) => return lost,
                },
                () = self.store.clock.sleep(left) => return self.lost(),
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        locked(&self.held)
    }

    /// How long work may go on unless the lock is renewed.
    fn left(&self) -> Duration {
        let held = self.held();
        if held.is_lost { Duration::ZERO } else { held.term.left(self.store.clock.now()) }
    }

    /// The store's clock, now.
    pub(crate) fn store_time(&self) -> Timestamp {
        self.held().term.store_time(self.store.clock.now())
    }

    /// Tries until it is renewed, or somebody took it.
    async fn renew_somehow(&self) -> Result<(), Error> {
        loop {
            match self.renew().await {
                Err(error @ Error::LockLost { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!("{} could not be renewed: {error}", self.key);
                    self.store.clock.sleep(self.store.schedule.look_every).await;
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Renews it now. An error says nothing about whether it is still held, but for
    /// [`Error::LockLost`].
    async fn renew(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        if self.left().is_zero() {
            return Err(self.lost());
        }
        let asked = self.store.clock.now();
        let (version, writes) = {
            let mut held = self.held();
            held.writes += 1;
            (held.version.clone(), held.writes)
        };
        match self.locks.renew(&self.key, &self.record, writes, &version).await? {
            Some(version) => self.held().version = version,
            None => return Err(self.lost()),
        }
        let stamped = match self.locks.written(&self.key).await {
            Ok(written) => written,
            Err(error) if error.is_not_found() => return Err(self.lost()),
            Err(error) => return Err(error.into()),
        };
        let next = Term { asked, answered: self.store.clock.now(), stamped };
        let term = self.held().term.renewed(next, self.store.abilities().times);
        match term {
            Some(term) => {
                self.held().term = term;
                Ok(())
            }
            None => Err(self.lost()),
        }
    }

    /// Whether it is still ours, and nobody took it for ended, asked of the store; to be called before
    /// what must not happen without it.
    pub(crate) async fn confirm(&self) -> Result<Confirmed, Error> {
        let until = self.store.clock.now().saturating_add(ACT_WITHIN);
        self.renew().await?;
        let (now, times) = (self.store_time(), self.store.abilities().times);
        let mut is_there = false;
        for other in self.locks.found().await?.locks {
            let seen = &other.seen;
            is_there |= seen.record.name == self.record.name;
            let excludes = seen.record.kind != self.record.kind && seen.record.acquired;
            if excludes && !is_ended(seen, now, times) {
                tracing::warn!("{} is held beside {}", other.key, self.key);
                return Err(self.lost());
            }
        }
        match self.store.abilities().listing {
            Listing::AtOnce if !is_there => Err(self.lost()),
            Listing::AtOnce | Listing::Later => Ok(Confirmed { until }),
        }
    }

    /// Waits until what was done before the lock was taken is seen by all.
    pub(crate) async fn settled(&self) {
        let since = self.store.clock.now().saturating_sub(self.taken);
        let unseen = unseen_for(self.store.abilities(), self.store.schedule.settle);
        let left = unseen.saturating_sub(since);
        if !left.is_zero() {
            self.store.clock.sleep(left).await;
        }
    }

    /// Waits until what was done by now is listed; false where it is at once.
    pub(crate) async fn listings_are_awaited(&self) -> bool {
        let unseen = unseen_for(self.store.abilities(), self.store.schedule.settle);
        if !unseen.is_zero() {
            self.store.clock.sleep(unseen).await;
        }
        !unseen.is_zero()
    }

    /// Whether blocks may have gone since the lock was taken, by one who had lost it.
    pub(crate) fn doubts_blocks(&self) -> bool {
        self.deletions().over.is_some() || !self.store.abilities().is_strong()
    }

    /// Waits until one whose lock we took away has sent its last removal, and that is done: it may have
    /// been alive, and known nothing of it.
    pub(crate) async fn outlast_deletions(&self, control: &Control) -> Result<(), Error> {
        let Some(over) = self.deletions().over else { return Ok(()) };
        self.sleep_until(over, Awaited::Deletion, control).await?;
        self.remove_traces().await;
        Ok(())
    }

    /// Until when what others have sent may take the place of a record that was begun just now. Nothing
    /// where conditions keep it away, or where nobody can have sent any: whoever did has a lock, which lies
    /// there until all is done, also when he is dead.
    pub(crate) async fn others_over(&self, ours: &Ours) -> Result<Option<Duration>, Error> {
        let Abilities { conditional_put, listing, .. } = self.store.abilities();
        if conditional_put {
            return Ok(None);
        }
        let now = self.store.clock.now();
        let may_be_others = match listing {
            Listing::AtOnce if !self.met_others && !ours.was_there => {
                self.locks.list().await?.iter().any(|meta| meta.key != self.key)
            }
            Listing::AtOnce | Listing::Later => true,
        };
        Ok(may_be_others.then(|| now.saturating_add(self.store.schedule.unanswered)))
    }

    /// Waits until that is over.
    pub(crate) async fn outlast_others(
        &self,
        over: Option<Duration>,
        control: &Control,
    ) -> Result<(), Error> {
        match over {
            Some(over) => self.sleep_until(over, Awaited::Writers, control).await,
            None => Ok(()),
        }
    }

    async fn sleep_until(
        &self,
        then: Duration,
        what: Awaited,
        control: &Control,
    ) -> Result<(), Error> {
        let left = then.saturating_sub(self.store.clock.now());
        if left.is_zero() {
            return Ok(());
        }
        control.wait_for(Some(Wait::Calls { what, left }));
        let slept = tokio::select! {
            () = self.store.clock.sleep(left) => Ok(()),
            () = control.cancelled() => Err(Error::Cancelled),
        };
        control.wait_for(None);
        slept
    }

    fn deletions(&self) -> MutexGuard<'_, Deletions> {
        locked(&self.deletions)
    }

    /// Of deletions that are over. What is left is for the next who comes.
    async fn remove_traces(&self) {
        let now = self.store.clock.now();
        let over: Vec<Key> = self
            .deletions()
            .traces
            .extract_if(|_, over| *over <= now)
            .map(|(key, _)| key)
            .collect();
        let removals = stream::iter(over).map(|key| {
            let locks = self.locks.clone();
            async move {
                if let Err(error) = locks.remove_trace(&key).await {
                    tracing::warn!("{key} is left for others to remove: {error}");
                }
            }
            .boxed()
        });
        removals.buffer_unordered(TRACES_AT_ONCE).collect::<()>().await;
    }

    /// Removes what must not be removed without the lock, by the permit that `work` is given: soon after the
    /// lock was confirmed, or not at all. What was confirmed counts for a short time only, and is asked for
    /// again where the work takes longer, which begins again then.
    pub(crate) async fn act<T, W>(
        &self,
        control: &Control,
        work: impl Fn(Permit) -> W,
    ) -> Result<T, Error>
    where
        W: Future<Output = Result<T, Error>> + Send,
    {
        for _ in 0..ROUNDS_MAX {
            let confirmed = self.confirm().await?;
            let is_used = Arc::new(AtomicBool::new(false));
            let permit = self.permit(confirmed, control, Arc::clone(&is_used));
            let mut call = pin!(work(permit));
            let mut is_given_up = false;
            // Asked also when a stopped process wakes up in the middle of it.
            let soon = poll_fn(|context| {
                if self.store.clock.now() >= confirmed.until {
                    is_given_up = true;
                    return Poll::Ready(Err(Error::Store(blobs::Error::PermitEnded)));
                }
                call.as_mut().poll(context)
            });
            let done = self.while_held(control, soon).await;
            let is_unanswered = match &done {
                Ok(_) => false,
                Err(Error::Store(error)) => is_given_up || error.retry() == Retry::Later,
                Err(_) => true,
            };
            if is_unanswered && is_used.load(Ordering::Relaxed) {
                self.held().was_not_answered(self.store.clock.now(), self.store.schedule);
            }
            match done {
                Err(Error::Store(blobs::Error::PermitEnded)) => control.check()?,
                done => return done,
            }
        }
        let source = "it takes longer to say that a lock is ours than that can be believed".into();
        Err(blobs::Error::Unavailable { what: "the store".to_owned(), source }.into())
    }

    /// It ends with what was confirmed, with the lock, and with `control`.
    fn permit(&self, confirmed: Confirmed, control: &Control, is_used: Arc<AtomicBool>) -> Permit {
        let (held, clock) = (Arc::clone(&self.held), Arc::clone(&self.store.clock));
        let (control, schedule) = (control.clone(), self.store.schedule);
        let (told, told_at) = (Arc::clone(&held), Arc::clone(&clock));
        Permit::new(move || {
            let (held, now) = (locked(&held), clock.now());
            let is_held = !held.is_lost && !held.term.left(now).is_zero();
            let is_given = is_held && now < confirmed.until && control.check().is_ok();
            is_used.fetch_or(is_given, Ordering::Relaxed);
            is_given
        })
        .telling(move || locked(&told).was_not_answered(told_at.now(), schedule))
    }

    /// Makes a call go on only while the lock is held: one that was not sent when a stopped process
    /// wakes up is not sent any more.
    pub(crate) async fn while_held<T, E: Into<Error>>(
        &self,
        control: &Control,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Error> {
        let mut call = pin!(call);
        let guarded = poll_fn(|context| {
            if self.left().is_zero() {
                return Poll::Ready(Err(self.lost()));
            }
            call.as_mut().poll(context).map_err(|error| match error.into() {
                // It may be only what was confirmed that is over.
                Error::Store(blobs::Error::PermitEnded) if self.left().is_zero() => self.lost(),
                error => error,
            })
        });
        let done = tokio::select! {
            biased;
            () = control.cancelled() => Err(Error::Cancelled),
            done = guarded => done,
        };
        let is_given_up = matches!(done, Err(Error::Cancelled | Error::LockLost { .. }));
        // Where nothing keeps it away, it may be done when others have gone on.
        if is_given_up && !self.store.abilities().conditional_put {
            self.held().was_not_answered(self.store.clock.now(), self.store.schedule);
        }
        done
    }

    /// Remembers that it is lost, and says so.
    fn lost(&self) -> Error {
        self.held().is_lost = true;
        Error::LockLost { path: self.key.to_string() }
    }

    /// Of work that was not begun.
    pub(crate) async fn release(&self) {
        self.give_back(&Control::default()).await;
    }

    /// Gives it back, when all that was sent by it is done, or never will be. A failure is not one of the
    /// work that was done: it ends by itself.
    async fn give_back(&self, control: &Control) {
        let unanswered = self.held().unanswered;
        let left = unanswered.map(|until| until.saturating_sub(self.store.clock.now()));
        if let Some(left) = left.filter(|left| !left.is_zero()) {
            control.wait_for(Some(Wait::Calls { what: Awaited::Own, left }));
            self.store.clock.sleep(left).await;
            control.wait_for(None);
        }
        self.remove_traces().await;
        self.locks.forget(&self.key).await;
        if self.lays_by_again {
            self.store.lay_by().await;
        }
    }
}
