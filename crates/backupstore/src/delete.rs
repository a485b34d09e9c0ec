//! Removing backups and volumes.
//!
//! Records first, then blocks ([`crate::gc`]): none may name a block that is gone. Each step can be
//! repeated; a deletion that was cut short is finished by the next.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::control::Control;
use crate::error::Error;
use crate::gc::Removed;
pub use crate::gc::{Collected, Outcome, Unreadable};
use crate::lock::{Lease, LockKind};
use crate::name::Name;
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
            let existed = self.remove_record(&of, backup, &lease, &control).await?;
            self.repository.settle(&of).await?;
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
        if self.repository.is_volume_gone(volume).await? {
            return Ok(());
        }
        let timeout = options.lock_timeout;
        self.with_lock(volume, LockKind::Delete, timeout, control, async |lease, control| {
            self.remove_volume(volume, &lease, &control).await
        })
        .await
    }

    /// A target without backing images has none that could be damaged.
    pub(crate) async fn require(&self, of: &Subject) -> Result<(), Error> {
        match of {
            Subject::Volume(volume) => self.require_volume_folder(volume).await,
            Subject::BackingImages => Ok(()),
        }
    }

    async fn require_volume_folder(&self, volume: &Name) -> Result<(), Error> {
        if self.repository.is_volume_gone(volume).await? {
            let path = self.repository.volume_path(volume)?;
            return Err(Error::VolumeNotFound { path });
        }
        Ok(())
    }

    /// Records first: none may name a block that is gone. The volume's own last: until then it is
    /// listed, and can be deleted again.
    async fn remove_volume(
        &self,
        volume: &Name,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let removal = self.repository.removal_of(volume)?;
        // A record that is listed late would be left without its blocks.
        lease.settled().await;
        self.remove_all(&removal.records, &[], Removed::Records, lease, control).await?;
        // Also those that one who was killed has removed: none may come back without its blocks.
        self.repository.settle(&Subject::Volume(volume.clone())).await?;
        self.remove_all(&removal.all, &removal.spared, Removed::Blocks, lease, control).await?;
        // What tells of others that deleted would else be all that is left of the volume, for ever.
        lease.outlast_deletions(control).await?;
        let removal = &removal;
        let remove = |permit| async move { self.repository.remove_last(removal, &permit).await };
        lease.act(control, remove).await
    }

    /// Says whether it was there.
    pub(crate) async fn remove_record(
        &self,
        of: &Subject,
        name: &Name,
        lease: &Lease,
        control: &Control,
    ) -> Result<bool, Error> {
        let remove = |permit| async move { self.repository.remove_record(of, name, &permit).await };
        lease.act(control, remove).await
    }
}
