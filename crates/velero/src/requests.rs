//! Requests that are answered in their status: for the address of a file, and for who we are.

use std::sync::Arc;
use std::time::Duration;

use api::scalar::Time;
use api::velero::{
    Backup, DownloadPhase, DownloadRequest, DownloadRequestStatus, Plugin, ServerStatusPhase,
    ServerStatusRequestStatus,
};
use blobs::Key as BlobKey;
use jiff::{SignedDuration, Timestamp};
use reconcile::{Failure, Key, Loop, Next, Reconciler};

use crate::layout::{self, Download};
use crate::place::Place;
use crate::world::World;

const LIFETIME: Duration = Duration::from_mins(10);
const SIGNED_LIFETIME: SignedDuration = SignedDuration::from_mins(10);
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// An answer to who we are is kept this long.
const ANSWER_KEPT: SignedDuration = SignedDuration::from_mins(1);
/// What clients compare their own version with.
const SERVER_VERSION: &str = concat!("v1.16.0-holdfast.", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
struct Addresses {
    world: Arc<World>,
}

pub(crate) async fn run_downloads(world: Arc<World>) {
    Loop::new("velero-downloads", &world.context)
        .on(&world.downloads)
        .needs(&world.backups)
        .needs(&world.restores)
        .needs(&world.locations)
        .run(Arc::new(Addresses { world }))
        .await;
}

fn after(end: Timestamp) -> Next {
    let left = Duration::try_from(Timestamp::now().duration_until(end)).unwrap_or_default();
    Next::after(left.saturating_add(Duration::from_millis(50)))
}

impl Reconciler for Addresses {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(request) = world.downloads.get(key) else { return Ok(Next::WAIT) };
        if request.metadata.deletion_timestamp.is_some() {
            return Ok(Next::WAIT);
        }
        let now = Timestamp::now();
        let status = request.status.clone().unwrap_or_default();
        if let Some(end) = status.expiration
            && end.timestamp() <= now
        {
            world.downloads.delete(&request).await?;
            return Ok(Next::WAIT);
        }
        if let (Some(DownloadPhase::Processed), Some(end)) = (&status.phase, status.expiration) {
            return Ok(after(end.timestamp()));
        }
        let end = status
            .expiration
            .unwrap_or_else(|| Time::new(now.saturating_add(SIGNED_LIFETIME).unwrap_or(now)));
        let mut next = request.as_ref().clone();
        match self.address(&request, now).await {
            Ok(url) => {
                next.status = Some(DownloadRequestStatus {
                    phase: Some(DownloadPhase::Processed),
                    download_url: Some(url),
                    expiration: Some(Time::new(now.saturating_add(SIGNED_LIFETIME).unwrap_or(now))),
                });
                world.downloads.update(&request, &next).await?;
                Ok(after(end.timestamp()))
            }
            Err(why) => {
                tracing::debug!(request = %key, why, "no address yet");
                next.status = Some(DownloadRequestStatus {
                    phase: Some(DownloadPhase::New),
                    download_url: None,
                    expiration: Some(end),
                });
                world.downloads.update(&request, &next).await?;
                Ok(after(end.timestamp()).or(Next::after(RETRY_AFTER)))
            }
        }
    }
}

impl Addresses {
    async fn address(&self, request: &DownloadRequest, now: Timestamp) -> Result<String, String> {
        let (backup, key) = self.target(request)?;
        let name = backup.spec.storage_location.clone().unwrap_or_default();
        let location = self.world.location(&name);
        let location = location.ok_or_else(|| format!("there is no storage location {name}"))?;
        let opened = self.world.open(&location).await?;
        match &opened.place {
            Place::S3(s3) => {
                let signed = blobs::signed_get(
                    &s3.public_url,
                    &opened.credentials,
                    &s3.network,
                    &key,
                    LIFETIME,
                );
                signed.await.map_err(|error| telemetry::Chain(&error).to_string())
            }
            Place::Directory { .. } => {
                let downloads = self.world.settings.downloads.as_ref();
                let downloads = downloads.ok_or("this server serves no files")?;
                Ok(downloads.address(&name, &key, LIFETIME, now))
            }
        }
    }

    /// The backup whose location has the file, and the file.
    fn target(&self, request: &DownloadRequest) -> Result<(Arc<Backup>, BlobKey), String> {
        let world = &self.world;
        let target = request.spec.target.as_ref().ok_or("spec.target is missing")?;
        let file = layout::download(&target.kind);
        let file = file.ok_or_else(|| format!("{} is not a file", target.kind.as_str()))?;
        let bad = |error: blobs::KeyError| error.to_string();
        let (backup, key) = match file {
            Download::Backup(file) => (target.name.clone(), file.key(&target.name).map_err(bad)?),
            Download::Restore(file) => {
                let restore = world.restores.get(&world.key(&target.name));
                let restore =
                    restore.ok_or_else(|| format!("there is no restore {}", target.name))?;
                let backup = restore.spec.backup_name.clone().unwrap_or_default();
                (backup, file.key(&target.name).map_err(bad)?)
            }
        };
        let found = world.backups.get(&world.key(&backup));
        Ok((found.ok_or_else(|| format!("there is no backup {backup}"))?, key))
    }
}

#[derive(Debug)]
struct Answers {
    world: Arc<World>,
}

pub(crate) async fn run_questions(world: Arc<World>) {
    Loop::new("velero-questions", &world.context)
        .on(&world.questions)
        .run(Arc::new(Answers { world }))
        .await;
}

impl Reconciler for Answers {
    async fn reconcile(&self, key: &Key) -> Result<Next, Failure> {
        let world = &self.world;
        let Some(request) = world.questions.get(key) else { return Ok(Next::WAIT) };
        let now = Timestamp::now();
        let status = request.status.clone().unwrap_or_default();
        if let (Some(ServerStatusPhase::Processed), Some(at)) =
            (&status.phase, status.processed_timestamp)
        {
            let end = at.timestamp().saturating_add(ANSWER_KEPT).unwrap_or(now);
            if end > now {
                return Ok(after(end));
            }
            world.questions.delete(&request).await?;
            return Ok(Next::WAIT);
        }
        let mut next = request.as_ref().clone();
        next.status = Some(ServerStatusRequestStatus {
            phase: Some(ServerStatusPhase::Processed),
            processed_timestamp: Some(Time::new(now)),
            server_version: Some(SERVER_VERSION.to_owned()),
            plugins: Some(plugins()),
        });
        world.questions.update(&request, &next).await?;
        Ok(Next::after(Duration::from_mins(1)))
    }
}

fn plugins() -> Vec<Plugin> {
    let of = |name: &str| Plugin { name: name.to_owned(), kind: "ObjectStore".to_owned() };
    vec![of("velero.io/aws"), of(crate::place::DIRECTORY)]
}
