//! Whether the backups of a volume, or all backing images, can be restored. It takes no lock, and changes nothing: what is
//! found missing counts only if a record still names it when all was looked at.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use serde::{Deserialize, Serialize};

use crate::block::Checksum;
use crate::control::{Control, in_flight};
use crate::error::{BlockDamage, Error};
use crate::gc::{NamedBlocks, References, Unreadable};
use crate::name::Name;
use crate::repository::{Codec, Found};
use crate::restore::{Fetch, FetchError, FetchOptions, StoreFetch};
use crate::store::BackupStore;
use crate::subject::Subject;

/// Places of damage that are kept; all are counted.
const PLACES_KEPT: usize = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Records, and whether blocks are there with lengths that they can have.
    Quick,
    /// Every block is fetched, unpacked and hashed, too.
    Deep,
}

#[derive(Debug, Clone)]
pub struct VerifyOptions {
    pub depth: Depth,
    pub concurrent_limit: usize,
    pub fetch: FetchOptions,
    /// Of which blocks a deep look fetches only these.
    pub slice: Slice,
}

impl VerifyOptions {
    pub fn new(depth: Depth) -> Self {
        let fetch = FetchOptions::default();
        Self { depth, concurrent_limit: 2, fetch, slice: Slice::ALL }
    }
}

/// A part of all blocks, by the first bytes of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub from: u16,
    /// Not with it any more.
    pub to: u16,
}

impl Slice {
    pub const END: u16 = 256;
    pub const ALL: Self = Self { from: 0, to: Self::END };

    fn holds(self, block: &Checksum) -> bool {
        (self.from..self.to).contains(&u16::from(block.first_byte()))
    }
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    Volume,
    BackingImages,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    pub kind: Kind,
    /// Of backups.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume: String,
    pub healthy: Vec<String>,
    pub damaged: Vec<DamagedBackup>,
    pub in_progress: Vec<String>,
    pub unreadable: Vec<Unreadable>,
    /// Named by records and in the store.
    pub blocks: u64,
    pub checked_blocks: u64,
    /// In the store, named by no record.
    pub orphan_blocks: u64,
    pub orphan_bytes: u64,
}

/// A backup or a backing image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DamagedBackup {
    pub name: String,
    pub damaged_places: u64,
    /// How many of them only a deep look shows.
    #[serde(skip)]
    pub deep_places: u64,
    pub places: Vec<DamagedPlace>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DamagedPlace {
    pub offset: u64,
    pub path: String,
    pub damage: String,
}

impl VerifyReport {
    fn new(of: &Subject, references: &References) -> Self {
        let (kind, volume) = match of {
            Subject::Volume(volume) => (Kind::Volume, volume.to_string()),
            Subject::BackingImages => (Kind::BackingImages, String::new()),
        };
        Self {
            kind,
            volume,
            healthy: Vec::new(),
            damaged: Vec::new(),
            in_progress: references.in_progress_shown(),
            unreadable: references.unreadable_shown(),
            blocks: 0,
            checked_blocks: 0,
            orphan_blocks: 0,
            orphan_bytes: 0,
        }
    }

    /// Whether all that is complete can be restored, as far as was looked.
    pub fn is_healthy(&self) -> bool {
        self.damaged.is_empty() && self.unreadable.is_empty()
    }
}

impl BackupStore {
    pub async fn verify(
        &self,
        volume: &Name,
        options: &VerifyOptions,
        control: &Control,
    ) -> Result<VerifyReport, Error> {
        self.verify_of(&Subject::Volume(volume.clone()), options, control).await
    }

    pub async fn verify_of(
        &self,
        of: &Subject,
        options: &VerifyOptions,
        control: &Control,
    ) -> Result<VerifyReport, Error> {
        match of {
            Subject::Volume(volume) => drop(self.repository.required_volume(volume).await?),
            Subject::BackingImages => {}
        }
        let mut references = self.references(of, BTreeSet::new()).await?;
        let mut report = VerifyReport::new(of, &references);
        let mut damaged = self.look(of, &mut references.blocks, &mut report, control).await?;
        match options.depth {
            Depth::Quick => {}
            Depth::Deep => {
                let sound = references
                    .blocks
                    .iter()
                    .filter(|(sum, _)| options.slice.holds(sum) && !damaged.contains_key(*sum));
                let found = self.check_blocks(of, sound, options, &mut report, control).await?;
                damaged.extend(found);
            }
        }
        for name in references.complete.keys() {
            if damaged.is_empty() && !references.flawed.contains(name) {
                report.healthy.push(name.to_string());
            } else {
                self.judge(of, name, &references, &damaged, &mut report).await?;
            }
        }
        control.finished();
        Ok(report)
    }

    /// Blocks that are missing, or cannot be what they are named.
    async fn look(
        &self,
        of: &Subject,
        wanted: &mut NamedBlocks,
        report: &mut VerifyReport,
        control: &Control,
    ) -> Result<HashMap<Checksum, BlockDamage>, Error> {
        let mut damaged = HashMap::new();
        self.look_through(of, wanted, report, &mut damaged, control).await?;
        if wanted.missing().next().is_some() && self.listings_are_awaited().await? {
            // Blocks that were written just before the record that names them.
            (report.orphan_blocks, report.orphan_bytes) = (0, 0);
            damaged.clear();
            self.look_through(of, wanted, report, &mut damaged, control).await?;
        }
        report.blocks = wanted.present();
        damaged.extend(wanted.missing().map(|sum| (*sum, BlockDamage::Missing)));
        Ok(damaged)
    }

    async fn look_through(
        &self,
        of: &Subject,
        wanted: &mut NamedBlocks,
        report: &mut VerifyReport,
        damaged: &mut HashMap<Checksum, BlockDamage>,
        control: &Control,
    ) -> Result<(), Error> {
        let mut pages = self.repository.blocks(of).pages();
        while let Some(page) = pages.next().await? {
            control.check()?;
            for block in page {
                let Some(codec) = wanted.is_present(&block.checksum) else {
                    report.orphan_blocks += 1;
                    report.orphan_bytes += block.len_bytes;
                    continue;
                };
                if !codec.is_plausible(block.len_bytes) {
                    let len_bytes = block.len_bytes;
                    damaged.insert(block.checksum, BlockDamage::Length { len_bytes });
                }
            }
        }
        Ok(())
    }

    async fn check_blocks<'b>(
        &self,
        of: &Subject,
        blocks: impl Iterator<Item = (&'b Checksum, Codec)>,
        options: &VerifyOptions,
        report: &mut VerifyReport,
        control: &Control,
    ) -> Result<HashMap<Checksum, BlockDamage>, Error> {
        let mut by_codec: HashMap<Codec, Vec<Checksum>> = HashMap::new();
        for (sum, codec) in blocks {
            by_codec.entry(codec).or_default().push(*sum);
        }
        let all: usize = by_codec.values().map(Vec::len).sum();
        let all = u64::try_from(all).unwrap_or(u64::MAX);
        let mut damaged = HashMap::new();
        for (codec, mut sums) in by_codec {
            sums.sort_unstable();
            let (limit, how) = (options.concurrent_limit, options.fetch.clone());
            let fetch = StoreFetch::new(self.repository.blocks(of), codec, limit, how);
            let fetch = Arc::new(fetch);
            let width = in_flight(options.concurrent_limit, codec.size().bytes());
            let mut checks = stream::iter(sums)
                .map(|sum| {
                    let fetch = Arc::clone(&fetch);
                    async move {
                        control.check()?;
                        match fetch.fetch(&sum).await {
                            Ok(_) => Ok(None),
                            Err(FetchError::Damaged(damage)) => Ok(Some((sum, damage))),
                            Err(FetchError::Failed(error)) => Err(Error::Fetch {
                                why: telemetry::Chain(error.as_ref()).to_string(),
                            }),
                        }
                    }
                })
                .buffer_unordered(width);
            while let Some(check) = checks.next().await {
                damaged.extend(check?);
                report.checked_blocks += 1;
                control.report(report.checked_blocks, all);
            }
        }
        Ok(damaged)
    }

    /// Which places are damaged, by the record as it is now.
    async fn judge(
        &self,
        of: &Subject,
        name: &Name,
        references: &References,
        damaged: &HashMap<Checksum, BlockDamage>,
        report: &mut VerifyReport,
    ) -> Result<(), Error> {
        // Deleted since: its blocks may be gone, too.
        let Found::Readable(record, stored) = self.repository.record(of, name).await? else {
            return Ok(());
        };
        // Or made again since: its blocks may have come after they were looked at.
        if references.versions.get(name) != Some(&stored.version) {
            return Ok(());
        }
        let blocks = self.repository.blocks(of);
        let mut found = DamagedBackup {
            name: name.to_string(),
            damaged_places: 0,
            deep_places: 0,
            places: Vec::new(),
        };
        if let Some((offset, damage)) = record.flaw() {
            let path = self.repository.record_path(of, name)?;
            found.damaged_places += 1;
            found.places.push(DamagedPlace { offset, path, damage });
        }
        for block in &record.blocks {
            let Some(damage) = damaged.get(&block.checksum) else { continue };
            found.damaged_places += 1;
            found.deep_places += u64::from(!is_seen_from_outside(damage));
            if found.places.len() < PLACES_KEPT {
                let path = blocks.path_of(&block.checksum);
                let damage = damage.to_string();
                found.places.push(DamagedPlace { offset: block.offset, path, damage });
            }
        }
        if found.damaged_places == 0 {
            report.healthy.push(found.name);
        } else {
            report.damaged.push(found);
        }
        Ok(())
    }
}

/// Whether a list of objects shows it.
fn is_seen_from_outside(damage: &BlockDamage) -> bool {
    match damage {
        BlockDamage::Missing | BlockDamage::Length { .. } => true,
        BlockDamage::Wrong(_) | BlockDamage::Unread { .. } => false,
    }
}
