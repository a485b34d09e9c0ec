//! Which blocks the records of a volume, or of all backing images, name: read before anything is
//! removed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use blobs::{Key, Version};
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Serialize;

use crate::error::Error;
use crate::format::layout::{self, VolumeFolder};
use crate::format::{BlockSize, Checksum, Compression, Name};
use crate::store::{BackupStore, Found};
use crate::subject::{Record, Subject};

const READS_AT_ONCE: usize = 8;

/// A record that cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub name: String,
    pub why: String,
}

/// What all records say together.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// How each block is packed, by the records that name it.
    pub(crate) blocks: HashMap<Checksum, (BlockSize, Compression)>,
    /// What is complete, and when it was started.
    pub(crate) complete: BTreeMap<Name, String>,
    /// What is complete and cannot be restored whatever blocks there are.
    pub(crate) flawed: BTreeSet<Name>,
    pub(crate) in_progress: Vec<(Name, Version)>,
    pub(crate) unreadable: Vec<(Name, String)>,
}

impl References {
    /// The backup that was started last.
    pub(crate) fn newest(&self) -> Option<(&Name, &String)> {
        self.complete.iter().max_by(|one, other| one.1.cmp(other.1))
    }

    pub(crate) fn unreadable_shown(&self) -> Vec<Unreadable> {
        let shown =
            |(name, why): &(Name, String)| Unreadable { name: name.to_string(), why: why.clone() };
        self.unreadable.iter().map(shown).collect()
    }

    fn add(&mut self, name: Name, found: Found<Record>) {
        match found {
            // Removed since it was listed.
            Found::Missing => {}
            Found::Unreadable { why } => self.unreadable.push((name, why)),
            Found::Readable(record, version) if record.is_in_progress => {
                self.in_progress.push((name, version));
            }
            Found::Readable(record, _) => {
                if record.flaw().is_some() {
                    self.flawed.insert(name.clone());
                }
                let packing = (record.block_size, record.compression);
                for block in &record.blocks {
                    self.blocks
                        .entry(block.checksum)
                        .and_modify(|known| *known = wider(*known, packing))
                        .or_insert(packing);
                }
                self.complete.insert(name, record.started);
            }
        }
    }
}

/// Of two ways to pack a block the one that lets its object have more lengths: images that are packed
/// differently share blocks, and any of them may have written it.
fn wider(
    known: (BlockSize, Compression),
    new: (BlockSize, Compression),
) -> (BlockSize, Compression) {
    match known.1 {
        Compression::None if known.0 == new.0 => new,
        Compression::None | Compression::Gzip | Compression::Lz4 => known,
    }
}

impl BackupStore {
    /// Names of all records of a volume, read or not. One whose file name no backup can have is left
    /// out, and nothing it may name is protected by it: nobody can restore it either.
    pub(crate) async fn backup_names(&self, volume: &Name) -> Result<BTreeSet<Name>, Error> {
        let level = self.store.list_level(&VolumeFolder::of(volume).backups()?).await?;
        let mut names = BTreeSet::new();
        for meta in level.objects {
            if let Some(name) = layout::backup_of(&meta.key) {
                names.insert(name);
            } else {
                tracing::warn!("{} is not the record of a backup", meta.key);
            }
        }
        Ok(names)
    }

    pub(crate) async fn references(&self, of: &Subject) -> Result<References, Error> {
        let names = self.record_names(of).await?;
        let mut records = stream::iter(names)
            .map(|name| {
                async move {
                    let found = self.read_record(of, &name).await?;
                    Ok::<_, Error>((name, found))
                }
                .boxed()
            })
            .buffer_unordered(READS_AT_ONCE);
        let mut all = References::default();
        while let Some((name, found)) = records.try_next().await? {
            all.add(name, found);
        }
        Ok(all)
    }

    /// The blocks that lie in a folder.
    pub(crate) fn blocks_in(&self, folder: &layout::BlockFolder) -> BlockPages<'_> {
        BlockPages { store: self, folder: folder.clone(), after: None, is_over: false }
    }
}

/// Blocks of a folder, page by page.
pub(crate) struct BlockPages<'s> {
    store: &'s BackupStore,
    folder: layout::BlockFolder,
    after: Option<Key>,
    is_over: bool,
}

impl BlockPages<'_> {
    /// The next page; it may be empty, and nothing is the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<StoredBlock>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let page = self.store.store.list(&self.folder.prefix()?, self.after.as_ref()).await?;
        self.is_over = page.is_last || page.objects.is_empty();
        self.after = page.objects.last().map(|meta| meta.key.clone());
        let found = page.objects.into_iter().filter_map(|meta| {
            let checksum = self.folder.checksum_of(&meta.key)?;
            Some(StoredBlock { key: meta.key, checksum, len_bytes: meta.len_bytes })
        });
        Ok(Some(found.collect()))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct StoredBlock {
    pub(crate) key: Key,
    pub(crate) checksum: Checksum,
    pub(crate) len_bytes: u64,
}

/// How many of `wanted` are not among `present`.
pub(crate) fn missing(
    wanted: &HashMap<Checksum, (BlockSize, Compression)>,
    present: &HashSet<Checksum>,
) -> u64 {
    let missing = wanted.keys().filter(|sum| !present.contains(*sum)).count();
    u64::try_from(missing).unwrap_or(u64::MAX)
}
