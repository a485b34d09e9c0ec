//! An upload: a replica is asked to back up a snapshot, and then how far it is.
//!
//! What one lost answer means: nothing. An upload has failed when its replica says so, and is lost
//! when nobody could be asked for a long time, or the replica does not know of it and the store has
//! no such backup.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use backupstore::{BackupInfo, BackupStore, Name, VolumeInfo};
use rpc::ptypes::controller_service_client::ControllerServiceClient;
use rpc::ptypes::sync_agent_service_client::SyncAgentServiceClient;
use rpc::ptypes::{BackupCreateRequest, BackupStatusRequest, ReplicaMode};
use rpc::{Address, Deadline, Identity, Peer, connect};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::work::Work;

/// Between two questions, at most; the first come faster.
const POLL: Duration = Duration::from_secs(2);
const FIRST_POLL: Duration = Duration::from_millis(200);
/// How long nobody may answer before an upload is given up for lost.
const SILENCE: Duration = Duration::from_mins(2);
const ASK: Deadline = Deadline::After(Duration::from_secs(10));

/// Uploads of this process, by the uid of the backup.
pub(crate) type Uploads = Work<Arc<Progress>, End>;

/// How far an upload is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    is_begun: AtomicBool,
    is_cancelled: AtomicBool,
    percent: AtomicI32,
}

impl Progress {
    /// Nothing until the replica has begun.
    pub(crate) fn percent(&self) -> Option<i32> {
        let begun = self.is_begun.load(Ordering::Acquire);
        begun.then(|| self.percent.load(Ordering::Relaxed))
    }

    /// Nobody wants it any more: one that has not begun does not begin.
    pub(crate) fn cancel(&self) {
        self.is_cancelled.store(true, Ordering::Release);
    }

    /// Says whether that is news.
    fn tell(&self, percent: i32) -> bool {
        let earlier = self.percent.fetch_max(percent.clamp(0, 99), Ordering::Relaxed);
        !self.is_begun.swap(true, Ordering::AcqRel) || earlier < percent
    }
}

/// How an upload ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Failed(String),
    Locked(String),
    Lost(String),
    /// The store has it, and its volume names an older one as the last: whoever was to tell it is gone.
    Untold(String),
}

/// Which upload, and whom to ask.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) volume: String,
    pub(super) backup: String,
    /// `tcp://host:port` of the replica.
    pub(super) replica: String,
    pub(super) store: BackupStore,
    pub(super) progress: Arc<Progress>,
    /// Called when there is progress to show.
    pub(super) tell: (Arc<reconcile::Queue>, reconcile::Key),
}

/// A replica that holds all data, of the engine at this address.
pub(super) async fn find_replica(
    engine: &Address,
    volume: &str,
    preferred: Option<&str>,
) -> Result<String, String> {
    let mut client = ControllerServiceClient::new(dial(engine, volume)?);
    let listed = client.replica_list(()).await;
    let listed = listed.map_err(|status| said("list the replicas", engine, &status))?;
    let healthy: Vec<String> = listed
        .into_inner()
        .replicas
        .into_iter()
        .filter(|replica| replica.mode() == ReplicaMode::Rw)
        .filter_map(|replica| Some(replica.address?.address))
        .filter(|address| !address.starts_with("file://"))
        .collect();
    let same = preferred.and_then(|wanted| healthy.iter().find(|it| *it == wanted));
    let found = same.or_else(|| healthy.first()).cloned();
    found.ok_or_else(|| "cannot find any healthy replica to back up from".to_owned())
}

impl Upload {
    /// Has the replica begin, and follows it.
    pub(super) async fn begin(self, request: BackupCreateRequest) -> End {
        match self.start(request).await {
            Ok(()) => {
                self.show(0);
                self.follow().await
            }
            Err(end) => end,
        }
    }

    async fn start(&self, request: BackupCreateRequest) -> Result<(), End> {
        let mut agent = self.agent(Deadline::Usual).map_err(End::Lost)?;
        if self.progress.is_cancelled.load(Ordering::Acquire) {
            return Err(End::Failed("it was deleted before it began".to_owned()));
        }
        let Err(status) = agent.backup_create(request).await else { return Ok(()) };
        let text = status.message();
        if text.contains("already in progress") {
            return Ok(());
        }
        if text.contains("failed lock") || text.contains("failed to acquire lock") {
            return Err(End::Locked(text.to_owned()));
        }
        match status.code() {
            // It may have begun all the same: that is asked, and not begun twice.
            Code::DeadlineExceeded | Code::Cancelled => Ok(()),
            Code::Unavailable => Err(End::Lost(self.said("start the upload", &status))),
            _ => Err(End::Failed(text.to_owned())),
        }
    }

    /// Asks until it is over.
    pub(super) async fn follow(self) -> End {
        let (mut pause, mut heard) = (FIRST_POLL, Instant::now());
        loop {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL);
            let why = match self.asked().await {
                Ok(Asked::Running(percent)) => {
                    heard = Instant::now();
                    self.show(percent);
                    continue;
                }
                Ok(Asked::Complete) => return End::Complete,
                Ok(Asked::Failed(why)) => return End::Failed(why),
                Ok(Asked::Unknown) => {
                    let why = format!("replica {} does not know of the upload", self.replica);
                    return self.end_by_store(why).await;
                }
                Err(why) => why,
            };
            tracing::debug!(backup = self.backup, why, "an upload could not be asked about");
            if heard.elapsed() > SILENCE {
                return self.end_by_store(why).await;
            }
        }
    }

    /// The store has the last word.
    async fn end_by_store(&self, why: String) -> End {
        let (Ok(volume), Ok(backup)) = (Name::parse(&self.volume), Name::parse(&self.backup))
        else {
            return End::Failed(why);
        };
        let Ok(found) = self.store.inspect_backup(&volume, &backup).await else {
            return End::Lost(why);
        };
        match self.store.inspect_volume(&volume).await {
            Ok(told) if is_behind(&told, &found) => End::Untold(why),
            Ok(_) => End::Complete,
            Err(_) => End::Lost(why),
        }
    }

    fn show(&self, percent: i32) {
        if self.progress.tell(percent) {
            self.tell.0.add(&self.tell.1);
        }
    }

    async fn asked(&self) -> Result<Asked, String> {
        let mut agent = self.agent(ASK)?;
        let asked = agent.backup_status(BackupStatusRequest { backup: self.backup.clone() }).await;
        let status = match asked {
            Ok(status) => status.into_inner(),
            Err(status) if status.message().starts_with("backup not found") => {
                return Ok(Asked::Unknown);
            }
            Err(status) => return Err(self.said("ask for the upload", &status)),
        };
        Ok(match status.state.as_str() {
            "complete" => Asked::Complete,
            "error" => Asked::Failed(status.error),
            _ if !status.error.is_empty() => Asked::Failed(status.error),
            _ => Asked::Running(status.progress),
        })
    }

    fn agent(&self, deadline: Deadline) -> Result<SyncAgentServiceClient<Peer>, String> {
        let address: Address =
            self.replica.parse().map_err(|it: rpc::AddressError| it.to_string())?;
        let expected = Identity { volume: self.volume.clone(), instance: String::new() };
        let peer = connect(&address.sync_agent(), expected, deadline);
        Ok(SyncAgentServiceClient::new(peer.map_err(|it| it.to_string())?))
    }

    fn said(&self, doing: &str, status: &Status) -> String {
        format!("cannot {doing} at {}: {}", self.replica, status.message())
    }
}

/// The volume names another as its last backup, which was begun before this one.
fn is_behind(volume: &VolumeInfo, backup: &BackupInfo) -> bool {
    volume.last_backup_name != backup.name && volume.last_backup_at < backup.snapshot_created
}

enum Asked {
    Running(i32),
    Complete,
    Failed(String),
    /// The replica was started anew, or has forgotten.
    Unknown,
}

fn dial(address: &Address, volume: &str) -> Result<Peer, String> {
    let expected = Identity { volume: volume.to_owned(), instance: String::new() };
    connect(address, expected, ASK).map_err(|error| error.to_string())
}

fn said(doing: &str, address: &Address, status: &Status) -> String {
    format!("cannot {doing} of the engine at {address}: {}", status.message())
}

#[cfg(test)]
mod tests {
    use backupstore::create::CreateRequest;
    use backupstore::{Control, Environment, FileSource, Source, TargetUrl};
    use reconcile::{Backoff, Key, Queue};

    use super::*;

    /// An upload by a replica that nobody has started.
    async fn upload(dir: &std::path::Path) -> Upload {
        let url = TargetUrl::parse(&format!("vfs://{}", dir.display())).unwrap();
        Upload {
            volume: "vol-1".to_owned(),
            backup: "backup-1".to_owned(),
            replica: "tcp://127.0.0.1:1".to_owned(),
            store: BackupStore::open(&url, &Environment::default()).await.unwrap(),
            progress: Arc::default(),
            tell: (Arc::new(Queue::new(Backoff::DEFAULT)), Key::new("n", "backup-1")),
        }
    }

    /// The replica was killed after it had published the second, and before it told the volume.
    #[tokio::test]
    async fn a_backup_that_its_volume_was_not_told_of_is_not_over() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        durable::replace(&data, &vec![7; 2 << 20]).unwrap();
        let mut last = upload(dir.path()).await;
        let volume = Name::parse(&last.volume).unwrap();
        let record = walked(dir.path(), "volume.cfg");
        let mut records = Vec::new();
        for name in ["backup-1", "backup-2"] {
            let source: Arc<dyn Source> = Arc::new(FileSource::open(&data).unwrap());
            let request = CreateRequest {
                backup: Some(Name::parse(name).unwrap()),
                ..CreateRequest::new(volume.clone(), name)
            };
            let control = Control::default();
            let begun = last.store.begin_backup(request, Arc::clone(&source), &control);
            begun.await.unwrap().run(source, &control).await.unwrap();
            records.push(std::fs::read(record()).unwrap());
        }
        let end = last.end_by_store("gone".to_owned()).await;
        assert!(
            matches!(end, End::Complete | End::Untold(_)),
            "of one second, none is the earlier"
        );
        last.backup = "backup-2".to_owned();
        assert_eq!(last.end_by_store("gone".to_owned()).await, End::Complete);
        // As it was after the first, which was made some time before.
        let mut earlier: serde_json::Value = serde_json::from_slice(&records[0]).unwrap();
        earlier["LastBackupAt"] = "2025-01-01T00:00:00Z".into();
        durable::replace(record(), earlier.to_string().as_bytes()).unwrap();
        let end = last.end_by_store("gone".to_owned()).await;
        assert_eq!(end, End::Untold("gone".to_owned()));
        last.backup = "backup-3".to_owned();
        assert_eq!(last.end_by_store("gone".to_owned()).await, End::Lost("gone".to_owned()));
    }

    /// The only file of that name, wherever it lies.
    fn walked(dir: &std::path::Path, name: &'static str) -> impl Fn() -> std::path::PathBuf {
        fn find(dir: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
            let all: Vec<_> =
                std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).collect();
            let here = all.iter().find(|it| it.ends_with(name)).cloned();
            here.or_else(|| all.iter().filter(|it| it.is_dir()).find_map(|it| find(it, name)))
        }
        let dir = dir.to_owned();
        move || find(&dir, name).unwrap()
    }

    #[tokio::test]
    async fn an_upload_that_nobody_wants_any_more_does_not_begin() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = upload(dir.path()).await;
        assert!(matches!(wanted.begin(BackupCreateRequest::default()).await, End::Lost(_)));
        let unwanted = upload(dir.path()).await;
        unwanted.progress.cancel();
        let end = unwanted.begin(BackupCreateRequest::default()).await;
        assert_eq!(end, End::Failed("it was deleted before it began".to_owned()));
    }
}
