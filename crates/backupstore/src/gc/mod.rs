//! Blocks that no record names, and their removal.
//!
//! Owns the order that loses nothing: under the delete lock, all records are read; with one that cannot be
//! read, or whose writer may still finish it, no block goes; those of writers that are gone are fenced
//! off and removed; then, page by page, after the lock was confirmed and records were looked at again,
//! blocks that no record names. Each step can be repeated; what was cut short is finished by the next.

mod fence;
mod references;
mod sweep;

use blobs::Permit;
use serde::Serialize;

use self::fence::{Writer, writer_of};
pub use self::references::Unreadable;
pub(crate) use self::references::{NamedBlocks, References};
pub(crate) use self::sweep::Removed;
use crate::control::Control;
use crate::delete::DeleteOptions;
use crate::error::Error;
use crate::lock::{Lease, LockKind};
use crate::name::Name;
use crate::repository::{Found, VolumeRecord};
use crate::store::BackupStore;
use crate::subject::Subject;

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
    /// Of these, too young to be removed where what others do is seen late.
    pub young_blocks: u64,
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
    /// Backups are being made, or were begun within a day, by writers that cannot be kept from finishing
    /// them. Try again when they are complete, or delete them.
    KeptForInProgress,
    /// One came or went under our lock, by one who does not keep to locks. Try again.
    KeptForChange,
}

impl BackupStore {
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
        let (lock, timeout) = (self.repository.lock_name(of)?, options.lock_timeout);
        self.with_lock(&lock, LockKind::Delete, timeout, control, async |lease, control| {
            self.collect(of, options, None, Some(&lease), &control).await
        })
        .await
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
        self.collect(of, &DeleteOptions::default(), None, None, control).await
    }

    /// Removes what nobody names where it holds the lease; else it only looks. The record that it has
    /// `removed` before may be listed still.
    pub(crate) async fn collect(
        &self,
        of: &Subject,
        options: &DeleteOptions,
        removed: Option<&Name>,
        lease: Option<&Lease>,
        control: &Control,
    ) -> Result<Collected, Error> {
        if let Some(lease) = lease {
            lease.settled().await;
        }
        let removed = removed.into_iter().cloned().collect();
        let mut references = self.references(of, removed).await?;
        let outcome = match lease {
            None => Outcome::Reported,
            Some(lease) => {
                // A record that is not there stays away: one who was killed may have removed it.
                self.repository.settle(of).await?;
                self.abandon(of, options, &mut references, lease, control).await?;
                self.clear_the_way(of, &mut references, lease, control).await?
            }
        };
        let mut collected = Collected::of(&references, outcome);
        self.sweep(of, &mut references, &mut collected, lease, control).await?;
        match of {
            Subject::Volume(volume) if collected.outcome == Outcome::Removed => {
                self.count_blocks(volume, collected.referenced_blocks, lease, control).await?;
            }
            Subject::Volume(_) | Subject::BackingImages => {}
        }
        Ok(collected)
    }

    /// Under the lock: where a store keeps no conditions, what came meanwhile would be overwritten.
    async fn count_blocks(
        &self,
        volume: &Name,
        count: u64,
        lease: Option<&Lease>,
        control: &Control,
    ) -> Result<(), Error> {
        let Some(lease) = lease else { return Ok(()) };
        let tell = |permit| async move {
            let changed = |record: &mut VolumeRecord| record.block_count = count;
            match self.repository.change_volume(volume, Some(&permit), changed).await {
                Err(Error::VolumeNotFound { .. }) => Ok(()),
                done => done,
            }
        };
        lease.act(control, tell).await
    }

    async fn abandon(
        &self,
        of: &Subject,
        options: &DeleteOptions,
        references: &mut References,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let unreadable = std::mem::take(&mut references.unreadable);
        let (given_up, kept): (Vec<_>, Vec<_>) =
            unreadable.into_iter().partition(|(name, _)| options.abandon.contains(name));
        references.unreadable = kept;
        for (name, _) in given_up {
            self.remove_record(of, &name, lease, control).await?;
            references.removed.insert(name);
        }
        Ok(())
    }

    /// Everything that must have happened before the first block goes.
    async fn clear_the_way(
        &self,
        of: &Subject,
        references: &mut References,
        lease: &Lease,
        control: &Control,
    ) -> Result<Outcome, Error> {
        match of {
            Subject::Volume(volume) => {
                self.mend_last_backup(volume, references, lease, control).await?;
            }
            Subject::BackingImages => {}
        }
        if !references.unreadable.is_empty() || !references.unnamed.is_empty() {
            tracing::warn!(
                of = %of,
                unreadable = ?references.unreadable_shown(),
                "no block is removed: what cannot be read may need it; delete or abandon it"
            );
            return Ok(Outcome::KeptForUnreadable);
        }
        if let Some(caveat) = &self.caveat {
            tracing::warn!(of = %of, "{caveat}");
        }
        let now = lease.store_time();
        let may_finish = |record: &&references::InProgress| {
            writer_of(record, now, self.abilities()) == Writer::MayFinish
        };
        let mut unfinished = references.in_progress.iter().chain(&references.taken_over);
        if let Some(record) = unfinished.find(may_finish) {
            tracing::warn!(
                of = %of,
                record = %record.name,
                begun = %record.begun,
                "no block is removed: another writes a backup, or died less than a day ago; delete it, or wait"
            );
            return Ok(Outcome::KeptForInProgress);
        }
        for record in &references.in_progress {
            let fence = |permit| async move {
                self.repository.fence(of, &record.name, &record.version, &permit).await
            };
            if !lease.act(control, fence).await? {
                return Ok(Outcome::KeptForChange);
            }
            references.removed.insert(record.name.clone());
        }
        Ok(Outcome::Removed)
    }

    /// The volume's last backup is one that is there, or none.
    async fn mend_last_backup(
        &self,
        volume: &Name,
        references: &References,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let found = match self.repository.volume(volume).await? {
            Found::Unreadable { why } => {
                let path = self.repository.volume_path(volume)?;
                return Err(Error::Unreadable { path, why });
            }
            // Somebody has lost it: what is left can be removed all the same.
            Found::Missing => return Ok(()),
            Found::Readable(record, _) => record,
        };
        if references.has_last(&found) {
            return Ok(());
        }
        let mend = |permit| async move { self.mend_within(volume, references, &permit).await };
        lease.act(control, mend).await
    }

    /// What came since the records were read stays: it was made by one who had passed our lock.
    async fn mend_within(
        &self,
        volume: &Name,
        references: &References,
        permit: &Permit,
    ) -> Result<(), Error> {
        let found = self.repository.required_volume(volume).await?;
        let is_there = async || match Name::parse(&found.last_backup) {
            Ok(last) => match self.repository.backup(volume, &last).await? {
                Found::Readable(record, _) => Ok::<_, Error>(!record.is_in_progress()),
                Found::Unreadable { .. } | Found::Missing => Ok(false),
            },
            Err(_) => Ok(false),
        };
        if references.has_last(&found) || is_there().await? {
            return Ok(());
        }
        let newest = references.newest();
        let (name, at) =
            newest.map_or_else(Default::default, |(name, at)| (name.to_string(), at.clone()));
        let mend = |record: &mut VolumeRecord| {
            if record.last_backup == found.last_backup {
                record.last_backup.clone_from(&name);
                record.last_backup_at.clone_from(&at);
            }
        };
        self.repository.change_volume(volume, Some(permit), mend).await
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
            young_blocks: 0,
            removed_blocks: 0,
            removed_bytes: 0,
            in_progress: references.in_progress_shown(),
            unreadable: references.unreadable_shown(),
        }
    }

    /// Whether no orphan is left.
    pub fn is_clean(&self) -> bool {
        self.removed_blocks == self.orphan_blocks
    }
}
