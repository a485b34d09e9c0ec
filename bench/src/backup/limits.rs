//! What the machine can do at best, measured in the same run: hashing, packing, writing.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use backupstore::Compression;
use backupstore::format::{Checksum, pack};
use backupstore::restore::{FileSink, Sink as _};

use super::contents::{CHUNK, Data};
use crate::measure::settle;

/// How long each of them is measured.
const LENGTH: Duration = Duration::from_secs(1);
/// Chunks that a thread has at hand: as many as are hashed together.
const AT_HAND: u64 = 8;
const WRITTEN: u64 = 512 << 20;
const PAGE: usize = 4096;

/// Bytes a second, all cores together.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) hash: f64,
    /// One block after the other, as everybody else does it.
    pub(crate) hash_single: f64,
    pub(crate) pack: f64,
    pub(crate) write: f64,
    pub(crate) cores: usize,
}

pub(crate) fn measure(data: Data, scratch: &Path) -> Result<Limits> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let hash = on_all(cores, data, |chunks| {
        let blocks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        Checksum::of_each(&blocks).len()
    });
    let hash_single = on_all(cores, data, |chunks| {
        chunks.iter().map(|chunk| usize::from(Checksum::of(chunk) == Checksum::of(b""))).sum()
    });
    let pack = on_all(cores, data, |chunks| {
        chunks.iter().filter_map(|it| pack(Compression::Lz4, it).ok()).map(|it| it.len()).sum()
    });
    Ok(Limits { hash, hash_single, pack, write: write(data, scratch)?, cores })
}

/// Bytes a second that all threads together get through.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn on_all(cores: usize, data: Data, work: impl Fn(&[Vec<u8>]) -> usize + Sync) -> f64 {
    let done: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|thread| {
                let work = &work;
                scope.spawn(move || one(data, thread, work))
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).sum()
    });
    done as f64 / LENGTH.as_secs_f64()
}

fn one(data: Data, thread: usize, work: &impl Fn(&[Vec<u8>]) -> usize) -> u64 {
    let chunks: Vec<Vec<u8>> = (thread as u64 * 10..)
        .filter_map(|index| {
            let mut chunk = vec![0; CHUNK];
            data.chunk(index, &mut chunk).then_some(chunk)
        })
        .take(usize::try_from(AT_HAND).unwrap_or(1))
        .collect();
    let (start, mut rounds) = (Instant::now(), 0);
    while start.elapsed() < LENGTH {
        std::hint::black_box(work(&chunks));
        rounds += 1;
    }
    // The last round went on after the end.
    let part = LENGTH.as_secs_f64() / start.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let bytes = ((rounds * AT_HAND * CHUNK as u64) as f64 * part) as u64;
    bytes
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn write(data: Data, scratch: &Path) -> Result<f64> {
    let path = scratch.join("written");
    // Where a disk can take it from.
    let mut memory = vec![0; CHUNK + PAGE];
    let begin = memory.as_ptr().align_offset(PAGE);
    let chunk = memory.get_mut(begin..begin + CHUNK).context("no room")?;
    data.chunk(0, chunk);
    settle(scratch)?;
    let (start, file) = (Instant::now(), FileSink::create(&path, WRITTEN)?);
    for index in 0..WRITTEN / CHUNK as u64 {
        file.write_at(index * CHUNK as u64, chunk)?;
    }
    file.sync()?;
    let seconds = start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(WRITTEN as f64 / seconds)
}
