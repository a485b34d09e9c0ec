//! Giving a backing image back, as the file it was.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;

use crate::block::Checksum;
use crate::control::Control;
use crate::error::Error;
use crate::lock::{LOCK_TIMEOUT, LockKind};
use crate::name::{Name, hex};
use crate::repository::{Codec, ImageRecord};
use crate::restore::{FetchOptions, FileSink, Job, OnDamage, Plan, StoreFetch, restore};
use crate::store::BackupStore;
use crate::subject::Subject;

/// Of a SHA-512.
const CHECKSUM_DIGITS: usize = 128;
const READ_BYTES: usize = 1 << 20;

#[derive(Debug, Clone)]
pub struct ImageRestoreOptions {
    /// Blocks that are fetched at a time.
    pub concurrent_limit: usize,
    pub fetch: FetchOptions,
    /// How long to wait for a deletion that holds the lock.
    pub lock_timeout: Duration,
}

impl Default for ImageRestoreOptions {
    fn default() -> Self {
        Self { concurrent_limit: 1, fetch: FetchOptions::default(), lock_timeout: LOCK_TIMEOUT }
    }
}

impl BackupStore {
    /// Writes an image to a new file; one that exists is removed first. Every block is checked, and
    /// the whole image where its record says what it is.
    pub async fn restore_backing_image(
        &self,
        image: &Name,
        to: &Path,
        options: &ImageRestoreOptions,
        control: &Control,
    ) -> Result<(), Error> {
        let lock = self.repository.lock_name(&Subject::BackingImages)?;
        let timeout = options.lock_timeout;
        let lease = self.lock_also_when_full(&lock, LockKind::Use, timeout, control).await?;
        let work = async |_, control: Control| {
            self.write_image(image, to.to_owned(), options, &control).await
        };
        lease.work(control, work).await
    }

    async fn write_image(
        &self,
        image: &Name,
        to: PathBuf,
        options: &ImageRestoreOptions,
        control: &Control,
    ) -> Result<(), Error> {
        let record = self.repository.complete_image(image).await?;
        let plan = Arc::new(plan(image, &record)?);
        let blocks = self.repository.blocks(&Subject::BackingImages);
        let (limit, how) = (options.concurrent_limit, options.fetch.clone());
        let fetch = StoreFetch::new(blocks, Codec::new(record.packing), limit, how);
        let sink = FileSink::create(&to, plan.volume_bytes).map_err(Error::Sink)?;
        let sink = Arc::new(sink);
        restore(plan, Arc::new(fetch), sink, limit, OnDamage::Fail, control).await?;
        let size = record.size_bytes;
        let expected = Some(record.checksum).filter(|sum| sum.len() == CHECKSUM_DIGITS);
        let check = move || finish(&to, size, expected.is_some()).map(|found| (found, expected));
        let checked = tokio::task::spawn_blocking(check).await.map_err(Error::Thread)?;
        match checked.map_err(Error::Sink)? {
            (Some(found), Some(expected)) if found != expected.to_ascii_lowercase() => {
                Err(Error::ImageChecksum { image: image.to_string(), found, expected })
            }
            _ => Ok(()),
        }
    }
}

fn plan(image: &Name, record: &ImageRecord) -> Result<Plan, Error> {
    let (block_size, size_bytes) = (record.packing.size, record.size_bytes);
    if let Some(last) = record.blocks.last().filter(|last| last.offset >= size_bytes) {
        let backup = image.to_string();
        return Err(Error::PastEnd { backup, offset: last.offset, size_bytes });
    }
    let mut places: HashMap<Checksum, Vec<u64>> = HashMap::new();
    for block in &record.blocks {
        places.entry(block.checksum).or_default().push(block.offset);
    }
    let mut jobs: Vec<Job> =
        places.into_iter().map(|(checksum, offsets)| Job { checksum, offsets }).collect();
    jobs.sort_by_key(|job| job.offsets.first().copied());
    let wrong = || Error::VolumeSize { size_bytes, block_bytes: block_size.bytes() };
    Ok(Plan {
        volume_bytes: size_bytes.checked_next_multiple_of(block_size.bytes()).ok_or_else(wrong)?,
        block_size,
        compression: record.packing.compression,
        jobs,
        zeros: Vec::new(),
        is_incremental: false,
    })
}

/// Cuts the last block to what the image had of it; the checksum of all of it, if it is wanted.
fn finish(path: &Path, size: u64, hashes: bool) -> io::Result<Option<String>> {
    let mut file = File::options().read(true).write(true).open(path)?;
    file.set_len(size)?;
    file.sync_all()?;
    if !hashes {
        return Ok(None);
    }
    let mut sum = digest::Context::new(&digest::SHA512);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(hex(sum.finish().as_ref()))),
            read => sum.update(buffer.get(..read).unwrap_or_default()),
        }
    }
}
