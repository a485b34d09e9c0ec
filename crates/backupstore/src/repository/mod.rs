//! The boundary between what is done with backups and how a store holds them.
//!
//! Owns: which objects there are, where they lie, their bytes, what a block is named and how it is packed.
//! [`Repository`] says it in the words of everybody else: volumes, records, blocks, locks. One format
//! stands behind it, [`v1`]; a second one comes in here, and nowhere else (`boundary` holds it to that).
//! Never: when something is done, under which lock, or in which order.

mod blocks;
#[cfg(test)]
mod boundary;
mod locks;
mod objects;
mod records;
mod system_backups;
pub mod v1;
mod volumes;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;

use blobs::{Key, Permit, Prefix, Store, Version, get_limited};
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;
use tokio::sync::OnceCell;

pub(crate) use self::blocks::{Blocks, Codec, Put, StoredBlock};
pub(crate) use self::locks::{End, FoundLock, Locks, Lying, Trace};
pub(crate) use self::objects::{Found, Stored};
pub(crate) use self::records::{
    BackupRecord, ImageRecord, ListedRecords, Ours, Outside, Record, Started, VolumeRecord, seconds,
};
pub use self::system_backups::{ARCHIVE_MAX_BYTES, SystemBackup};
use self::v1::layout::{self, VolumeFolder};
pub(crate) use self::v1::sha512_of_each;
use self::v1::{BackingImageCfg, BackupCfg, CFG_MAX_BYTES, SUCCESSOR, WRITER, to_bytes};
pub(crate) use self::volumes::Listed;
pub(crate) use self::writer::{BlockWriter, Late};
use crate::block::{Compression, Packing};
use crate::error::Error;
use crate::name::Name;
use crate::store::Abilities;
use crate::subject::Subject;

/// No record is longer.
pub(crate) const RECORD_MAX_BYTES: u64 = CFG_MAX_BYTES;

/// What a store holds. Clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Repository {
    store: Arc<dyn Store>,
    learned: Arc<OnceCell<Abilities>>,
}

#[expect(clippy::unused_self, reason = "another format may need to look where it is")]
impl Repository {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, learned: Arc::default() }
    }

    /// With what the store was found to be able to, whatever it says.
    #[must_use]
    pub(crate) fn with_abilities(mut self, abilities: Abilities) -> Self {
        self.learned = Arc::new(OnceCell::new_with(Some(abilities)));
        self
    }

    /// The objects themselves, for those who ask what the store can do.
    pub(crate) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub(crate) fn learned(&self) -> &OnceCell<Abilities> {
        &self.learned
    }

    /// What was learned, or what the store says until then.
    pub(crate) fn abilities(&self) -> Abilities {
        let stated = || Abilities::stated_by(self.store.as_ref());
        self.learned.get().copied().unwrap_or_else(stated)
    }

    /// Under whose name the locks lie.
    pub(crate) fn lock_name(&self, of: &Subject) -> Result<Name, Error> {
        match of {
            Subject::Volume(volume) => Ok(volume.clone()),
            Subject::BackingImages => Name::parse(layout::BACKING_IMAGES_LOCK),
        }
    }

    /// All there are in the target, the volumes by their names.
    pub(crate) async fn subjects(&self) -> Result<Vec<Subject>, Error> {
        let volumes = self.volumes().await?.into_iter();
        let mut all: Vec<Subject> = volumes.map(Subject::Volume).collect();
        let level = self.store.list_level(&layout::all_of_backing_images()?).await?;
        if !level.folders.is_empty() {
            all.push(Subject::BackingImages);
        }
        Ok(all)
    }

    /// All records with names that we can say, read or not.
    pub(crate) async fn records(&self, of: &Subject) -> Result<BTreeMap<Name, Outside>, Error> {
        Ok(self.listed_records(of).await?.named)
    }

    /// All records, read or not.
    pub(crate) async fn listed_records(&self, of: &Subject) -> Result<ListedRecords, Error> {
        let (mut found, mut unnamed) = (BTreeMap::new(), Vec::new());
        match of {
            Subject::Volume(volume) => {
                let level = self.store.list_level(&VolumeFolder::of(volume).backups()?).await?;
                for meta in level.objects {
                    if let Some(name) = layout::backup_of(&meta.key) {
                        found.insert(name, Outside(Some((meta.modified, meta.len_bytes))));
                    } else if layout::is_long_backup(&meta.key) {
                        unnamed.push(meta.key.to_string());
                    } else {
                        tracing::warn!("{} is not the record of a backup", meta.key);
                    }
                }
            }
            Subject::BackingImages => {
                let level = self.store.list_level(&layout::backing_images()?).await?;
                let names = level.folders.iter().map(|it| Name::parse(layout::last_part(it)));
                found.extend(names.filter_map(Result::ok).map(|name| (name, Outside(None))));
            }
        }
        Ok(ListedRecords { named: found, unnamed })
    }

    /// Whether the store shows the record in a listing, which it may also where it denies it to who reads it.
    pub(crate) async fn is_listed(&self, of: &Subject, name: &Name) -> Result<bool, Error> {
        let key = record_key(of, name)?;
        let level = match of {
            Subject::Volume(volume) => VolumeFolder::of(volume).backups()?,
            Subject::BackingImages => layout::backing_image_folder(name)?,
        };
        let level = self.store.list_level(&level).await?;
        Ok(level.objects.iter().any(|meta| meta.key == key))
    }

    /// As errors and reports name it.
    pub(crate) fn record_path(&self, of: &Subject, name: &Name) -> Result<String, Error> {
        Ok(record_key(of, name)?.to_string())
    }

    pub(crate) async fn record(&self, of: &Subject, name: &Name) -> Result<Found<Record>, Error> {
        self.record_within(of, name, RECORD_MAX_BYTES).await
    }

    /// One that may have at most `max_bytes`; with more it is an error, and not unreadable, where a
    /// record may have more.
    pub(crate) async fn record_within(
        &self,
        of: &Subject,
        name: &Name,
        max_bytes: u64,
    ) -> Result<Found<Record>, Error> {
        Ok(match of {
            Subject::Volume(volume) => {
                self.backup_within(volume, name, max_bytes).await?.map(Record::from)
            }
            Subject::BackingImages => self.image_within(name, max_bytes).await?.map(Record::from),
        })
    }

    pub(crate) async fn backup(
        &self,
        volume: &Name,
        backup: &Name,
    ) -> Result<Found<BackupRecord>, Error> {
        self.backup_within(volume, backup, RECORD_MAX_BYTES).await
    }

    async fn backup_within(
        &self,
        volume: &Name,
        backup: &Name,
        max_bytes: u64,
    ) -> Result<Found<BackupRecord>, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        self.read(&key, max_bytes, |bytes| {
            let cfg = BackupCfg::parse(bytes)?;
            // A record of another name or volume would be restored, or counted, as what it is not.
            if cfg.name == backup.as_str() && cfg.volume_name == volume.as_str() {
                cfg.into_record()
            } else {
                Err(format!("it describes {:?} of {:?}", cfg.name, cfg.volume_name))
            }
        })
        .await
    }

    /// A backup that is complete.
    pub(crate) async fn complete_backup(
        &self,
        volume: &Name,
        backup: &Name,
    ) -> Result<BackupRecord, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        let (record, _) = self.backup(volume, backup).await?.required(&key)?;
        if record.is_in_progress() {
            return Err(Error::InProgress { backup: backup.to_string() });
        }
        Ok(record)
    }

    async fn image_within(
        &self,
        image: &Name,
        max_bytes: u64,
    ) -> Result<Found<ImageRecord>, Error> {
        let key = layout::backing_image(image)?;
        self.read(&key, max_bytes, |bytes| {
            let cfg = BackingImageCfg::parse(bytes)?;
            // One of another name would be restored, or counted, as what it is not.
            if cfg.name == image.as_str() {
                Ok(cfg.into_record())
            } else {
                Err(format!("it describes {:?}", cfg.name))
            }
        })
        .await
    }

    /// An image that is complete.
    pub(crate) async fn complete_image(&self, image: &Name) -> Result<ImageRecord, Error> {
        let key = layout::backing_image(image)?;
        let (record, _) = self.image_within(image, RECORD_MAX_BYTES).await?.required(&key)?;
        if record.is_in_progress() {
            return Err(Error::InProgress { backup: image.to_string() });
        }
        Ok(record)
    }

    /// How blocks of images are packed.
    pub(crate) fn image_packing(&self, compression: Compression) -> Packing {
        Packing { size: BackingImageCfg::BLOCK_SIZE, compression }
    }

    /// Writes the record in progress, makes that of an earlier try ours, or finds the complete one.
    pub(crate) async fn begin_backup(
        &self,
        volume: &Name,
        backup: &Name,
        compression: Compression,
    ) -> Result<Started<BackupRecord>, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        let mut begun = BackupCfg::begun(backup, volume, compression);
        begun.others.extend([new_writer(WRITER)]);
        let bytes = Bytes::from(begun.to_bytes().map_err(Error::Record)?);
        if let Some(version) = self.created(&key, bytes.clone()).await? {
            return Ok(Started::Begun(Ours { version, is_successor: false, was_there: false }));
        }
        let (record, found) = self.backup(volume, backup).await?.required(&key)?;
        if !record.is_in_progress() {
            return Ok(Started::Complete(Box::new(record)));
        }
        let bytes = if record.is_fenceable {
            bytes
        } else {
            begun.others.remove(WRITER);
            begun.others.extend([new_writer(SUCCESSOR)]);
            begun.to_bytes().map_err(Error::Record)?.into()
        };
        let version = self.take_over(&key, bytes, &found.version).await?;
        Ok(Started::Begun(Ours { version, is_successor: !record.is_fenceable, was_there: true }))
    }

    /// The same for an image.
    pub(crate) async fn begin_image(
        &self,
        image: &Name,
        begun: &ImageRecord,
    ) -> Result<Started<ImageRecord>, Error> {
        let key = layout::backing_image(image)?;
        let mut begun = BackingImageCfg::of(begun.clone());
        begun.others.extend([new_writer(WRITER)]);
        let bytes = Bytes::from(to_bytes(&begun).map_err(Error::Record)?);
        if let Some(version) = self.created(&key, bytes.clone()).await? {
            return Ok(Started::Begun(Ours { version, is_successor: false, was_there: false }));
        }
        let (record, found) = self.image_within(image, RECORD_MAX_BYTES).await?.required(&key)?;
        if !record.is_in_progress() {
            return Ok(Started::Complete(Box::new(record)));
        }
        let bytes = if record.is_fenceable {
            bytes
        } else {
            begun.others.remove(WRITER);
            begun.others.extend([new_writer(SUCCESSOR)]);
            to_bytes(&begun).map_err(Error::Record)?.into()
        };
        let version = self.take_over(&key, bytes, &found.version).await?;
        Ok(Started::Begun(Ours { version, is_successor: !record.is_fenceable, was_there: true }))
    }

    /// Nothing where there is one.
    async fn created(&self, key: &Key, bytes: Bytes) -> Result<Option<Version>, Error> {
        match self.create(key, bytes).await {
            Ok(version) => Ok(Some(version)),
            Err(blobs::Error::Exists { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// From now on it is ours alone: an earlier try that only slept cannot finish it.
    async fn take_over(&self, key: &Key, bytes: Bytes, begun: &Version) -> Result<Version, Error> {
        self.swap(key, bytes, begun).await.map_err(fenced)
    }

    /// Makes a backup complete, in the place of the very record that was begun: [`Error::Fenced`] where
    /// that is gone or another's.
    ///
    /// What is long is done before the future is made: it only sends.
    pub(crate) fn publish_backup<'r>(
        &'r self,
        volume: &Name,
        backup: &Name,
        record: BackupRecord,
        begun: &'r Version,
    ) -> Result<impl Future<Output = Result<(), Error>> + Send + 'r, Error> {
        let key = VolumeFolder::of(volume).backup(backup)?;
        let bytes = BackupCfg::of(record).to_bytes().map_err(Error::Record)?;
        Ok(self.publish(key, bytes, begun))
    }

    /// The same for an image.
    pub(crate) fn publish_image<'r>(
        &'r self,
        image: &Name,
        record: ImageRecord,
        begun: &'r Version,
    ) -> Result<impl Future<Output = Result<(), Error>> + Send + 'r, Error> {
        let key = layout::backing_image(image)?;
        let bytes = to_bytes(&BackingImageCfg::of(record)).map_err(Error::Record)?;
        Ok(self.publish(key, bytes, begun))
    }

    async fn publish(&self, key: Key, bytes: Vec<u8>, begun: &Version) -> Result<(), Error> {
        self.swap(&key, bytes.into(), begun).await.map(drop).map_err(fenced)
    }

    /// Makes sure that the writer of a record in progress cannot finish it, and removes it. False if
    /// it did in the meantime.
    pub(crate) async fn fence(
        &self,
        of: &Subject,
        name: &Name,
        version: &Version,
        permit: &Permit,
    ) -> Result<bool, Error> {
        let key = &record_key(of, name)?;
        let found = match get_limited(self.store.as_ref(), key, RECORD_MAX_BYTES).await {
            Ok(found) if found.meta.version == *version => found,
            Ok(_) => return Ok(false),
            // As long as it is listed, its writer may find it there.
            Err(error) if error.is_not_found() => return Ok(!self.is_listed(of, name).await?),
            Err(error) => return Err(error.into()),
        };
        // Another text, since some stores take equal texts for equal versions.
        let mut bytes = BytesMut::from(found.bytes.as_ref());
        bytes.put_u8(b'\n');
        permit.check()?;
        match self.swap(key, bytes.freeze(), version).await {
            Ok(_) => {}
            Err(blobs::Error::Changed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.store.delete_within(key, permit).await?;
        Ok(true)
    }

    /// Whether what lies there is listed under a name that differs in case: some stores do not tell them
    /// apart.
    async fn is_of_another_case(&self, of: &Subject, name: &Name) -> Result<bool, Error> {
        let listed = self.records(of).await?;
        let is_alike = |other: &Name| other.as_str().eq_ignore_ascii_case(name.as_str());
        Ok(!listed.contains_key(name) && listed.keys().any(is_alike))
    }

    /// Removes a record, readable or not, and says whether it was there.
    pub(crate) async fn remove_record(
        &self,
        of: &Subject,
        name: &Name,
        permit: &Permit,
    ) -> Result<bool, Error> {
        let key = record_key(of, name)?;
        let existed = match self.store.head(&key).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        if existed && self.is_of_another_case(of, name).await? {
            return Ok(false);
        }
        self.store.delete_within(&key, permit).await?;
        match of {
            Subject::Volume(volume) => {
                let single_file = VolumeFolder::of(volume).single_file(name)?;
                self.store.delete_within(&single_file, permit).await?;
            }
            Subject::BackingImages => {}
        }
        Ok(existed)
    }

    /// Where blocks lie.
    pub(crate) fn blocks(&self, of: &Subject) -> Blocks {
        let folder = match of {
            Subject::Volume(volume) => VolumeFolder::of(volume).blocks(),
            Subject::BackingImages => layout::BlockFolder::of_backing_images(),
        };
        Blocks::new(self.clone(), folder)
    }

    /// What was seen of records and blocks until now stays, whatever stops: also what somebody wrote or
    /// removed who was killed before it was durable.
    pub(crate) async fn settle(&self, of: &Subject) -> Result<(), Error> {
        let (records, blocks) = match of {
            Subject::Volume(volume) => {
                let folder = VolumeFolder::of(volume);
                (folder.backups()?, folder.blocks().prefix()?)
            }
            Subject::BackingImages => {
                let blocks = layout::BlockFolder::of_backing_images();
                (layout::backing_images()?, blocks.prefix()?)
            }
        };
        Ok(self.store.settle(&[records, blocks]).await?)
    }

    /// Where the locks of that name lie.
    pub(crate) fn locks(&self, of: &Name) -> Locks {
        Locks::new(self.clone(), VolumeFolder::of(of))
    }

    /// One page of what lies under a prefix, for those who remove it.
    pub(crate) async fn page(
        &self,
        prefix: &Prefix,
        after: Option<&Key>,
    ) -> Result<blobs::Page, Error> {
        Ok(self.store.list(prefix, after).await?)
    }
}

fn record_key(of: &Subject, name: &Name) -> Result<Key, Error> {
    match of {
        Subject::Volume(volume) => VolumeFolder::of(volume).backup(name),
        Subject::BackingImages => layout::backing_image(name),
    }
}

/// What tells the record of this try from that of any other, also where stores take equal texts for
/// equal versions.
fn new_writer(key: &str) -> (String, Value) {
    (key.to_owned(), Value::String(format!("{:032x}", rand::random::<u128>())))
}

fn fenced(error: blobs::Error) -> Error {
    match error {
        blobs::Error::Changed { key } => Error::Fenced { path: key.to_string() },
        error => error.into(),
    }
}
