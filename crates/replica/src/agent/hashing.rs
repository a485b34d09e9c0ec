//! Checksums of snapshots, asked for by name. Owns which jobs are known and for how long; how an
//! image is hashed is in `disk::Hash`.

mod lock;

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rpc::ptypes::SnapshotHashStatusResponse;
use tasks::CancellationToken;

pub(super) use self::lock::HashLock;
use super::Agent;
use super::error::JobError;
use crate::disk::{Checksum, DiskName, Hash, HashOutcome, Progress, checksum_file};

/// Read before a cancellation is looked for.
const STEP_BYTES: u64 = 64 * 1024 * 1024;
/// Jobs remembered, of those that went well and of those that did not.
const REMEMBERED: usize = 10;
const RECORD_MAX_BYTES: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct HashJobs(Mutex<Jobs>);

impl HashJobs {
    fn lock(&self) -> MutexGuard<'_, Jobs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reset(&self) {
        self.lock().forget();
    }
}

/// Begins to hash a snapshot, unless that is going on.
pub(crate) fn start(agent: &Arc<Agent>, snapshot: &str, rehash: bool) -> Result<(), JobError> {
    let disk = DiskName::of_either(snapshot)?;
    let cancel = agent.tasks.token().child_token();
    agent.hashes.lock().begin(&disk, cancel.clone())?;
    let (own, running) =
        (Arc::clone(agent), Running { agent: Arc::clone(agent), disk: disk.clone() });
    agent.tasks.spawn("hash a snapshot", async move {
        let outcome = cancel.run_until_cancelled(hash(&own, &disk, rehash)).await;
        let cancelled = || Err(JobError::HashCancelled(disk.to_string()));
        running.end(outcome.unwrap_or_else(cancelled));
    });
    Ok(())
}

async fn hash(agent: &Agent, disk: &DiskName, rehash: bool) -> Result<Checksum, JobError> {
    let tasks = &agent.tasks;
    let _turn = agent.hash_lock.acquire(tasks).await?;
    let (dir, name) = (agent.dir.clone(), disk.clone());
    let begin = move || Hash::new(&dir, &name, rehash);
    let mut work = tasks.blocking("begin to hash", begin).await??;
    loop {
        let step = move || work.step(STEP_BYTES).map(|progress| (progress, work));
        let (progress, rest) = tasks.blocking("hash", step).await??;
        work = rest;
        match progress {
            Progress::Done => break,
            Progress::Working(_) => {}
        }
    }
    let finish = move || work.finish(&super::now());
    match tasks.blocking("record a checksum", finish).await?? {
        HashOutcome::Kept(record) | HashOutcome::Made(record) => Ok(record),
    }
}

/// Where the hash of a snapshot stands; from its record if no job is known.
pub(crate) async fn status(agent: &Agent, snapshot: &str) -> SnapshotHashStatusResponse {
    let disk = match DiskName::of_either(snapshot) {
        Ok(disk) => disk,
        Err(error) => return failed(error.text()),
    };
    if let Some(known) = agent.hashes.lock().status(&disk) {
        return known;
    }
    let dir = agent.dir.clone();
    let read = move || read_record(&dir, &disk);
    match agent.tasks.blocking("read a checksum", read).await {
        Ok(Ok(Some(record))) => complete(&record),
        Ok(Ok(None)) => SnapshotHashStatusResponse::default(),
        Ok(Err(error)) => failed(error.text()),
        Err(error) => failed(error.to_string()),
    }
}

fn read_record(dir: &Path, disk: &DiskName) -> Result<Option<Checksum>, JobError> {
    let bytes = match durable::read_limited(dir.join(checksum_file(disk)), RECORD_MAX_BYTES) {
        Err(error) if error.is_not_found() => return Ok(None),
        other => other?,
    };
    let damaged = |error: serde_json::Error| crate::disk::Error::Damaged {
        file: checksum_file(disk),
        why: error.to_string(),
    };
    Ok(Some(serde_json::from_slice(&bytes).map_err(damaged)?))
}

/// Ends a job; one that does not run is fine.
pub(crate) fn cancel(agent: &Agent, snapshot: &str) {
    if let Ok(disk) = DiskName::of_either(snapshot) {
        agent.hashes.lock().cancel(&disk);
    }
}

/// Makes sure that a job that breaks down does not count as running for ever.
struct Running {
    agent: Arc<Agent>,
    disk: DiskName,
}

impl Running {
    fn end(&self, outcome: Result<Checksum, JobError>) {
        if let Err(error) = &outcome {
            tracing::warn!(disk = %self.disk, error = error.text(), "the snapshot was not hashed");
        }
        self.agent.hashes.lock().end(&self.disk, outcome.map_err(|error| error.text()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut jobs = self.agent.hashes.lock();
        if matches!(jobs.known.get(&self.disk), Some(Job::Running(_))) {
            jobs.end(&self.disk, Err(JobError::Stopped.text()));
        }
    }
}

#[derive(Debug)]
enum Job {
    Running(CancellationToken),
    Complete(Checksum),
    Failed(String),
}

#[derive(Debug, Default)]
struct Jobs {
    known: HashMap<DiskName, Job>,
    /// The oldest first.
    complete: VecDeque<DiskName>,
    failed: VecDeque<DiskName>,
}

impl Jobs {
    fn begin(&mut self, disk: &DiskName, cancel: CancellationToken) -> Result<(), JobError> {
        if let Some(Job::Running(_)) = self.known.get(disk) {
            return Err(JobError::AlreadyHashing(disk.to_string()));
        }
        self.complete.retain(|old| old != disk);
        self.failed.retain(|old| old != disk);
        self.known.insert(disk.clone(), Job::Running(cancel));
        Ok(())
    }

    fn end(&mut self, disk: &DiskName, outcome: Result<Checksum, String>) {
        let (job, ended) = match outcome {
            Ok(record) => (Job::Complete(record), &mut self.complete),
            Err(error) => (Job::Failed(error), &mut self.failed),
        };
        self.known.insert(disk.clone(), job);
        ended.push_back(disk.clone());
        while ended.len() > REMEMBERED {
            if let Some(oldest) = ended.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    fn status(&self, disk: &DiskName) -> Option<SnapshotHashStatusResponse> {
        Some(match self.known.get(disk)? {
            Job::Running(_) => SnapshotHashStatusResponse {
                state: "in_progress".to_owned(),
                ..SnapshotHashStatusResponse::default()
            },
            Job::Complete(record) => complete(record),
            Job::Failed(error) => failed(error.clone()),
        })
    }

    fn cancel(&self, disk: &DiskName) {
        if let Some(Job::Running(cancel)) = self.known.get(disk) {
            cancel.cancel();
        }
    }

    /// All but what runs.
    fn forget(&mut self) {
        self.known.retain(|_, job| matches!(job, Job::Running(_)));
        self.complete.clear();
        self.failed.clear();
    }
}

fn complete(record: &Checksum) -> SnapshotHashStatusResponse {
    SnapshotHashStatusResponse {
        state: "complete".to_owned(),
        checksum: record.checksum.clone(),
        error: String::new(),
        silently_corrupted: record.silently_corrupted,
    }
}

fn failed(error: String) -> SnapshotHashStatusResponse {
    SnapshotHashStatusResponse {
        state: "error".to_owned(),
        error,
        ..SnapshotHashStatusResponse::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(index: usize) -> DiskName {
        DiskName::of_snapshot(&index.to_string()).unwrap()
    }

    #[test]
    fn ten_jobs_of_each_kind_are_remembered() {
        let mut jobs = Jobs::default();
        for index in 0..30 {
            jobs.begin(&disk(index), CancellationToken::new()).unwrap();
            let failed = Err("why".to_owned());
            jobs.end(&disk(index), if index % 2 == 0 { Ok(Checksum::default()) } else { failed });
        }
        let known = |index| jobs.status(&disk(index)).map(|status| status.state);
        assert_eq!(jobs.known.len(), 20);
        assert_eq!((known(9), known(8)), (None, None));
        assert_eq!(known(10).as_deref(), Some("complete"));
        assert_eq!(known(11).as_deref(), Some("error"));
    }

    #[test]
    fn a_snapshot_is_hashed_once_at_a_time_and_may_be_hashed_again() {
        let mut jobs = Jobs::default();
        let cancel = CancellationToken::new();
        jobs.begin(&disk(1), cancel.clone()).unwrap();
        let refused = jobs.begin(&disk(1), CancellationToken::new()).unwrap_err().text();
        assert!(refused.starts_with("cannot request hashing snapshot"), "{refused}");
        jobs.cancel(&disk(1));
        jobs.cancel(&disk(2));
        assert!(cancel.is_cancelled());
        jobs.end(&disk(1), Err("cancelled".to_owned()));
        jobs.begin(&disk(1), CancellationToken::new()).unwrap();
        jobs.forget();
        assert_eq!(jobs.status(&disk(1)).unwrap().state, "in_progress");
        jobs.end(&disk(1), Ok(Checksum::default()));
        assert_eq!((jobs.complete.len(), jobs.failed.len()), (1, 0));
    }
}
