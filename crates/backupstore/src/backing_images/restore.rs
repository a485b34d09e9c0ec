//! Giving a backing image back, as the file it was.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;

use super::pseudo_volume;
use crate::control::Control;
use crate::error::Error;
use crate::format::layout::{self, BlockFolder};
use crate::format::{BackingImageCfg, CFG_MAX_BYTES, Checksum, LockKind, Name, hex};
use crate::lock::LOCK_TIMEOUT;
use crate::restore::{FetchOptions, FileSink, Job, OnDamage, Plan, StoreFetch, restore};
use crate::store::BackupStore;

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
        let (lock, timeout) = (pseudo_volume()?, options.lock_timeout);
        self.with_lock(&lock, LockKind::Use, timeout, control, async |_, control| {
            self.write_image(image, to.to_owned(), options, &control).await
        })
        .await
    }

    async fn write_image(
        &self,
        image: &Name,
        to: PathBuf,
        options: &ImageRestoreOptions,
        control: &Control,
    ) -> Result<(), Error> {
        let key = layout::backing_image(image)?;
        let (cfg, _) = self.read_image(image, CFG_MAX_BYTES).await?.required(&key)?;
        if cfg.is_in_progress() {
            return Err(Error::InProgress { backup: image.to_string() });
        }
        let plan = Arc::new(plan(image, &cfg)?);
        let blocks = BlockFolder::of_backing_images();
        let limit = options.concurrent_limit;
        let fetch = StoreFetch::new(self.clone(), blocks, &plan, limit, options.fetch.clone());
        let sink = FileSink::create(&to, plan.volume_bytes).map_err(Error::Sink)?;
        let sink = Arc::new(sink);
        restore(plan, Arc::new(fetch), sink, limit, OnDamage::Fail, control).await?;
        let size = cfg.size;
        let expected = Some(cfg.checksum).filter(|sum| sum.len() == CHECKSUM_DIGITS);
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

fn plan(image: &Name, cfg: &BackingImageCfg) -> Result<Plan, Error> {
    let block_size = BackingImageCfg::BLOCK_SIZE;
    if let Some(last) = cfg.blocks.last().filter(|last| last.offset >= cfg.size) {
        let (backup, size_bytes) = (image.to_string(), cfg.size);
        return Err(Error::PastEnd { backup, offset: last.offset, size_bytes });
    }
    let mut places: HashMap<Checksum, Vec<u64>> = HashMap::new();
    for block in &cfg.blocks {
        places.entry(block.checksum).or_default().push(block.offset);
    }
    let mut jobs: Vec<Job> =
        places.into_iter().map(|(checksum, offsets)| Job { checksum, offsets }).collect();
    jobs.sort_by_key(|job| job.offsets.first().copied());
    let wrong = || Error::VolumeSize { size_bytes: cfg.size, block_bytes: block_size.bytes() };
    Ok(Plan {
        volume_bytes: cfg.size.checked_next_multiple_of(block_size.bytes()).ok_or_else(wrong)?,
        block_size,
        compression: cfg.compression_method,
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
