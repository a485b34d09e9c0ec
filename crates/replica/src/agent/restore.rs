//! Restoring a backup into this replica: started by a call that answers when the lock is held and the
//! file is there, and carried out after it.
//!
//! What the replica holds is whole at every moment but while changes that are all here are folded into
//! its snapshot; that is written down first, and can be done again.

mod fanout;
mod record;
mod sink;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use backupstore::restore::{FileSink, Held, OnDamage, Plan, RestoreBegun, RestoreRequest, Sealer};
use backupstore::{BackupStore, BackupUrl, Control, DamagedBlocks, Environment, Name};
use durable::{Mode, RealDisk};
use rpc::Deadline;
use rpc::ptypes::{BackupRestoreRequest, RestoreStatusResponse};
use tokio::sync::oneshot;
use wire::membership::Claim;

pub(super) use self::fanout::{Current, FanOutService};
use self::fanout::{Parts, Peers, Shared};
pub(super) use self::record::Restores;
use self::record::{Kind, Record, Step, Unfinished, decide, has_backing};
use self::sink::{Below, Map, ResumedSink, fill_holes, fingerprint, fold};
use super::error::{Asking, JobError};
use super::sync::sync_dir;
use super::{Agent, backup, cloning};
use crate::disk::{DiskName, During, checksum_file, meta_file};

pub(crate) async fn start(
    agent: &Arc<Agent>,
    request: BackupRestoreRequest,
    claim: Option<Claim>,
) -> Result<(), JobError> {
    if request.snapshot_disk_name.is_empty() {
        return Err(JobError::NoSnapshotDisk);
    }
    if request.backup.is_empty() {
        return Err(JobError::NoBackupUrl);
    }
    if agent.statuses.board().rebuild.is_running() {
        return Err(JobError::AlreadyRebuilding);
    }
    agent.check_claim(claim.as_ref()).await?;
    let url = BackupUrl::parse(&request.backup)?;
    let (volume, backup) = url.require_backup()?;
    let job = Job {
        agent: Arc::clone(agent),
        disk: DiskName::of_either(&request.snapshot_disk_name)?,
        environment: Environment::from_pairs(request.credential),
        control: Control::under(&agent.tasks.token()),
        volume: volume.clone(),
        backup: backup.clone(),
        limit: backup::limit(request.concurrent_limit),
        bytes_per_second: Some(request.holdfast_bytes_per_second).filter(|rate| *rate > 0),
        on_damage: if request.holdfast_go_on { OnDamage::GoOn } else { OnDamage::Fail },
        together: request.holdfast_together,
        own_index: request.holdfast_own_index,
        key: request.holdfast_key,
        companions: request.holdfast_companions,
        text: request.backup,
        url,
    };
    let (restores, name, control) =
        (Arc::clone(&agent.restores), job.backup.to_string(), job.control.clone());
    let begin = move || restores.begin(&name, &control);
    let record = agent.tasks.blocking("begin a restore", begin).await??;
    agent.fan_out.prepare(&job.volume, &job.backup);
    let (answer, answered) = oneshot::channel();
    agent.tasks.spawn_draining("restore a backup", move |_| async move {
        let running = Running { agent: Arc::clone(&job.agent), is_over: false };
        match job.prepare(record).await {
            Ok(prepared) => {
                // Who hung up asks for the status.
                let _ = answer.send(Ok(()));
                let outcome = async {
                    let adoption = job.agent.adoption().await?;
                    let left_out = job.carry_out(prepared).await?;
                    job.agent.tell_filled(adoption).await?;
                    Ok(left_out)
                };
                let outcome = outcome.await;
                running.finish(&job, outcome).await;
            }
            Err(error) => {
                tracing::warn!(backup = %job.backup, error = error.text(), "no restore was begun");
                drop(running);
                let _ = answer.send(Err(error));
            }
        }
    });
    answered.await.map_err(|_| JobError::Stopped)?
}

pub(crate) async fn status(agent: &Agent) -> Result<RestoreStatusResponse, JobError> {
    let restores = Arc::clone(&agent.restores);
    Ok(agent.tasks.blocking("look at the restore", move || restores.status()).await?)
}

pub(crate) async fn reset(agent: &Agent) -> Result<(), JobError> {
    let restores = Arc::clone(&agent.restores);
    agent.tasks.blocking("forget the restore", move || restores.reset()).await?
}

/// The right to be the restore that runs.
struct Running {
    agent: Arc<Agent>,
    is_over: bool,
}

impl Running {
    async fn finish(mut self, job: &Job, outcome: Result<DamagedBlocks, JobError>) {
        match &outcome {
            Ok(left_out) if left_out.is_empty() => {
                tracing::info!(backup = %job.backup, "a backup is restored");
            }
            Ok(left_out) => {
                tracing::warn!(backup = %job.backup, %left_out, "a backup is restored in part");
            }
            Err(error) => {
                tracing::warn!(backup = %job.backup, error = error.text(), "a restore failed");
            }
        }
        let text = |it: DamagedBlocks| if it.is_empty() { String::new() } else { it.to_string() };
        let outcome = outcome.map(text);
        let (restores, name) = (Arc::clone(&self.agent.restores), job.backup.to_string());
        let finish = move || restores.finish(&name, outcome);
        // It fails only where the program ends; the record says what is unfinished.
        let _ = job.agent.tasks.blocking("end a restore", finish).await;
        self.is_over = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_over {
            self.agent.restores.revert();
        }
        // What is restored is now read from the snapshot by those who ask.
        self.agent.fan_out.end();
    }
}

/// One call.
struct Job {
    agent: Arc<Agent>,
    disk: DiskName,
    environment: Environment,
    control: Control,
    url: BackupUrl,
    /// As it was given.
    text: String,
    volume: Name,
    backup: Name,
    limit: usize,
    bytes_per_second: Option<u64>,
    on_damage: OnDamage,
    /// Those who restore together, and which of them this is.
    together: Vec<String>,
    own_index: u32,
    /// What only they know.
    key: Vec<u8>,
    /// All that are asked, by names that are theirs until they are filled anew.
    companions: Vec<String>,
}

/// A restore that has its lock and its file.
struct Prepared {
    kind: Kind,
    file: String,
    begun: RestoreBegun,
    sink: Arc<ResumedSink>,
    below: Below,
}

impl Job {
    async fn prepare(&self, record: Record) -> Result<Prepared, JobError> {
        let store = BackupStore::open(&self.url.target, &self.environment).await;
        let store = store.map_err(|error| started(Kind::Full, error.into()))?;
        let stored = self.stored(&store, &record).await?;
        let (kind, previous) = self.decide(&record, &stored).await?;
        match self.prepare_as(&store, &record, &stored, kind, &previous).await {
            // What is there cannot be the base: then all of it.
            Err(JobError::Backup(backupstore::Error::BlockSizeChanged { .. })) => {
                let kind = Kind::Replace;
                let prepared = self.prepare_as(&store, &record, &stored, kind, "").await;
                prepared.map_err(|error| started(kind, error))
            }
            prepared => prepared.map_err(|error| started(kind, error)),
        }
    }

    /// What the store has now under the names that are known here.
    async fn stored(
        &self,
        store: &BackupStore,
        record: &Record,
    ) -> Result<BTreeMap<String, Held>, JobError> {
        let begun = record.unfinished.as_ref().filter(|begun| begun.backup == self.backup.as_str());
        let begun = begun.map(|begun| [begun.backup.as_str(), begun.previous.as_str()]);
        let mut stored = BTreeMap::new();
        for name in begun.into_iter().flatten().chain([record.last_restored.as_str()]) {
            let Ok(known) = Name::parse(name) else { continue };
            if !stored.contains_key(name)
                && let Some(held) = store
                    .held(&self.volume, &known)
                    .await
                    .map_err(|error| started(Kind::Incremental, error.into()))?
            {
                stored.insert(name.to_owned(), held);
            }
        }
        Ok(stored)
    }

    async fn decide(
        &self,
        record: &Record,
        stored: &BTreeMap<String, Held>,
    ) -> Result<(Kind, String), JobError> {
        let (restores, disk) = (Arc::clone(&self.agent.restores), self.disk.clone());
        let look = move || restores.has_disk(&disk);
        let in_chain = self.agent.tasks.blocking("look for a disk", look).await?;
        match decide(record, self.backup.as_str(), in_chain, stored) {
            Step::Restore(kind, previous) => Ok((kind, previous)),
            Step::Nothing => {
                self.remember(record, stored).await?;
                Err(JobError::AlreadyRestored(self.backup.to_string()))
            }
        }
    }

    /// What was restored is what the store has: from now on it is known by more than its name.
    async fn remember(
        &self,
        record: &Record,
        stored: &BTreeMap<String, Held>,
    ) -> Result<(), JobError> {
        let now = stored.get(self.backup.as_str());
        if now.is_none() || now == record.held.as_ref() {
            return Ok(());
        }
        let (restores, held) = (Arc::clone(&self.agent.restores), now.cloned());
        let write = move || restores.write(|record| record.held = held);
        self.agent.tasks.blocking("write down what is restored", write).await?
    }

    /// Between the look and the lock, a backup may have been deleted and made again.
    fn check_unchanged(
        &self,
        stored: &BTreeMap<String, Held>,
        previous: &str,
        begun: &RestoreBegun,
    ) -> Result<(), JobError> {
        for (name, now) in [(self.backup.as_str(), Some(begun.held())), (previous, begun.base())] {
            if let Some((seen, now)) = stored.get(name).zip(now)
                && !seen.is_same(now)
            {
                let text = format!("backup {name} was deleted and made again just now");
                return Err(JobError::Refused(text));
            }
        }
        Ok(())
    }

    async fn prepare_as(
        &self,
        store: &BackupStore,
        record: &Record,
        stored: &BTreeMap<String, Held>,
        kind: Kind,
        previous: &str,
    ) -> Result<Prepared, JobError> {
        let file = match kind {
            Kind::Full => self.disk.to_string(),
            Kind::Replace => format!("{}.snap_tmp", self.disk),
            Kind::Incremental => format!("volume-delta-{previous}.img"),
        };
        let base = match previous {
            "" => None,
            name => Some(Name::parse(name)?),
        };
        let mut request = RestoreRequest::new(self.volume.clone(), self.backup.clone());
        request.previous.clone_from(&base);
        request.concurrent_limit = self.limit;
        request.on_damage = self.on_damage;
        request.fetch.bytes_per_second = self.bytes_per_second;
        let begun = store.begin_restore(request, &self.control).await?;
        let opened = match self.check_unchanged(stored, previous, &begun) {
            Ok(()) => self.open(record, kind, previous, &file, &begun).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok((sink, below)) => Ok(Prepared { kind, file, begun, sink: Arc::new(sink), below }),
            Err(error) => {
                // Gives the lock back.
                self.control.cancel();
                let nowhere = Arc::new(Nowhere);
                let _ = begun.run(nowhere, &self.control).await;
                Err(error)
            }
        }
    }

    /// The file, with what an earlier try has left in it, and the record of it.
    async fn open(
        &self,
        record: &Record,
        kind: Kind,
        previous: &str,
        file: &str,
        restore: &RestoreBegun,
    ) -> Result<(ResumedSink, Below), JobError> {
        let plan = restore.plan();
        let begun = Unfinished {
            backup: self.backup.to_string(),
            held: Some(restore.held().clone()),
            kind,
            previous: previous.to_owned(),
            base: restore.base().cloned(),
            file: file.to_owned(),
            plan: fingerprint(plan),
            written: Vec::new(),
            companions: self.companions.clone(),
        };
        let (volume_bytes, block_bytes) = (plan.volume_bytes, plan.block_size.bytes());
        let (dir, restores) = (self.agent.dir.clone(), Arc::clone(&self.agent.restores));
        let (earlier, disk, url) =
            (record.unfinished.clone(), self.disk.to_string(), self.text.clone());
        let open = move || {
            let (sink, kept) = open_file(&dir, &restores, earlier, &begun, volume_bytes)?;
            let written = kept.0.clone();
            restores.write(|record| {
                record.snapshot = disk;
                record.url = url;
                record.unfinished = Some(Unfinished { written, ..begun });
            })?;
            let below = if has_backing(&dir) { Below::Backing } else { Below::Nothing };
            let save = move |map: &Map| {
                let keep = |record: &mut Record| {
                    if let Some(unfinished) = &mut record.unfinished {
                        unfinished.written.clone_from(&map.0);
                    }
                };
                restores.write(keep).map_err(|error| io::Error::other(error.text()))
            };
            Ok::<_, JobError>((ResumedSink::new(sink, block_bytes, kept, Box::new(save)), below))
        };
        self.agent.tasks.blocking("open the file of a restore", open).await?
    }

    /// What could not be had is given, where that is no error.
    async fn carry_out(&self, prepared: Prepared) -> Result<DamagedBlocks, JobError> {
        let Prepared { kind, file, begun, sink, below } = prepared;
        let plan = begun.plan_shared();
        let left_out = self.fetch(begun, &sink).await?;
        if kind != Kind::Incremental && below == Below::Backing {
            let (sink, plan, name) = (Arc::clone(&sink), Arc::clone(&plan), file.clone());
            let fill = move || fill_holes(&sink, &plan).during("fill", &name);
            self.agent.tasks.blocking("fill holes", fill).await??;
        }
        match kind {
            Kind::Full => cloning::adopt(&self.agent, &self.disk).await,
            Kind::Replace => self.replace(file).await,
            Kind::Incremental => self.fold(file, sink, plan, below).await,
        }?;
        Ok(left_out)
    }

    /// Has all blocks in the file, with those who restore the same.
    async fn fetch(
        &self,
        begun: RestoreBegun,
        sink: &Arc<ResumedSink>,
    ) -> Result<DamagedBlocks, JobError> {
        let (plan, store) = (begun.plan_shared(), begun.fetch());
        let shared = Arc::new(Shared::new(Parts {
            volume: self.volume.clone(),
            backup: self.backup.clone(),
            peers: self.peers(&plan),
            sealer: self.sealer(),
            tasks: self.agent.tasks.clone(),
            sink: Arc::clone(sink),
            plan,
            store,
        }));
        self.agent.restores.count(shared.meter());
        self.agent.fan_out.ready(Arc::clone(&shared));
        shared.greet().await;
        let fetch = Arc::clone(&shared);
        let done = begun.run_with(fetch, Arc::clone(sink) as _, &self.control).await;
        shared.drain().await;
        if done.is_err() {
            // So that the next try begins where this one ended; without it, a little earlier.
            let sink = Arc::clone(sink);
            let _ = self.agent.tasks.blocking("keep what came", move || sink.checkpoint()).await;
        }
        let meter = shared.meter();
        tracing::info!(
            backup = %self.backup,
            fetched_bytes = meter.fetched_bytes.load(Ordering::Relaxed),
            taken_bytes = meter.taken_bytes.load(Ordering::Relaxed),
            "the blocks came from the store and from other replicas"
        );
        Ok(done?.damaged)
    }

    fn peers(&self, plan: &Plan) -> Peers {
        let volume = &self.agent.identity.volume;
        Peers::new(&self.together, self.own_index, volume, plan.block_size, self.bytes_per_second)
    }

    /// Of those who were told the same secret about the same restore of the same volume. Where this one
    /// was told none, or does not know its volume, it vouches for nothing and believes nobody.
    fn sealer(&self) -> Option<Sealer> {
        let about =
            [self.agent.identity.volume.as_str(), self.volume.as_str(), self.backup.as_str()];
        Sealer::shared(&self.key, &about).or_else(Sealer::own)
    }

    /// The file takes the place of the snapshot.
    async fn replace(&self, file: String) -> Result<(), JobError> {
        let (dir, disk) = (self.agent.dir.clone(), self.disk.clone());
        let restores = Arc::clone(&self.agent.restores);
        let replace = move || {
            // From here on it may be the one or the other.
            restores.write(|record| record.last_restored.clear())?;
            fs::rename(dir.join(&file), dir.join(disk.as_str())).during("rename", &file)?;
            forget_checksum(&dir, &disk);
            sync_dir(&dir)?;
            let meta = dir.join(meta_file(&disk));
            durable::on::replace(&RealDisk, &meta, cloning::ROOT_META, Mode::PUBLIC)?;
            Ok::<_, JobError>(())
        };
        self.agent.tasks.blocking("replace a snapshot", replace).await??;
        self.reload().await
    }

    async fn fold(
        &self,
        file: String,
        delta: Arc<ResumedSink>,
        plan: Arc<Plan>,
        below: Below,
    ) -> Result<(), JobError> {
        let (dir, disk) = (self.agent.dir.clone(), self.disk.clone());
        let restores = Arc::clone(&self.agent.restores);
        let (gone, snapshot) = (dir.join(&file), dir.join(disk.as_str()));
        let work = move || {
            // From here on until the end it holds parts of both.
            restores.write(|record| record.last_restored.clear())?;
            forget_checksum(&dir, &disk);
            fold(&delta, &snapshot, &plan, below).during("fold the changes into", &disk)?;
            Ok::<_, JobError>(())
        };
        self.agent.tasks.blocking("fold changes", work).await??;
        self.reload().await?;
        let remove = move || fs::remove_file(&gone).during("remove", gone.display());
        Ok(self.agent.tasks.blocking("remove a file", remove).await??)
    }

    async fn reload(&self) -> Result<(), JobError> {
        let mut replica = self.agent.own_replica(Deadline::Usual)?;
        replica.replica_reload(()).await.asking("reload", &self.agent.replica)?;
        Ok(())
    }
}

fn started(kind: Kind, source: JobError) -> JobError {
    match source {
        JobError::RestoreStart { .. } => source,
        other => JobError::RestoreStart { kind: kind.word(), source: Box::new(other) },
    }
}

/// The file as an earlier try of the same left it, or a new one.
fn open_file(
    dir: &std::path::Path,
    restores: &Restores,
    earlier: Option<Unfinished>,
    begun: &Unfinished,
    volume_bytes: u64,
) -> Result<(FileSink, Map), JobError> {
    let path = dir.join(&begun.file);
    if let Some(earlier) = earlier {
        let is_same = earlier.backup == begun.backup
            && earlier.kind == begun.kind
            && earlier.previous == begun.previous
            && earlier.plan == begun.plan;
        let old = dir.join(&earlier.file);
        if is_same && fs::metadata(&old).is_ok_and(|found| found.len() == volume_bytes) {
            if old != path {
                // Asked for under another name this time.
                fs::rename(&old, &path).during("rename", &earlier.file)?;
                sync_dir(dir)?;
            }
            let sink = FileSink::open(&path).during("open", &begun.file)?;
            return Ok((sink, Map(earlier.written)));
        }
        if earlier.file != begun.file {
            restores.remove_left(&earlier);
        }
    }
    let sink = FileSink::create(&path, volume_bytes).during("create", &begun.file)?;
    sync_dir(dir)?;
    Ok((sink, Map::default()))
}

/// It is of what the snapshot was.
fn forget_checksum(dir: &std::path::Path, disk: &DiskName) {
    let _ = fs::remove_file(dir.join(checksum_file(disk)));
}

/// For a restore that is given up before it began.
struct Nowhere;

impl backupstore::restore::Sink for Nowhere {
    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn zero(&self, _: u64, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
