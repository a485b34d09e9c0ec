//! Work that is done in groups, though it comes piece by piece.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::control::TOGETHER;

/// Pieces that nobody has taken yet, numbered as they came. Clones are the same.
#[derive(Debug)]
pub(crate) struct Groups<T>(Arc<Mutex<Waiting<T>>>);

#[derive(Debug)]
struct Waiting<T> {
    pieces: VecDeque<T>,
    /// The number of the first of them.
    first: u64,
}

impl<T> Groups<T> {
    /// Gives its number, and whether so many wait that they need not wait for more.
    pub(crate) fn push(&self, piece: T) -> (u64, bool) {
        let mut waiting = self.lock();
        waiting.pieces.push_back(piece);
        let count = waiting.pieces.len();
        (waiting.first + count as u64 - 1, count >= TOGETHER)
    }

    /// The next group, as long as that number waits.
    pub(crate) fn take(&self, number: u64) -> Option<Vec<T>> {
        let mut waiting = self.lock();
        if number < waiting.first {
            return None;
        }
        let count = waiting.pieces.len().min(TOGETHER);
        let group: Vec<T> = waiting.pieces.drain(..count).collect();
        waiting.first += group.len() as u64;
        Some(group)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().pieces.is_empty()
    }
}

impl<T> Clone for Groups<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Waiting { pieces: VecDeque::new(), first: 0 })))
    }
}
