//! What shares blocks, and is checked and cleaned as one: the backups of a volume, or all backing
//! images of a target. Owns where their records and blocks lie, and what of a record matters for that;
//! never what is done with it.

use std::collections::BTreeMap;
use std::fmt;

use blobs::{Key, Prefix};
use jiff::Timestamp;

use crate::error::Error;
use crate::format::layout::{self, BlockFolder, VolumeFolder};
use crate::format::{
    BackingImageCfg, BackupCfg, BlockRef, BlockSize, CFG_MAX_BYTES, Compression, Name, WRITER,
};
use crate::store::{BackupStore, Found};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    Volume(Name),
    /// Of the whole target: their blocks are shared by all of them.
    BackingImages,
}

impl Subject {
    /// Under whose name its locks lie.
    pub(crate) fn lock_name(&self) -> Result<Name, Error> {
        match self {
            Self::Volume(volume) => Ok(volume.clone()),
            Self::BackingImages => Name::parse(layout::BACKING_IMAGES_LOCK),
        }
    }

    pub(crate) fn blocks(&self) -> BlockFolder {
        match self {
            Self::Volume(volume) => VolumeFolder::of(volume).blocks(),
            Self::BackingImages => BlockFolder::of_backing_images(),
        }
    }

    pub(crate) fn record(&self, name: &Name) -> Result<Key, Error> {
        match self {
            Self::Volume(volume) => VolumeFolder::of(volume).backup(name),
            Self::BackingImages => layout::backing_image(name),
        }
    }

    /// The level on which that record is listed.
    fn level_of(&self, name: &Name) -> Result<Prefix, Error> {
        match self {
            Self::Volume(volume) => VolumeFolder::of(volume).backups(),
            Self::BackingImages => layout::backing_image_folder(name),
        }
    }

    /// What one of its records is called, and many.
    pub fn noun(&self) -> (&'static str, &'static str) {
        match self {
            Self::Volume(_) => ("backup", "backups"),
            Self::BackingImages => ("backing image", "backing images"),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Volume(volume) => volume.fmt(out),
            Self::BackingImages => out.write_str("backing images"),
        }
    }
}

/// What a list shows of a record, where it does: when it was written, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outside(Option<(Timestamp, u64)>);

impl Outside {
    /// At most, as a list has it; nothing is known of some.
    pub(crate) fn len_bytes(self) -> Option<u64> {
        self.0.map(|(_, len_bytes)| len_bytes)
    }
}

/// What matters of a record.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) is_in_progress: bool,
    pub(crate) block_size: BlockSize,
    pub(crate) compression: Compression,
    pub(crate) blocks: Vec<BlockRef>,
    /// As it is written down.
    pub(crate) started: String,
    /// Whether its writer can be kept from finishing it: it replaces only the very record it began.
    pub(crate) is_fenceable: bool,
    /// Where it ends, if it says so: no block lies there or behind.
    pub(crate) end: Option<u64>,
}

impl Record {
    fn of_backup(cfg: BackupCfg) -> Result<Self, String> {
        Ok(Self {
            is_in_progress: cfg.is_in_progress(),
            is_fenceable: cfg.others.contains_key(WRITER),
            block_size: cfg.block_size()?,
            compression: cfg.compression_method,
            blocks: cfg.blocks,
            started: cfg.snapshot_created_at,
            // Its size is what it stores, not what the volume has.
            end: None,
        })
    }

    fn of_image(cfg: BackingImageCfg) -> Self {
        Self {
            is_in_progress: cfg.is_in_progress(),
            is_fenceable: cfg.others.contains_key(WRITER),
            block_size: BackingImageCfg::BLOCK_SIZE,
            compression: cfg.compression_method,
            blocks: cfg.blocks,
            started: cfg.created_time,
            end: Some(cfg.size),
        }
    }

    /// Why it cannot be restored whatever blocks there are.
    pub(crate) fn flaw(&self) -> Option<(u64, String)> {
        let (last, end) = (self.blocks.last()?, self.end?);
        let text = || format!("the record names a block past its end at {end}");
        (last.offset >= end).then(|| (last.offset, text()))
    }
}

impl BackupStore {
    /// All there are in the target, the volumes by their names.
    pub async fn subjects(&self) -> Result<Vec<Subject>, Error> {
        let mut all: Vec<Subject> =
            self.volumes().await?.into_iter().map(Subject::Volume).collect();
        let level = self.store.list_level(&layout::all_of_backing_images()?).await?;
        if !level.folders.is_empty() {
            all.push(Subject::BackingImages);
        }
        Ok(all)
    }

    /// All records, read or not. One whose name no backup and no image can have is left out, and
    /// nothing it may name is protected by it: nobody can restore it either.
    pub(crate) async fn records(&self, of: &Subject) -> Result<BTreeMap<Name, Outside>, Error> {
        match of {
            Subject::Volume(volume) => {
                let backups = self.backups(volume).await?.into_iter();
                let outside = |(name, meta): (Name, blobs::Meta)| {
                    (name, Outside(Some((meta.modified, meta.len_bytes))))
                };
                Ok(backups.map(outside).collect())
            }
            Subject::BackingImages => {
                let images = self.list_backing_images().await?.into_iter();
                Ok(images.map(|name| (name, Outside(None))).collect())
            }
        }
    }

    /// Whether the store shows the record in a listing, which it may also where it denies it to who reads it.
    pub(crate) async fn is_listed(&self, of: &Subject, name: &Name) -> Result<bool, Error> {
        let key = of.record(name)?;
        let level = self.store.list_level(&of.level_of(name)?).await?;
        Ok(level.objects.iter().any(|meta| meta.key == key))
    }

    pub(crate) async fn read_record(
        &self,
        of: &Subject,
        name: &Name,
    ) -> Result<Found<Record>, Error> {
        self.read_record_within(of, name, CFG_MAX_BYTES).await
    }

    /// One that may have at most `max_bytes`; with more it is an error, and not unreadable, where a
    /// record may have more.
    pub(crate) async fn read_record_within(
        &self,
        of: &Subject,
        name: &Name,
        max_bytes: u64,
    ) -> Result<Found<Record>, Error> {
        Ok(match of {
            Subject::Volume(volume) => match self.read_backup(volume, name, max_bytes).await? {
                Found::Missing => Found::Missing,
                Found::Unreadable { why } => Found::Unreadable { why },
                Found::Readable(cfg, stored) => match Record::of_backup(cfg) {
                    Ok(record) => Found::Readable(record, stored),
                    Err(why) => Found::Unreadable { why },
                },
            },
            Subject::BackingImages => match self.read_image(name, max_bytes).await? {
                Found::Missing => Found::Missing,
                Found::Unreadable { why } => Found::Unreadable { why },
                Found::Readable(cfg, stored) => Found::Readable(Record::of_image(cfg), stored),
            },
        })
    }

    pub(crate) async fn read_image(
        &self,
        image: &Name,
        max_bytes: u64,
    ) -> Result<Found<BackingImageCfg>, Error> {
        let key = layout::backing_image(image)?;
        self.read(&key, max_bytes, |bytes| {
            let cfg = BackingImageCfg::parse(bytes)?;
            // One of another name would be restored, or counted, as what it is not.
            if cfg.name == image.as_str() {
                Ok(cfg)
            } else {
                Err(format!("it describes {:?}", cfg.name))
            }
        })
        .await
    }
}
