//! The files of a rebuild, pulled from healthy replicas: for each a receiver here, and a request to
//! the agent there to send. Owns how a rebuild runs; what is copied when is in `queue`, how one
//! file is copied in `receiver` and in the `sender` of the other side.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rpc::Deadline;
use rpc::ptypes::{FileSendRequest, FilesSyncRequest, SyncFileInfo};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue::{Failed, File, Next, Queue, Taken};
use super::receiver::{self, Meter};
use super::{PROGRESS_PERIOD, local};
use crate::agent::error::{Asking, JobError};
use crate::agent::names::FileName;
use crate::agent::status::{Claim, Kind};
use crate::agent::{Agent, agent_of};

/// Copies all files, or says why not. Goes on when the caller hangs up.
pub(crate) async fn files_sync(
    agent: Arc<Agent>,
    request: FilesSyncRequest,
) -> Result<(), JobError> {
    let sources = sources(&request);
    let files = files(&request.sync_file_info_list)?;
    if files.is_empty() || sources.is_empty() {
        return Err(JobError::NothingToSync);
    }
    let claim = agent.statuses.begin(Kind::Rebuild, &agent.replica, |board| {
        board.rebuild_sources.clone_from(&sources);
    })?;
    let own = Arc::clone(&agent);
    let work = async move {
        let outcome = async {
            let adoption = own.adoption().await?;
            forget_restores(&own).await?;
            sync(&own, &claim, files, sources, &request).await?;
            own.tell_filled(adoption).await
        };
        let outcome = outcome.await;
        if let Err(error) = &outcome {
            tracing::warn!(error = error.text(), "the files were not synced");
        }
        claim.finish(&outcome);
        outcome
    };
    agent.detached("sync files", work).await?
}

async fn forget_restores(agent: &Agent) -> Result<(), JobError> {
    let restores = Arc::clone(&agent.restores);
    agent.tasks.blocking("forget the restore", move || restores.forget()).await?
}

fn sources(request: &FilesSyncRequest) -> Vec<String> {
    let mut sources: Vec<_> = request.from_address_map.keys().cloned().collect();
    if sources.is_empty() && !request.from_address.is_empty() {
        sources.push(request.from_address.clone());
    }
    sources.sort();
    sources
}

fn files(list: &[SyncFileInfo]) -> Result<Vec<File>, JobError> {
    let mut seen = HashSet::new();
    let file = |named: &SyncFileInfo| {
        let to = FileName::parse(&named.to_file_name)?;
        // Two that are written at once would be neither.
        if !seen.insert(to.clone()) {
            return Err(JobError::ListedTwice(to.to_string()));
        }
        Ok(File {
            from: FileName::parse(&named.from_file_name)?,
            to,
            weight_bytes: u64::try_from(named.actual_size).unwrap_or(0),
        })
    };
    list.iter().map(file).collect()
}

async fn sync(
    agent: &Arc<Agent>,
    claim: &Claim,
    files: Vec<File>,
    sources: Vec<String>,
    request: &FilesSyncRequest,
) -> Result<(), JobError> {
    if let Some(paths) = &request.local_sync {
        match local::copy(agent, claim, &files, paths).await {
            Ok(()) => return Ok(()),
            Err(error) => {
                tracing::info!(error = error.text(), "not copied locally, trying remotely");
            }
        }
    }
    let started = Instant::now();
    let pull = Pull {
        agent,
        request,
        started,
        queue: Mutex::new(Queue::new(files, sources.len())),
        changed: Notify::new(),
        meters: Mutex::default(),
    };
    let workers = sources.iter().enumerate().map(|(index, source)| pull.work(index, source));
    let all = futures::future::try_join_all(workers);
    let mut tick = tokio::time::interval(PROGRESS_PERIOD);
    tokio::pin!(all);
    loop {
        tokio::select! {
            outcome = &mut all => return outcome.map(drop),
            _ = tick.tick() => claim.progress(pull.percent()),
        }
    }
}

#[derive(Debug)]
struct Pull<'a> {
    agent: &'a Arc<Agent>,
    request: &'a FilesSyncRequest,
    started: Instant,
    queue: Mutex<Queue>,
    changed: Notify,
    /// Of the files that are being copied, by source: how much they weigh and where they stand.
    meters: Mutex<HashMap<usize, (u64, Arc<Meter>)>>,
}

impl Pull<'_> {
    /// Copies file after file from one source.
    async fn work(&self, index: usize, source: &str) -> Result<(), JobError> {
        loop {
            // From before the look, so that no change is missed.
            let changed = self.changed.notified();
            let next = self.queue().next(index, self.started.elapsed());
            match next {
                Next::Finished => return Ok(()),
                Next::WaitForOthers => changed.await,
                Next::WaitUntil(time) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(self.started + time) => {}
                    }
                }
                Next::Copy(taken) => self.take(index, source, taken).await?,
            }
        }
    }

    async fn take(&self, index: usize, source: &str, taken: Taken) -> Result<(), JobError> {
        let outcome = self.copy(index, source, &taken.file).await;
        self.meters().remove(&index);
        let Err(error) = outcome else {
            self.queue().done(taken, index);
            self.changed.notify_waiters();
            return Ok(());
        };
        let file = taken.file.to.to_string();
        let failed = self.queue().failed(taken, index, self.started.elapsed());
        self.changed.notify_waiters();
        match failed {
            Failed::GiveUp => {
                Err(JobError::File { file, from: source.to_owned(), source: Box::new(error) })
            }
            Failed::Again(rest) => {
                tracing::warn!(file, source, error = error.text(), "not synced, will try again");
                tokio::time::sleep(rest).await;
                Ok(())
            }
        }
    }

    async fn copy(&self, index: usize, source: &str, file: &File) -> Result<(), JobError> {
        let launched = receiver::launch(self.agent, file.to.clone()).await?;
        self.meters().insert(index, (file.weight_bytes, Arc::clone(&launched.meter)));
        let deadline = match u64::try_from(self.request.grpc_timeout_seconds) {
            Ok(seconds) if seconds > 0 => Deadline::After(Duration::from_secs(seconds)),
            Ok(_) | Err(_) => Deadline::Long,
        };
        let request = FileSendRequest {
            from_file_name: file.from.to_string(),
            host: self.request.to_host.clone(),
            port: i32::from(launched.port),
            fast_sync: self.request.fast_sync,
            file_sync_http_client_timeout: self.request.file_sync_http_client_timeout,
        };
        // However this ends: nobody else is to send to that port.
        let _stop = StopOnDrop(&launched);
        agent_of(source, &self.agent.identity.volume, deadline)?
            .file_send(request)
            .await
            .asking(format!("have {} sent", file.from), source)?;
        launched.check_received(&file.to)
    }

    fn percent(&self) -> u8 {
        let running =
            |(weight, meter): &(u64, Arc<Meter>)| (weight / 100).saturating_mul(meter.percent());
        let running = self.meters().values().map(running).fold(0, u64::saturating_add);
        self.queue().percent(running)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meters(&self) -> MutexGuard<'_, HashMap<usize, (u64, Arc<Meter>)>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct StopOnDrop<'a>(&'a receiver::Launched);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
