//! Removing objects, page by page, each page only while the lock is ours and nothing has come that needs it.

use blobs::{Key, Prefix};

use super::fence::grace;
use super::references::References;
use super::{Collected, Outcome};
use crate::control::Control;
use crate::error::Error;
use crate::lock::Lease;
use crate::repository::{Found, StoredBlock};
use crate::store::BackupStore;
use crate::subject::Subject;

/// How objects are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removed {
    /// One by one: their writers replace them by their versions.
    Records,
    Blocks,
}

/// What became of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Swept {
    All,
    /// A record came that was not read: none is removed any more.
    KeptForChange,
}

impl BackupStore {
    /// Counts the blocks of all pages, and removes those that no record names as long as the outcome
    /// says so: it may change on the way.
    pub(super) async fn sweep(
        &self,
        of: &Subject,
        references: &mut References,
        collected: &mut Collected,
        lease: Option<&Lease>,
        control: &Control,
    ) -> Result<(), Error> {
        let mut pages = self.repository.blocks(of).pages();
        while let Some(page) = pages.next().await? {
            control.check()?;
            let mut orphans = Vec::new();
            for block in page {
                if references.blocks.is_present(&block.checksum).is_none() {
                    collected.orphan_blocks += 1;
                    collected.orphan_bytes += block.len_bytes;
                    orphans.push(block);
                }
            }
            if let Some(lease) = lease
                && collected.outcome == Outcome::Removed
                && !orphans.is_empty()
            {
                self.remove_orphans(of, orphans, references, collected, lease, control).await?;
            }
        }
        collected.referenced_blocks = references.blocks.present();
        let missing = references.blocks.missing().count();
        collected.missing_blocks = u64::try_from(missing).unwrap_or(u64::MAX);
        Ok(())
    }

    async fn remove_orphans(
        &self,
        of: &Subject,
        orphans: Vec<StoredBlock>,
        references: &References,
        collected: &mut Collected,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let (now, grace) = (lease.store_time(), grace(self.abilities()));
        let is_old =
            |block: &StoredBlock| grace.is_zero() || now.duration_since(block.written) > grace;
        let (old, young): (Vec<_>, Vec<_>) = orphans.into_iter().partition(is_old);
        collected.young_blocks += u64::try_from(young.len()).unwrap_or(u64::MAX);
        let count = u64::try_from(old.len()).unwrap_or(u64::MAX);
        let bytes: u64 = old.iter().map(|block| block.len_bytes).sum();
        let keys: Vec<Key> = old.into_iter().map(|block| block.key).collect();
        match self.remove_keys(&keys, Some((of, references)), lease, control).await? {
            Swept::All => {}
            Swept::KeptForChange => {
                collected.outcome = Outcome::KeptForChange;
                return Ok(());
            }
        }
        collected.removed_blocks += count;
        collected.removed_bytes += bytes;
        Ok(())
    }

    /// Whether there is a record that was not read, by one who does not keep to locks.
    async fn has_changed(&self, of: &Subject, references: &References) -> Result<bool, Error> {
        let found = self.repository.listed_records(of).await?;
        if found.unnamed != references.unnamed {
            return Ok(true);
        }
        for (name, outside) in found.named {
            let is_known = references.complete.contains_key(&name)
                && references.listed.get(&name) == Some(&outside);
            // The folder of an image is listed for whatever lies in it, and a late listing shows what
            // was removed.
            let is_there = async || match self.repository.record(of, &name).await? {
                Found::Missing if references.removed.contains(&name) => Ok::<_, Error>(false),
                Found::Missing => self.repository.is_listed(of, &name).await,
                Found::Readable(..) | Found::Unreadable { .. } => Ok(true),
            };
            if !is_known && is_there().await? {
                tracing::warn!(
                    "{name} came or was changed while blocks were removed: they are kept"
                );
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// For blocks, and what else is never replaced by its version.
    async fn remove_keys(
        &self,
        keys: &[Key],
        unless_changed: Option<(&Subject, &References)>,
        lease: &Lease,
        control: &Control,
    ) -> Result<Swept, Error> {
        if keys.is_empty() {
            return Ok(Swept::All);
        }
        let remove = |permit| async move {
            if let Some((of, references)) = unless_changed
                && self.has_changed(of, references).await?
            {
                return Ok(Swept::KeptForChange);
            }
            self.repository.remove_objects(keys, &permit).await?;
            Ok(Swept::All)
        };
        lease.act(control, remove).await
    }

    /// Removes everything under `prefix`, whole parts only, but for what lies under `spared`.
    pub(crate) async fn remove_all(
        &self,
        prefix: &Prefix,
        spared: &[Prefix],
        what: Removed,
        lease: &Lease,
        control: &Control,
    ) -> Result<(), Error> {
        let mut after: Option<Key> = None;
        loop {
            let page = self.repository.page(prefix, after.as_ref()).await?;
            let is_last = page.is_last || page.objects.is_empty();
            let is_spared = |key: &Key| {
                spared.iter().any(|spared| spared.holds(key) || spared.folder() == Some(key))
            };
            after = page.objects.last().map(|meta| meta.key.clone());
            let keys = page.objects.into_iter().map(|meta| meta.key);
            let keys: Vec<Key> = keys.filter(|key| prefix.holds(key) && !is_spared(key)).collect();
            match what {
                Removed::Records if keys.is_empty() => {}
                Removed::Records => {
                    let keys = keys.as_slice();
                    let remove =
                        |permit| async move { self.repository.remove_records(keys, &permit).await };
                    lease.act(control, remove).await?;
                }
                Removed::Blocks => drop(self.remove_keys(&keys, None, lease, control).await?),
            }
            if is_last {
                return Ok(());
            }
        }
    }
}
