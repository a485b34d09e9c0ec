//! Making a backup.
//!
//! Owns the order that makes it safe: lock, record of the volume, record in progress, blocks, lock
//! still ours, final record, volume. A record is final only when every block it names lies in the
//! store. What was uploaded before a crash is found there and not uploaded again.

mod decide;
mod upload;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use blobs::{Key, Version};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;

use self::decide::Base;
pub use self::decide::Mode;
pub(crate) use self::upload::{Upload, Uploaded};
use crate::control::Control;
use crate::error::Error;
use crate::format::layout::VolumeFolder;
use crate::format::{
    BackupCfg, BlockRef, BlockSize, CFG_MAX_BYTES, Compression, LockKind, Name, PARAMETER_MODE,
    VolumeCfg, WRITER, parameters, seconds, to_bytes,
};
use crate::lock::{LOCK_TIMEOUT, Lease};
use crate::source::Source;
use crate::store::{BackupStore, Found};

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
    compression: Compression,
    base: Base,
    started: Timestamp,
    state: State,
}

/// Where the record of the backup stands.
#[derive(Debug)]
enum State {
    InProgress(Version),
    /// An earlier try wrote it, and did not come to the volume's.
    Final(Box<BackupCfg>),
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
        match self.prepare(&request, &backup, source).await {
            Ok((compression, base, state)) => {
                let store = self.clone();
                let making = Making { store, request, backup, compression, base, started, state };
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
    ) -> Result<(Compression, Base, State), Error> {
        let volume = self.volume_or_new(request, source.size_bytes()).await?;
        let compression = volume.compression_method;
        let state = self.begin_record(&request.volume, backup, compression, request).await?;
        let base = self.find_base(request, &volume, source).await?;
        Ok((compression, base, state))
    }

    async fn volume_or_new(&self, request: &CreateRequest, size: u64) -> Result<VolumeCfg, Error> {
        let key = VolumeFolder::of(&request.volume).cfg()?;
        if let Found::Missing = self.read_volume(&request.volume).await? {
            let cfg = VolumeCfg::new(&request.volume, size, request.compression);
            let bytes = to_bytes(&cfg).map_err(Error::Record)?;
            match self.create(&key, bytes.into()).await {
                // Another writer of the same volume was faster; its choice of packing counts.
                Ok(_) | Err(blobs::Error::Exists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.read_volume(&request.volume).await?.required(&key)?.0)
    }

    /// Writes the record in progress, or finds that of an earlier try.
    async fn begin_record(
        &self,
        volume: &Name,
        backup: &Name,
        compression: Compression,
        request: &CreateRequest,
    ) -> Result<State, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        let mut begun = BackupCfg::begun(backup, volume, compression);
        begun.others.extend([new_writer()]);
        let bytes = Bytes::from(begun.to_bytes().map_err(Error::Record)?);
        match self.create(&key, bytes.clone()).await {
            Ok(version) => return Ok(State::InProgress(version)),
            Err(blobs::Error::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match self.read_backup(volume, backup, CFG_MAX_BYTES).await?.required(&key)? {
            (cfg, found) if cfg.is_in_progress() => {
                // From now on it is ours alone: an earlier try that only slept cannot finish it.
                Ok(State::InProgress(self.replace_begun(&key, bytes, &found.version).await?))
            }
            (cfg, _) if cfg.snapshot_name == request.snapshot => Ok(State::Final(Box::new(cfg))),
            _ => Err(Error::Exists { what: format!("backup {backup}") }),
        }
    }

    /// Replaces the very record that was read, or begun; [`Error::Fenced`] where it is another's.
    pub(crate) async fn replace_begun(
        &self,
        key: &Key,
        bytes: Bytes,
        begun: &Version,
    ) -> Result<Version, Error> {
        match self.swap(key, bytes, begun).await {
            Ok(version) => Ok(version),
            Err(blobs::Error::Changed { key }) => Err(Error::Fenced { path: key.to_string() }),
            Err(error) => Err(error.into()),
        }
    }

    async fn find_base(
        &self,
        request: &CreateRequest,
        volume: &VolumeCfg,
        source: Arc<dyn Source>,
    ) -> Result<Base, Error> {
        let last = match Name::parse(&volume.last_backup_name) {
            Ok(last) => match self.read_backup(&request.volume, &last, CFG_MAX_BYTES).await? {
                Found::Readable(cfg, _) => Some(cfg),
                Found::Unreadable { .. } | Found::Missing => None,
            },
            Err(_) => None,
        };
        let (mode, snapshot) = (request.mode(), request.snapshot.clone());
        let block_size = request.block_size;
        let decided = tokio::task::spawn_blocking(move || {
            decide::base(mode, &snapshot, block_size, last, |below| {
                source.has_snapshot(&below.snapshot_name, &below.snapshot_created_at)
            })
        });
        decided.await.map_err(Error::Thread)?.map_err(Error::Source)
    }
}

/// What tells the record of this try from that of any other, also where stores take equal texts for
/// equal versions.
pub(crate) fn new_writer() -> (String, Value) {
    (WRITER.to_owned(), Value::String(format!("{:032x}", rand::random::<u128>())))
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
            (State::Final(cfg), _) => cfg.is_incremental,
            (State::InProgress(_), Base::Against(_)) => true,
            (State::InProgress(_), Base::None) => false,
        }
    }

    async fn work(
        &self,
        source: Arc<dyn Source>,
        lease: &Lease,
        control: &Control,
    ) -> Result<Created, Error> {
        let size_bytes = source.size_bytes();
        let (cfg, new_blocks) = match &self.state {
            State::Final(cfg) => (cfg.as_ref().clone(), 0),
            State::InProgress(version) => {
                let uploaded = self.upload(source, control).await?;
                control.check()?;
                let cfg = self.final_record(&uploaded);
                let blocks = VolumeFolder::of(&self.request.volume).blocks();
                if lease.doubts_blocks() {
                    self.store.require_blocks(&blocks, &cfg.blocks, control).await?;
                }
                // Without the lock, a deletion may have removed blocks that were found there.
                lease.confirm().await?;
                self.publish(&cfg, version, lease, control).await?;
                (cfg, uploaded.new_blocks)
            }
        };
        self.tell_volume(&cfg, size_bytes, new_blocks).await?;
        Ok(Created {
            backup: self.backup.clone(),
            url: self.store.url.backup_url(&self.request.volume, &self.backup),
            is_incremental: cfg.is_incremental,
            size_bytes: cfg.size,
            uploaded_bytes: cfg.newly_uploaded_data_size,
            uploaded_again_bytes: cfg.re_uploaded_data_size,
            new_blocks,
        })
    }

    async fn upload(&self, source: Arc<dyn Source>, control: &Control) -> Result<Uploaded, Error> {
        let upload = Upload {
            store: &self.store,
            blocks: VolumeFolder::of(&self.request.volume).blocks(),
            block_size: self.request.block_size,
            compression: self.compression,
            concurrent_limit: self.request.concurrent_limit,
            bytes_per_second: self.request.bytes_per_second,
            base: match &self.base {
                Base::Against(cfg) => &cfg.blocks,
                Base::None => &[],
            },
            writes_anew: self.request.mode() == Mode::Full,
        };
        let base = match &self.base {
            Base::Against(cfg) => Some(cfg.snapshot_name.clone()),
            Base::None => None,
        };
        upload.run(source, base, control).await
    }

    fn final_record(&self, uploaded: &Uploaded) -> BackupCfg {
        let base: &[BlockRef] = match &self.base {
            Base::Against(cfg) => &cfg.blocks,
            Base::None => &[],
        };
        let blocks = decide::merge(base, &uploaded.blocks);
        let count = u64::try_from(blocks.len()).unwrap_or(u64::MAX);
        let is_incremental = self.is_incremental();
        BackupCfg {
            snapshot_name: self.request.snapshot.clone(),
            snapshot_created_at: seconds(self.started),
            created_time: seconds(Timestamp::now()),
            size: count.saturating_mul(self.request.block_size.bytes()),
            labels: self.request.labels.clone(),
            parameters: Some(parameters(&self.request.parameters, self.request.block_size)),
            is_incremental,
            newly_uploaded_data_size: uploaded.new_bytes,
            re_uploaded_data_size: uploaded.again_bytes,
            processing_blocks: (!is_incremental).then(serde_json::Map::new),
            blocks,
            ..BackupCfg::begun(&self.backup, &self.request.volume, self.compression)
        }
    }

    /// Replaces the very record that was begun: who took us for dead has removed it.
    async fn publish(
        &self,
        cfg: &BackupCfg,
        begun: &Version,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let key = VolumeFolder::of(&self.request.volume).backup(&self.backup)?;
        let bytes = cfg.to_bytes().map_err(Error::Record)?;
        lease.publish(&key, bytes.into(), begun, control).await
    }

    async fn tell_volume(&self, cfg: &BackupCfg, size_bytes: u64, new: u64) -> Result<(), Error> {
        self.store
            .change_volume(&self.request.volume, |volume| {
                volume.last_backup_name.clone_from(&cfg.name);
                volume.last_backup_at.clone_from(&cfg.snapshot_created_at);
                volume.block_count = volume.block_count.saturating_add(new);
                volume.size = size_bytes;
                volume.labels.clone_from(&cfg.labels);
                volume.backing_image_name.clone_from(&self.request.backing_image_name);
                volume.backing_image_checksum.clone_from(&self.request.backing_image_checksum);
                volume.storage_class_name.clone_from(&self.request.storage_class_name);
            })
            .await
    }
}
