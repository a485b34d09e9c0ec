//! Checksums of many blocks that come one by one: those that wait when a thread is free are hashed
//! together, which costs little more than one. Nobody waits for others to come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::control::Workers;
use crate::error::Error;
use crate::format::Checksum;

/// Hashed together.
const TOGETHER: usize = 8;

/// A block, and who waits for its checksum.
type Request = (Vec<u8>, oneshot::Sender<(Checksum, Vec<u8>)>);

#[derive(Debug, Clone)]
pub(crate) struct Hasher {
    workers: Workers,
    waiting: Arc<Mutex<VecDeque<Request>>>,
}

impl Hasher {
    pub(crate) fn new(workers: Workers) -> Self {
        Self { workers, waiting: Arc::default() }
    }

    /// The checksum of a block, and the block again.
    pub(crate) async fn checksum(&self, block: Vec<u8>) -> Result<(Checksum, Vec<u8>), Error> {
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting).push_back((block, answer));
        let waiting = Arc::clone(&self.waiting);
        // One turn for each block: none is forgotten, and a turn too many finds nothing to do.
        self.workers.run(move || hash_some(&waiting)).await?;
        answered.await.map_err(|_| Error::Cancelled)
    }
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hash_some(waiting: &Mutex<VecDeque<Request>>) {
    let group: Vec<Request> = {
        let mut waiting = lock(waiting);
        let count = waiting.len().min(TOGETHER);
        waiting.drain(..count).collect()
    };
    let blocks: Vec<&[u8]> = group.iter().map(|(block, _)| block.as_slice()).collect();
    let sums = Checksum::of_each(&blocks);
    for ((block, answer), sum) in group.into_iter().zip(sums) {
        // Who asked may be gone.
        let _ = answer.send((sum, block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_gets_its_own_checksum() {
        let hasher = Hasher::new(Workers::new());
        let all = (0..50_u8).map(|n| {
            let hasher = hasher.clone();
            async move {
                let (sum, block) = hasher.checksum(vec![n; 4096]).await.unwrap();
                assert_eq!((sum, block), (Checksum::of(&[n; 4096]), vec![n; 4096]));
            }
        });
        futures::future::join_all(all).await;
        assert!(lock(&hasher.waiting).is_empty());
    }
}
