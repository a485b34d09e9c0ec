//! Blocks on their way into the store: found, read, hashed, looked for, packed, put.
//!
//! So many blocks are on their way at a time as fit in a fixed memory, whatever the volume. Hashing and
//! packing run on threads, one for each core; reading on others, so that no core is idle while the disk
//! of the volume is waited for; the store is asked by at most `concurrent_limit` at a time. The first
//! error ends it, after what was under way has ended.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use super::decide::Touched;
use crate::block::{BlockRef, BlockSize, Checksum, is_zero};
use crate::buffers::{Buffer, BufferPool};
use crate::control::{CALLS_MAX, Control, TOGETHER, Workers, window};
use crate::error::Error;
use crate::rate_limiter::RateLimiter;
use crate::repository::{BlockWriter, Blocks, Codec, Late, Put};
use crate::source::Source;
use crate::store::BackupStore;
use crate::subject::Subject;

/// Blocks that were found and wait to be read.
const FOUND_AHEAD: usize = 256;
/// Groups of blocks that are read at a time.
const READERS: usize = 4;
/// Blocks longer than usual that are read and hashed together: more would cost too much memory.
const LONG_GROUP: usize = 2;

pub(crate) struct Upload<'s> {
    pub(crate) blocks: Blocks,
    pub(crate) codec: Codec,
    pub(crate) concurrent_limit: usize,
    /// The blocks of the backup that this one is made against.
    pub(crate) base: &'s [BlockRef],
    /// Whether blocks that are in the store are written anew.
    pub(crate) writes_anew: bool,
    /// At most so many go to the store.
    pub(crate) bytes_per_second: Option<u64>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Uploaded {
    /// By offset; a block of zeros has no checksum.
    pub(crate) blocks: BTreeMap<u64, Option<Checksum>>,
    pub(crate) new_blocks: u64,
    pub(crate) new_bytes: u64,
    pub(crate) again_bytes: u64,
}

/// What became of one block.
enum Outcome {
    Zeros,
    /// It is in the store, or somebody of this run brings it there.
    There(Checksum),
    New(Checksum, u64),
    Again(Checksum, u64),
}

/// What the blocks of one run share.
struct Shared {
    /// Blocks that lay in the store when this run began, as far as their lengths tell.
    present: HashSet<Checksum>,
    /// Blocks that this run has taken on: identical ones go once.
    taken: Mutex<HashSet<Checksum>>,
    writer: BlockWriter,
    readers: Workers,
    workers: Workers,
    /// For blocks, and for their objects.
    pool: BufferPool,
    packed_pool: BufferPool,
    calls: Semaphore,
    rate_limiter: RateLimiter,
    found: AtomicU64,
    /// Up to where the volume was searched.
    searched_to: AtomicU64,
    /// Ends with the operation, or with the first error.
    stop: Control,
}

/// Whether the store has an object under the name of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InStore {
    /// Or it cannot be the block.
    Absent,
    Plausible,
}

impl Upload<'_> {
    pub(crate) async fn run(
        &self,
        source: Arc<dyn Source>,
        base: Option<String>,
        control: &Control,
    ) -> Result<Uploaded, Error> {
        let workers = Workers::new();
        let limit = self.concurrent_limit.clamp(1, CALLS_MAX);
        let block_size = self.codec.size();
        let width = window(limit.saturating_add(workers.count()), block_size.bytes());
        let group = self.group();
        let groups = window(workers.count() * group, block_size.bytes()).div_ceil(group);
        // Also those of the base, however many there are: damage in it would be inherited by every
        // backup after it.
        // Opened before anything is looked at: what gets lost from here on is told to it.
        let writer = self.blocks.writer(self.codec).await?;
        let present = self.blocks.present(self.codec, limit).await?;
        let damaged = self.damaged_in_base(&present);
        if !damaged.is_empty() {
            tracing::warn!("{} blocks of the last backup are gone: stored again", damaged.len());
        }
        let shared = Arc::new(Shared {
            present,
            taken: Mutex::default(),
            writer,
            readers: Workers::with(READERS),
            workers,
            pool: BufferPool::default(),
            packed_pool: BufferPool::default(),
            calls: Semaphore::new(limit),
            rate_limiter: RateLimiter::new(self.bytes_per_second),
            found: AtomicU64::new(0),
            searched_to: AtomicU64::new(0),
            stop: control.below(),
        });
        let (tell, mut found) = mpsc::channel(FOUND_AHEAD);
        let search = search(&source, base, damaged, block_size, &shared, tell);
        let found = stream::poll_fn(move |context| found.poll_recv(context));
        let blocks = found
            .ready_chunks(group)
            .map(|offsets| self.read(offsets, Arc::clone(&source), &shared).boxed())
            .buffered(groups)
            .flat_map(stream::iter)
            .map(|read| self.one_or_stop(read, &shared).boxed())
            .buffer_unordered(width);
        let (searched, uploaded) =
            futures::join!(search, gather(blocks, &shared, source.size_bytes()));
        let mut uploaded = uploaded?;
        searched?;
        uploaded.correct(shared.writer.finish().await?);
        Ok(uploaded)
    }

    /// Places of the base whose blocks are not there, or cannot be what they are named: they are read
    /// and stored again, so that damage is mended and not inherited.
    fn damaged_in_base(&self, present: &HashSet<Checksum>) -> BTreeSet<u64> {
        let damaged = self.base.iter().filter(|block| !present.contains(&block.checksum));
        damaged.map(|block| block.offset).collect()
    }

    /// Blocks that are read and hashed together.
    fn group(&self) -> usize {
        if self.codec.size() > BlockSize::DEFAULT { LONG_GROUP } else { TOGETHER }
    }

    async fn read(
        &self,
        offsets: Vec<Result<u64, Error>>,
        source: Arc<dyn Source>,
        shared: &Shared,
    ) -> Vec<Result<Read, Error>> {
        if let Err(error) = shared.stop.check() {
            return vec![Err(error)];
        }
        let len = self.codec.size().len();
        let zeros = if source.shows_through() { Zeros::AreData } else { Zeros::AreHoles };
        let pool = shared.pool.clone();
        let read = move || read_all(source.as_ref(), offsets, len, &pool);
        let named = match shared.readers.run(read).await {
            Ok(blocks) => shared.workers.run(move || name_all(blocks, zeros)).await,
            Err(error) => Err(error),
        };
        named.unwrap_or_else(|error| vec![Err(error)])
    }

    /// A call that hangs must not keep a cancelled operation alive; one that ends later leaves a
    /// block that nobody names, and no more.
    async fn one_or_stop(
        &self,
        read: Result<Read, Error>,
        shared: &Shared,
    ) -> Result<(u64, Outcome), Error> {
        let read = read?;
        tokio::select! {
            done = self.one(read, shared) => done,
            () = shared.stop.cancelled() => Err(Error::Cancelled),
        }
    }

    async fn one(&self, read: Read, shared: &Shared) -> Result<(u64, Outcome), Error> {
        let offset = read.offset;
        let Some((sum, block)) = read.block else { return Ok((offset, Outcome::Zeros)) };
        if !shared.taken.lock().unwrap_or_else(PoisonError::into_inner).insert(sum) {
            return Ok((offset, Outcome::There(sum)));
        }
        shared.stop.check()?;
        let is_present = shared.present.contains(&sum);
        let state = if is_present { InStore::Plausible } else { InStore::Absent };
        if state == InStore::Plausible && !self.writes_anew {
            return Ok((offset, Outcome::There(sum)));
        }
        shared.stop.check()?;
        let packed = if self.codec.is_plain() {
            block
        } else {
            let (codec, pool) = (self.codec, shared.packed_pool.clone());
            let packed = shared.workers.run(move || codec.pack(&block, &pool)).await?;
            packed.map_err(Error::Source)?
        };
        shared.stop.check()?;
        Ok((offset, self.put(sum, packed.into(), state, shared).await?))
    }

    async fn put(
        &self,
        sum: Checksum,
        packed: Bytes,
        state: InStore,
        shared: &Shared,
    ) -> Result<Outcome, Error> {
        let len_bytes = u64::try_from(packed.len()).unwrap_or(u64::MAX);
        shared.rate_limiter.pay(len_bytes).await;
        let _turn = shared.turn().await?;
        match state {
            InStore::Absent => Ok(match shared.writer.put_new(&sum, packed).await? {
                Put::New => Outcome::New(sum, len_bytes),
                Put::There => Outcome::There(sum),
                Put::Again => Outcome::Again(sum, len_bytes),
            }),
            InStore::Plausible => {
                shared.writer.put(&sum, packed).await?;
                Ok(Outcome::Again(sum, len_bytes))
            }
        }
    }
}

impl BackupStore {
    /// Fails where a block of `named` is not there. One that deleted may have gone on for longer than its
    /// lock, or be seen late: the next try finds what is gone, and stores it.
    pub(crate) async fn require_blocks(
        &self,
        of: &Subject,
        named: &[BlockRef],
        control: &Control,
    ) -> Result<(), Error> {
        let mut missing: HashSet<Checksum> = named.iter().map(|block| block.checksum).collect();
        let blocks = self.repository.blocks(of);
        let mut pages = blocks.pages();
        while let Some(page) = pages.next().await? {
            control.check()?;
            for block in page {
                missing.remove(&block.checksum);
            }
        }
        match missing.into_iter().next() {
            None => Ok(()),
            Some(sum) => Err(Error::BlockVanished { path: blocks.path_of(&sum) }),
        }
    }
}

impl Shared {
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Error> {
        // The semaphore is never closed.
        self.calls.acquire().await.map_err(|_| Error::Cancelled)
    }

    /// Blocks done among those found, in the part of the volume that was searched.
    fn report(&self, done: u64, size_bytes: u64) {
        let found = self.found.load(Ordering::Relaxed).max(1);
        let searched = self.searched_to.load(Ordering::Relaxed);
        let part = u128::from(searched) * u128::from(done.min(found)) / u128::from(found);
        self.stop.report(u64::try_from(part).unwrap_or(u64::MAX), size_bytes);
    }
}

/// Finds changed blocks as long as somebody takes them.
async fn search(
    source: &Arc<dyn Source>,
    base: Option<String>,
    mut damaged: BTreeSet<u64>,
    block_size: BlockSize,
    shared: &Arc<Shared>,
    tell: mpsc::Sender<Result<u64, Error>>,
) -> Result<(), Error> {
    let (source, shared) = (Arc::clone(source), Arc::clone(shared));
    let walk = move || {
        let size_bytes = source.size_bytes();
        let extents = match source.changed_since(base.as_deref()) {
            Ok(extents) => extents,
            Err(error) => return drop(tell.blocking_send(Err(Error::Source(error)))),
        };
        for offset in Touched::new(extents, size_bytes, block_size) {
            if let Ok(offset) = &offset {
                damaged.remove(offset);
                shared.found.fetch_add(1, Ordering::Relaxed);
                shared.searched_to.store(*offset, Ordering::Relaxed);
            }
            if shared.stop.check().is_err() || tell.blocking_send(offset).is_err() {
                return;
            }
        }
        for offset in damaged.into_iter().filter(|offset| *offset < size_bytes) {
            shared.found.fetch_add(1, Ordering::Relaxed);
            if shared.stop.check().is_err() || tell.blocking_send(Ok(offset)).is_err() {
                return;
            }
        }
        shared.searched_to.store(size_bytes, Ordering::Relaxed);
    };
    tokio::task::spawn_blocking(walk).await.map_err(Error::Thread)
}

/// What a block of zeros is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeros {
    /// What no list has.
    AreHoles,
    /// Without it, something else would be read in its place.
    AreData,
}

/// A block as it was read; without contents where it need not be stored.
struct Read {
    offset: u64,
    block: Option<(Checksum, Buffer)>,
}

type Contents = Result<(u64, Buffer), Error>;

fn read_all(
    source: &dyn Source,
    offsets: Vec<Result<u64, Error>>,
    len: usize,
    pool: &BufferPool,
) -> Vec<Contents> {
    let read = |offset: Result<u64, Error>| {
        let (offset, mut block) = (offset?, pool.buffer(len));
        source.read_at(offset, &mut block).map_err(Error::Source)?;
        Ok((offset, block))
    };
    offsets.into_iter().map(read).collect()
}

fn name_all(blocks: Vec<Contents>, zeros: Zeros) -> Vec<Result<Read, Error>> {
    let is_full = |block: &Buffer| zeros == Zeros::AreData || !is_zero(block);
    let full: Vec<bool> =
        blocks.iter().map(|it| it.as_ref().is_ok_and(|(_, block)| is_full(block))).collect();
    let contents: Vec<&[u8]> = blocks
        .iter()
        .zip(&full)
        .filter_map(|(it, full)| it.as_ref().ok().filter(|_| *full).map(|(_, b)| &**b))
        .collect();
    let mut sums = Codec::names(&contents).into_iter();
    let take = |(it, full): (Contents, bool)| {
        let (offset, block) = it?;
        let sum = if full { sums.next() } else { None };
        Ok(Read { offset, block: sum.map(|sum| (sum, block)) })
    };
    blocks.into_iter().zip(full).map(take).collect()
}

/// Counts what came; after an error nothing new begins, and what was under way is waited for.
async fn gather(
    blocks: impl Stream<Item = Result<(u64, Outcome), Error>>,
    shared: &Shared,
    size_bytes: u64,
) -> Result<Uploaded, Error> {
    let mut uploaded = Uploaded::default();
    let mut failed = None;
    let mut blocks = std::pin::pin!(blocks);
    let mut done = 0;
    while let Some(block) = blocks.next().await {
        match block {
            Ok((offset, outcome)) => {
                uploaded.add(offset, &outcome);
                done += 1;
                shared.report(done, size_bytes);
            }
            Err(error) => {
                shared.stop.cancel();
                failed.get_or_insert(error);
            }
        }
    }
    // The first error came before what it cancelled.
    failed.map_or_else(|| shared.stop.check().map(|()| uploaded), Err)
}

impl Uploaded {
    fn correct(&mut self, late: Late) {
        self.new_blocks = self.new_blocks.saturating_sub(late.blocks);
        self.new_bytes = self.new_bytes.saturating_sub(late.bytes);
    }

    fn add(&mut self, offset: u64, outcome: &Outcome) {
        let sum = match outcome {
            Outcome::Zeros => None,
            Outcome::There(sum) => Some(*sum),
            Outcome::New(sum, len_bytes) => {
                self.new_blocks += 1;
                self.new_bytes = self.new_bytes.saturating_add(*len_bytes);
                Some(*sum)
            }
            Outcome::Again(sum, len_bytes) => {
                self.again_bytes = self.again_bytes.saturating_add(*len_bytes);
                Some(*sum)
            }
        };
        self.blocks.insert(offset, sum);
    }
}
