//! The volume as it was at a snapshot, read-only: for backups, exports and clones. Has its own
//! files and index, so it may live on another thread than the replica and outlive the snapshot's
//! name.

use std::path::Path;
use std::sync::Arc;

use durable::Disk;

use crate::disk::dir::{Directory, real};
use crate::disk::error::Error;
use crate::disk::image::Access;
use crate::disk::layers::{Layers, Stretch};
use crate::disk::meta::VolumeMeta;
use crate::disk::names::{DiskName, VOLUME_META};
use crate::disk::replica::{checked_size, open_images, read_chain};

#[derive(Debug)]
pub struct View {
    layers: Layers,
    /// Top first.
    chain: Vec<DiskName>,
    has_backing: bool,
}

impl View {
    /// `name` is a snapshot, by disk name or bare name.
    pub fn open(dir: &Path, name: &str, index_budget_bytes: usize) -> Result<Self, Error> {
        Self::open_on(&real(), dir, name, index_budget_bytes)
    }

    /// The same on a file system of the caller's.
    pub fn open_on(
        files: &Arc<dyn Disk>,
        dir: &Path,
        name: &str,
        index_budget_bytes: usize,
    ) -> Result<Self, Error> {
        let dir = Directory::plain(dir, files);
        let meta: VolumeMeta =
            dir.read_meta(VOLUME_META)?.ok_or_else(|| Error::NoMetadata(VOLUME_META.to_owned()))?;
        let size = checked_size(meta.size)?;
        let disks = read_chain(&dir, &DiskName::parse(&meta.head)?)?;
        let no_such = || Error::NoSuchDisk(name.to_owned());
        let (disk, _) = disks.find(name).ok_or_else(no_such)?;
        if disk.is_head() {
            return Err(no_such());
        }
        let chain = disks.from(disk)?;
        if chain.len() > crate::disk::chain::CHAIN_MAX {
            return Err(Error::ChainTooLong(chain.len()));
        }
        let images = open_images(&dir, &chain, &meta.backing_file_path, Access::Read)?;
        let layers = Layers::new(images, size, index_budget_bytes);
        Ok(Self { layers, chain, has_backing: !meta.backing_file_path.is_empty() })
    }

    /// The size of the volume today; where the snapshot is shorter, zeros are read.
    pub fn size_bytes(&self) -> u64 {
        self.layers.size_bytes()
    }

    /// The snapshot, then those it sits on.
    pub fn chain(&self) -> &[DiskName] {
        &self.chain
    }

    /// Whether a backing file lies below all snapshots.
    pub fn has_backing(&self) -> bool {
        self.has_backing
    }

    pub fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.layers.read(buffer, offset)
    }

    /// Ranges that cover `offset..offset + len_bytes`, `is_data` where a disk newer than the
    /// snapshot `base` holds the sector. Without a base: newer than the backing file.
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDisk`] if `base` is not below this snapshot; then a full pass is needed.
    pub fn changed_since(
        &mut self,
        base: Option<&str>,
        offset: u64,
        len_bytes: u64,
        each: impl FnMut(Stretch),
    ) -> Result<(), Error> {
        let below = usize::from(self.has_backing);
        let base = match base {
            None => below,
            Some(name) => {
                let no_such = || Error::NoSuchDisk(name.to_owned());
                let disk = DiskName::of_either(name)?;
                let above = self.chain.iter().position(|other| *other == disk);
                below
                    + above
                        .and_then(|above| self.chain.len().checked_sub(above))
                        .ok_or_else(no_such)?
            }
        };
        self.layers.runs(offset..offset.saturating_add(len_bytes), base, each)
    }
}
