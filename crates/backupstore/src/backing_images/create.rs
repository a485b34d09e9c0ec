//! Storing a backing image.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use jiff::Timestamp;

use crate::block::{BlockRef, Compression, Packing};
use crate::control::Control;
use crate::create::{Upload, Uploaded};
use crate::error::Error;
use crate::lock::{LOCK_TIMEOUT, Lease, LockKind};
use crate::name::{Name, hex};
use crate::repository::{Codec, ImageRecord, Started, seconds};
use crate::source::Source;
use crate::store::BackupStore;
use crate::subject::Subject;

const READ_BYTES: usize = 1 << 20;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct BackingImageRequest {
    pub image: Name,
    pub labels: Option<BTreeMap<String, String>>,
    pub compression: Compression,
    /// Blocks that are exchanged with the store at a time.
    pub concurrent_limit: usize,
    /// The SHA-512 of the whole image, in hex digits, which it must have; empty where it is not known.
    pub checksum: String,
    /// Kept in the record.
    pub secret: String,
    pub secret_namespace: String,
    /// How long to wait for a deletion that holds the lock.
    pub lock_timeout: Duration,
}

impl BackingImageRequest {
    pub fn new(image: Name) -> Self {
        Self {
            image,
            labels: None,
            compression: Compression::Lz4,
            concurrent_limit: 1,
            checksum: String::new(),
            secret: String::new(),
            secret_namespace: String::new(),
            lock_timeout: LOCK_TIMEOUT,
        }
    }
}

/// An image that is complete in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    pub url: String,
    /// SHA-512 of the whole image.
    pub checksum: String,
    /// Blocks that were not in the store.
    pub new_blocks: u64,
    pub uploaded_bytes: u64,
}

impl BackupStore {
    /// Stores an image. The same one under the same name is stored already; what an earlier try has
    /// uploaded is not uploaded again.
    pub async fn create_backing_image(
        &self,
        request: &BackingImageRequest,
        source: Arc<dyn Source>,
        control: &Control,
    ) -> Result<StoredImage, Error> {
        let lock = self.repository.lock_name(&Subject::BackingImages)?;
        let timeout = request.lock_timeout;
        self.with_lock(&lock, LockKind::Use, timeout, control, async |lease, control| {
            self.store_image(request, source, &lease, &control).await
        })
        .await
    }

    async fn store_image(
        &self,
        request: &BackingImageRequest,
        source: Arc<dyn Source>,
        lease: &Lease,
        control: &Control,
    ) -> Result<StoredImage, Error> {
        lease.settled().await;
        let (image, size) = (&request.image, source.size_bytes());
        let packing = self.repository.image_packing(request.compression);
        let begun = begun(request, size, packing);
        let stored = |checksum, uploaded: &Uploaded| StoredImage {
            url: self.url.backing_image_url(image),
            checksum,
            new_blocks: uploaded.new_blocks,
            uploaded_bytes: uploaded.new_bytes.saturating_add(uploaded.again_bytes),
        };
        let ours = match self.repository.begin_image(image, &begun).await? {
            Started::Begun(ours) => ours,
            Started::Complete(record) => {
                let checksum = checksum_of(source, control).await?;
                if (record.size_bytes, &record.checksum) != (size, &checksum) {
                    return Err(Error::Exists { what: format!("backing image {image}") });
                }
                // One that was killed may have left it so, and not durable.
                self.repository.settle(&Subject::BackingImages).await?;
                return Ok(stored(checksum, &Uploaded::default()));
            }
        };
        let others_over = lease.others_over(&ours).await?;
        let upload = Upload {
            blocks: self.repository.blocks(&Subject::BackingImages),
            codec: Codec::new(packing),
            concurrent_limit: request.concurrent_limit,
            base: &[],
            writes_anew: false,
            bytes_per_second: None,
        };
        let sum = checksum_of(Arc::clone(&source), control);
        let (uploaded, checksum) = futures::try_join!(upload.run(source, None, control), sum)?;
        if !request.checksum.is_empty() && request.checksum != checksum {
            let (image, expected) = (image.to_string(), request.checksum.clone());
            return Err(Error::ImageChecksum { image, found: checksum, expected });
        }
        let done = finished(begun, &uploaded, &checksum);
        let done = ImageRecord { is_successor: ours.is_successor, ..done };
        let of = Subject::BackingImages;
        self.before_publishing(&of, &done.blocks, others_over, lease, control).await?;
        let publish = self.repository.publish_image(image, done, &ours.version)?;
        lease.while_held(control, publish).await?;
        Ok(stored(checksum, &uploaded))
    }
}

/// What is written before the first block.
fn begun(request: &BackingImageRequest, size_bytes: u64, packing: Packing) -> ImageRecord {
    ImageRecord {
        name: request.image.to_string(),
        size_bytes,
        checksum: request.checksum.clone(),
        labels: request.labels.clone(),
        packing,
        started: seconds(Timestamp::now()),
        completed: String::new(),
        secret: request.secret.clone(),
        secret_namespace: request.secret_namespace.clone(),
        blocks: Vec::new(),
        is_fenceable: true,
        is_successor: false,
    }
}

fn finished(begun: ImageRecord, uploaded: &Uploaded, checksum: &str) -> ImageRecord {
    let blocks: Vec<BlockRef> = uploaded
        .blocks
        .iter()
        .filter_map(|(offset, sum)| sum.map(|checksum| BlockRef { offset: *offset, checksum }))
        .collect();
    let completed = seconds(Timestamp::now());
    ImageRecord { checksum: checksum.to_owned(), completed, blocks, ..begun }
}

/// SHA-512 of all of it.
async fn checksum_of(source: Arc<dyn Source>, control: &Control) -> Result<String, Error> {
    let control = control.clone();
    let read = move || {
        let mut sum = digest::Context::new(&digest::SHA512);
        let (mut at, size) = (0, source.size_bytes());
        let mut buffer = vec![0; READ_BYTES];
        while at < size {
            control.check()?;
            let len = usize::try_from(size - at).unwrap_or(READ_BYTES).min(READ_BYTES);
            let piece = buffer.get_mut(..len).unwrap_or_default();
            source.read_at(at, piece).map_err(Error::Source)?;
            sum.update(piece);
            at += u64::try_from(len).unwrap_or(u64::MAX);
        }
        Ok(hex(sum.finish().as_ref()))
    };
    tokio::task::spawn_blocking(read).await.map_err(Error::Thread)?
}
