//! Making a backup.
//!
//! Owns the order that makes it safe: lock, record of the volume, record in progress, blocks, lock
//! still ours, final record, volume. A record is final only when every block it names lies in the
//! store. What was uploaded before a crash is found there and not uploaded again.

mod decide;
mod upload;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::decide::Base;
pub use self::decide::Mode;
pub(crate) use self::upload::{Upload, Uploaded};
use crate::block::{BlockRef, BlockSize, Compression, Packing};
use crate::control::Control;
use crate::error::Error;
use crate::lock::{LOCK_TIMEOUT, Lease, LockKind};
use crate::name::Name;
use crate::repository::{BackupRecord, Codec, Found, Started, VolumeRecord, seconds};
use crate::source::Source;
use crate::store::BackupStore;
use crate::subject::Subject;

/// The parameter that says which kind of backup is made.
const PARAMETER_MODE: &str = "backup-mode";

/// What is asked for.
#[derive(Debug, Clone)]
pub struct CreateRequest {
    pub volume: Name,
    /// Without one, a new name is drawn.
    pub backup: Option<Name>,
    /// The name of the snapshot that the source reads.
    pub snapshot: String,
    pub labels: Option<BTreeMap<String, String>>,
    /// Kept in the record; `backup-mode` and `backup-block-size` among them are read.
    pub parameters: BTreeMap<String, String>,
    pub mode: Mode,
    pub block_size: BlockSize,
    /// For the first backup of a volume; later ones are packed as the first.
    pub compression: Compression,
    /// Blocks that are exchanged with the store at a time.
    pub concurrent_limit: usize,
    /// At most so many bytes a second go to the store.
    pub bytes_per_second: Option<u64>,
    pub backing_image_name: String,
    pub backing_image_checksum: String,
    pub storage_class_name: String,
    /// How long to wait for a deletion that holds the lock.
    pub lock_timeout: Duration,
}

impl CreateRequest {
    pub fn new(volume: Name, snapshot: impl Into<String>) -> Self {
        Self {
            volume,
            backup: None,
            snapshot: snapshot.into(),
            labels: None,
            parameters: BTreeMap::new(),
            mode: Mode::Incremental,
            block_size: BlockSize::DEFAULT,
            compression: Compression::Lz4,
            concurrent_limit: 1,
            bytes_per_second: None,
            backing_image_name: String::new(),
            backing_image_checksum: String::new(),
            storage_class_name: String::new(),
            lock_timeout: LOCK_TIMEOUT,
        }
    }

    fn mode(&self) -> Mode {
        match self.parameters.get(PARAMETER_MODE).map(String::as_str) {
            Some("full") => Mode::Full,
            Some(_) | None => self.mode,
        }
    }
}

/// A backup that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub backup: Name,
    pub url: String,
    pub is_incremental: bool,
    /// Of all its blocks.
    pub size_bytes: u64,
    /// Of objects that were not in the store.
    pub uploaded_bytes: u64,
    /// Of objects that were, and were written anew.
    pub uploaded_again_bytes: u64,
    pub new_blocks: u64,
}

/// A backup that has its lock and its kind, and waits to be run.
#[derive(Debug)]
pub struct Begun {
    lease: Lease,
    making: Making,
}

#[derive(Debug)]
struct Making {
    store: BackupStore,
    request: CreateRequest,
    backup: Name,
    packing: Packing,
    base: Base,
    started: Timestamp,
    /// When its snapshot was taken, where that is known.
    taken: String,
    /// The last backup of the volume when it was begun.
    last: String,
    /// Until when what others have sent may take the place of its record, by the clock of leases.
    others_over: Option<Duration>,
    /// Complete where an earlier try wrote it, and did not come to the volume's.
    state: Started<BackupRecord>,
}

struct Prepared {
    volume: VolumeRecord,
    base: Base,
    state: Started<BackupRecord>,
    taken: String,
    others_over: Option<Duration>,
}

impl BackupStore {
    /// Takes the lock and decides what is to be done. Blocks are looked at in [`Begun::run`], which
    /// is to follow at once: nobody renews the lock in between.
    pub async fn begin_backup(
        &self,
        request: CreateRequest,
        source: Arc<dyn Source>,
        control: &Control,
    ) -> Result<Begun, Error> {
        check_size(source.size_bytes(), request.block_size)?;
        let started = Timestamp::now();
        let backup = request.backup.clone().unwrap_or_else(Name::new_backup);
        let timeout = request.lock_timeout;
        let lease = self.lock(&request.volume, LockKind::Use, timeout, control).await?;
        lease.settled().await;
        self.lay_by().await;
        match self.prepare(&request, &backup, source, &lease).await {
            Ok(Prepared { volume, base, state, taken, others_over }) => {
                let VolumeRecord { compression, last_backup: last, .. } = volume;
                let (store, size) = (self.clone(), request.block_size);
                let packing = Packing { size, compression };
                let making = Making {
                    store,
                    request,
                    backup,
                    packing,
                    base,
                    started,
                    taken,
                    last,
                    others_over,
                    state,
                };
                Ok(Begun { lease, making })
            }
            Err(error) => {
                lease.release().await;
                Err(error)
            }
        }
    }

    async fn prepare(
        &self,
        request: &CreateRequest,
        backup: &Name,
        source: Arc<dyn Source>,
        lease: &Lease,
    ) -> Result<Prepared, Error> {
        let (of, size_bytes) = (&request.volume, source.size_bytes());
        let volume = self.repository.volume_or_new(of, size_bytes, request.compression).await?;
        let state = self.repository.begin_backup(of, backup, volume.compression).await?;
        let others_over = match &state {
            Started::Complete(record) if record.snapshot != request.snapshot => {
                return Err(Error::Exists { what: format!("backup {backup}") });
            }
            Started::Complete(record) => {
                let (of, tried) = (record.backed_up(), Arc::clone(&source));
                if !ask(move || tried.is_snapshot(&of)).await? {
                    let (backup, snapshot) = (backup.to_string(), request.snapshot.clone());
                    return Err(Error::ExistsOfAnother { backup, snapshot });
                }
                None
            }
            Started::Begun(ours) => lease.others_over(ours).await?,
        };
        let taken = Arc::clone(&source);
        let taken = ask(move || taken.taken()).await?;
        let base = self.find_base(request, &volume, source).await?;
        Ok(Prepared { volume, base, state, taken, others_over })
    }

    /// All that must be so when a record with these blocks is put: they are there, on the disk, nothing of
    /// others comes in its place, and the lock is ours.
    pub(crate) async fn before_publishing(
        &self,
        of: &Subject,
        blocks: &[BlockRef],
        others_over: Option<Duration>,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        // Blocks that were found there are named as well, whoever wrote them.
        self.repository.settle(of).await?;
        control.check()?;
        if lease.doubts_blocks() {
            lease.outlast_deletions(control).await?;
            match self.require_blocks(of, blocks, control).await {
                // What was just written may not be listed yet.
                Err(Error::BlockVanished { .. }) if lease.listings_are_awaited().await => {
                    self.require_blocks(of, blocks, control).await?;
                }
                done => done?,
            }
        }
        lease.outlast_others(others_over, control).await?;
        // Without the lock, a deletion may have removed blocks that were found there.
        lease.confirm().await.map(drop)
    }

    async fn find_base(
        &self,
        request: &CreateRequest,
        volume: &VolumeRecord,
        source: Arc<dyn Source>,
    ) -> Result<Base, Error> {
        let last = match Name::parse(&volume.last_backup) {
            Ok(last) => match self.repository.backup(&request.volume, &last).await? {
                Found::Readable(record, _) => Some(record),
                Found::Unreadable { .. } | Found::Missing => None,
            },
            Err(_) => None,
        };
        let (mode, snapshot) = (request.mode(), request.snapshot.clone());
        let size = (request.block_size, source.size_bytes());
        ask(move || {
            decide::base(mode, &snapshot, size, last, |below| {
                source.has_snapshot(&below.backed_up())
            })
        })
        .await
    }
}

/// Of a source, which blocks.
async fn ask<T: Send + 'static>(
    question: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let asked = tokio::task::spawn_blocking(question);
    asked.await.map_err(Error::Thread)?.map_err(Error::Source)
}

fn check_size(size_bytes: u64, block_size: BlockSize) -> Result<(), Error> {
    let block_bytes = block_size.bytes();
    if size_bytes == 0 || !size_bytes.is_multiple_of(block_bytes) {
        return Err(Error::VolumeSize { size_bytes, block_bytes });
    }
    Ok(())
}

impl Begun {
    pub fn backup(&self) -> &Name {
        &self.making.backup
    }

    pub fn is_incremental(&self) -> bool {
        self.making.is_incremental()
    }

    /// Uploads, and makes the backup known. On an error, what was uploaded stays for the next try.
    pub async fn run(self, source: Arc<dyn Source>, control: &Control) -> Result<Created, Error> {
        let Self { lease, making } = self;
        lease
            .work(control, async |lease, control| making.work(source, &lease, &control).await)
            .await
    }
}

impl Making {
    fn is_incremental(&self) -> bool {
        match (&self.state, &self.base) {
            (Started::Complete(record), _) => record.is_incremental,
            (Started::Begun(_), Base::Against(_)) => true,
            (Started::Begun(_), Base::None) => false,
        }
    }

    async fn work(
        &self,
        source: Arc<dyn Source>,
        lease: &Lease,
        control: &Control,
    ) -> Result<Created, Error> {
        let size_bytes = source.size_bytes();
        let (record, new_blocks) = match &self.state {
            Started::Complete(record) => {
                // One that was killed may have left it so, and not durable.
                self.store.repository.settle(&self.subject()).await?;
                (record.outline(), 0)
            }
            Started::Begun(ours) => {
                let uploaded = self.upload(source, control).await?;
                let record = BackupRecord {
                    is_successor: ours.is_successor,
                    ..self.final_record(&uploaded)
                };
                let (of, blocks) = (self.subject(), &record.blocks);
                self.store.before_publishing(&of, blocks, self.others_over, lease, control).await?;
                let (repository, outline) = (&self.store.repository, record.outline());
                let (volume, backup) = (&self.request.volume, &self.backup);
                let publish = repository.publish_backup(volume, backup, record, &ours.version)?;
                lease.while_held(control, publish).await?;
                (outline, uploaded.new_blocks)
            }
        };
        // Also by one that was cancelled just now: it is complete. But not without the lock, since it may
        // have been deleted.
        let told = Box::pin(self.tell_volume(&record, size_bytes, new_blocks));
        lease.while_held(&Control::default(), told).await?;
        Ok(Created {
            backup: self.backup.clone(),
            url: self.store.url.backup_url(&self.request.volume, &self.backup),
            is_incremental: record.is_incremental,
            size_bytes: record.size_bytes,
            uploaded_bytes: record.new_bytes,
            uploaded_again_bytes: record.again_bytes,
            new_blocks,
        })
    }

    async fn upload(&self, source: Arc<dyn Source>, control: &Control) -> Result<Uploaded, Error> {
        let upload = Upload {
            blocks: self.store.repository.blocks(&self.subject()),
            codec: Codec::new(self.packing),
            concurrent_limit: self.request.concurrent_limit,
            bytes_per_second: self.request.bytes_per_second,
            base: match &self.base {
                Base::Against(record) => &record.blocks,
                Base::None => &[],
            },
            writes_anew: self.request.mode() == Mode::Full,
        };
        let base = match &self.base {
            Base::Against(record) => Some(record.snapshot.clone()),
            Base::None => None,
        };
        upload.run(source, base, control).await
    }

    fn subject(&self) -> Subject {
        Subject::Volume(self.request.volume.clone())
    }

    fn final_record(&self, uploaded: &Uploaded) -> BackupRecord {
        let base: &[BlockRef] = match &self.base {
            Base::Against(record) => &record.blocks,
            Base::None => &[],
        };
        let blocks = decide::merge(base, &uploaded.blocks);
        let count = u64::try_from(blocks.len()).unwrap_or(u64::MAX);
        BackupRecord {
            name: self.backup.to_string(),
            volume: self.request.volume.to_string(),
            snapshot: self.request.snapshot.clone(),
            taken: self.taken.clone(),
            started: seconds(self.started),
            completed: seconds(Timestamp::now()),
            size_bytes: count.saturating_mul(self.packing.size.bytes()),
            labels: self.request.labels.clone(),
            parameters: Some(self.request.parameters.clone()),
            is_incremental: self.is_incremental(),
            packing: self.packing,
            new_bytes: uploaded.new_bytes,
            again_bytes: uploaded.again_bytes,
            blocks,
            is_fenceable: false,
            is_successor: false,
            is_single_file: false,
        }
    }

    async fn tell_volume(&self, record: &BackupRecord, size: u64, new: u64) -> Result<(), Error> {
        let (of, repository) = (&self.request.volume, &self.store.repository);
        let found = repository.required_volume(of).await?;
        let gone = match Name::parse(&found.last_backup) {
            Ok(last) if self.comes_before(record, &found) => {
                match repository.modified(of, Some(&last)).await {
                    Ok(_) => None,
                    Err(Error::NotFound { .. }) => Some(found.last_backup),
                    Err(error) => return Err(error),
                }
            }
            Ok(_) | Err(_) => None,
        };
        let tell = |volume: &mut VolumeRecord| {
            volume.block_count = volume.block_count.saturating_add(new);
            if self.comes_before(record, volume) && gone.as_ref() != Some(&volume.last_backup) {
                return;
            }
            volume.last_backup.clone_from(&record.name);
            volume.last_backup_at.clone_from(&record.started);
            volume.size_bytes = size;
            volume.labels.clone_from(&record.labels);
            volume.backing_image.clone_from(&self.request.backing_image_name);
            volume.backing_image_checksum.clone_from(&self.request.backing_image_checksum);
            volume.storage_class.clone_from(&self.request.storage_class_name);
        };
        repository.change_volume(of, None, tell).await
    }

    /// Whether the last backup of the volume was started after ours. Times of two machines are compared only
    /// where there is nothing else to go by: it was made beside ours, or ours was made by an earlier try.
    fn comes_before(&self, record: &BackupRecord, volume: &VolumeRecord) -> bool {
        if volume.last_backup.is_empty() || volume.last_backup == record.name {
            return false;
        }
        match &self.state {
            Started::Begun(_) => {
                volume.last_backup != self.last && volume.last_backup_at >= record.started
            }
            Started::Complete(_) => volume.last_backup_at > record.started,
        }
    }
}
