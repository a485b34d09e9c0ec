//! What must be read: the volume and its snapshots as byte vectors. Where more than one answer is
//! right (after an unmap, and after a write nobody was told of), it checks that the answer is one
//! of them and holds the volume to it from then on.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::plan::{SECTOR, Write};

#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) volume: Vec<u8>,
    pub(crate) snapshots: BTreeMap<String, Vec<u8>>,
    /// What snapshots hold that the engine took for itself, to fill a copy or to grow.
    frozen: Vec<Vec<u8>>,
}

/// Bytes that tell where they are from; never zero.
pub(crate) fn pattern(range: &Range<usize>, seed: u8) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at / 97 + usize::from(seed) * 7) % 255).unwrap() + 1;
    range.clone().map(byte).collect()
}

/// Where two differ first, as `(sector, byte in it)`.
pub(crate) fn difference(found: &[u8], wanted: &[u8]) -> Option<(usize, usize)> {
    let sector = usize::try_from(SECTOR).unwrap();
    let at = found.iter().zip(wanted).position(|(one, other)| one != other);
    let at = at.or((found.len() != wanted.len()).then_some(found.len().min(wanted.len())));
    at.map(|at| (at / sector, at % sector))
}

impl Oracle {
    pub(crate) fn new(size: u64) -> Self {
        let volume = vec![0; usize::try_from(size).unwrap()];
        Self { volume, snapshots: BTreeMap::new(), frozen: Vec::new() }
    }

    pub(crate) fn span(&self, write: &Write) -> Range<usize> {
        write.span.within(self.volume.len() as u64)
    }

    pub(crate) fn write(&mut self, write: &Write) {
        let range = self.span(write);
        let bytes = pattern(&range, write.seed);
        self.volume[range].copy_from_slice(&bytes);
    }

    pub(crate) fn zero(&mut self, range: Range<usize>) {
        self.volume[range].fill(0);
    }

    /// The range was unmapped and `found` is the volume now: whole sectors in it read as before, as
    /// zeros, or as a snapshot that is kept, or that the engine took, has them.
    pub(crate) fn unmapped(&mut self, range: &Range<usize>, found: &[u8]) {
        let size = usize::try_from(SECTOR).unwrap();
        for at in range.start.div_ceil(size)..range.end / size {
            let sector = at * size..(at + 1) * size;
            let now = &found[sector.clone()];
            let is_kept = |held: &Vec<u8>| held.get(sector.clone()).is_some_and(|held| held == now);
            let mut held = self.snapshots.values().chain(&self.frozen);
            if now.iter().all(|byte| *byte == 0) || held.any(is_kept) {
                self.volume[sector].copy_from_slice(now);
            }
        }
    }

    /// The write reached some replicas, and `found` is the volume now: all of it or nothing is
    /// there.
    pub(crate) fn torn(&mut self, write: &Write, found: &[u8]) {
        let range = self.span(write);
        if found[range.clone()] == pattern(&range, write.seed) {
            self.write(write);
        }
    }

    pub(crate) fn snapshot(&mut self, name: String) {
        self.snapshots.insert(name, self.volume.clone());
    }

    pub(crate) fn revert(&mut self, name: &str) {
        let size = self.volume.len();
        self.volume.clone_from(&self.snapshots[name]);
        self.volume.resize(size, 0);
    }

    /// The engine may take a snapshot of its own now.
    pub(crate) fn freeze(&mut self) {
        self.frozen.push(self.volume.clone());
    }

    pub(crate) fn grow(&mut self, size: u64) {
        self.freeze();
        self.volume.resize(usize::try_from(size).unwrap(), 0);
    }
}
