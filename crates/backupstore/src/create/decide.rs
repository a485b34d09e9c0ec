//! Which kind of backup is made, which blocks are looked at, and what its list is in the end. Pure.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use crate::block::{BlockRef, BlockSize, Checksum};
use crate::error::Error;
use crate::repository::BackupRecord;

/// What the caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Against the last backup where that is possible.
    #[default]
    Incremental,
    /// All of it, and blocks that are in the store are written anew: one way to mend a store.
    Full,
}

/// Why there is no base, or which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Base {
    Against(Box<BackupRecord>),
    None,
}

/// Against the last backup, if it can be read, is of another snapshot that is below ours, and has
/// blocks of the same size, and none past the end: what is behind it nobody reads again, and nobody restores.
pub(crate) fn base(
    mode: Mode,
    snapshot: &str,
    (block_size, size_bytes): (BlockSize, u64),
    last: Option<BackupRecord>,
    is_below: impl FnOnce(&BackupRecord) -> io::Result<bool>,
) -> io::Result<Base> {
    let usable = |record: &BackupRecord| {
        mode == Mode::Incremental
            && !record.is_in_progress()
            && !record.snapshot.is_empty()
            && record.snapshot != snapshot
            && !record.is_single_file
            && record.packing.size == block_size
            && record.blocks.last().is_none_or(|last| last.offset < size_bytes)
    };
    match last.filter(usable) {
        Some(record) if is_below(&record)? => Ok(Base::Against(Box::new(record))),
        Some(_) | None => Ok(Base::None),
    }
}

/// Offsets of the blocks that changed parts touch, each once, as the parts come.
pub(crate) struct Touched<I> {
    extents: I,
    size_bytes: u64,
    block_bytes: u64,
    /// Blocks of the extent at hand.
    pending: Range<u64>,
    next_free: u64,
}

impl<I: Iterator<Item = io::Result<Range<u64>>>> Touched<I> {
    pub(crate) fn new(extents: I, size_bytes: u64, block_size: BlockSize) -> Self {
        Self { extents, size_bytes, block_bytes: block_size.bytes(), pending: 0..0, next_free: 0 }
    }
}

impl<I: Iterator<Item = io::Result<Range<u64>>>> Iterator for Touched<I> {
    type Item = Result<u64, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.pending.is_empty() {
            let extent = match self.extents.next()? {
                Ok(extent) => extent,
                Err(error) => return Some(Err(Error::Source(error))),
            };
            let end = extent.end.min(self.size_bytes);
            if extent.start >= end {
                continue;
            }
            if extent.start < self.next_free {
                return Some(Err(Error::SourceOrder { offset: extent.start }));
            }
            self.next_free = extent.end;
            let first = (extent.start / self.block_bytes).max(self.pending.end);
            self.pending = first..end.div_ceil(self.block_bytes).max(first);
        }
        self.pending.next().map(|block| Ok(block.saturating_mul(self.block_bytes)))
    }
}

/// The whole list: the base's, with what was looked at in its place. `None` is a block of zeros,
/// which no list has.
pub(crate) fn merge(
    base: &[BlockRef],
    looked_at: &BTreeMap<u64, Option<Checksum>>,
) -> Vec<BlockRef> {
    let kept = base.iter().filter(|block| !looked_at.contains_key(&block.offset)).copied();
    let ours = looked_at
        .iter()
        .filter_map(|(offset, sum)| sum.map(|checksum| BlockRef { offset: *offset, checksum }));
    let mut all: Vec<BlockRef> = kept.chain(ours).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::block::{Compression, Packing};
    use crate::repository::Codec;

    const SIZE: BlockSize = BlockSize::DEFAULT;

    fn last(snapshot: &str) -> BackupRecord {
        let packing = Packing { size: SIZE, compression: Compression::Lz4 };
        BackupRecord { snapshot: snapshot.to_owned(), ..BackupRecord::complete("last", packing) }
    }

    fn name_of(text: &str) -> Checksum {
        Codec::names(&[text.as_bytes()]).remove(0)
    }

    #[test]
    fn it_is_incremental_only_against_a_snapshot_below_ours() {
        let decide =
            |mode, last, below| base(mode, "ours", (SIZE, 8 << 20), last, |_| Ok(below)).unwrap();
        let usable = last("older");
        assert_eq!(
            decide(Mode::Incremental, Some(usable.clone()), true),
            Base::Against(Box::new(usable.clone()))
        );
        assert_eq!(decide(Mode::Incremental, Some(usable.clone()), false), Base::None);
        assert_eq!(decide(Mode::Full, Some(usable.clone()), true), Base::None);
        assert_eq!(decide(Mode::Incremental, Some(last("ours")), true), Base::None);
        assert_eq!(decide(Mode::Incremental, None, true), Base::None);
        let mut begun = usable.clone();
        begun.completed.clear();
        assert_eq!(decide(Mode::Incremental, Some(begun), true), Base::None);
        let mut long = usable.clone();
        long.blocks = vec![BlockRef { offset: 8 << 20, checksum: name_of("a") }];
        assert_eq!(decide(Mode::Incremental, Some(long), true), Base::None);
        let mut other = usable;
        other.packing.size = BlockSize::from_bytes(16 << 20).unwrap();
        assert_eq!(decide(Mode::Incremental, Some(other), true), Base::None);
    }

    fn touched(extents: &[Range<u64>], size: u64) -> Result<Vec<u64>, Error> {
        let block = BlockSize::from_bytes(4096).unwrap();
        Touched::new(extents.iter().cloned().map(Ok), size, block).collect()
    }

    #[test]
    fn blocks_are_touched_once_and_in_order() {
        let extents = [0..1, 1..2, 4095..4097, 5000..5000, 16384..20480, 40960..99_999_999];
        assert_eq!(touched(&extents, 45056).unwrap(), [0, 4096, 16384, 40960]);
        assert!(matches!(
            touched(&[4096..8192, 0..1], 45056),
            Err(Error::SourceOrder { offset: 0 })
        ));
    }

    proptest! {
        #[test]
        fn every_changed_byte_lies_in_a_touched_block(
            mut cuts in prop::collection::vec(0_u64..100_000, 0..20),
        ) {
            cuts.sort_unstable();
            let extents: Vec<_> = cuts.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let found = touched(&extents, 100_000).unwrap();
            prop_assert!(found.is_sorted_by(|one, next| one < next));
            for extent in &extents {
                for byte in [extent.start, extent.end.saturating_sub(1)] {
                    if extent.contains(&byte) {
                        prop_assert!(found.contains(&(byte / 4096 * 4096)));
                    }
                }
            }
            for block in found {
                prop_assert!(extents.iter().any(|it| it.start < block + 4096 && block < it.end));
            }
        }
    }

    #[test]
    fn what_was_looked_at_takes_the_place_of_the_base() {
        let block = |offset, text: &str| BlockRef { offset, checksum: name_of(text) };
        let base = [block(0, "a"), block(4096, "b"), block(8192, "c")];
        let ours = BTreeMap::from([
            (4096, Some(name_of("B"))),
            (8192, None),
            (12288, Some(name_of("d"))),
            (16384, None),
        ]);
        assert_eq!(merge(&base, &ours), [block(0, "a"), block(4096, "B"), block(12288, "d")]);
    }
}
