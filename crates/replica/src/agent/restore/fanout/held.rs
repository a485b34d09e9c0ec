//! Blocks as they came from the store, verified and kept while somebody may still want them: until they
//! are written here, and some time longer, as those who restore together want the same at about the same
//! time.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backupstore::format::Checksum;
use backupstore::restore::Seal;
use bytes::Bytes;
use tokio::sync::OnceCell;

/// Of blocks that are written already.
const KEPT_BYTES: usize = 32 << 20;
const KEPT_MAX: usize = 256;

/// A block that is here, or on its way.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) object: OnceCell<Object>,
    /// The block itself, for the one who writes it: unpacked it is kept no longer than that.
    content: Mutex<Option<Bytes>>,
    /// Whether the restore itself has come to it, and will write it.
    is_own: AtomicBool,
}

/// A block as it lies in the store, which was verified.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) packed: Bytes,
    pub(super) seal: Option<Seal>,
}

/// For whom a block is fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taker {
    /// The restore, which writes it.
    Own,
    Other,
}

impl Cell {
    pub(super) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    pub(super) fn put(&self, content: Bytes) {
        *self.content.lock().unwrap_or_else(PoisonError::into_inner) = Some(content);
    }

    /// Once.
    pub(super) fn take(&self) -> Option<Bytes> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Debug)]
pub(super) struct Held {
    /// Whether anybody else is likely to ask.
    is_shared: bool,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    cells: HashMap<Checksum, Arc<Cell>>,
    /// As they were asked for.
    order: VecDeque<Checksum>,
}

impl Held {
    pub(super) fn new(is_shared: bool) -> Self {
        Self { is_shared, blocks: Mutex::default() }
    }

    /// A block that is here.
    pub(super) fn get(&self, block: &Checksum) -> Option<(Object, Arc<Cell>)> {
        let cell = self.lock().cells.get(block).map(Arc::clone)?;
        Some((cell.object.get()?.clone(), cell))
    }

    /// Where a block is, or will be: whoever comes first fetches it. `is_written` says which need not be
    /// kept.
    pub(super) fn cell(
        &self,
        block: &Checksum,
        taker: Taker,
        is_written: impl Fn(&Checksum) -> bool,
    ) -> Arc<Cell> {
        let mut blocks = self.lock();
        let known = blocks.cells.get(block).map(Arc::clone);
        let cell = known.unwrap_or_else(|| {
            blocks.let_go(self.is_shared, is_written);
            let cell = Arc::new(Cell::default());
            blocks.cells.insert(*block, Arc::clone(&cell));
            blocks.order.push_back(*block);
            cell
        });
        if taker == Taker::Own {
            cell.is_own.store(true, Ordering::Relaxed);
        }
        cell
    }

    /// It did not come.
    pub(super) fn forget(&self, block: &Checksum) {
        let mut blocks = self.lock();
        if blocks.cells.get(block).is_some_and(|cell| cell.object.get().is_none()) {
            blocks.cells.remove(block);
            blocks.order.retain(|other| other != block);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blocks {
    fn let_go(&mut self, is_shared: bool, is_written: impl Fn(&Checksum) -> bool) {
        let (kept_bytes, kept_max) = if is_shared { (KEPT_BYTES, KEPT_MAX) } else { (0, 0) };
        let len = |cell: &Arc<Cell>| cell.object.get().map_or(0, |object| object.packed.len());
        let mut bytes: usize = self.cells.values().map(len).sum();
        let mut count = self.order.len();
        let cells = &mut self.cells;
        self.order.retain(|block| {
            let here = cells.get(block).map_or(0, len);
            let goes = (bytes > kept_bytes || count > kept_max) && here > 0 && is_written(block);
            if goes {
                cells.remove(block);
                bytes -= here;
                count -= 1;
            }
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(index: usize) -> Checksum {
        Checksum::of(&index.to_le_bytes())
    }

    fn put(held: &Held, index: usize, len: usize, is_written: impl Fn(&Checksum) -> bool) {
        let object = Object { packed: vec![0; len].into(), seal: None };
        held.cell(&sum(index), Taker::Other, is_written).object.set(object).unwrap();
    }

    #[test]
    fn only_what_is_written_is_let_go_and_the_oldest_first() {
        let held = Held::new(true);
        for index in 0..100 {
            put(&held, index, 1 << 20, |_| false);
        }
        assert_eq!(held.lock().cells.len(), 100, "nothing is written yet");
        let late = [sum(1), sum(99)];
        put(&held, 100, 1, |block| !late.contains(block));
        assert!(held.get(&sum(0)).is_none() && held.get(&sum(1)).is_some());
        assert!(held.get(&sum(60)).is_none() && held.get(&sum(90)).is_some());
        let blocks = held.lock();
        assert_eq!(blocks.cells.len(), blocks.order.len());
        let alone = Held::new(false);
        (0..10).for_each(|index| put(&alone, index, 10, |_| true));
        assert_eq!(alone.lock().cells.len(), 1);
    }

    #[test]
    fn what_did_not_come_is_asked_for_again() {
        let held = Held::new(true);
        let first = held.cell(&sum(0), Taker::Other, |_| true);
        assert!(Arc::ptr_eq(&first, &held.cell(&sum(0), Taker::Other, |_| true)));
        held.forget(&sum(0));
        let second = held.cell(&sum(0), Taker::Other, |_| true);
        assert!(!Arc::ptr_eq(&first, &second));
        second.object.set(Object { packed: Bytes::from_static(b"x"), seal: None }).unwrap();
        held.forget(&sum(0));
        assert!(held.get(&sum(0)).is_some(), "what came meanwhile stays");
    }
}
