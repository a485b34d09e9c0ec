//! Getting blocks: from the store, or from elsewhere.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use blobs::Retry;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::seal::{Seal, Sealer};
use super::unpack::Unpacker;
use crate::block::{Checksum, Compression, Damage};
use crate::control::CALLS_MAX;
use crate::error::{BlockDamage, Error};
use crate::rate_limiter::RateLimiter;
use crate::repository::{Blocks, Codec};

/// Why a block did not come.
#[derive(Debug, Clone, thiserror::Error)]
pub enum FetchError {
    /// This one cannot be had; others may.
    #[error(transparent)]
    Damaged(#[from] BlockDamage),
    /// Nothing can be had.
    #[error("{0}")]
    Failed(Arc<Error>),
}

impl From<Error> for FetchError {
    fn from(error: Error) -> Self {
        Self::Failed(Arc::new(error))
    }
}

/// Where blocks come from, checked and unpacked.
#[async_trait]
pub trait Fetch: fmt::Debug + Send + Sync {
    async fn fetch(&self, block: &Checksum) -> Result<Bytes, FetchError>;

    /// As errors name it.
    fn path_of(&self, block: &Checksum) -> String;
}

/// How hard a block is asked for.
#[derive(Debug, Clone)]
pub struct FetchOptions {
    /// Pauses between tries, beyond those of the store itself.
    pub pauses: Vec<Duration>,
    /// At most so many bytes a second come from the store.
    pub bytes_per_second: Option<u64>,
}

impl Default for FetchOptions {
    fn default() -> Self {
        let pauses = [1, 5, 30, 60, 120, 300].map(Duration::from_secs).to_vec();
        Self { pauses, bytes_per_second: None }
    }
}

/// Blocks of a volume, from its store.
#[derive(Debug)]
pub struct StoreFetch {
    blocks: Blocks,
    codec: Codec,
    options: FetchOptions,
    calls: Semaphore,
    unpacker: Unpacker,
    fetched_bytes: Arc<AtomicU64>,
    hashed_blocks: Arc<AtomicU64>,
    rate_limiter: RateLimiter,
}

impl StoreFetch {
    pub(crate) fn new(
        blocks: Blocks,
        codec: Codec,
        concurrent_limit: usize,
        options: FetchOptions,
    ) -> Self {
        Self {
            blocks,
            codec,
            calls: Semaphore::new(concurrent_limit.clamp(1, CALLS_MAX)),
            unpacker: Unpacker::default(),
            rate_limiter: RateLimiter::new(options.bytes_per_second),
            options,
            fetched_bytes: Arc::default(),
            hashed_blocks: Arc::default(),
        }
    }

    /// Bytes that came from the store.
    pub fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes.load(Ordering::Relaxed)
    }

    /// The same number, for those who look on.
    pub fn meter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.fetched_bytes)
    }

    /// How many blocks were verified by their checksums, for those who look on.
    pub fn hashed_meter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.hashed_blocks)
    }

    /// How blocks are packed, where their objects say nothing else.
    pub fn compression(&self) -> Compression {
        self.codec.compression()
    }

    /// The object of a block as it lies in the store, not checked.
    pub async fn packed(&self, block: &Checksum) -> Result<Bytes, FetchError> {
        // The semaphore is never closed.
        let _turn = self.calls.acquire().await.map_err(|_| Error::Cancelled)?;
        let object = self.object(block).await?;
        let len_bytes = u64::try_from(object.len()).unwrap_or(u64::MAX);
        self.fetched_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        self.rate_limiter.pay(len_bytes).await;
        Ok(object)
    }

    /// Takes a block out of its object, wherever that came from, and checks it.
    pub async fn unpack(
        &self,
        packing: Compression,
        object: Bytes,
        block: &Checksum,
    ) -> Result<Bytes, FetchError> {
        self.open(packing, object, block, None).await.map(|(content, _)| content)
    }

    /// The same, and seals it for those who believe this.
    pub async fn verify(
        &self,
        packing: Compression,
        object: Bytes,
        block: &Checksum,
        sealer: Option<&Arc<Sealer>>,
    ) -> Result<(Bytes, Option<Seal>), FetchError> {
        self.open(packing, object, block, sealer.map(Arc::clone)).await
    }

    /// Takes a block out of its object that one who has the key of `sealer` has verified: only the seal
    /// is checked.
    pub async fn believe(
        &self,
        packing: Compression,
        object: Bytes,
        block: &Checksum,
        (seal, sealer): (Seal, &Arc<Sealer>),
    ) -> Result<Bytes, FetchError> {
        let (codec, vouch) = (self.codec.packed_by(packing), (seal, Arc::clone(sealer)));
        let opened = self.unpacker.believe(codec, object, *block, vouch).await?;
        Ok(opened.map_err(BlockDamage::from)?)
    }

    async fn open(
        &self,
        packing: Compression,
        object: Bytes,
        block: &Checksum,
        sealer: Option<Arc<Sealer>>,
    ) -> Result<(Bytes, Option<Seal>), FetchError> {
        let opened = self.unpacker.unpack(self.codec.packed_by(packing), object, sealer).await?;
        let (found, seal, opened) = opened.map_err(BlockDamage::from)?;
        self.hashed_blocks.fetch_add(1, Ordering::Relaxed);
        if found != *block {
            return Err(BlockDamage::Wrong(Damage::Checksum { found }).into());
        }
        Ok((opened, seal))
    }

    async fn object(&self, block: &Checksum) -> Result<Bytes, FetchError> {
        let mut pauses = self.options.pauses.iter();
        loop {
            let error = match self.blocks.get(block, self.codec.size()).await {
                Ok(object) => return Ok(object),
                Err(error) => error,
            };
            match (error.retry(), pauses.next()) {
                (Retry::Later, Some(pause)) => {
                    let path = self.blocks.path_of(block);
                    tracing::warn!("{path} is asked for again in {pause:?}: {error}");
                    tokio::time::sleep(*pause).await;
                }
                (Retry::Later, None) => {
                    let why = match error {
                        // As the store says it.
                        Error::Store(error) => telemetry::Chain(&error).to_string(),
                        error => telemetry::Chain(&error).to_string(),
                    };
                    return Err(BlockDamage::Unread { why }.into());
                }
                (Retry::Never, _) => return Err(never(error)),
            }
        }
    }
}

fn never(error: Error) -> FetchError {
    match error {
        Error::Store(blobs::Error::NotFound { .. }) => BlockDamage::Missing.into(),
        Error::Store(blobs::Error::TooLong { len_bytes, .. }) => {
            BlockDamage::Length { len_bytes }.into()
        }
        other => other.into(),
    }
}

#[async_trait]
impl Fetch for StoreFetch {
    async fn fetch(&self, block: &Checksum) -> Result<Bytes, FetchError> {
        let object = self.packed(block).await?;
        self.unpack(self.codec.compression(), object, block).await
    }

    fn path_of(&self, block: &Checksum) -> String {
        self.blocks.path_of(block)
    }
}
