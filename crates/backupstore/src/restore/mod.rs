//! Restoring a backup, from nothing or from an older one that is there.
//!
//! Every block is checked before it is written. One that is missing or damaged is reported with its
//! name and place while all others are restored; the restore then ends in an error unless it was
//! asked to go on.

mod decide;
mod fetch;
mod held;
mod seal;
mod sink;
mod unpack;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt};

use self::decide::{Content, runs};
pub use self::decide::{Job, Plan};
pub use self::fetch::{Fetch, FetchError, FetchOptions, StoreFetch};
pub use self::held::Held;
pub use self::seal::{Seal, Sealer};
pub use self::sink::{FileSink, Sink};
use crate::block::BlockRef;
use crate::control::{Control, Workers, in_flight};
use crate::error::{DamagedBlock, DamagedBlocks, Error};
use crate::lock::{LOCK_TIMEOUT, Lease, LockKind};
use crate::name::Name;
use crate::repository::{Codec, Found};
use crate::store::BackupStore;
use crate::subject::Subject;

/// The unit in which zeros inside a block become holes: that of a volume.
const UNIT_BYTES: usize = 4096;

#[derive(Debug, Clone)]
pub struct RestoreRequest {
    pub volume: Name,
    pub backup: Name,
    /// The backup that the sink holds. Without one the sink is empty: all zeros.
    pub previous: Option<Name>,
    /// Blocks that are fetched at a time.
    pub concurrent_limit: usize,
    pub on_damage: OnDamage,
    pub fetch: FetchOptions,
    /// How long to wait for a deletion that holds the lock.
    pub lock_timeout: Duration,
}

impl RestoreRequest {
    pub fn new(volume: Name, backup: Name) -> Self {
        Self {
            volume,
            backup,
            previous: None,
            concurrent_limit: 1,
            on_damage: OnDamage::Fail,
            fetch: FetchOptions::default(),
            lock_timeout: LOCK_TIMEOUT,
        }
    }
}

/// What blocks that cannot be had mean, when all others are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    #[default]
    Fail,
    /// The restore counts; its places stay as they were.
    GoOn,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// Places of blocks that were written.
    pub written: u64,
    /// Places that an earlier try had written.
    pub found_written: u64,
    /// Only where the restore was asked to go on.
    pub damaged: DamagedBlocks,
}

/// A restore that has its lock and its plan, and waits to be run.
#[derive(Debug)]
pub struct RestoreBegun {
    lease: Lease,
    request: RestoreRequest,
    plan: Arc<Plan>,
    held: Held,
    base: Option<Held>,
    fetch: Arc<StoreFetch>,
}

impl BackupStore {
    /// Takes the lock and plans. [`RestoreBegun::run`] is to follow at once: nobody renews the lock in
    /// between.
    pub async fn begin_restore(
        &self,
        request: RestoreRequest,
        control: &Control,
    ) -> Result<RestoreBegun, Error> {
        let (volume, timeout) = (&request.volume, request.lock_timeout);
        let lease = self.lock_also_when_full(volume, LockKind::Use, timeout, control).await?;
        let previous = request.previous.as_ref();
        match self.plan_between(&request.volume, &request.backup, previous).await {
            Ok((plan, held, base)) => {
                let blocks = self.repository.blocks(&Subject::Volume(request.volume.clone()));
                let (limit, options) = (request.concurrent_limit, request.fetch.clone());
                let fetch = StoreFetch::new(blocks, Codec::new(plan.packing()), limit, options);
                let (plan, fetch) = (Arc::new(plan), Arc::new(fetch));
                Ok(RestoreBegun { lease, request, plan, held, base, fetch })
            }
            Err(error) => {
                lease.release().await;
                Err(error)
            }
        }
    }

    /// What a restore would do. It takes no lock.
    pub async fn plan_restore(
        &self,
        volume: &Name,
        backup: &Name,
        previous: Option<&Name>,
    ) -> Result<Plan, Error> {
        let (plan, _, _) = self.plan_between(volume, backup, previous).await?;
        Ok(plan)
    }

    /// The plan, and what it is of: from one to the other.
    async fn plan_between(
        &self,
        volume: &Name,
        backup: &Name,
        previous: Option<&Name>,
    ) -> Result<(Plan, Held, Option<Held>), Error> {
        let path = || self.repository.volume_path(volume);
        let size_bytes = match self.repository.volume(volume).await? {
            Found::Readable(record, _) => record.size_bytes,
            Found::Unreadable { why } => return Err(Error::Unreadable { path: path()?, why }),
            Found::Missing => return Err(Error::SourceVolumeNotFound { path: path()? }),
        };
        let new = self.repository.complete_backup(volume, backup).await?;
        let old = match previous {
            Some(previous) => Some(self.repository.complete_backup(volume, previous).await?),
            None => None,
        };
        let plan = decide::plan(&new, old.as_ref(), size_bytes)?;
        Ok((plan, Held::of(&new), old.as_ref().map(Held::of)))
    }

    /// What the store has under this name, if its record loads: only then it can be the base of an
    /// incremental restore.
    pub async fn held(&self, volume: &Name, backup: &Name) -> Result<Option<Held>, Error> {
        match self.repository.complete_backup(volume, backup).await {
            Ok(record) => Ok(Some(Held::of(&record))),
            Err(Error::Store(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }
}

impl RestoreBegun {
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What is restored.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// What the sink must hold; nothing where the plan is of all of it.
    pub fn base(&self) -> Option<&Held> {
        self.base.as_ref()
    }

    /// The same, to keep.
    pub fn plan_shared(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// Where blocks come from; to be put behind another [`Fetch`], or asked what it has fetched.
    pub fn fetch(&self) -> Arc<StoreFetch> {
        Arc::clone(&self.fetch)
    }

    /// Restores from the store.
    pub async fn run(self, sink: Arc<dyn Sink>, control: &Control) -> Result<Restored, Error> {
        let fetch = self.fetch();
        self.run_with(fetch, sink, control).await
    }

    /// Restores with blocks from elsewhere.
    pub async fn run_with(
        self,
        fetch: Arc<dyn Fetch>,
        sink: Arc<dyn Sink>,
        control: &Control,
    ) -> Result<Restored, Error> {
        let (plan, limit) = (Arc::clone(&self.plan), self.request.concurrent_limit);
        let on_damage = self.request.on_damage;
        let work = async |_, control: Control| {
            restore(plan, fetch, sink, limit, on_damage, &control).await
        };
        self.lease.work(control, work).await
    }
}

/// Carries out a plan; the lock is the caller's. More blocks are under way than `concurrent_limit`,
/// which `fetch` keeps to: those that are checked and written.
pub async fn restore(
    plan: Arc<Plan>,
    fetch: Arc<dyn Fetch>,
    sink: Arc<dyn Sink>,
    concurrent_limit: usize,
    on_damage: OnDamage,
    control: &Control,
) -> Result<Restored, Error> {
    let running = Running {
        workers: Workers::new(),
        stop: control.below(),
        places: plan.places(),
        done: AtomicU64::new(0),
        plan,
        fetch,
        sink,
    };
    running.zero().await?;
    let width = in_flight(concurrent_limit, running.plan.block_size.bytes());
    let mut restored = Restored::default();
    let mut failed = None;
    {
        let running = &running;
        let jobs = (0..running.plan.jobs.len()).map(|index| running.one(index).boxed());
        let mut jobs = stream::iter(jobs).buffer_unordered(width);
        while let Some(one) = jobs.next().await {
            match one {
                Ok(one) => restored.add(one),
                Err(error) => {
                    running.stop.cancel();
                    failed.get_or_insert(error);
                }
            }
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    control.check()?;
    let sink = Arc::clone(&running.sink);
    running.workers.run(move || sink.sync()).await?.map_err(Error::Sink)?;
    restored.damaged.blocks.sort_by_key(|damaged| damaged.block.offset);
    match on_damage {
        OnDamage::Fail if !restored.damaged.is_empty() => {
            Err(Error::Damaged(Box::new(restored.damaged)))
        }
        OnDamage::Fail | OnDamage::GoOn => Ok(restored),
    }
}

impl Restored {
    fn add(&mut self, one: Self) {
        self.written += one.written;
        self.found_written += one.found_written;
        let kept = u64::try_from(one.damaged.blocks.len()).unwrap_or(u64::MAX);
        self.damaged.count += one.damaged.count.saturating_sub(kept);
        for damaged in one.damaged.blocks {
            self.damaged.add(damaged);
        }
    }
}

/// One restore under way.
struct Running {
    plan: Arc<Plan>,
    fetch: Arc<dyn Fetch>,
    sink: Arc<dyn Sink>,
    workers: Workers,
    stop: Control,
    places: u64,
    done: AtomicU64,
}

impl Running {
    async fn zero(&self) -> Result<(), Error> {
        let (sink, plan, stop) =
            (Arc::clone(&self.sink), Arc::clone(&self.plan), self.stop.clone());
        let work = move || {
            for range in &plan.zeros {
                stop.check()?;
                let len_bytes = range.end.saturating_sub(range.start);
                sink.zero(range.start, len_bytes).map_err(Error::Sink)?;
            }
            Ok(())
        };
        self.workers.run(work).await?
    }

    async fn one(&self, index: usize) -> Result<Restored, Error> {
        self.stop.check()?;
        let mut restored = Restored::default();
        let Some(job) = self.plan.jobs.get(index) else { return Ok(restored) };
        let all = job.offsets.iter().copied();
        let (written, wanted): (Vec<u64>, Vec<u64>) = all.partition(|at| self.sink.is_written(*at));
        restored.found_written = u64::try_from(written.len()).unwrap_or(u64::MAX);
        if !wanted.is_empty() {
            let fetched = tokio::select! {
                fetched = self.fetch.fetch(&job.checksum) => fetched,
                () = self.stop.cancelled() => return Err(Error::Cancelled),
            };
            match fetched {
                Ok(block) => {
                    restored.written = u64::try_from(wanted.len()).unwrap_or(u64::MAX);
                    self.write(block, wanted).await?;
                }
                Err(FetchError::Damaged(damage)) => {
                    for offset in wanted {
                        let block = BlockRef { offset, checksum: job.checksum };
                        let path = self.fetch.path_of(&job.checksum);
                        let damage = damage.clone();
                        restored.damaged.add(DamagedBlock { path, block, damage });
                    }
                }
                Err(FetchError::Failed(error)) => return Err(unshared(error)),
            }
        }
        let places = u64::try_from(job.offsets.len()).unwrap_or(u64::MAX);
        let done = self.done.fetch_add(places, Ordering::Relaxed).saturating_add(places);
        self.stop.report(done, self.places);
        Ok(restored)
    }

    async fn write(&self, block: Bytes, offsets: Vec<u64>) -> Result<(), Error> {
        let (sink, is_incremental) = (Arc::clone(&self.sink), self.plan.is_incremental);
        let work = move || write_block(sink.as_ref(), &block, &offsets, is_incremental);
        self.workers.run(work).await?.map_err(Error::Sink)
    }
}

/// Writes a block to its places and tells the sink so; what of it is zeros becomes a hole. Blocks.
pub fn write_block(
    sink: &dyn Sink,
    block: &[u8],
    offsets: &[u64],
    is_incremental: bool,
) -> io::Result<()> {
    let runs = runs(block, UNIT_BYTES);
    for offset in offsets {
        for (range, content) in &runs {
            let at = offset.saturating_add(range.start as u64);
            match content {
                Content::Bytes => {
                    sink.write_at(at, block.get(range.clone()).unwrap_or_default())?;
                }
                Content::Zeros if is_incremental => sink.zero(at, range.len() as u64)?,
                // It is a hole already.
                Content::Zeros => {}
            }
        }
        sink.written(*offset)?;
    }
    Ok(())
}

fn unshared(error: Arc<Error>) -> Error {
    Arc::try_unwrap(error).unwrap_or_else(|shared| Error::Fetch {
        why: telemetry::Chain(shared.as_ref()).to_string(),
    })
}
