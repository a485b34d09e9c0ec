//! Removing backups and volumes.
//!
//! Records first, then blocks ([`crate::gc`]): none may name a block that is gone. Each step can be
//! repeated; a deletion that was cut short is finished by the next.

use std::collections::BTreeSet;
use std::time::Duration;

use blobs::Prefix;

use crate::control::Control;
use crate::error::Error;
use crate::format::layout::VolumeFolder;
use crate::format::{LockKind, Name};
use crate::gc::Removed;
pub use crate::gc::{Collected, Outcome, Unreadable};
use crate::lock::Lease;
use crate::store::BackupStore;
use crate::subject::Subject;

#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// How long to wait for backups and restores that hold the lock.
    pub lock_timeout: Duration,
    /// Backups, or images, whose records cannot be read and are given up: they no longer keep every
    /// block alive, and are removed themselves.
    pub abandon: BTreeSet<Name>,
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
        let timeout = options.lock_timeout;
        self.with_lock(volume, LockKind::Delete, timeout, control, async |lease, control| {
            let of = Subject::Volume(volume.clone());
            let may_finish = self.may_finish(&of, backup, &lease).await?;
            let existed = self.remove_record(volume, backup).await?;
            // Its writer may publish it all the same: what it would name is not removed now.
            let lease = Some(lease.as_ref()).filter(|_| !may_finish);
            let mut blocks = self.collect(&of, options, Some(backup), lease, &control).await?;
            if may_finish {
                blocks.outcome = Outcome::KeptForInProgress;
            }
            Ok(Deleted { existed, blocks })
        })
        .await
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
        let timeout = options.lock_timeout;
        self.with_lock(volume, LockKind::Delete, timeout, control, async |lease, control| {
            self.remove_volume(volume, &lease, &control).await
        })
        .await
    }

    async fn is_folder_empty(&self, volume: &Name) -> Result<bool, Error> {
        let level = self.store.list_level(&VolumeFolder::of(volume).prefix()?).await?;
        Ok(level.folders.is_empty() && level.objects.is_empty())
    }

    /// A target without backing images has none that could be damaged.
    pub(crate) async fn require(&self, of: &Subject) -> Result<(), Error> {
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
        self.remove_all(&folder.backups()?, &[], Removed::Records, lease, control).await?;
        let cfg = folder.cfg()?;
        let spared = [&locks, &Prefix::from(cfg.clone())];
        self.remove_all(&folder.prefix()?, &spared, Removed::Blocks, lease, control).await?;
        lease.while_held(control, self.store.delete(&cfg)).await
    }
}
