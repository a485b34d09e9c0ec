//! Many blocks taken out of their objects, and hashed: eight together where so many come at about the
//! same time, since hashing eight costs little more than one. Nobody waits long for others to come. A
//! block that another vouches for is not hashed, and waits for nobody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::seal::{Seal, Sealer};
use crate::block::{Checksum, Damage};
use crate::buffers::BufferPool;
use crate::control::Workers;
use crate::error::Error;
use crate::groups::Groups;
use crate::repository::Codec;

/// How long a block waits for others. Where they come more slowly than that, hashing is not what
/// takes the time.
const LINGER: Duration = Duration::from_millis(10);

/// A block with its checksum and, where that was asked for, its seal; or why there is none.
type Opened = Result<(Checksum, Option<Seal>, Bytes), Damage>;

/// An object, and who waits for its block.
#[derive(Debug)]
struct Request {
    codec: Codec,
    object: Bytes,
    sealer: Option<Arc<Sealer>>,
    answer: oneshot::Sender<Opened>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Unpacker {
    workers: Workers,
    pool: BufferPool,
    waiting: Groups<Request>,
}

impl Unpacker {
    /// The block of an object, with the checksum that it has.
    pub(super) async fn unpack(
        &self,
        codec: Codec,
        object: Bytes,
        sealer: Option<Arc<Sealer>>,
    ) -> Result<Opened, Error> {
        let (answer, mut answered) = oneshot::channel();
        let request = Request { codec, object, sealer, answer };
        let (number, is_full) = self.waiting.push(request);
        if !is_full && let Ok(opened) = timeout(LINGER, &mut answered).await {
            return opened.map_err(|_| Error::Cancelled);
        }
        let (waiting, pool) = (self.waiting.clone(), self.pool.clone());
        let work = move || {
            // Where another has taken the block, those that came after it wait for their own group.
            while let Some(group) = waiting.take(number) {
                unpack_all(group, &pool);
            }
        };
        self.workers.run(work).await?;
        answered.await.map_err(|_| Error::Cancelled)
    }

    /// The block of an object, if that is what the seal was made of.
    pub(super) async fn believe(
        &self,
        codec: Codec,
        object: Bytes,
        block: Checksum,
        (seal, sealer): (Seal, Arc<Sealer>),
    ) -> Result<Result<Bytes, Damage>, Error> {
        let pool = self.pool.clone();
        let work = move || {
            let content = codec.open(&object, &pool)?;
            if sealer.fits(seal, &block, &content) { Ok(content.into()) } else { Err(Damage::Seal) }
        };
        self.workers.run(work).await
    }
}

fn unpack_all(group: Vec<Request>, pool: &BufferPool) {
    let mut opened = Vec::with_capacity(group.len());
    for Request { codec, object, sealer, answer } in group {
        match codec.open(&object, pool) {
            Ok(block) => opened.push((block, sealer, answer)),
            // Who asked may be gone.
            Err(damage) => drop(answer.send(Err(damage))),
        }
    }
    let blocks: Vec<&[u8]> = opened.iter().map(|(block, ..)| &**block).collect();
    let sums = Codec::names(&blocks);
    for ((block, sealer, answer), sum) in opened.into_iter().zip(sums) {
        // Under the name that it has, whatever it was taken for.
        let seal = sealer.and_then(|sealer| sealer.seal(&sum, &block));
        let _ = answer.send(Ok((sum, seal, block.into())));
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
                match unpacker.unpack(codec, object.into(), None).await.unwrap() {
                    Ok(opened) => {
                        let names = Codec::names(&[&block]);
                        assert!(names == [opened.0] && opened.2 == block && n % 5 < 4);
                    }
                    Err(damage) => {
                        assert!(matches!(damage, Damage::Length { .. }) && n % 5 == 4, "{damage}");
                    }
                }
            }
        });
        futures::future::join_all(all).await;
        assert!(unpacker.waiting.is_empty());
    }
}
