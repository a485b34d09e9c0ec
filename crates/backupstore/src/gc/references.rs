//! Which blocks the records of a volume, or of all backing images, name: read before anything is
//! removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use blobs::Version;
use futures::FutureExt;
use futures::stream::{self, StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::block::Checksum;
use crate::error::Error;
use crate::name::Name;
use crate::repository::{
    Codec, Found, ListedRecords, Outside, RECORD_MAX_BYTES, Record, Stored, VolumeRecord,
};
use crate::store::BackupStore;
use crate::subject::Subject;

const READS_AT_ONCE: usize = 8;
/// Of records that are read at a time, all together, but for one that is longer.
const READS_BYTES: u64 = 64 << 20;
/// No record is taken for shorter.
const READ_MIN_BYTES: u64 = 64 << 10;

/// A record that cannot be read, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub name: String,
    pub why: String,
}

/// The blocks that records name, in little memory: a volume may have millions.
#[derive(Debug, Default)]
pub(crate) struct NamedBlocks {
    blocks: HashMap<Checksum, Named>,
    codecs: Vec<Codec>,
}

#[derive(Debug, Clone, Copy)]
struct Named {
    /// The place of its codec: there are few.
    codec: u8,
    is_present: bool,
}

impl NamedBlocks {
    fn add(&mut self, sum: Checksum, codec: Codec) {
        let known = self.blocks.get(&sum).map(|named| self.codec(*named));
        let codec = self.place(known.map_or(codec, |known| known.wider(codec)));
        self.blocks.entry(sum).or_insert(Named { codec, is_present: false }).codec = codec;
    }

    fn place(&mut self, codec: Codec) -> u8 {
        let known = self.codecs.iter().position(|it| *it == codec);
        let place = known.unwrap_or_else(|| {
            self.codecs.push(codec);
            self.codecs.len() - 1
        });
        // More than 256 ways to pack are not in one volume; of those, the last is as wide as any.
        u8::try_from(place).unwrap_or(u8::MAX)
    }

    fn codec(&self, named: Named) -> Codec {
        self.codecs.get(usize::from(named.codec)).copied().unwrap_or_default()
    }

    /// Notes that it lies in the store, and says how it is packed; nothing where none names it.
    pub(crate) fn is_present(&mut self, sum: &Checksum) -> Option<Codec> {
        let named = self.blocks.get_mut(sum)?;
        named.is_present = true;
        let named = *named;
        Some(self.codec(named))
    }

    pub(crate) fn present(&self) -> u64 {
        let count = self.blocks.values().filter(|named| named.is_present).count();
        u64::try_from(count).unwrap_or(u64::MAX)
    }

    /// Those that were not found.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &Checksum> {
        self.blocks.iter().filter(|(_, named)| !named.is_present).map(|(sum, _)| sum)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Checksum, Codec)> {
        self.blocks.iter().map(|(sum, named)| (sum, self.codec(*named)))
    }
}

/// A record whose backup, or image, is not complete, or may be completed once more.
#[derive(Debug, Clone)]
pub(crate) struct InProgress {
    pub(crate) name: Name,
    pub(crate) version: Version,
    /// When it was begun, by the store's clock.
    pub(crate) begun: Timestamp,
    pub(crate) is_fenceable: bool,
}

impl InProgress {
    pub(crate) fn new(name: Name, record: &Record, stored: Stored) -> Self {
        let Stored { version, modified: begun } = stored;
        Self { name, version, begun, is_fenceable: record.is_fenceable }
    }
}

/// What all records say together.
#[derive(Debug, Default)]
pub(crate) struct References {
    pub(crate) blocks: NamedBlocks,
    /// What is complete, and when it was started.
    pub(crate) complete: BTreeMap<Name, String>,
    /// The very records that say so.
    pub(crate) versions: BTreeMap<Name, Version>,
    /// What is complete and cannot be restored whatever blocks there are.
    pub(crate) flawed: BTreeSet<Name>,
    pub(crate) in_progress: Vec<InProgress>,
    /// Complete, and begun by others that may finish them still, with other blocks.
    pub(crate) taken_over: Vec<InProgress>,
    pub(crate) unreadable: Vec<(Name, String)>,
    /// Records that cannot even be asked for, by their places: they may name any block.
    pub(crate) unnamed: Vec<String>,
    /// All records as they were listed before the first was read.
    pub(crate) listed: BTreeMap<Name, Outside>,
    /// Listed, and not found when they were read.
    missing: Vec<Name>,
    /// What we have removed ourselves: a late listing may show it still.
    pub(crate) removed: BTreeSet<Name>,
}

impl References {
    /// The backup that was started last.
    pub(crate) fn newest(&self) -> Option<(&Name, &String)> {
        self.complete.iter().max_by(|one, other| one.1.cmp(other.1))
    }

    /// Whether the last backup of the volume is one that was read, and complete.
    pub(crate) fn has_last(&self, volume: &VolumeRecord) -> bool {
        Name::parse(&volume.last_backup).is_ok_and(|last| self.complete.contains_key(&last))
    }

    pub(crate) fn unreadable_shown(&self) -> Vec<Unreadable> {
        let shown =
            |(name, why): &(Name, String)| Unreadable { name: name.to_string(), why: why.clone() };
        let unnamed = self.unnamed.iter().map(|path| Unreadable {
            name: path.clone(),
            why: "its name is too long for us; remove the object itself if it is not needed"
                .to_owned(),
        });
        self.unreadable.iter().map(shown).chain(unnamed).collect()
    }

    pub(crate) fn in_progress_shown(&self) -> Vec<String> {
        self.in_progress.iter().map(|record| record.name.to_string()).collect()
    }

    fn add(&mut self, name: Name, found: Found<Record>) {
        match found {
            // Removed since it was listed, perhaps.
            Found::Missing => self.missing.push(name),
            Found::Unreadable { why } => self.unreadable.push((name, why)),
            Found::Readable(record, stored) if record.is_in_progress => {
                self.in_progress.push(InProgress::new(name, &record, stored));
            }
            Found::Readable(record, stored) => {
                self.versions.insert(name.clone(), stored.version.clone());
                if record.is_successor {
                    self.taken_over.push(InProgress::new(name.clone(), &record, stored));
                }
                if record.flaw().is_some() {
                    self.flawed.insert(name.clone());
                }
                let codec = Codec::new(record.packing);
                for block in &record.blocks {
                    self.blocks.add(block.checksum, codec);
                }
                self.complete.insert(name, record.started);
            }
        }
    }
}

/// Memory for records that are read, whoever wrote them and however many there are.
struct ReadBudget(Semaphore);

impl ReadBudget {
    const UNIT_BYTES: u64 = 1024;

    fn new() -> Self {
        Self(Semaphore::new(usize::try_from(READS_BYTES / Self::UNIT_BYTES).unwrap_or(1)))
    }

    /// For one record of that length; one that is longer than all has it all.
    async fn take(&self, len_bytes: u64) -> Result<SemaphorePermit<'_>, Error> {
        let units = len_bytes.min(READS_BYTES).div_ceil(Self::UNIT_BYTES);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        self.0.acquire_many(units).await.map_err(|_| Error::Cancelled)
    }
}

impl BackupStore {
    /// What all records say, but for those that we have `removed` ourselves.
    pub(crate) async fn references(
        &self,
        of: &Subject,
        removed: BTreeSet<Name>,
    ) -> Result<References, Error> {
        let ListedRecords { named: listed, unnamed } = self.repository.listed_records(of).await?;
        let budget = &ReadBudget::new();
        let mut records = stream::iter(listed.clone())
            .map(|(name, outside)| {
                async move {
                    let (found, permit) = self.read_within(of, &name, outside, budget).await?;
                    Ok::<_, Error>((name, found, permit))
                }
                .boxed()
            })
            .buffer_unordered(READS_AT_ONCE);
        let mut all = References { unnamed, listed, removed, ..References::default() };
        while let Some((name, found, permit)) = records.try_next().await? {
            all.add(name, found);
            drop(permit);
            // The lock is renewed between two of them, also where a store answers at once.
            tokio::task::yield_now().await;
        }
        for name in std::mem::take(&mut all.missing) {
            self.look_again(of, name, &mut all).await?;
        }
        Ok(all)
    }

    /// At a record that was not found. One that is listed still is there, for all we know, and may name
    /// any block.
    async fn look_again(
        &self,
        of: &Subject,
        name: Name,
        all: &mut References,
    ) -> Result<(), Error> {
        if all.removed.contains(&name) || !self.repository.is_listed(of, &name).await? {
            return Ok(());
        }
        match self.repository.record(of, &name).await? {
            Found::Missing => {
                let why = "it is listed, and not found when it is read".to_owned();
                all.unreadable.push((name, why));
            }
            found => all.add(name, found),
        }
        Ok(())
    }

    /// Reads a record when there is memory for it, by the length that it was listed with; one that is
    /// longer than that waits for the memory that the longest needs.
    async fn read_within<'b>(
        &self,
        of: &Subject,
        name: &Name,
        outside: Outside,
        budget: &'b ReadBudget,
    ) -> Result<(Found<Record>, SemaphorePermit<'b>), Error> {
        let len_bytes = outside.len_bytes().unwrap_or(READ_MIN_BYTES).max(READ_MIN_BYTES);
        let permit = budget.take(len_bytes).await?;
        match self.repository.record_within(of, name, len_bytes.min(RECORD_MAX_BYTES)).await {
            Err(Error::Store(blobs::Error::TooLong { .. })) => {}
            done => return Ok((done?, permit)),
        }
        drop(permit);
        let permit = budget.take(RECORD_MAX_BYTES).await?;
        Ok((self.repository.record(of, name).await?, permit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::TargetUrl;

    /// A store that answers at once, and records that take long to read: the lock would end meanwhile.
    #[tokio::test]
    async fn others_get_their_turn_between_two_records() {
        let below = blobs::memory();
        let url = TargetUrl::parse("vfs:///store").unwrap();
        let store = BackupStore::new(std::sync::Arc::clone(&below), url);
        let (of, name) = (Name::parse("vol-1").unwrap(), Name::parse("backup-1").unwrap());
        let of = Subject::Volume(of);
        let path = store.repository.record_path(&of, &name).unwrap();
        let key = blobs::Key::parse(&path).unwrap();
        assert!(below.put(&key, "{}".into()).now_or_never().is_some(), "it answers at once");
        assert!(store.references(&of, BTreeSet::new()).now_or_never().is_none());
        let found = store.references(&of, BTreeSet::new()).await.unwrap();
        assert_eq!(found.unreadable.len(), 1);
    }
}
