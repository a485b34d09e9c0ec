//! Blocks of a store: what they are named, how they are packed, where they lie.

use std::collections::HashSet;
use std::io;

use blobs::{Key, Page, get_limited};
use bytes::Bytes;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;

use super::v1::layout::{BlockFolder, BlockRange};
use super::v1::{is_plausible, object_max_bytes, open, pack_in};
use super::{BlockWriter, Repository};
use crate::block::{BlockSize, Checksum, Compression, Damage, Packing};
use crate::buffers::{Buffer, BufferPool};
use crate::error::Error;

/// How blocks become objects and come out of them again. It blocks: for threads that may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Codec {
    packing: Packing,
}

impl Default for Codec {
    fn default() -> Self {
        Self::new(Packing { size: BlockSize::DEFAULT, compression: Compression::Lz4 })
    }
}

impl Codec {
    pub(crate) fn new(packing: Packing) -> Self {
        Self { packing }
    }

    /// Those of each block, in their order: several together are named faster than one by one.
    pub(crate) fn names(blocks: &[&[u8]]) -> Vec<Checksum> {
        Checksum::of_each(blocks)
    }

    pub(crate) fn size(self) -> BlockSize {
        self.packing.size
    }

    pub(crate) fn compression(self) -> Compression {
        self.packing.compression
    }

    /// The same blocks in objects that are packed otherwise.
    pub(crate) fn packed_by(self, compression: Compression) -> Self {
        Self { packing: Packing { compression, ..self.packing } }
    }

    /// Whether the object of a block is the block as it is.
    pub(crate) fn is_plain(self) -> bool {
        self.packing.compression == Compression::None
    }

    pub(crate) fn pack(self, block: &[u8], pool: &BufferPool) -> io::Result<Buffer> {
        pack_in(self.packing.compression, block, pool)
    }

    /// Takes a block out of its object; whether it is the right one is for the caller to see.
    pub(crate) fn open(self, object: &[u8], pool: &BufferPool) -> Result<Buffer, Damage> {
        open(self.packing.compression, object, self.packing.size, pool)
    }

    /// Whether an object of that length can be a block.
    pub(crate) fn is_plausible(self, len_bytes: u64) -> bool {
        is_plausible(self.packing, len_bytes)
    }

    /// Of two for the same block the one that lets its object have more lengths: images that are packed
    /// differently share blocks, and any of them may have written it.
    pub(crate) fn wider(self, other: Self) -> Self {
        if self.is_plain() && self.packing.size == other.packing.size { other } else { self }
    }
}

/// What became of a block that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    New,
    /// Another was faster.
    There,
    /// What was there could not be the block.
    Again,
}

/// The blocks of a volume, or of all backing images. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    repository: Repository,
    folder: BlockFolder,
}

impl Blocks {
    pub(super) fn new(repository: Repository, folder: BlockFolder) -> Self {
        Self { repository, folder }
    }

    /// As errors and reports name it.
    pub(crate) fn path_of(&self, block: &Checksum) -> String {
        self.folder.block(block).map_or_else(|_| block.to_string(), |key| key.to_string())
    }

    /// The object of a block as it lies in the store.
    pub(crate) async fn get(&self, block: &Checksum, size: BlockSize) -> Result<Bytes, Error> {
        let key = self.folder.block(block)?;
        let store = self.repository.store.as_ref();
        Ok(get_limited(store, &key, object_max_bytes(size)).await?.bytes)
    }

    /// For blocks that are packed so.
    pub(crate) async fn writer(&self, codec: Codec) -> Result<BlockWriter, Error> {
        let batch = self.repository.store.batch(&self.folder.prefix()?).await?;
        Ok(BlockWriter::new(self.clone(), codec, batch))
    }

    pub(super) fn key(&self, block: &Checksum) -> Result<Key, Error> {
        self.folder.block(block)
    }

    /// Whether what is there can be a block.
    pub(super) async fn is_plausible(&self, key: &Key, codec: Codec) -> Result<bool, Error> {
        Ok(codec.is_plausible(self.repository.store.head(key).await?.len_bytes))
    }

    pub(super) async fn put_new(
        &self,
        block: &Checksum,
        object: Bytes,
        codec: Codec,
    ) -> Result<Put, Error> {
        let key = self.folder.block(block)?;
        match self.repository.create(&key, object.clone()).await {
            Ok(_) => return Ok(Put::New),
            Err(blobs::Error::Exists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        // Another writer was faster, or the object cannot be the block.
        if self.is_plausible(&key, codec).await? {
            return Ok(Put::There);
        }
        self.repository.store.put(&key, object).await?;
        Ok(Put::Again)
    }

    pub(super) async fn put(&self, block: &Checksum, object: Bytes) -> Result<(), Error> {
        self.repository.store.put(&self.folder.block(block)?, object).await?;
        Ok(())
    }

    /// All blocks of the store that can be what they are named. What one page does not show is listed in
    /// parts, side by side, so that few changes of a large volume need not wait for one page after the
    /// other.
    pub(crate) async fn present(
        &self,
        codec: Codec,
        calls: usize,
    ) -> Result<HashSet<Checksum>, Error> {
        let mut sums = HashSet::new();
        let page = self.repository.store.list(&self.folder.prefix()?, None).await?;
        self.add_plausible(&page, codec, &mut sums);
        if page.is_last || page.objects.is_empty() {
            return Ok(sums);
        }
        let parts =
            stream::iter(self.folder.parts()?).map(|part| self.present_in(part, codec).boxed());
        let mut parts = parts.buffer_unordered(calls);
        while let Some(part) = parts.try_next().await? {
            sums.extend(part);
        }
        Ok(sums)
    }

    async fn present_in(&self, part: BlockRange, codec: Codec) -> Result<HashSet<Checksum>, Error> {
        let (mut sums, mut after) = (HashSet::new(), part.after);
        loop {
            let page = self.repository.store.list(&self.folder.prefix()?, Some(&after)).await?;
            self.add_plausible(&page, codec, &mut sums);
            let last = page.objects.into_iter().next_back().map(|meta| meta.key);
            match last {
                Some(last) if !page.is_last && part.end.as_ref().is_none_or(|end| last < *end) => {
                    after = last;
                }
                Some(_) | None => return Ok(sums),
            }
        }
    }

    fn add_plausible(&self, page: &Page, codec: Codec, sums: &mut HashSet<Checksum>) {
        let plausible = page.objects.iter().filter(|meta| codec.is_plausible(meta.len_bytes));
        sums.extend(plausible.filter_map(|meta| self.folder.checksum_of(&meta.key)));
    }

    /// All that lie there.
    pub(crate) fn pages(&self) -> BlockPages {
        BlockPages { blocks: self.clone(), after: None, is_over: false }
    }
}

/// Blocks of a folder, page by page.
#[derive(Debug)]
pub(crate) struct BlockPages {
    blocks: Blocks,
    after: Option<Key>,
    is_over: bool,
}

impl BlockPages {
    /// The next page; it may be empty, and nothing is the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<StoredBlock>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let Blocks { repository, folder } = &self.blocks;
        // A lock is renewed between two pages, also where a store answers at once.
        tokio::task::yield_now().await;
        let page = repository.store.list(&folder.prefix()?, self.after.as_ref()).await?;
        self.is_over = page.is_last || page.objects.is_empty();
        self.after = page.objects.last().map(|meta| meta.key.clone());
        let found = page.objects.into_iter().filter_map(|meta| {
            let checksum = folder.checksum_of(&meta.key)?;
            let (key, len_bytes, written) = (meta.key, meta.len_bytes, meta.modified);
            Some(StoredBlock { key, checksum, len_bytes, written })
        });
        Ok(Some(found.collect()))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct StoredBlock {
    pub(crate) key: Key,
    pub(crate) checksum: Checksum,
    pub(crate) len_bytes: u64,
    /// By the clock of the store.
    pub(crate) written: Timestamp,
}
