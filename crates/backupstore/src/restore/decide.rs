//! What a restore has to write and to zero. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::block::{BlockRef, BlockSize, Checksum, Compression, Packing, is_zero};
use crate::error::Error;
use crate::repository::BackupRecord;

/// A block that is fetched once and written wherever it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub checksum: Checksum,
    /// Ascending.
    pub offsets: Vec<u64>,
}

/// All that a restore does, from nothing or from an older backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub volume_bytes: u64,
    pub block_size: BlockSize,
    pub compression: Compression,
    /// By the first place of each.
    pub jobs: Vec<Job>,
    /// Places that the older backup has and this one has not.
    pub zeros: Vec<Range<u64>>,
    /// Whether what is not written may hold anything: then zeros inside blocks are written, too.
    pub is_incremental: bool,
}

impl Plan {
    /// Blocks to be written, counted by their places.
    pub fn places(&self) -> u64 {
        self.jobs.iter().map(|job| u64::try_from(job.offsets.len()).unwrap_or(u64::MAX)).sum()
    }

    pub(crate) fn packing(&self) -> Packing {
        Packing { size: self.block_size, compression: self.compression }
    }
}

/// From nothing, or from `old`.
pub(crate) fn plan(
    new: &BackupRecord,
    old: Option<&BackupRecord>,
    volume_bytes: u64,
) -> Result<Plan, Error> {
    let Packing { size: block_size, compression } = new.packing;
    if volume_bytes == 0 || !volume_bytes.is_multiple_of(block_size.bytes()) {
        return Err(Error::VolumeSize {
            size_bytes: volume_bytes,
            block_bytes: block_size.bytes(),
        });
    }
    for record in [Some(new), old].into_iter().flatten() {
        check(record, volume_bytes)?;
    }
    let mut base = BTreeMap::new();
    if let Some(old) = old {
        let old_size = old.packing.size;
        if old_size != block_size {
            let (from, to) = (old_size.bytes(), block_size.bytes());
            return Err(Error::BlockSizeChanged { from, to });
        }
        base.extend(old.blocks.iter().map(|block| (block.offset, block.checksum)));
    }
    let changed =
        new.blocks.iter().filter(|block| base.get(&block.offset) != Some(&block.checksum));
    let jobs = group(changed);
    for block in &new.blocks {
        base.remove(&block.offset);
    }
    let zeros = join(base.into_keys(), block_size.bytes());
    Ok(Plan { volume_bytes, block_size, compression, jobs, zeros, is_incremental: old.is_some() })
}

fn check(record: &BackupRecord, volume_bytes: u64) -> Result<(), Error> {
    if record.is_single_file {
        return Err(Error::SingleFile { backup: record.name.clone() });
    }
    match record.blocks.last() {
        Some(last) if last.offset >= volume_bytes => Err(Error::PastEnd {
            backup: record.name.clone(),
            offset: last.offset,
            size_bytes: volume_bytes,
        }),
        Some(_) | None => Ok(()),
    }
}

fn group<'b>(blocks: impl Iterator<Item = &'b BlockRef>) -> Vec<Job> {
    let mut at: std::collections::HashMap<Checksum, usize> = std::collections::HashMap::new();
    let mut jobs: Vec<Job> = Vec::new();
    for block in blocks {
        let index = *at.entry(block.checksum).or_insert(jobs.len());
        match jobs.get_mut(index) {
            Some(job) => job.offsets.push(block.offset),
            None => jobs.push(Job { checksum: block.checksum, offsets: vec![block.offset] }),
        }
    }
    jobs
}

fn join(offsets: impl Iterator<Item = u64>, block_bytes: u64) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for offset in offsets {
        let end = offset.saturating_add(block_bytes);
        match ranges.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => ranges.push(offset..end),
        }
    }
    ranges
}

/// The parts of a block that are zeros and that are not, in steps of `unit`.
pub(crate) fn runs(block: &[u8], unit: usize) -> Vec<(Range<usize>, Content)> {
    let mut runs: Vec<(Range<usize>, Content)> = Vec::new();
    let mut at = 0;
    for piece in block.chunks(unit.max(1)) {
        let content = if is_zero(piece) { Content::Zeros } else { Content::Bytes };
        let end = at + piece.len();
        match runs.last_mut() {
            Some((range, last)) if *last == content => range.end = end,
            _ => runs.push((at..end, content)),
        }
        at = end;
    }
    runs
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Zeros,
    Bytes,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::Codec;

    const BLOCK: u64 = 4096;

    fn name_of(text: &str) -> Checksum {
        Codec::names(&[text.as_bytes()]).remove(0)
    }

    fn record(blocks: &[(u64, &str)]) -> BackupRecord {
        let size = BlockSize::from_bytes(BLOCK).unwrap();
        let mut record =
            BackupRecord::complete("backup", Packing { size, compression: Compression::Lz4 });
        record.blocks = blocks
            .iter()
            .map(|(index, text)| BlockRef { offset: index * BLOCK, checksum: name_of(text) })
            .collect();
        record
    }

    fn job(text: &str, places: &[u64]) -> Job {
        let offsets = places.iter().map(|index| index * BLOCK).collect();
        Job { checksum: name_of(text), offsets }
    }

    #[test]
    fn a_block_of_many_places_is_fetched_once() {
        let new = record(&[(0, "a"), (1, "b"), (2, "a"), (5, "a")]);
        let plan = plan(&new, None, 8 * BLOCK).unwrap();
        assert_eq!(plan.jobs, [job("a", &[0, 2, 5]), job("b", &[1])]);
        assert_eq!((plan.zeros.len(), plan.places(), plan.is_incremental), (0, 4, false));
    }

    #[test]
    fn only_what_differs_is_done() {
        let old = record(&[(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e"), (7, "f")]);
        let new = record(&[(0, "a"), (1, "B"), (4, "e"), (5, "B")]);
        let plan = plan(&new, Some(&old), 8 * BLOCK).unwrap();
        assert_eq!(plan.jobs, [job("B", &[1, 5])]);
        assert_eq!(plan.zeros, [2 * BLOCK..4 * BLOCK, 7 * BLOCK..8 * BLOCK]);
    }

    #[test]
    fn lies_about_sizes_are_refused() {
        let past = plan(&record(&[(8, "a")]), None, 8 * BLOCK).unwrap_err();
        assert!(past.to_string().contains("past the end of the volume"), "{past}");
        for size in [0, 4097] {
            let error = plan(&record(&[]), None, size).unwrap_err();
            assert!(matches!(error, Error::VolumeSize { .. }));
        }
        let mut other = record(&[]);
        other.packing.size = BlockSize::DEFAULT;
        let error = plan(&other, Some(&record(&[])), 2 << 20).unwrap_err();
        assert_eq!(error.to_string(), "backup block size is changed from 4096 to 2097152");
    }

    #[test]
    fn zeros_inside_a_block_are_found() {
        let mut block = vec![0; 5 * 8];
        block[8] = 1;
        block[23] = 1;
        let expected = [(0..8, Content::Zeros), (8..24, Content::Bytes), (24..40, Content::Zeros)];
        assert_eq!(runs(&block, 8), expected);
    }
}
