//! Backups of snapshots of this replica: started by a call that answers once it is known what will be
//! done, uploaded after it, remembered for those who ask.
//!
//! Never: the format of the store, or credentials anywhere but in the hands of the store.

mod source;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backupstore::create::{Begun, CreateRequest, Created};
use backupstore::{
    BackupStore, BlockSize, Compression, Control, Environment, Name, Source, TargetUrl,
};
use rpc::ptypes::{BackupCreateRequest, BackupCreateResponse, BackupStatusResponse};
use tokio::sync::oneshot;

use self::source::SnapshotSource;
use super::Agent;
use super::error::JobError;

/// How many backups that ended well, and that did not, are remembered.
const COMPLETE_KEPT: usize = 5;
const FAILED_KEPT: usize = 10;
const BLOCK_SIZE: &str = "backup-block-size";

/// Returns when it is known whether the backup is a full one; the upload goes on.
pub(crate) async fn create(
    agent: &Arc<Agent>,
    request: BackupCreateRequest,
) -> Result<BackupCreateResponse, JobError> {
    let environment = Environment::from_pairs(request.credential.clone());
    let target = TargetUrl::parse(&request.backup_target)?;
    let wanted = wanted(&request)?;
    let backup = wanted.backup.clone().unwrap_or_else(Name::new_backup);
    let wanted = CreateRequest { backup: Some(backup.clone()), ..wanted };
    let control = Control::under(&agent.tasks.token());
    let entry = Entry::begin(&agent.backups, &backup, &wanted.snapshot, &control)?;
    let (answer, answered) = oneshot::channel();
    let own = Arc::clone(agent);
    // Told of the stop by its control: it gives its lock back before it ends.
    agent.tasks.spawn_draining("back up a snapshot", move |_| async move {
        let upload = Upload { target, environment, wanted, control };
        match upload.begin(&own).await {
            Ok((begun, source)) => {
                let is_incremental = begun.is_incremental();
                let reply = BackupCreateResponse { backup: backup.to_string(), is_incremental };
                // Who hung up asks for the status.
                let _ = answer.send(Ok(reply));
                let done = begun.run(source, &upload.control).await;
                entry.finish(done.map_err(JobError::from));
            }
            Err(error) => {
                entry.fail(error.text());
                let _ = answer.send(Err(error));
            }
        }
    });
    answered.await.map_err(|_| JobError::Stopped)?
}

fn wanted(request: &BackupCreateRequest) -> Result<CreateRequest, JobError> {
    let backup = match request.backup_name.as_str() {
        "" => None,
        name => Some(Name::parse(name)?),
    };
    let labels: BTreeMap<String, String> =
        request.labels.iter().map(|label| parse_label(label)).collect::<Result<_, _>>()?;
    let compression = match request.compression_method.as_str() {
        "" => Compression::Lz4,
        method => Compression::parse(method).map_err(JobError::Refused)?,
    };
    let parameters: BTreeMap<String, String> = request.parameters.clone().into_iter().collect();
    let block_size = block_size(parameters.get(BLOCK_SIZE).map_or("", String::as_str))?;
    Ok(CreateRequest {
        backup,
        labels: (!labels.is_empty()).then_some(labels),
        block_size,
        compression,
        parameters,
        concurrent_limit: limit(request.concurrent_limit),
        bytes_per_second: Some(request.holdfast_bytes_per_second),
        backing_image_name: request.backing_image_name.clone(),
        backing_image_checksum: request.backing_image_checksum.clone(),
        storage_class_name: request.storage_class_name.clone(),
        ..CreateRequest::new(Name::parse(&request.volume_name)?, request.snapshot_file_name.clone())
    })
}

fn parse_label(label: &str) -> Result<(String, String), JobError> {
    let refused = || JobError::Refused(format!("the label {label:?} is not written as key=value"));
    let (key, value) = label.split_once('=').ok_or_else(refused)?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Bytes, or mebibytes with `Mi`; nothing and 0 are the default.
fn block_size(text: &str) -> Result<BlockSize, JobError> {
    let refused = || JobError::Refused(format!("the block size {text:?} cannot be used"));
    let (digits, unit) = text.strip_suffix("Mi").map_or((text, 1), |digits| (digits, 1 << 20));
    if digits.is_empty() && unit == 1 {
        return Ok(BlockSize::DEFAULT);
    }
    let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    match bytes.ok_or_else(refused)? {
        0 => Ok(BlockSize::DEFAULT),
        bytes => BlockSize::from_bytes(bytes).ok_or_else(refused),
    }
}

/// Blocks at a time; whoever asks for none gets one.
pub(super) fn limit(asked: i32) -> usize {
    usize::try_from(asked).unwrap_or(0).max(1)
}

/// All that one backup needs.
struct Upload {
    target: TargetUrl,
    environment: Environment,
    wanted: CreateRequest,
    control: Control,
}

impl Upload {
    async fn begin(&self, agent: &Agent) -> Result<(Begun, Arc<dyn Source>), JobError> {
        let (dir, snapshot) = (agent.dir.clone(), self.wanted.snapshot.clone());
        let open = move || SnapshotSource::open(&dir, &snapshot);
        let source = Arc::new(agent.tasks.blocking("open a snapshot", open).await??);
        let wanted = CreateRequest { snapshot: source.snapshot().into(), ..self.wanted.clone() };
        let source: Arc<dyn Source> = source;
        let store = BackupStore::open(&self.target, &self.environment).await?;
        let begun = store.begin_backup(wanted, Arc::clone(&source), &self.control).await?;
        Ok((begun, source))
    }
}

/// What is known of the backups that this agent made or makes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Backups(Mutex<Vec<Known>>);

#[derive(Debug)]
struct Known {
    backup: String,
    snapshot: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Running(Control),
    Complete { url: String },
    Failed { percent: u32, error: String },
}

impl Backups {
    pub(crate) fn status(&self, backup: &str) -> Result<BackupStatusResponse, JobError> {
        let all = self.lock();
        let not_found = || JobError::BackupNotFound(backup.to_owned());
        let known = all.iter().rev().find(|known| known.backup == backup).ok_or_else(not_found)?;
        let (word, percent, url, error) = match &known.state {
            State::Running(control) => ("in_progress", control.percent().min(99), "", ""),
            State::Complete { url } => ("complete", 100, url.as_str(), ""),
            State::Failed { percent, error } => ("error", *percent, "", error.as_str()),
        };
        Ok(BackupStatusResponse {
            progress: i32::try_from(percent).unwrap_or(0),
            backup_url: url.to_owned(),
            error: error.to_owned(),
            snapshot_name: known.snapshot.clone(),
            state: word.to_owned(),
        })
    }

    /// Forgets what is over.
    pub(crate) fn reset(&self) {
        self.lock().retain(|known| matches!(known.state, State::Running(_)));
    }

    fn end(&self, backup: &str, end: impl FnOnce(&Control) -> State) {
        let mut all = self.lock();
        let running = all.iter_mut().find(|known| known.backup == backup);
        if let Some(known) = running
            && let State::Running(control) = &known.state
        {
            known.state = end(control);
        }
        trim(&mut all, COMPLETE_KEPT, |state| matches!(state, State::Complete { .. }));
        trim(&mut all, FAILED_KEPT, |state| matches!(state, State::Failed { .. }));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets the oldest of a kind.
fn trim(all: &mut Vec<Known>, kept: usize, is_kind: impl Fn(&State) -> bool) {
    let count = all.iter().filter(|known| is_kind(&known.state)).count();
    let mut extra = count.saturating_sub(kept);
    all.retain(|known| {
        let goes = extra > 0 && is_kind(&known.state);
        extra -= usize::from(goes);
        !goes
    });
}

/// A backup under way, in the memory. One that breaks down is not shown as running for ever.
struct Entry {
    backups: Arc<Backups>,
    backup: String,
    is_over: bool,
}

impl Entry {
    fn begin(
        backups: &Arc<Backups>,
        backup: &Name,
        snapshot: &str,
        control: &Control,
    ) -> Result<Self, JobError> {
        let mut all = backups.lock();
        let same = |known: &&mut Known| known.backup == backup.as_str();
        if let Some(known) = all.iter_mut().find(same)
            && let State::Running(_) = known.state
        {
            return Err(JobError::BackupRunning(backup.to_string()));
        }
        // A further try takes the place of the last one.
        all.retain(|known| known.backup != backup.as_str());
        let state = State::Running(control.clone());
        all.push(Known { backup: backup.to_string(), snapshot: snapshot.to_owned(), state });
        Ok(Self { backups: Arc::clone(backups), backup: backup.to_string(), is_over: false })
    }

    fn finish(mut self, done: Result<Created, JobError>) {
        let created = match done {
            Ok(created) => created,
            Err(error) => return self.fail(error.text()),
        };
        let (size, uploaded) = (created.size_bytes, created.uploaded_bytes);
        tracing::info!(backup = self.backup, size, uploaded, "a backup is complete");
        self.end(|_| State::Complete { url: created.url });
    }

    fn fail(mut self, error: String) {
        tracing::warn!(backup = self.backup, error, "a backup failed");
        self.end(|control| State::Failed { percent: control.percent().min(99), error });
    }

    fn end(&mut self, end: impl FnOnce(&Control) -> State) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.backups.end(&self.backup, end);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let error = JobError::Stopped.text();
        self.end(|_| State::Failed { percent: 0, error });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(backups: &Arc<Backups>, name: &str) -> Result<Entry, JobError> {
        Entry::begin(backups, &Name::parse(name).unwrap(), "snap", &Control::default())
    }

    #[test]
    fn only_the_last_ones_are_remembered() {
        let backups = Arc::new(Backups::default());
        let running = begin(&backups, "running").unwrap();
        for index in 0..20 {
            begin(&backups, &format!("bad-{index}")).unwrap().fail("broken".into());
            begin(&backups, &format!("good-{index}")).unwrap();
            let url = format!("vfs:///x?backup=good-{index}");
            backups.lock().last_mut().unwrap().state = State::Complete { url };
        }
        drop(running);
        let known = |name: &str| backups.status(name).is_ok();
        assert!(known("good-15") && known("good-19") && !known("good-14"));
        assert!(known("bad-11") && known("bad-19") && !known("bad-10"));
        let status = backups.status("running").unwrap();
        assert_eq!(
            (status.state.as_str(), status.error.as_str()),
            ("error", "the agent is ending")
        );
        assert_eq!(backups.status("none").unwrap_err().text(), "backup not found none");
    }

    #[test]
    fn one_name_is_backed_up_once_at_a_time() {
        let backups = Arc::new(Backups::default());
        let first = begin(&backups, "one").unwrap();
        let refused = begin(&backups, "one").err().unwrap();
        assert_eq!(refused.text(), "backup one is already in progress");
        first.fail("x".into());
        assert_eq!(backups.status("one").unwrap().error, "x");
        backups.reset();
        assert!(backups.status("one").is_err());
        assert!(begin(&backups, "one").is_ok());
    }

    #[test]
    fn sizes_of_blocks_are_bytes() {
        for (text, bytes) in
            [("", 2 << 20), ("0", 2 << 20), ("16777216", 16 << 20), ("16Mi", 16 << 20)]
        {
            assert_eq!(block_size(text).unwrap().bytes(), bytes, "{text}");
        }
        for bad in ["x", "-1", "1", "Mi", "99999999999999999999", "18446744073709551615Mi"] {
            assert!(block_size(bad).is_err(), "{bad}");
        }
    }
}
