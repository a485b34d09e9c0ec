//! Where everything lies below the root of a store, and what a key found there is. Keys are built
//! from checked names only.

use blobs::{Key, KeyError, Prefix};

use crate::block::Checksum;
use crate::error::Error;
use crate::name::{NAME_MAX_BYTES, Name};

const ROOT: &str = "backupstore";
const CFG: &str = ".cfg";
const BLOCK: &str = ".blk";
const LOCK: &str = ".lck";
const BACKUP: &str = "backup_";

/// Under which the locks of all backing images lie.
pub(crate) const BACKING_IMAGES_LOCK: &str = "BACKINGIMAGE";

fn key(text: &str) -> Result<Key, Error> {
    Key::parse(text).map_err(|source: KeyError| Error::Key { source })
}

pub(crate) fn volumes() -> Result<Prefix, Error> {
    Ok(key(&format!("{ROOT}/volumes"))?.into())
}

/// The folder of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VolumeFolder {
    folder: String,
}

impl VolumeFolder {
    pub(crate) fn of(volume: &Name) -> Self {
        let sum = Checksum::of(volume.as_str().as_bytes()).to_string();
        let (first, second) = two_levels(&sum);
        Self { folder: format!("{ROOT}/volumes/{first}/{second}/{volume}") }
    }

    pub(crate) fn prefix(&self) -> Result<Prefix, Error> {
        Ok(key(&self.folder)?.into())
    }

    pub(crate) fn cfg(&self) -> Result<Key, Error> {
        key(&format!("{}/volume.cfg", self.folder))
    }

    pub(crate) fn backups(&self) -> Result<Prefix, Error> {
        Ok(key(&format!("{}/backups", self.folder))?.into())
    }

    pub(crate) fn backup(&self, backup: &Name) -> Result<Key, Error> {
        key(&format!("{}/backups/{BACKUP}{backup}{CFG}", self.folder))
    }

    pub(crate) fn single_file(&self, backup: &Name) -> Result<Key, Error> {
        key(&format!("{}/BackupFiles/{backup}.bak", self.folder))
    }

    pub(crate) fn locks(&self) -> Result<Prefix, Error> {
        Ok(key(&format!("{}/locks", self.folder))?.into())
    }

    pub(crate) fn lock(&self, lock: &Name) -> Result<Key, Error> {
        key(&format!("{}/locks/{lock}{LOCK}", self.folder))
    }

    pub(crate) fn blocks(&self) -> BlockFolder {
        BlockFolder { folder: format!("{}/blocks", self.folder) }
    }
}

/// A folder of blocks: that of a volume, or the one of all backing images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockFolder {
    folder: String,
}

impl BlockFolder {
    pub(crate) fn of_backing_images() -> Self {
        Self { folder: format!("{ROOT}/backing-images/blocks") }
    }

    pub(crate) fn prefix(&self) -> Result<Prefix, Error> {
        Ok(key(&self.folder)?.into())
    }

    pub(crate) fn block(&self, sum: &Checksum) -> Result<Key, Error> {
        let sum = sum.to_string();
        let (first, second) = two_levels(&sum);
        key(&format!("{}/{first}/{second}/{sum}{BLOCK}", self.folder))
    }

    /// The folder in parts that can be listed side by side.
    pub(crate) fn parts(&self) -> Result<Vec<BlockRange>, Error> {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
        // Sorts before all folders that begin with the digit.
        let border = |digit: &char| key(&format!("{}/{digit}", self.folder));
        let ends = DIGITS.iter().skip(1).map(Some).chain([None]);
        let parts = DIGITS.iter().zip(ends);
        parts
            .map(|(from, to)| {
                Ok(BlockRange { after: border(from)?, end: to.map(border).transpose()? })
            })
            .collect()
    }

    /// Which block a key is; nothing where it is no block, or not in its place.
    pub(crate) fn checksum_of(&self, found: &Key) -> Option<Checksum> {
        let name = found.as_str().strip_prefix(self.folder.as_str())?.strip_prefix('/')?;
        let sum = Checksum::parse(name.rsplit('/').next()?.strip_suffix(BLOCK)?)?;
        (self.block(&sum).ok()? == *found).then_some(sum)
    }
}

/// Blocks whose keys lie between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub(crate) after: Key,
    /// None: up to the end of the folder.
    pub(crate) end: Option<Key>,
}

/// Their records and their blocks.
pub(crate) fn all_of_backing_images() -> Result<Prefix, Error> {
    Ok(key(&format!("{ROOT}/backing-images"))?.into())
}

pub(crate) fn backing_images() -> Result<Prefix, Error> {
    Ok(key(&format!("{ROOT}/backing-images/backing-images"))?.into())
}

pub(crate) fn backing_image(image: &Name) -> Result<Key, Error> {
    key(&format!("{ROOT}/backing-images/backing-images/{image}/backing-image.cfg"))
}

/// Where the record of an image lies.
pub(crate) fn backing_image_folder(image: &Name) -> Result<Prefix, Error> {
    Ok(key(&format!("{ROOT}/backing-images/backing-images/{image}"))?.into())
}

pub(crate) fn system_backups() -> Result<Prefix, Error> {
    Ok(key(&format!("{ROOT}/system-backups"))?.into())
}

/// The folder of a system backup, as lists show it.
pub(crate) fn system_backup(version: &Name, name: &Name) -> Result<Key, Error> {
    key(&format!("{ROOT}/system-backups/{version}/{name}"))
}

pub(crate) fn below(folder: &Key, name: &str) -> Result<Key, Error> {
    key(&format!("{folder}/{name}"))
}

pub(crate) fn last_part(found: &Key) -> &str {
    found.as_str().rsplit('/').next().unwrap_or_default()
}

/// The backup whose configuration a key is.
pub(crate) fn backup_of(found: &Key) -> Option<Name> {
    let name = last_part(found).strip_prefix(BACKUP)?.strip_suffix(CFG)?;
    Name::parse(name).ok()
}

/// Whether it is the record of a backup whose name is longer than ours are.
pub(crate) fn is_long_backup(found: &Key) -> bool {
    let name = last_part(found).strip_prefix(BACKUP).and_then(|it| it.strip_suffix(CFG));
    let start = name.and_then(|name| name.get(..NAME_MAX_BYTES).filter(|start| *start != name));
    start.is_some_and(|start| Name::parse(start).is_ok())
}

pub(crate) fn lock_of(found: &Key) -> Option<Name> {
    Name::parse(last_part(found).strip_suffix(LOCK)?).ok()
}

/// Digits 1-2 and 3-4.
fn two_levels(sum: &str) -> (&str, &str) {
    (sum.get(..2).unwrap_or_default(), sum.get(2..4).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_layout() {
        let folder = VolumeFolder::of(&Name::parse("golden").unwrap());
        let golden = "backupstore/volumes/5b/c3/golden";
        assert_eq!(folder.cfg().unwrap().as_str(), format!("{golden}/volume.cfg"));
        let backup = folder.backup(&Name::parse("backup-one").unwrap()).unwrap();
        assert_eq!(backup.as_str(), format!("{golden}/backups/backup_backup-one.cfg"));
        assert_eq!(backup_of(&backup).unwrap().as_str(), "backup-one");
        let sum = Checksum::of(b"abc");
        let block = folder.blocks().block(&sum).unwrap();
        assert_eq!(block.as_str(), format!("{golden}/blocks/dd/af/{sum}.blk"));
        assert_eq!(folder.blocks().checksum_of(&block), Some(sum));
    }

    #[test]
    fn only_a_block_in_its_place_is_one() {
        let blocks = VolumeFolder::of(&Name::parse("golden").unwrap()).blocks();
        let sum = Checksum::of(b"abc");
        let place = blocks.prefix().unwrap().to_string();
        for wrong in [format!("{place}/dd/ae/{sum}.blk"), format!("{place}/{sum}.blk")] {
            assert_eq!(blocks.checksum_of(&Key::parse(&wrong).unwrap()), None, "{wrong}");
        }
        for wrong in [format!("{place}/dd/af/{sum}"), format!("{place}x/dd/af/{sum}.blk")] {
            assert_eq!(blocks.checksum_of(&Key::parse(&wrong).unwrap()), None, "{wrong}");
        }
    }
}
