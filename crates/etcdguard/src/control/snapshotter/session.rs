//! One run of the snapshotter against an etcd that answers: it knows what is in the store, has a
//! watch open for what is not, and ends with the first error. What was collected and not saved is
//! read from the etcd again by the next run, so an error loses nothing.

use std::time::{Duration, Instant as StdInstant};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::chain::Chain;
use super::decide::{self, Bond, Facts, Start, Why};
use super::handle::{Request, TriggerError};
use super::history::Known;
use super::tail::Tail;
use super::{Progress, SnapshotError, Tools, full, now, tell};
use crate::control::schedule::wait_until;
use crate::etcd::{Batch, EtcdError, Event, EventType, Watch};
use crate::store::delta::{Event as Change, Op, Spool};
use crate::store::{Kind, Snapshot};

/// Events of this many bytes are packed on a thread of their own.
const INLINE_MAX_BYTES: usize = 64 * 1024;

/// The clock may have been put back; what is planned is looked at anew so often.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(1);

pub(super) struct Session<'t> {
    pub(super) tools: &'t Tools,
    pub(super) chain: Chain,
    pub(super) known: Known,
    /// None without deltas, and while a full snapshot is taken.
    watch: Option<Watch>,
    /// What the watch told and is not in the store.
    spool: Spool,
    /// The last of all that the watch told.
    tail: Tail,
    full_at: Option<Timestamp>,
    delta_at: Instant,
    delta_looks: u64,
    pub(super) last_full_failed: bool,
    /// What was put behind something that cannot be read is of no use in a restore: the next
    /// snapshot is a full one.
    is_full_next: bool,
}

impl<'t> Session<'t> {
    pub(super) fn new(tools: &'t Tools, last_full_failed: bool) -> Self {
        Self {
            tools,
            chain: Chain::default(),
            known: Known::default(),
            watch: None,
            spool: new_spool(tools),
            tail: Tail::default(),
            full_at: None,
            delta_at: Instant::now() + tools.config.delta_period,
            delta_looks: 0,
            last_full_failed,
            is_full_next: false,
        }
    }

    /// Brings the store up to the revision the etcd has now, by a full snapshot or by deltas.
    pub(super) async fn start(&mut self) -> Result<(), SnapshotError> {
        self.read_store().await?;
        let revision = current(self.tools).await?;
        let bond = self.bond(revision).await?;
        let facts = Facts {
            chain: &self.chain,
            schedule: &self.tools.config.schedule,
            now: now(),
            bond: &bond,
            last_full_failed: self.last_full_failed,
        };
        match decide::start(&facts) {
            Start::Full(why) => self.begin_with(why, bond).await,
            Start::Deltas => {
                self.is_full_next = bond == Bond::Unreadable;
                self.go_on(revision).await
            }
        }
    }

    /// A full snapshot whatever is there already.
    pub(super) async fn begin_with_full(&mut self) -> Result<(), SnapshotError> {
        self.read_store().await?;
        let revision = current(self.tools).await?;
        let bond = self.bond(revision).await?;
        self.begin_with(Why::Asked, bond).await
    }

    async fn begin_with(&mut self, why: Why, bond: Bond) -> Result<(), SnapshotError> {
        if let Bond::Other(reason) = bond {
            self.begin_history(&reason).await?;
        }
        tracing::info!("a full snapshot is needed: {why:?}");
        self.full(false).await.map(drop)
    }

    /// What was collected, or is in the store, is of no more use.
    pub(super) fn forget(&mut self) {
        (self.chain, self.watch) = (Chain::default(), None);
        (self.spool, self.tail) = (new_spool(self.tools), Tail::default());
    }

    /// The time of a snapshot that is made now: never before its history began, whatever the clock
    /// says, because times tell histories apart.
    fn stamp(&self) -> Timestamp {
        self.known.since().map_or_else(now, |since| since.max(now()))
    }

    /// Deltas up to `revision`; a full snapshot where the history for them is gone.
    async fn go_on(&mut self, revision: i64) -> Result<(), SnapshotError> {
        self.full_at = self.tools.config.schedule.next(now());
        if !self.tools.config.has_deltas() {
            self.publish();
            return if self.is_full_next { self.full(false).await.map(drop) } else { Ok(()) };
        }
        match self.catch_up(revision).await {
            Ok(()) => {
                self.flush().await?;
                self.publish();
                Ok(())
            }
            Err(SnapshotError::Etcd(error)) => {
                tracing::warn!(
                    "the changes since the last snapshot cannot be read: {}",
                    telemetry::Chain(&error)
                );
                self.full(false).await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    /// Serves timers, the watch and requests, until something fails.
    pub(super) async fn serve(&mut self, requests: &mut mpsc::Receiver<Request>) -> SnapshotError {
        loop {
            if let Err(error) = self.turn(requests).await {
                return error;
            }
        }
    }

    async fn turn(&mut self, requests: &mut mpsc::Receiver<Request>) -> Result<(), SnapshotError> {
        let has_deltas = self.tools.config.has_deltas();
        self.full_at = self.tools.config.schedule.sooner(self.full_at, now());
        tokio::select! {
            Some(request) = requests.recv() => self.answer(request).await,
            () = wait_until(self.full_at) => self.full(false).await.map(drop),
            () = tokio::time::sleep_until(self.delta_at), if has_deltas => {
                self.save_changes().await?;
                self.looked();
                Ok(())
            }
            batch = next(&mut self.watch) => self.take(batch?).await,
            () = tokio::time::sleep(LOOK_AT_CLOCK) => Ok(()),
        }
    }

    async fn answer(&mut self, request: Request) -> Result<(), SnapshotError> {
        match request {
            Request::Full { is_final, reply } => {
                let taken = self.full_on_request(is_final).await;
                let (answer, outcome) = split(taken);
                // Whoever asked may have gone; the snapshot is as good.
                let _ = reply.send(answer);
                outcome
            }
            Request::Delta { reply } if !self.tools.config.has_deltas() => {
                let _ = reply.send(Err(TriggerError::DeltasDisabled));
                Ok(())
            }
            Request::Delta { reply } => {
                let (answer, outcome) = split(self.delta_on_request().await);
                let _ = reply.send(answer);
                self.looked();
                outcome
            }
        }
    }

    async fn full_on_request(&mut self, is_final: bool) -> Result<Snapshot, SnapshotError> {
        let newest = self.chain.newest().filter(|newest| is_final && newest.is_final).cloned();
        if let Some(newest) = newest
            && newest.last_revision == current(self.tools).await?
        {
            return Ok(newest);
        }
        self.full(is_final).await
    }

    /// What covers every write that was acknowledged before: the last delta written for it.
    async fn delta_on_request(&mut self) -> Result<Option<Snapshot>, SnapshotError> {
        let before = self.chain.deltas.len();
        let revision = current(self.tools).await?;
        self.catch_up(revision).await?;
        self.save_changes().await?;
        let fresh = self.chain.deltas.get(before..).unwrap_or_default();
        Ok(fresh.last().cloned())
    }

    /// Reads the watch until it has told of `revision`. Every revision changes a key, so it will.
    async fn catch_up(&mut self, revision: i64) -> Result<(), SnapshotError> {
        self.open_watch().await?;
        let timeout = self.tools.etcd.config().connection_timeout;
        while self.seen() < revision {
            let batch = tokio::time::timeout(timeout, next(&mut self.watch)).await;
            let batch = batch.map_err(|_| {
                let endpoint = self.tools.etcd.endpoint().to_owned();
                EtcdError::Timeout { endpoint, after: timeout }
            })?;
            self.take(batch?).await?;
        }
        Ok(())
    }

    /// The last revision that is in the store or on its way there.
    fn seen(&self) -> i64 {
        self.spool.last_revision().unwrap_or(0).max(self.chain.last_revision())
    }

    async fn open_watch(&mut self) -> Result<(), SnapshotError> {
        if self.watch.is_none() {
            self.watch = Some(self.tools.etcd.watch(self.seen() + 1).await?);
        }
        Ok(())
    }

    /// Takes what the watch told. A revision is never cut, so all pieces of it are read first.
    async fn take(&mut self, mut batch: Batch) -> Result<(), SnapshotError> {
        loop {
            let whole = batch.whole;
            self.collect(batch.events).await?;
            if whole {
                break;
            }
            batch = next(&mut self.watch).await?;
        }
        self.tools.metrics.snapshot_required(Kind::Incr, !self.spool.is_empty());
        if !self.spool.is_empty() {
            self.tools.metrics.snapshot_required(Kind::Full, true);
        }
        if self.spool.text_bytes() >= self.tools.config.delta_limit() {
            self.save_changes().await?;
            self.looked();
        }
        Ok(())
    }

    async fn collect(&mut self, events: Vec<Event>) -> Result<(), SnapshotError> {
        let (stored, time) = (self.chain.last_revision(), now());
        let changes = events.into_iter().filter_map(|event| change(event, time));
        let changes: Vec<Change> = changes.filter(|change| change.mod_revision > stored).collect();
        self.tail.extend(&changes);
        let bytes: usize = changes.iter().map(|change| change.value.len()).sum();
        if bytes <= INLINE_MAX_BYTES {
            return push(&mut self.spool, &changes).map_err(SnapshotError::Spool);
        }
        let mut spool = std::mem::replace(&mut self.spool, new_spool(self.tools));
        let packed = self
            .tools
            .tasks
            .blocking("pack events", move || push(&mut spool, &changes).map(|()| spool));
        let packed =
            packed.await.map_err(|error| SnapshotError::Spool(std::io::Error::other(error)))?;
        self.spool = packed.map_err(SnapshotError::Spool)?;
        Ok(())
    }

    /// As a delta, unless a restore could not reach it.
    async fn save_changes(&mut self) -> Result<(), SnapshotError> {
        if self.is_full_next { self.full(false).await.map(drop) } else { self.flush().await }
    }

    /// Writes what was collected as a delta; nothing where nothing was.
    async fn flush(&mut self) -> Result<(), SnapshotError> {
        let Some(last) = self.spool.last_revision() else { return Ok(()) };
        let spool = std::mem::replace(&mut self.spool, new_spool(self.tools));
        let begun = StdInstant::now();
        let compression = self.tools.config.compression;
        let start = self.chain.last_revision() + 1;
        let delta = Snapshot::delta(start, last, self.stamp(), compression);
        let saved = match spool.finish() {
            Ok(body) => self.save(&delta, body).await,
            Err(error) => Err(SnapshotError::Spool(error)),
        };
        let saved = self.timed(Kind::Incr, begun, saved)?;
        tracing::info!("saved {}", saved.snap_name);
        self.keep_tail(&saved, self.tail.clone());
        self.add(&saved);
        self.tools.metrics.snapshot_required(Kind::Incr, false);
        Ok(())
    }

    /// Takes a full snapshot, and goes on after it.
    async fn full(&mut self, is_final: bool) -> Result<Snapshot, SnapshotError> {
        // What is collected is in the full as well, and what comes meanwhile is after it.
        self.watch = None;
        self.spool = new_spool(self.tools);
        let begun = StdInstant::now();
        self.last_full_failed = true;
        let taken = self.take_full(is_final).await;
        let (saved, tail) = self.timed(Kind::Full, begun, taken)?;
        (self.last_full_failed, self.is_full_next) = (false, false);
        tracing::info!("saved {}", saved.snap_name);
        self.keep_tail(&saved, tail.clone());
        self.tail = tail;
        self.add(&saved);
        for kind in [Kind::Full, Kind::Incr] {
            self.tools.metrics.snapshot_required(kind, false);
        }
        self.full_at = self.tools.config.schedule.next(now());
        if self.tools.config.has_deltas() {
            self.open_watch().await?;
        }
        self.publish();
        Ok(saved)
    }

    async fn take_full(&mut self, is_final: bool) -> Result<(Snapshot, Tail), SnapshotError> {
        // Without a watch nothing tells that the etcd has been replaced meanwhile.
        if !self.tools.config.has_deltas() {
            let revision = current(self.tools).await?;
            if let Bond::Other(reason) = self.bond(revision).await? {
                self.begin_history(&reason).await?;
            }
        }
        let taken = full::take(self.tools).await?;
        let (revision, last) = (taken.revision, self.chain.last_revision());
        if revision < last {
            let reason = format!("etcd is at revision {revision}, and the store at {last}");
            self.begin_history(&reason).await?;
        }
        let compression = self.tools.config.compression;
        let full = Snapshot::full(revision, self.stamp(), compression, is_final);
        let saved = self.save(&full, tokio::fs::File::from_std(taken.body)).await?;
        self.tools.store.found(&saved, true);
        Ok((saved, taken.tail))
    }

    fn timed<T>(
        &self,
        kind: Kind,
        begun: StdInstant,
        outcome: Result<T, SnapshotError>,
    ) -> Result<T, SnapshotError> {
        self.tools.metrics.snapshot_took(kind, outcome.is_ok(), begun.elapsed());
        outcome
    }

    fn add(&mut self, saved: &Snapshot) {
        self.chain.add(Snapshot { history: self.known.current(), ..saved.clone() });
        tell(self.tools.metrics.as_ref(), &self.chain, saved);
    }

    /// A look for changes is over: the next is a period from now.
    fn looked(&mut self) {
        self.delta_looks += 1;
        self.delta_at = Instant::now() + self.tools.config.delta_period.max(Duration::from_secs(1));
        self.publish();
    }

    fn publish(&self) {
        self.tools.progress.send_replace(Some(Progress {
            full: self.chain.full.clone(),
            delta: self.chain.deltas.iter().map(|delta| delta.last_revision).max(),
            delta_looks: self.delta_looks,
            since: self.known.since(),
        }));
    }
}

/// Where the etcd is now.
async fn current(tools: &Tools) -> Result<i64, SnapshotError> {
    let timeout = tools.etcd.config().connection_timeout;
    Ok(tools.etcd.revision(timeout).await?)
}

fn new_spool(tools: &Tools) -> Spool {
    Spool::new(&tools.config.temp_dir, tools.config.compression)
}

fn push(spool: &mut Spool, changes: &[Change]) -> std::io::Result<()> {
    changes.iter().try_for_each(|change| spool.push(change))
}

/// The next piece of the watch; never, where there is none.
async fn next(watch: &mut Option<Watch>) -> Result<Batch, EtcdError> {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

fn change(event: Event, time: Timestamp) -> Option<Change> {
    let op = match event.r#type() {
        EventType::Put => Op::Put,
        EventType::Delete => Op::Delete,
    };
    let kv = event.kv?;
    Some(Change {
        op,
        key: kv.key,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        version: kv.version,
        value: kv.value,
        lease: kv.lease,
        time,
    })
}

/// The answer for whoever asked, and what it means for the run.
fn split<T>(
    outcome: Result<T, SnapshotError>,
) -> (Result<T, TriggerError>, Result<(), SnapshotError>) {
    match outcome {
        Ok(taken) => (Ok(taken), Ok(())),
        Err(error) => (Err(TriggerError::Failed(telemetry::Chain(&error).to_string())), Err(error)),
    }
}
