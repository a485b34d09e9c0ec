//! Blocks on their way into a store, which are durable when [`BlockWriter::finish`] has returned.
//!
//! Where the store can, many of them wait for the disk together, and none of them has its name before
//! it is on the disk: what lies under the name of a block is one, also after a loss of power.

use std::sync::{Arc, Mutex, PoisonError};

use blobs::{Batch, Waiting};
use bytes::Bytes;

use super::blocks::{Blocks, Codec, Put};
use crate::block::Checksum;
use crate::error::Error;

/// What waits at most, by number and by length: a crash costs so much of the work, and leaves so much
/// behind for a day.
const WAITING_MAX: usize = 64;
const WAITING_MAX_BYTES: u64 = 128 << 20;

#[derive(Debug)]
pub(crate) struct BlockWriter {
    blocks: Blocks,
    codec: Codec,
    batch: Option<Arc<dyn Batch>>,
    late: Mutex<Late>,
}

/// Blocks that were taken for new, and that somebody else has made meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Late {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
}

impl BlockWriter {
    pub(super) fn new(blocks: Blocks, codec: Codec, batch: Option<Arc<dyn Batch>>) -> Self {
        Self { blocks, codec, batch, late: Mutex::default() }
    }

    /// One that was not there, as far as is known.
    pub(crate) async fn put_new(&self, block: &Checksum, object: Bytes) -> Result<Put, Error> {
        let Some(batch) = &self.batch else {
            return self.blocks.put_new(block, object, self.codec).await;
        };
        let key = self.blocks.key(block)?;
        match batch.put_new(&key, object.clone()).await {
            Ok(waiting) => {
                self.commit_if_due(waiting).await?;
                return Ok(Put::New);
            }
            Err(blobs::Error::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        if self.blocks.is_plausible(&key, self.codec).await? {
            return Ok(Put::There);
        }
        self.put(block, object).await?;
        Ok(Put::Again)
    }

    /// Whatever is there.
    pub(crate) async fn put(&self, block: &Checksum, object: Bytes) -> Result<(), Error> {
        match &self.batch {
            None => self.blocks.put(block, object).await,
            Some(batch) => {
                let waiting = batch.put(&self.blocks.key(block)?, object).await?;
                self.commit_if_due(waiting).await
            }
        }
    }

    async fn commit_if_due(&self, waiting: Waiting) -> Result<(), Error> {
        if waiting.objects < WAITING_MAX && waiting.bytes < WAITING_MAX_BYTES {
            return Ok(());
        }
        self.commit().await
    }

    async fn commit(&self) -> Result<(), Error> {
        let Some(batch) = &self.batch else { return Ok(()) };
        let found = batch.commit().await?;
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        late.blocks += u64::try_from(found.len()).unwrap_or(u64::MAX);
        late.bytes += found.iter().map(|(_, len_bytes)| len_bytes).sum::<u64>();
        Ok(())
    }

    /// All that were put are durable. To be called when no put is under way any more.
    pub(crate) async fn finish(&self) -> Result<Late, Error> {
        self.commit().await?;
        Ok(*self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
