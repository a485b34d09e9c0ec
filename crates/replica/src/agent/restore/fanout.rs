//! Restoring together: of the agents that restore one backup, each fetches its part of the blocks from
//! the store and verifies them, and takes the others from those who did. A seal tells which those are:
//! one that shares the key of this restore has verified the block, and it is not hashed again.
//!
//! Who fetches a block first is decided by its checksum, so that all agree without talking. Nobody
//! depends on another: whoever is dead, slow, late or lying is passed over, and at the end of the list
//! everybody fetches for itself. An agent that is asked never asks a third one, so no two wait for each
//! other.
//!
//! Owns what one restore holds for others (`held`), whom it asks (`peers`), and the answers to those
//! who ask (`service`). Never: the plan, the file, the record of the restore.

mod held;
mod peers;
mod service;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backupstore::format::{Checksum, pack};
use backupstore::restore::{
    Fetch, FetchError, Job, Plan, Seal, Sealer, Sink as _, StoreFetch, write_block,
};
use backupstore::{Compression, Name};
use bytes::Bytes;
use rpc::fanout::BlockRequest;
use tasks::{CancellationToken, Tasks};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use self::held::{Cell, Held, Object, Taker};
pub(super) use self::peers::Peers;
use self::peers::{Asked, MayFetch, order};
pub(crate) use self::service::FanOutService;
use super::sink::ResumedSink;
use crate::agent::error::JobError;
use crate::disk::During as _;

/// Memory for blocks that are fetched and written because another asked for them.
const SERVED_BYTES: u64 = 32 << 20;
const SERVED_MAX: u16 = 16;
/// Blocks that are read from the file again at a time.
const READS_MAX: usize = 8;
/// How long somebody who asks waits for room to fetch.
const ROOM: Duration = Duration::from_secs(10);

/// What a restore has fetched and from where; clones count the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Meter {
    pub(super) fetched_bytes: Arc<AtomicU64>,
    pub(super) taken_bytes: Arc<AtomicU64>,
    pub(super) hashed_blocks: Arc<AtomicU64>,
}

/// The restore of this agent, as others may ask for it.
#[derive(Debug, Default)]
pub(crate) struct Current(watch::Sender<State>);

#[derive(Debug, Clone, Default)]
enum State {
    #[default]
    Idle,
    Preparing {
        volume: Name,
        backup: Name,
    },
    Ready(Arc<Shared>),
}

impl Current {
    /// Those who ask for this backup are to wait a moment.
    pub(super) fn prepare(&self, volume: &Name, backup: &Name) {
        let (volume, backup) = (volume.clone(), backup.clone());
        self.0.send_replace(State::Preparing { volume, backup });
    }

    pub(super) fn ready(&self, shared: Arc<Shared>) {
        self.0.send_replace(State::Ready(shared));
    }

    pub(super) fn end(&self) {
        self.0.send_replace(State::Idle);
    }
}

/// One restore, with all that others may want of it.
pub(super) struct Shared {
    volume: Name,
    backup: Name,
    plan: Arc<Plan>,
    /// Indices of jobs, by checksum.
    by_checksum: Vec<u32>,
    store: Arc<StoreFetch>,
    sink: Arc<ResumedSink>,
    held: Held,
    sealer: Option<Arc<Sealer>>,
    /// Of the jobs, in their order; 0 where none is known. A block that is read from the file again
    /// goes with the seal that it came with, so that what the file made of it is noticed.
    seals: Vec<AtomicU64>,
    peers: Peers,
    reads: Semaphore,
    serving: Arc<Semaphore>,
    /// How many are served at a time.
    room: u32,
    /// Ends what is fetched for others.
    stop: CancellationToken,
    meter: Meter,
    tasks: Tasks,
}

/// What [`Shared`] is made of.
pub(super) struct Parts {
    pub(super) volume: Name,
    pub(super) backup: Name,
    pub(super) plan: Arc<Plan>,
    pub(super) store: Arc<StoreFetch>,
    pub(super) sink: Arc<ResumedSink>,
    pub(super) peers: Peers,
    pub(super) sealer: Option<Sealer>,
    pub(super) tasks: Tasks,
}

/// A seal, and the name of its key.
type Vouch = (Seal, Vec<u8>);

/// An answer to another agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Served {
    Here { packing: Compression, packed: Bytes, seal: Option<Vouch> },
    Absent,
    Later,
    Failed,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { volume, backup, plan, store, sink, peers, sealer, tasks } = parts;
        let mut by_checksum: Vec<u32> =
            (0..plan.jobs.len()).filter_map(|index| u32::try_from(index).ok()).collect();
        by_checksum.sort_unstable_by_key(|index| checksum_of(&plan, *index));
        let room = SERVED_BYTES / plan.block_size.bytes().saturating_mul(2).max(1);
        let room = u16::try_from(room).unwrap_or(SERVED_MAX).clamp(1, SERVED_MAX);
        let meter = Meter {
            fetched_bytes: store.meter(),
            taken_bytes: Arc::default(),
            hashed_blocks: store.hashed_meter(),
        };
        let vouched = if peers.is_empty() { 0 } else { plan.jobs.len() };
        Self {
            sealer: sealer.map(Arc::new),
            seals: std::iter::repeat_with(AtomicU64::default).take(vouched).collect(),
            held: Held::new(!peers.is_empty()),
            reads: Semaphore::new(READS_MAX),
            serving: Arc::new(Semaphore::new(usize::from(room))),
            room: u32::from(room),
            stop: CancellationToken::new(),
            volume,
            backup,
            plan,
            by_checksum,
            store,
            sink,
            peers,
            meter,
            tasks,
        }
    }

    pub(super) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Finds out who is there already.
    pub(super) async fn greet(&self) {
        self.peers.look(&self.volume, &self.backup).await;
    }

    /// Lets what is being written for others come to its end, and fetches no more for them.
    pub(super) async fn drain(&self) {
        self.stop.cancel();
        // It fails where this was done before.
        let _all = self.serving.acquire_many(self.room).await;
        self.serving.close();
    }

    fn is_of(&self, volume: &Name, backup: &Name) -> bool {
        self.volume == *volume && self.backup == *backup
    }

    fn index(&self, block: &Checksum) -> Option<usize> {
        let found = self
            .by_checksum
            .binary_search_by_key(&Some(*block), |index| checksum_of(&self.plan, *index));
        usize::try_from(*self.by_checksum.get(found.ok()?)?).ok()
    }

    fn job(&self, block: &Checksum) -> Option<&Job> {
        self.plan.jobs.get(self.index(block)?)
    }

    fn remember(&self, block: &Checksum, seal: Option<Seal>) {
        let place = self.index(block).and_then(|index| self.seals.get(index));
        if let (Some(place), Some(seal)) = (place, seal) {
            place.store(seal.number(), Ordering::Relaxed);
        }
    }

    fn remembered(&self, block: &Checksum) -> Option<Vouch> {
        let number = self.seals.get(self.index(block)?)?.load(Ordering::Relaxed);
        self.vouch(Seal::from_number(number))
    }

    fn vouch(&self, seal: Option<Seal>) -> Option<Vouch> {
        Some((seal?, self.sealer.as_ref()?.name().to_vec()))
    }

    fn here(&self, object: Object) -> Served {
        let (packing, seal) = (self.store.compression(), self.vouch(object.seal));
        Served::Here { packing, packed: object.packed, seal }
    }

    fn has_blocks(&self) -> bool {
        self.sink.has_any()
    }
}

/// What others ask.
impl Shared {
    /// A block for another agent: as it was fetched if that was a moment ago, else read again from the
    /// file, else fetched for both.
    async fn serve(self: &Arc<Self>, block: &Checksum, may_fetch: MayFetch) -> Served {
        let Some(job) = self.job(block) else { return Served::Absent };
        if let Some((object, _)) = self.held.get(block) {
            return self.here(object);
        }
        if let Some(at) = job.offsets.iter().copied().find(|at| self.sink.is_written(*at)) {
            return self.read_back(block, at).await;
        }
        if may_fetch == MayFetch::No {
            return Served::Later;
        }
        let room = Arc::clone(&self.serving).acquire_owned();
        let Ok(Ok(permit)) = tokio::time::timeout(ROOM, room).await else { return Served::Later };
        let (answer, answered) = oneshot::channel();
        let (own, block) = (Arc::clone(self), *block);
        // It goes on when the one who asked hangs up: it is fetched for this agent as well.
        self.tasks.spawn("fetch a block for another", async move {
            own.fetch_for_both(block, permit, answer).await;
        });
        answered.await.unwrap_or(Served::Later)
    }

    async fn read_back(&self, block: &Checksum, offset: u64) -> Served {
        let Ok(_turn) = self.reads.acquire().await else { return Served::Later };
        let (sink, len_bytes) = (Arc::clone(&self.sink), self.plan.block_size.bytes());
        let read = move || sink.read_block(offset, len_bytes);
        let seal = self.remembered(block);
        packed_again(&self.tasks, read, seal).await.unwrap_or_else(|error| {
            tracing::warn!(error = error.text(), offset, "a restored block cannot be read again");
            Served::Failed
        })
    }

    /// The other has it as soon as it is here; then it is written, so that it need not be kept.
    async fn fetch_for_both(
        self: Arc<Self>,
        block: Checksum,
        permit: OwnedSemaphorePermit,
        answer: oneshot::Sender<Served>,
    ) {
        let fetched = self.stop.run_until_cancelled(self.verified(&block, Taker::Other)).await;
        let Some(Ok((object, cell))) = fetched else {
            // Who hung up asks for nothing.
            let _ = answer.send(Served::Failed);
            return;
        };
        let _ = answer.send(self.here(object.clone()));
        if cell.is_own() {
            return;
        }
        let Ok(content) = self.content(object, &cell, &block).await else {
            // Its own turn comes, and reports it.
            return;
        };
        let tasks = self.tasks.clone();
        let write = move || {
            let _permit = permit;
            self.write(&block, &content)
        };
        match tasks.blocking("write a block", write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "a block was not written yet"),
            Err(error) => tracing::warn!(%error, "a block was not written yet"),
        }
    }

    fn write(&self, block: &Checksum, content: &[u8]) -> io::Result<()> {
        let Some(job) = self.job(block) else { return Ok(()) };
        let all = job.offsets.iter().copied();
        let wanted: Vec<u64> = all.filter(|at| !self.sink.is_written(*at)).collect();
        write_block(self.sink.as_ref(), content, &wanted, self.plan.is_incremental)
    }

    /// From the store and verified, once for all who want it now. Gives the place where it is held, too.
    async fn verified(
        &self,
        block: &Checksum,
        taker: Taker,
    ) -> Result<(Object, Arc<Cell>), FetchError> {
        let is_written = |block: &Checksum| {
            let job = self.job(block);
            job.is_none_or(|job| job.offsets.iter().all(|at| self.sink.is_written(*at)))
        };
        let cell = self.held.cell(block, taker, is_written);
        let fetch = || async {
            let (packed, packing) = (self.store.packed(block).await?, self.store.compression());
            let sealer = self.sealer.as_ref();
            let verified = self.store.verify(packing, packed.clone(), block, sealer).await?;
            let (content, seal) = verified;
            self.remember(block, seal);
            cell.put(content);
            Ok::<_, FetchError>(Object { packed, seal })
        };
        let fetched = cell.object.get_or_try_init(fetch).await.cloned();
        if fetched.is_err() {
            self.held.forget(block);
        }
        Ok((fetched?, cell))
    }

    /// What is in an object that is held here: as it was unpacked, or unpacked again.
    async fn content(
        &self,
        object: Object,
        cell: &Cell,
        block: &Checksum,
    ) -> Result<Bytes, FetchError> {
        if let Some(content) = cell.take() {
            return Ok(content);
        }
        let (packing, Object { packed, seal }) = (self.store.compression(), object);
        match seal.zip(self.sealer.as_ref()) {
            Some(vouched) => self.store.believe(packing, packed, block, vouched).await,
            None => self.store.unpack(packing, packed, block).await,
        }
    }
}

/// What this agent asks.
#[tonic::async_trait]
impl Fetch for Shared {
    async fn fetch(&self, block: &Checksum) -> Result<Bytes, FetchError> {
        let Some(job) = self.job(block) else { return self.store.fetch(block).await };
        if let Some((object, cell)) = self.held.get(block) {
            return self.content(object, &cell, block).await;
        }
        let mut suspects = Vec::new();
        let fetched = if let Some(content) = self.take(job, &mut suspects).await {
            Ok(content)
        } else {
            let (object, cell) = self.verified(block, Taker::Own).await?;
            self.content(object, &cell, block).await
        };
        if fetched.is_ok() {
            // What they gave was not the block, and there is one.
            for peer in suspects {
                self.peers.leave_out(peer);
            }
        }
        fetched
    }

    fn path_of(&self, block: &Checksum) -> String {
        self.store.path_of(block)
    }
}

impl Shared {
    /// From those whose turn comes before our own, and from those who were here before us.
    async fn take(&self, job: &Job, suspects: &mut Vec<usize>) -> Option<Bytes> {
        let (first, last) = order(job.checksum.lot(), self.peers.count(), self.peers.own_index());
        for peer in first {
            if let Some(content) = self.take_from(peer, job, MayFetch::Yes, suspects).await {
                return Some(content);
            }
        }
        for peer in last.into_iter().filter(|peer| self.peers.is_ahead(*peer)) {
            if let Some(content) = self.take_from(peer, job, MayFetch::No, suspects).await {
                return Some(content);
            }
        }
        None
    }

    async fn take_from(
        &self,
        peer: usize,
        job: &Job,
        may_fetch: MayFetch,
        suspects: &mut Vec<usize>,
    ) -> Option<Bytes> {
        let request = BlockRequest {
            volume: self.volume.to_string(),
            backup: self.backup.to_string(),
            checksum: job.checksum.to_string(),
            offset: job.offsets.first().copied()?,
            block_bytes: self.plan.block_size.bytes(),
            may_fetch: may_fetch == MayFetch::Yes,
        };
        let asked = self.peers.ask(peer, request).await?;
        let len_bytes = u64::try_from(asked.packed.len()).unwrap_or(u64::MAX);
        match self.checked(asked, &job.checksum).await {
            Ok((content, seal)) => {
                self.remember(&job.checksum, seal);
                self.meter.taken_bytes.fetch_add(len_bytes, Ordering::Relaxed);
                Some(content)
            }
            Err(error) => {
                tracing::debug!(peer, %error, "another gave something else than the block");
                suspects.push(peer);
                None
            }
        }
    }
}

impl Shared {
    /// What another gave: believed where it has the key of this restore, else verified. Gives the seal
    /// for those who ask here.
    async fn checked(
        &self,
        asked: Asked,
        block: &Checksum,
    ) -> Result<(Bytes, Option<Seal>), FetchError> {
        let Asked { packing, packed, seal, sealed_by } = asked;
        let sealer = self.sealer.as_ref();
        let own = sealer.filter(|sealer| sealer.name() == sealed_by);
        match seal.zip(own) {
            Some(vouched) => {
                let content = self.store.believe(packing, packed, block, vouched).await?;
                Ok((content, Some(vouched.0)))
            }
            None => self.store.verify(packing, packed, block, sealer).await,
        }
    }
}

/// A block that was restored, packed for the way: most of many is zeros.
async fn packed_again(
    tasks: &Tasks,
    read: impl FnOnce() -> io::Result<Vec<u8>> + Send + 'static,
    seal: Option<Vouch>,
) -> Result<Served, JobError> {
    let work = move || pack(Compression::Lz4, &read()?);
    let packed = tasks.blocking("read a block again", work).await?;
    let packed = packed.during("read", "a restored block")?;
    Ok(Served::Here { packing: Compression::Lz4, packed: packed.into(), seal })
}

fn checksum_of(plan: &Plan, index: u32) -> Option<Checksum> {
    let index = usize::try_from(index).ok()?;
    plan.jobs.get(index).map(|job| job.checksum)
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = out.debug_struct("Shared");
        shown.field("volume", &self.volume).field("backup", &self.backup).finish_non_exhaustive()
    }
}
