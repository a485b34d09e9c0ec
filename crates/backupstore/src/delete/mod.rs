//! Removing backups, and the blocks that nobody names any more.
//!
//! Owns the order that loses nothing: under the delete lock, records first, then blocks that no
//! readable record names; with an unreadable record no block at all. A record in progress under our
//! lock belongs to a writer that died: it is fenced off (a writer that only slept can then not finish)
//! and removed. Each step can be repeated; a deletion that was cut short is finished by the next.

mod references;

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use blobs::{Key, Prefix, get_limited};
use bytes::{BufMut, BytesMut};
use futures::FutureExt;
use futures::stream::{self, StreamExt};
use serde::Serialize;

pub use self::references::Unreadable;
pub(crate) use self::references::{References, missing};
use crate::control::Control;
use crate::error::Error;
use crate::format::layout::{BlockFolder, VolumeFolder};
use crate::format::{CFG_MAX_BYTES, LockKind, Name};
use crate::lock::{Lease, sweep_ended};
use crate::store::{BackupStore, Found};
use crate::subject::Subject;

const DELETES_AT_ONCE: usize = 16;

#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// How long to wait for backups and restores that hold the lock.
    pub patience: Duration,
    /// Backups, or images, whose records cannot be read and are given up: they no longer keep every
    /// block alive, and are removed themselves.
    pub abandon: BTreeSet<Name>,
}

/// What became of the blocks of a volume, or of all backing images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Collected {
    pub outcome: Outcome,
    /// In the store and named by a record.
    pub referenced_blocks: u64,
    /// Named by a record, and not in the store.
    pub missing_blocks: u64,
    /// In the store and named by none, when they were looked at.
    pub orphan_blocks: u64,
    pub orphan_bytes: u64,
    pub removed_blocks: u64,
    pub removed_bytes: u64,
    /// Records that were in progress: removed with the blocks, else only seen.
    pub in_progress: Vec<String>,
    pub unreadable: Vec<Unreadable>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Every orphan was removed.
    Removed,
    /// Nothing was to be removed: it was only asked for.
    Reported,
    /// Records that cannot be read may name any block. Delete what they record, or abandon it.
    KeptForUnreadable,
    /// One came or went under our lock, by one who does not keep to locks. Try again.
    KeptForChange,
}

/// What a deletion did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleted {
    /// Whether its record was still there.
    pub existed: bool,
    pub blocks: Collected,
}

impl BackupStore {
    /// Removes a backup, readable or not, and the blocks that nobody needs then. One that is not
    /// there is removed already, and its blocks are looked after all the same.
    pub async fn delete_backup(
        &self,
        volume: &Name,
        backup: &Name,
        options: &DeleteOptions,
        control: &Control,
    ) -> Result<Deleted, Error> {
        self.require_volume_folder(volume).await?;
        let lease = self.lock(volume, LockKind::Delete, options.patience, control).await?;
        let below = control.below();
        let work = async {
            let existed = self.remove_record(volume, backup).await?;
            let of = Subject::Volume(volume.clone());
            let blocks = self.collect(&of, options, Some(&lease), &below).await?;
            Ok(Deleted { existed, blocks })
        };
        let done = lease.keep(&below, work.boxed()).await;
        lease.release().await;
        if done.is_ok() {
            control.finished();
        }
        done
    }

    /// Removes the blocks of a volume that no backup names.
    pub async fn collect_garbage(
        &self,
        volume: &Name,
        options: &DeleteOptions,
        control: &Control,
    ) -> Result<Collected, Error> {
        self.collect_garbage_of(&Subject::Volume(volume.clone()), options, control).await
    }

    /// Removes the blocks that no record names.
    pub async fn collect_garbage_of(
        &self,
        of: &Subject,
        options: &DeleteOptions,
        control: &Control,
    ) -> Result<Collected, Error> {
        self.require(of).await?;
        let lease =
            self.lock(&of.lock_name()?, LockKind::Delete, options.patience, control).await?;
        let below = control.below();
        let work = self.collect(of, options, Some(&lease), &below);
        let done = lease.keep(&below, work.boxed()).await;
        lease.release().await;
        done
    }

    /// What [`BackupStore::collect_garbage`] would find; it changes nothing and takes no lock. Blocks
    /// of a backup that is being made count as orphans.
    pub async fn report_garbage(
        &self,
        volume: &Name,
        control: &Control,
    ) -> Result<Collected, Error> {
        self.report_garbage_of(&Subject::Volume(volume.clone()), control).await
    }

    /// What [`BackupStore::collect_garbage_of`] would find, in the same way.
    pub async fn report_garbage_of(
        &self,
        of: &Subject,
        control: &Control,
    ) -> Result<Collected, Error> {
        self.require(of).await?;
        self.collect(of, &DeleteOptions::default(), None, control).await
    }

    /// Removes a volume with all its backups. One that is not there is removed already.
    pub async fn delete_volume(
        &self,
        volume: &Name,
        options: &DeleteOptions,
        control: &Control,
    ) -> Result<(), Error> {
        if self.is_folder_empty(volume).await? {
            return Ok(());
        }
        let lease = self.lock(volume, LockKind::Delete, options.patience, control).await?;
        let below = control.below();
        let work = self.remove_volume(volume, &lease, &below);
        let done = lease.keep(&below, work.boxed()).await;
        lease.release().await;
        if done.is_ok() {
            control.finished();
        }
        done
    }

    async fn is_folder_empty(&self, volume: &Name) -> Result<bool, Error> {
        let level = self.store.list_level(&VolumeFolder::of(volume).prefix()?).await?;
        Ok(level.folders.is_empty() && level.objects.is_empty())
    }

    /// A target without backing images has none that could be damaged.
    async fn require(&self, of: &Subject) -> Result<(), Error> {
        match of {
            Subject::Volume(volume) => self.require_volume_folder(volume).await,
            Subject::BackingImages => Ok(()),
        }
    }

    async fn require_volume_folder(&self, volume: &Name) -> Result<(), Error> {
        if self.is_folder_empty(volume).await? {
            let path = VolumeFolder::of(volume).cfg()?.to_string();
            return Err(Error::VolumeNotFound { path });
        }
        Ok(())
    }

    async fn remove_record(&self, volume: &Name, backup: &Name) -> Result<bool, Error> {
        let folder = VolumeFolder::of(volume);
        let key = folder.backup(backup)?;
        let existed = match self.store.head(&key).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => false,
            Err(error) => return Err(error.into()),
        };
        self.store.delete(&key).await?;
        self.store.delete(&folder.single_file(backup)?).await?;
        Ok(existed)
    }

    /// Records first: none may name a block that is gone. The volume's own last: until then it is
    /// listed, and can be deleted again.
    async fn remove_volume(
        &self,
        volume: &Name,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let folder = VolumeFolder::of(volume);
        let locks = folder.locks()?;
        self.remove_all(&folder.backups()?, &[], control).await?;
        lease.confirm().await?;
        let cfg = folder.cfg()?;
        self.remove_all(&folder.prefix()?, &[&locks, &Prefix::from(cfg.clone())], control).await?;
        self.store.delete(&cfg).await?;
        sweep_ended(self, &folder, lease).await
    }

    /// Removes everything under `prefix`, whole parts only, but for what lies under `spared`.
    async fn remove_all(
        &self,
        prefix: &Prefix,
        spared: &[&Prefix],
        control: &Control,
    ) -> Result<(), Error> {
        let mut after: Option<Key> = None;
        loop {
            let page = self.store.list(prefix, after.as_ref()).await?;
            let is_last = page.is_last || page.objects.is_empty();
            let is_spared = |key: &Key| {
                spared.iter().any(|spared| spared.holds(key) || spared.folder() == Some(key))
            };
            after = page.objects.last().map(|meta| meta.key.clone());
            let keys = page.objects.into_iter().map(|meta| meta.key);
            let keys = keys.filter(|key| prefix.holds(key) && !is_spared(key)).collect();
            self.remove_keys(keys, control).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// All that can be removed is; the first error is told then.
    async fn remove_keys(&self, keys: Vec<Key>, control: &Control) -> Result<(), Error> {
        let mut removals = stream::iter(keys)
            .map(|key| {
                async move {
                    control.check()?;
                    self.store.delete(&key).await.map_err(Error::from)
                }
                .boxed()
            })
            .buffer_unordered(DELETES_AT_ONCE);
        let mut failed = None;
        while let Some(removed) = removals.next().await {
            if let Err(error) = removed {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Removes what nobody names where it holds the lease; else it only looks.
    pub(crate) async fn collect(
        &self,
        of: &Subject,
        options: &DeleteOptions,
        lease: Option<&Lease>,
        control: &Control,
    ) -> Result<Collected, Error> {
        let mut references = self.references(of).await?;
        let outcome = match lease {
            None => Outcome::Reported,
            Some(lease) => {
                self.abandon(of, options, &mut references).await?;
                self.clear_the_way(of, &references, lease).await?
            }
        };
        let mut collected = Collected::of(&references, outcome);
        self.sweep(&of.blocks(), &references, &mut collected, control).await?;
        match of {
            Subject::Volume(volume) if outcome == Outcome::Removed => {
                let count = collected.referenced_blocks;
                self.change_volume(volume, |cfg| cfg.block_count = count).await?;
            }
            Subject::Volume(_) | Subject::BackingImages => {}
        }
        Ok(collected)
    }

    async fn abandon(
        &self,
        of: &Subject,
        options: &DeleteOptions,
        references: &mut References,
    ) -> Result<(), Error> {
        let unreadable = std::mem::take(&mut references.unreadable);
        let (given_up, kept): (Vec<_>, Vec<_>) =
            unreadable.into_iter().partition(|(name, _)| options.abandon.contains(name));
        references.unreadable = kept;
        for (name, _) in given_up {
            self.store.delete(&of.record(&name)?).await?;
        }
        Ok(())
    }

    /// Everything that must have happened before the first block goes.
    async fn clear_the_way(
        &self,
        of: &Subject,
        references: &References,
        lease: &Lease,
    ) -> Result<Outcome, Error> {
        match of {
            Subject::Volume(volume) => self.mend_last_backup(volume, references).await?,
            Subject::BackingImages => {}
        }
        if !references.unreadable.is_empty() {
            tracing::warn!(
                of = %of,
                unreadable = ?references.unreadable,
                "no block is removed: what cannot be read may need it; delete or abandon it"
            );
            return Ok(Outcome::KeptForUnreadable);
        }
        for (name, version) in &references.in_progress {
            if !self.fence(&of.record(name)?, version).await? {
                return Ok(Outcome::KeptForChange);
            }
        }
        for name in self.record_names(of).await? {
            // The folder of an image is listed for whatever lies in it.
            if !references.complete.contains_key(&name)
                && !matches!(self.read_record(of, &name).await?, Found::Missing)
            {
                return Ok(Outcome::KeptForChange);
            }
        }
        lease.confirm().await?;
        Ok(Outcome::Removed)
    }

    /// Makes sure that the writer of a record in progress cannot finish it, and removes it. False if
    /// it did in the meantime.
    async fn fence(&self, key: &Key, version: &blobs::Version) -> Result<bool, Error> {
        let found = match get_limited(self.store.as_ref(), key, CFG_MAX_BYTES).await {
            Ok(found) if found.meta.version == *version => found,
            Ok(_) => return Ok(false),
            Err(error) if error.is_not_found() => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        // Another text, since some stores take equal texts for equal versions.
        let mut bytes = BytesMut::from(found.bytes.as_ref());
        bytes.put_u8(b'\n');
        match self.swap(key, bytes.freeze(), version).await {
            Ok(_) => {}
            Err(blobs::Error::Changed { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        self.store.delete(key).await?;
        Ok(true)
    }

    /// The volume's last backup is one that is there, or none.
    async fn mend_last_backup(&self, volume: &Name, references: &References) -> Result<(), Error> {
        let key = VolumeFolder::of(volume).cfg()?;
        if let Found::Unreadable { why } = self.read_volume(volume).await? {
            return Err(Error::Unreadable { path: key.to_string(), why });
        }
        let newest = references.newest();
        self.change_volume(volume, |cfg| {
            let last = Name::parse(&cfg.last_backup_name);
            if last.is_ok_and(|last| references.complete.contains_key(&last)) {
                return;
            }
            let (name, at) =
                newest.map_or_else(Default::default, |(name, at)| (name.to_string(), at.clone()));
            cfg.last_backup_name = name;
            cfg.last_backup_at = at;
        })
        .await
    }

    async fn sweep(
        &self,
        blocks: &BlockFolder,
        references: &References,
        collected: &mut Collected,
        control: &Control,
    ) -> Result<(), Error> {
        let mut present = HashSet::new();
        let removes = collected.outcome == Outcome::Removed;
        let mut pages = self.blocks_in(blocks);
        while let Some(page) = pages.next().await? {
            control.check()?;
            let (kept, orphans): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|block| references.blocks.contains_key(&block.checksum));
            present.extend(kept.iter().map(|block| block.checksum));
            let count = u64::try_from(orphans.len()).unwrap_or(u64::MAX);
            let bytes: u64 = orphans.iter().map(|block| block.len_bytes).sum();
            collected.orphan_blocks += count;
            collected.orphan_bytes += bytes;
            if removes {
                let keys = orphans.into_iter().map(|block| block.key).collect();
                self.remove_keys(keys, control).await?;
                collected.removed_blocks += count;
                collected.removed_bytes += bytes;
            }
        }
        collected.referenced_blocks = u64::try_from(present.len()).unwrap_or(u64::MAX);
        collected.missing_blocks = missing(&references.blocks, &present);
        Ok(())
    }
}

impl Collected {
    fn of(references: &References, outcome: Outcome) -> Self {
        Self {
            outcome,
            referenced_blocks: 0,
            missing_blocks: 0,
            orphan_blocks: 0,
            orphan_bytes: 0,
            removed_blocks: 0,
            removed_bytes: 0,
            in_progress: references.in_progress.iter().map(|(name, _)| name.to_string()).collect(),
            unreadable: references.unreadable_shown(),
        }
    }

    /// Whether no orphan is left.
    pub fn is_clean(&self) -> bool {
        self.removed_blocks == self.orphan_blocks
    }
}
