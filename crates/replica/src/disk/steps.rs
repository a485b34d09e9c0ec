//! Operations that put a new head on the chain, and what opening does about those that a crash
//! interrupted. Owns the order of their steps, which is the point:
//!
//! 1. everything the new state needs is written under names the old state does not look at;
//! 2. `volume.meta` is replaced: it names the head, and that alone says which state holds;
//! 3. what only the old state needed is removed.
//!
//! A failure before 2 is rolled back; a crash before 2 is cleaned up by [`Replica::recover`], a
//! crash after it too, in the other direction.

use std::collections::BTreeMap;

use crate::disk::chain::{CHAIN_MAX, Chain, Disk};
use crate::disk::error::{Error, ExpandCode, ExpandError};
use crate::disk::image::{Access, Image, SECTOR_BYTES};
use crate::disk::live::Live;
use crate::disk::meta::{Labels, VolumeMeta};
use crate::disk::names::{DiskName, VOLUME_META, checksum_file, disk_of_meta, meta_file};
use crate::disk::replica::{Replica, checked_size, new_disk};

const EXPANSION_LABEL: &str = "replica-expansion";

/// What is to be on disk when a new head took over.
struct Plan {
    old_head: DiskName,
    new_head: DiskName,
    new_head_disk: Disk,
    /// The old head under a new name; none when it is thrown away.
    snapshot: Option<(DiskName, Disk)>,
    meta: VolumeMeta,
    size_bytes: u64,
    chain: Chain,
}

/// How far a failed change came, and whether the way back worked.
struct Failed {
    source: Error,
    rollback: Option<Error>,
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.source
    }
}

impl Replica {
    /// Freezes the head under a name and goes on in a new one. Nothing happens when not open.
    pub fn snapshot(
        &mut self,
        name: &str,
        user_created: bool,
        created: &str,
        labels: Option<Labels>,
    ) -> Result<(), Error> {
        let disk = DiskName::of_snapshot(name)?;
        if created.is_empty() {
            return Err(Error::EmptyCreated);
        }
        if self.opened.is_none() {
            return Ok(());
        }
        let size = self.opened_ref()?.live.layers().size_bytes();
        let plan = self.plan_snapshot(disk, user_created, created, labels, size)?;
        Ok(self.take_snapshot(plan)?)
    }

    /// Grows the volume. A system snapshot keeps the old head; the new one has the new size.
    pub fn expand(&mut self, size_bytes: i64, now: &str) -> Result<(), ExpandError> {
        let refused = |source| ExpandError {
            code: ExpandCode::FailedWithoutRollback,
            source,
            rollback: None,
        };
        let Some(plan) = self.plan_expansion(size_bytes, now).map_err(refused)? else {
            return Ok(());
        };
        self.take_snapshot(plan).map_err(|Failed { source, rollback }| {
            let code = match rollback {
                None => ExpandCode::RollbackSucceeded,
                Some(_) => ExpandCode::RollbackFailed,
            };
            ExpandError { code, source, rollback }
        })
    }

    /// Goes back to a snapshot: the head and what it holds are thrown away.
    pub fn revert(&mut self, name: &str, created: &str) -> Result<(), Error> {
        if name.is_empty() || created.is_empty() {
            return Err(Error::EmptyRevert);
        }
        let opened = self.opened_ref()?;
        let unknown = || Error::RevertUnknown(name.to_owned());
        let target = DiskName::parse(name).map_err(|_| unknown())?;
        let disk = opened.chain.get(&target).ok_or_else(unknown)?;
        if target.is_head() {
            return Err(unknown());
        }
        if disk.removed {
            return Err(Error::RevertRemoved(target));
        }
        let old_head = opened.chain.head().clone();
        let new_head = old_head.next_head()?;
        let new_head_disk = new_disk(Some(target.clone()), created);
        let mut disks = opened.chain.disks_owned();
        disks.remove(&old_head);
        disks.insert(new_head.clone(), new_head_disk.clone());
        let meta = VolumeMeta {
            head: new_head.to_string(),
            parent: target.to_string(),
            ..opened.meta.clone()
        };
        let size_bytes = opened.live.layers().size_bytes();
        let chain = Chain::new(disks, new_head.clone())?;
        let plan =
            Plan { old_head, new_head, new_head_disk, snapshot: None, meta, size_bytes, chain };
        Ok(self.throw_head_away(plan)?)
    }

    fn plan_snapshot(
        &self,
        disk: DiskName,
        user_created: bool,
        created: &str,
        labels: Option<Labels>,
        size_bytes: u64,
    ) -> Result<Plan, Error> {
        let opened = self.opened_ref()?;
        if opened.chain.get(&disk).is_some() {
            return Err(Error::SnapshotExists(disk));
        }
        let count = opened.chain.live().len() + 1;
        if count > CHAIN_MAX {
            return Err(Error::TooManyDisks(count));
        }
        let old_head = opened.chain.head().clone();
        let new_head = old_head.next_head()?;
        let new_head_disk = new_disk(Some(disk.clone()), created);
        let mut disks = opened.chain.disks_owned();
        let parent = disks.remove(&old_head).and_then(|head| head.parent);
        let frozen = Disk {
            parent,
            removed: false,
            user_created,
            created: created.to_owned(),
            labels: labels.filter(|labels| !labels.is_empty()),
        };
        disks.insert(disk.clone(), frozen.clone());
        disks.insert(new_head.clone(), new_head_disk.clone());
        let meta = VolumeMeta {
            size: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            head: new_head.to_string(),
            parent: disk.to_string(),
            ..opened.meta.clone()
        };
        let chain = Chain::new(disks, new_head.clone())?;
        let snapshot = Some((disk, frozen));
        Ok(Plan { old_head, new_head, new_head_disk, snapshot, meta, size_bytes, chain })
    }

    /// `None` if the volume has this size already.
    fn plan_expansion(&self, size_bytes: i64, now: &str) -> Result<Option<Plan>, Error> {
        let old = self.opened_ref()?.live.layers().size_bytes();
        let new = checked_size(size_bytes)?;
        if new == old {
            return Ok(None);
        }
        if new < old {
            return Err(Error::Shrink { size_bytes: new });
        }
        if !new.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::UnalignedExpansion { size_bytes: new });
        }
        let disk = DiskName::of_snapshot(&format!("expand-{new}"))?;
        let labels = Labels::from([(EXPANSION_LABEL.to_owned(), new.to_string())]);
        self.plan_snapshot(disk, false, now, Some(labels), new).map(Some)
    }

    fn take_snapshot(&mut self, plan: Plan) -> Result<(), Failed> {
        let mut is_committing = false;
        let new_head = match self.write_snapshot(&plan, &mut is_committing) {
            Ok(image) => image,
            Err(source) => return Err(self.roll_back(&plan, is_committing, source)),
        };
        self.forget_old_head(&plan);
        if let Some(opened) = &mut self.opened {
            opened.live.push_head(new_head, plan.size_bytes);
            opened.chain = plan.chain;
            opened.meta = plan.meta;
            opened.is_dirty = true;
        }
        Ok(())
    }

    fn write_snapshot(&mut self, plan: &Plan, is_committing: &mut bool) -> Result<Image, Error> {
        // What the snapshot freezes must be on disk before it can be found.
        self.flush()?;
        let head = self.write_new_head(plan)?;
        if let Some((name, disk)) = &plan.snapshot {
            self.dir.remove(&meta_file(name))?;
            self.dir.remove(&checksum_file(name))?;
            self.dir.remove(name.as_str())?;
            self.dir.link(&plan.old_head, name.as_str())?;
            self.dir.sync()?;
            self.dir.write_meta(&meta_file(name), &disk.to_meta(name))?;
        }
        *is_committing = true;
        self.dir.write_meta(VOLUME_META, &plan.meta)?;
        Ok(head)
    }

    fn throw_head_away(&mut self, plan: Plan) -> Result<(), Failed> {
        let mut is_committing = false;
        let live = match self.write_revert(&plan, &mut is_committing) {
            Ok(live) => live,
            Err(source) => return Err(self.roll_back(&plan, is_committing, source)),
        };
        self.forget_old_head(&plan);
        if let Some(opened) = &mut self.opened {
            opened.live = live;
            opened.chain = plan.chain;
            opened.meta = plan.meta;
            opened.is_dirty = true;
        }
        Ok(())
    }

    fn write_revert(&mut self, plan: &Plan, is_committing: &mut bool) -> Result<Live, Error> {
        // For the holes below the head; the head itself goes.
        self.flush()?;
        self.write_new_head(plan)?;
        let live = Live::new(self.open_layers(&plan.chain, &plan.meta, plan.size_bytes)?);
        *is_committing = true;
        self.dir.write_meta(VOLUME_META, &plan.meta)?;
        Ok(live)
    }

    fn write_new_head(&self, plan: &Plan) -> Result<Image, Error> {
        self.dir.create_image(&plan.new_head, plan.size_bytes)?;
        self.dir.sync()?;
        let meta = plan.new_head_disk.to_meta(&plan.new_head);
        self.dir.write_meta(&meta_file(&plan.new_head), &meta)?;
        self.dir.image(&plan.new_head, Access::Write)
    }

    /// The change is done; what is left over here goes with the next open.
    fn forget_old_head(&self, plan: &Plan) {
        let _ = self.dir.remove_disk(&plan.old_head);
    }

    /// Back to the old state. Nothing is removed while the files may name the new one: then both
    /// states are whole on disk, and the next open decides.
    fn roll_back(&self, plan: &Plan, is_committing: bool, source: Error) -> Failed {
        if matches!(source, Error::HeadExists(_)) {
            return Failed { source, rollback: None };
        }
        let rollback = self.undo(plan, is_committing).err();
        Failed { source, rollback }
    }

    fn undo(&self, plan: &Plan, is_committing: bool) -> Result<(), Error> {
        if is_committing {
            self.dir.write_meta(VOLUME_META, &self.opened_ref()?.meta)?;
        }
        let snapshot = plan.snapshot.as_ref().map(|(name, _)| name);
        for name in snapshot.into_iter().chain([&plan.new_head]) {
            let meta = meta_file(name);
            self.dir.clear(&format!("{meta}.tmp"))?;
            self.dir.clear(&meta)?;
            self.dir.clear(name.as_str())?;
        }
        self.dir.sync()
    }

    /// Cleans up after a crash, before anything is read: see the module.
    pub(crate) fn recover(&self, head: &DiskName) -> Result<(), Error> {
        durable::on::sweep(self.dir.files(), self.dir.path())?;
        let names = self.dir.names()?.unwrap_or_default();
        let identity = |name: &str| self.dir.look(name).ok().map(|found| found.identity);
        let head_identity = identity(head.as_str());
        if head_identity.is_none() {
            // Nothing may go while the head is not seen: it may be the only way back.
            return Err(Error::NoMetadata(head.to_string()));
        }
        let mut gone = BTreeMap::new();
        for name in &names {
            // A link that was on its way to replace an image.
            if name.strip_suffix(".tmp").is_some_and(|disk| DiskName::parse(disk).is_ok()) {
                self.dir.remove(name)?;
            }
            let disk = DiskName::parse(name).ok().or_else(|| disk_of_meta(name));
            let Some(disk) = disk.filter(|disk| disk != head) else { continue };
            // A head that is not the head, or a snapshot of which the head never let go.
            let is_left_over = disk.is_head() || identity(disk.as_str()) == head_identity;
            gone.insert(disk, is_left_over);
        }
        for (disk, _) in gone.iter().filter(|(_, is_left_over)| **is_left_over) {
            self.dir.remove_disk(disk)?;
        }
        self.recover_removals(&names)
    }

    /// Metadata of a snapshot whose image is gone, and on which nobody sits, is what a peer leaves
    /// that died while removing it.
    fn recover_removals(&self, names: &[String]) -> Result<(), Error> {
        let mut parents = Vec::new();
        let mut orphans = Vec::new();
        for disk in names.iter().filter_map(|name| disk_of_meta(name)) {
            let file = meta_file(&disk);
            let Some(meta) = self.dir.read_meta::<crate::disk::meta::DiskMeta>(&file)? else {
                continue;
            };
            parents.push(meta.parent);
            if !disk.is_head() && self.dir.look(disk.as_str()).is_err() {
                orphans.push(disk);
            }
        }
        for disk in orphans.iter().filter(|disk| !parents.iter().any(|name| name == disk.as_str()))
        {
            self.dir.remove_disk(disk)?;
        }
        Ok(())
    }
}
