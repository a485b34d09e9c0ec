//! The volume that is backed up: made of a seed, so that any part of it can be made again, and the
//! changes that are written to it.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};

/// A part of the volume that is all of one kind.
pub(crate) const CHUNK: usize = 2 << 20;
/// What is changed at a time.
const RUN: usize = 64 << 10;
/// Different ones among the chunks that repeat.
const REPEATED: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Noise,
    Text,
    Hole,
    Repeated,
}

/// Of ten chunks in a row: four of noise, three of text, two holes, one that repeats.
const PATTERN: [Kind; 10] = [
    Kind::Noise,
    Kind::Text,
    Kind::Hole,
    Kind::Noise,
    Kind::Repeated,
    Kind::Text,
    Kind::Noise,
    Kind::Hole,
    Kind::Noise,
    Kind::Text,
];

const WORDS: [&str; 32] = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "for",
    "request",
    "response",
    "error",
    "warning",
    "started",
    "stopped",
    "connection",
    "volume",
    "replica",
    "snapshot",
    "user",
    "session",
    "took",
    "bytes",
    "from",
    "with",
    "status",
    "200",
    "404",
    "GET",
    "POST",
    "/api/v1/",
    "id=",
    "\n",
];

/// A stream of numbers (splitmix64).
#[derive(Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn noise(&mut self, into: &mut [u8]) {
        for part in into.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            part.copy_from_slice(number.get(..part.len()).unwrap_or_default());
        }
    }

    /// Words and numbers, as in a log.
    fn text(&mut self, into: &mut [u8]) {
        let mut rest = into;
        while !rest.is_empty() {
            let number = self.next();
            let word = usize::try_from(number % 40).unwrap_or(0);
            let digits;
            let word = if let Some(word) = WORDS.get(word) {
                word
            } else {
                digits = (number >> 40).to_string();
                digits.as_str()
            };
            for part in [word.as_bytes(), b" "] {
                let len = part.len().min(rest.len());
                let (now, later) = rest.split_at_mut(len);
                now.copy_from_slice(part.get(..len).unwrap_or_default());
                rest = later;
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Data {
    pub(crate) size_bytes: u64,
    seed: u64,
}

impl Data {
    pub(crate) fn new(size_bytes: u64, seed: u64) -> Result<Self> {
        let unit = CHUNK as u64 * PATTERN.len() as u64;
        ensure!(size_bytes >= unit, "a volume of less than {} MiB says nothing", unit >> 20);
        Ok(Self { size_bytes: size_bytes / CHUNK as u64 * CHUNK as u64, seed })
    }

    fn chunks(&self) -> u64 {
        self.size_bytes / CHUNK as u64
    }

    fn kind(index: u64) -> Kind {
        let at = usize::try_from(index % PATTERN.len() as u64).unwrap_or(0);
        PATTERN.get(at).copied().unwrap_or(Kind::Hole)
    }

    /// The chunk as it was made first; false where it is a hole.
    pub(crate) fn chunk(&self, index: u64, into: &mut [u8]) -> bool {
        let mut numbers = Numbers::new(self.seed ^ (index + 1));
        match Self::kind(index) {
            Kind::Noise => numbers.noise(into),
            Kind::Text => numbers.text(into),
            Kind::Repeated => Numbers::new(self.seed ^ !(index % REPEATED)).noise(into),
            Kind::Hole => return false,
        }
        true
    }

    /// Bytes that are no hole.
    pub(crate) fn full_bytes(&self) -> u64 {
        let full = (0..self.chunks()).filter(|index| Self::kind(*index) != Kind::Hole).count();
        full as u64 * CHUNK as u64
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size_bytes)?;
        let mut buffer = vec![0; CHUNK];
        for index in 0..self.chunks() {
            if self.chunk(index, &mut buffer) {
                file.write_all_at(&buffer, index * CHUNK as u64)?;
            }
        }
        Ok(file.sync_all()?)
    }

    /// One percent in runs all over the volume.
    pub(crate) fn scattered(&self) -> Changes {
        let runs = self.size_bytes / RUN as u64;
        let mut numbers = Numbers::new(self.seed ^ 0x5ca7);
        let mut places = std::collections::BTreeSet::new();
        while (places.len() as u64) < (runs / 100).max(1) {
            places.insert(numbers.next() % runs);
        }
        Changes { runs: places.into_iter().collect(), seed: self.seed ^ 0x1 }
    }

    /// One percent in one piece.
    pub(crate) fn contiguous(&self) -> Changes {
        let runs = self.size_bytes / RUN as u64;
        let first = self.chunks() / 3 * (CHUNK / RUN) as u64;
        Changes { runs: (first..first + (runs / 100).max(1)).collect(), seed: self.seed ^ 0x2 }
    }

    /// One run, another one for each number.
    pub(crate) fn single(&self, number: u64) -> Changes {
        let place = (number * 7919) % (self.size_bytes / RUN as u64);
        Changes { runs: vec![place], seed: self.seed ^ (number << 8) }
    }

    /// Makes a file what it was before these changes.
    pub(crate) fn revert(&self, path: &Path, changes: &Changes) -> Result<()> {
        let file = File::options().write(true).open(path)?;
        let mut buffer = vec![0; CHUNK];
        for index in changes.chunks() {
            let at = index * CHUNK as u64;
            if self.chunk(index, &mut buffer) {
                file.write_all_at(&buffer, at)?;
            } else {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, hole, at, CHUNK as u64)?;
            }
        }
        Ok(file.sync_all()?)
    }
}

/// Runs that get other contents.
#[derive(Debug)]
pub(crate) struct Changes {
    runs: Vec<u64>,
    seed: u64,
}

impl Changes {
    /// Each run: where, and what is written there.
    pub(crate) fn each(&self, mut write: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
        let mut buffer = vec![0; RUN];
        for run in &self.runs {
            Numbers::new(self.seed ^ (run << 20)).noise(&mut buffer);
            write(run * RUN as u64, &buffer)?;
        }
        Ok(())
    }

    pub(crate) fn apply(&self, path: &Path) -> Result<()> {
        let file = File::options().write(true).open(path)?;
        self.each(|at, bytes| Ok(file.write_all_at(bytes, at)?))?;
        Ok(file.sync_all()?)
    }

    /// Chunks that are touched, each once.
    pub(crate) fn chunks(&self) -> Vec<u64> {
        let mut chunks: Vec<u64> =
            self.runs.iter().map(|run| run * RUN as u64 / CHUNK as u64).collect();
        chunks.dedup();
        chunks
    }
}

/// Fails where the two files differ in their first `size_bytes`.
pub(crate) fn compare(one: &Path, other: &Path, size_bytes: u64) -> Result<()> {
    let (left, right) = (File::open(one)?, File::open(other)?);
    let (mut ours, mut theirs) = (vec![0; CHUNK], vec![0; CHUNK]);
    let mut at = 0;
    while at < size_bytes {
        let range: Range<usize> =
            0..usize::try_from(size_bytes - at).unwrap_or(usize::MAX).min(CHUNK);
        let (Some(ours), Some(theirs)) = (ours.get_mut(range.clone()), theirs.get_mut(range))
        else {
            break;
        };
        left.read_exact_at(ours, at)?;
        right.read_exact_at(theirs, at)?;
        ensure!(ours == theirs, "{} is not what was backed up, at {at}", one.display());
        at += CHUNK as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_made_again_and_again() {
        let data = Data::new(20 * CHUNK as u64, 7).unwrap();
        let place = testkit::process::Scratch::new().unwrap();
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        data.write(&one).unwrap();
        data.write(&other).unwrap();
        compare(&one, &other, data.size_bytes).unwrap();
        assert_eq!(data.full_bytes(), 16 * CHUNK as u64);
        for changes in [data.scattered(), data.contiguous(), data.single(3)] {
            changes.apply(&one).unwrap();
            assert!(compare(&one, &other, data.size_bytes).is_err());
            data.revert(&one, &changes).unwrap();
            compare(&one, &other, data.size_bytes).unwrap();
        }
    }

    #[test]
    fn one_percent_is_one_percent() {
        let data = Data::new(4 << 30, 7).unwrap();
        for changes in [data.scattered(), data.contiguous()] {
            assert_eq!(changes.runs.len(), 655);
        }
        let touched = data.scattered().chunks().len();
        assert!((500..620).contains(&touched), "{touched}");
        assert_eq!(data.contiguous().chunks().len(), 21);
    }
}
