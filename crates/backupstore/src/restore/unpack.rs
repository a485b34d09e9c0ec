//! Many blocks taken out of their objects, and hashed: eight together where so many come at about the
//! same time, since hashing eight costs little more than one. Nobody waits long for others to come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::block::{Checksum, Damage};
use crate::buffers::BufferPool;
use crate::control::{TOGETHER, Workers};
use crate::error::Error;
use crate::repository::Codec;

/// How long a block waits for others. Where they come more slowly than that, hashing is not what
/// takes the time.
const LINGER: Duration = Duration::from_millis(10);

/// A block and its checksum, or why there is none.
type Opened = Result<(Checksum, Bytes), Damage>;

/// An object, and who waits for its block.
#[derive(Debug)]
struct Request {
    codec: Codec,
    object: Bytes,
    answer: oneshot::Sender<Opened>,
}

/// Objects that nobody has taken yet, numbered as they came.
#[derive(Debug, Default)]
struct Waiting {
    requests: VecDeque<Request>,
    /// The number of the first of them.
    first: u64,
}

impl Waiting {
    /// Gives its number, and whether so many wait that they need not wait for more.
    fn push(&mut self, request: Request) -> (u64, bool) {
        self.requests.push_back(request);
        let count = self.requests.len();
        (self.first + count as u64 - 1, count >= TOGETHER)
    }

    /// The next group, as long as that number waits.
    fn take(&mut self, number: u64) -> Option<Vec<Request>> {
        if number < self.first {
            return None;
        }
        let group: Vec<Request> =
            self.requests.drain(..self.requests.len().min(TOGETHER)).collect();
        self.first += group.len() as u64;
        Some(group)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Unpacker {
    workers: Workers,
    pool: BufferPool,
    waiting: Arc<Mutex<Waiting>>,
}

impl Unpacker {
    /// The block of an object, with the checksum that it has.
    pub(super) async fn unpack(&self, codec: Codec, object: Bytes) -> Result<Opened, Error> {
        let (answer, mut answered) = oneshot::channel();
        let (number, is_full) = lock(&self.waiting).push(Request { codec, object, answer });
        if !is_full && let Ok(opened) = timeout(LINGER, &mut answered).await {
            return opened.map_err(|_| Error::Cancelled);
        }
        let (waiting, pool) = (Arc::clone(&self.waiting), self.pool.clone());
        let work = move || {
            // Where another has taken the block, those that came after it wait for their own group.
            while let Some(group) = take(&waiting, number) {
                unpack_all(group, &pool);
            }
        };
        self.workers.run(work).await?;
        answered.await.map_err(|_| Error::Cancelled)
    }
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take(waiting: &Mutex<Waiting>, number: u64) -> Option<Vec<Request>> {
    lock(waiting).take(number)
}

fn unpack_all(group: Vec<Request>, pool: &BufferPool) {
    let mut opened = Vec::with_capacity(group.len());
    for Request { codec, object, answer } in group {
        match codec.open(&object, pool) {
            Ok(block) => opened.push((block, answer)),
            // Who asked may be gone.
            Err(damage) => drop(answer.send(Err(damage))),
        }
    }
    let blocks: Vec<&[u8]> = opened.iter().map(|(block, _)| &**block).collect();
    let sums = Codec::names(&blocks);
    for ((block, answer), sum) in opened.into_iter().zip(sums) {
        let _ = answer.send(Ok((sum, block.into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_gets_its_own_block_or_its_own_damage() {
        let unpacker = Unpacker::default();
        let codec = Codec::default();
        let len = codec.size().len();
        let all = (0..40_u8).map(|n| {
            let unpacker = unpacker.clone();
            async move {
                let block = vec![n; len - usize::from(n % 5 == 4)];
                let object = codec.pack(&block, &BufferPool::default()).unwrap();
                match unpacker.unpack(codec, object.into()).await.unwrap() {
                    Ok(opened) => {
                        let names = Codec::names(&[&block]);
                        assert!(names == [opened.0] && opened.1 == block && n % 5 < 4);
                    }
                    Err(damage) => {
                        assert!(matches!(damage, Damage::Length { .. }) && n % 5 == 4, "{damage}");
                    }
                }
            }
        });
        futures::future::join_all(all).await;
        assert!(lock(&unpacker.waiting).requests.is_empty());
    }
}
