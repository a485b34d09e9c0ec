//! A replica as a service sees it: a directory that is empty, closed or open, and the operations
//! allowed in each state. Owns the state; the order of changes on disk is in `steps` and `purge`,
//! the data path in `live`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use durable::{Disk as Files, Extent, RealDisk};

use crate::disk::chain::{CHAIN_MAX, Chain, DISKS_MAX, Disk};
use crate::disk::counter::{Counter, CounterPolicy};
use crate::disk::dir::{Directory, NoHook, StepHook, real};
use crate::disk::error::{During, Error};
use crate::disk::flush::{Flush, Flushed};
use crate::disk::image::{Access, Image};
use crate::disk::layers::{Layers, Stretch};
use crate::disk::live::{Live, drop_unwritten};
use crate::disk::meta::{DiskMeta, REPORTED_SECTOR_BYTES, VolumeMeta};
use crate::disk::names::{DiskName, REVISION_COUNTER, VOLUME_META, disk_of_meta, meta_file};

/// Beyond this no file system goes, and sums of two sizes still fit.
const SIZE_MAX_BYTES: i64 = 1 << 62;
/// What an encrypted volume needs for its header beyond the size asked for.
const ENCRYPTION_RESERVE_BYTES: i64 = 16 * 1024 * 1024;
const INDEX_BUDGET_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing there yet.
    Initial,
    Closed,
    /// Open, and nothing written since.
    Open,
    Dirty,
    Rebuilding,
    /// Metadata cannot be read, or says that the copy is bad.
    Error,
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Initial => "initial",
            Self::Closed => "closed",
            Self::Open => "open",
            Self::Dirty => "dirty",
            Self::Rebuilding => "rebuilding",
            Self::Error => "error",
        })
    }
}

/// How a replica is run; the same for its whole life.
#[derive(Debug, Clone)]
pub struct Options {
    /// A raw or qcow2 image below the root, for a replica that is created.
    pub backing_file: Option<PathBuf>,
    pub revision_counter: bool,
    pub counter_policy: CounterPolicy,
    pub encrypted: bool,
    /// Used where `volume.meta` was lost; 0 takes the length of the head.
    pub size_bytes: i64,
    pub index_budget_bytes: usize,
    pub hook: Arc<dyn StepHook>,
    /// The file system of its directory.
    pub files: Arc<dyn Files>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backing_file: None,
            revision_counter: true,
            counter_policy: CounterPolicy::default(),
            encrypted: false,
            size_bytes: 0,
            index_budget_bytes: INDEX_BUDGET_BYTES,
            hook: Arc::new(NoHook),
            files: real(),
        }
    }
}

/// What a caller says when it opens a replica.
#[derive(Debug, Clone, Default)]
pub struct OpenRequest {
    /// Another process has the directory open and will hand over: nothing may be cleaned up.
    pub is_upgrade: bool,
    /// What the engine expects; 0 if it does not say.
    pub expected_size_bytes: i64,
    /// RFC 3339, for disks that opening may make.
    pub now: String,
    /// It is wanted although a flush of it failed.
    pub salvage: bool,
}

#[derive(Debug)]
pub struct Replica {
    pub(crate) dir: Directory,
    pub(crate) options: Options,
    pub(crate) opened: Option<Opened>,
    /// Before an unmap, mark the snapshots in its way as removed.
    pub unmap_mark_removed: bool,
    pub snapshot_max_count: i32,
    pub snapshot_max_size_bytes: i64,
    /// Why this copy is not to be used again; also where the disk could not be told.
    condemned: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) meta: VolumeMeta,
    pub(crate) chain: Chain,
    pub(crate) live: Live,
    pub(crate) counter: Option<Counter>,
    pub(crate) is_dirty: bool,
    /// Another process may still be at work here; its last word is read when ours begins.
    is_shared: bool,
}

impl Replica {
    /// Looks at nothing yet; the directory need not exist.
    pub fn new(dir: impl AsRef<Path>, options: Options) -> Self {
        Self {
            dir: Directory::new(
                dir.as_ref(),
                Arc::clone(&options.hook),
                Arc::clone(&options.files),
            ),
            options,
            opened: None,
            unmap_mark_removed: false,
            snapshot_max_count: i32::try_from(CHAIN_MAX).unwrap_or(i32::MAX),
            snapshot_max_size_bytes: 0,
            condemned: None,
        }
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The file system of its directory.
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.options.files
    }

    pub fn state(&self) -> State {
        match &self.opened {
            Some(opened) if !opened.meta.error.is_empty() => State::Error,
            Some(opened) if opened.meta.rebuilding => State::Rebuilding,
            Some(opened) if opened.is_dirty => State::Dirty,
            Some(_) => State::Open,
            None => match self.find_meta() {
                Ok(Some(meta)) if meta.error.is_empty() => State::Closed,
                Ok(None) => State::Initial,
                Ok(Some(_)) | Err(_) => State::Error,
            },
        }
    }

    /// Makes the directory itself, if it is not there.
    pub fn create_directory(&self) -> Result<(), Error> {
        self.dir.create()
    }

    /// Lets go of an open volume and leaves it marked as one that was not closed well.
    pub fn abandon(&mut self) {
        self.opened = None;
    }

    /// Makes the directory of a new volume. Nothing happens unless the state is initial.
    pub fn create(&mut self, size_bytes: i64, now: &str) -> Result<(), Error> {
        if self.state() != State::Initial {
            return Ok(());
        }
        let size = checked_size(size_bytes)?;
        if let Some(path) = &self.options.backing_file {
            open_backing(path)?;
        }
        let head = DiskName::first_head();
        self.dir.create()?;
        self.clear_unfinished_create(&head)?;
        self.dir.create_image(&head, size)?;
        self.dir.sync()?;
        let disk = new_disk(None, now);
        self.dir.write_meta(&meta_file(&head), &disk.to_meta(&head))?;
        if self.options.revision_counter {
            Counter::open(&self.dir)?;
        }
        let backing = self.options.backing_file.as_ref();
        let meta = VolumeMeta {
            size: size_bytes,
            head: head.to_string(),
            sector_size: REPORTED_SECTOR_BYTES,
            backing_file_path: backing.map(|path| path.display().to_string()).unwrap_or_default(),
            encrypted: self.options.encrypted,
            ..VolumeMeta::default()
        };
        self.dir.write_meta(VOLUME_META, &meta)
    }

    /// An image without metadata and without data is what a crash while creating leaves.
    fn clear_unfinished_create(&self, head: &DiskName) -> Result<(), Error> {
        match self.dir.look(head.as_str()) {
            Ok(found) if found.is_file && found.allocated_bytes == 0 => {
                self.dir.remove(head.as_str())
            }
            _ => Ok(()),
        }
    }

    pub fn open(&mut self, request: &OpenRequest) -> Result<(), Error> {
        if self.opened.is_some() {
            return Err(Error::AlreadyOpen);
        }
        let mut meta = self.find_meta()?.ok_or(Error::NotClosed(State::Initial))?;
        if request.salvage {
            meta.error.clear();
            self.condemned = None;
        }
        if let Some(why) = &self.condemned {
            meta.error.clone_from(why);
        }
        if !meta.error.is_empty() {
            return Err(Error::Stored(meta.error));
        }
        let head = checked_head(&meta)?;
        if !request.is_upgrade {
            self.recover(&head)?;
            if meta.dirty {
                drop_unwritten(&self.dir.image(&head, Access::Write)?)?;
            }
        }
        meta.dirty = true;
        let mut opened = self.load(meta)?;
        opened.is_shared = request.is_upgrade;
        self.dir.write_meta(VOLUME_META, &opened.meta)?;
        let size = opened.meta.size;
        let is_encrypted = opened.meta.encrypted || self.options.encrypted;
        self.opened = Some(opened);
        let reserve = request.expected_size_bytes.checked_sub(size);
        if is_encrypted && !request.is_upgrade && reserve == Some(ENCRYPTION_RESERVE_BYTES) {
            let expanded = self.expand(request.expected_size_bytes, &request.now);
            if let Err(error) = expanded {
                self.opened = None;
                return Err(error.source);
            }
        }
        Ok(())
    }

    /// Everything is on disk when this returns `Ok`. On an error the replica is closed too, and
    /// stays marked as one that was not closed well.
    pub fn close(&mut self) -> Result<(), Error> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        let mut flushed = opened.live.flush();
        if let (Ok(()), Some(counter)) = (&flushed, &mut opened.counter) {
            flushed = counter.sync();
        }
        if let Err(error) = flushed {
            self.condemn(&error);
            self.opened = None;
            return Err(error);
        }
        let Some(mut opened) = self.opened.take() else { return Ok(()) };
        opened.meta.dirty = false;
        self.dir.write_meta(VOLUME_META, &opened.meta)
    }

    /// Reads everything from disk again; nothing happens when not open.
    pub fn reload(&mut self) -> Result<(), Error> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        opened.live.flush()?;
        if let Some(counter) = &mut opened.counter {
            counter.sync()?;
        }
        let is_dirty = opened.is_dirty;
        let mut meta = self.find_meta()?.ok_or(Error::NoMetadata(VOLUME_META.to_owned()))?;
        meta.dirty = true;
        let mut fresh = self.load(meta)?;
        fresh.is_dirty = is_dirty;
        self.dir.write_meta(VOLUME_META, &fresh.meta)?;
        self.opened = Some(fresh);
        Ok(())
    }

    /// Removes the volume; only when open.
    ///
    /// Its metadata goes first: a crash before the head is gone leaves a volume that opens as it
    /// was, one after it leaves a directory in which a new volume can be made.
    pub fn delete(&mut self) -> Result<(), Error> {
        let Some(opened) = self.opened.take() else { return Ok(()) };
        self.dir.remove(VOLUME_META)?;
        self.dir.sync()?;
        let head = opened.chain.head();
        self.dir.remove_disk(head)?;
        let depth = |name: &DiskName| opened.chain.from(name).map_or(0, |path| path.len());
        let mut names: Vec<_> =
            opened.chain.disks().map(|(name, _)| name).filter(|name| *name != head).collect();
        // None before those that sit on it, so that what a crash leaves is a tree.
        names.sort_by_key(|name| std::cmp::Reverse(depth(name)));
        names.into_iter().try_for_each(|name| self.dir.remove_disk(name))?;
        self.dir.remove(REVISION_COUNTER)?;
        self.dir.sync()
    }

    pub fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        self.take_over()?.live.read(buffer, offset)
    }

    /// Writes are visible at once, and on disk after [`Self::flush`].
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        let opened = self.take_over()?;
        opened.is_dirty = true;
        opened.live.write(bytes, offset)?;
        self.count_write()
    }

    /// Up to which byte of the volume the last write was done, if it failed.
    pub fn reached(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.live.reached())
    }

    /// Makes the range read zeros, freeing space where nothing older would show; says how much.
    pub fn write_zeroes_at(&mut self, offset: u64, len_bytes: u64) -> Result<u64, Error> {
        let opened = self.take_over()?;
        opened.is_dirty = true;
        let freed = opened.live.write_zeroes(offset, len_bytes)?;
        self.count_write()?;
        Ok(freed)
    }

    /// Gives up the whole sectors in the range; says how many bytes were freed. What belonged to
    /// the head, or to removed snapshots right below it, is gone with its space; what a kept snapshot
    /// holds there is seen again, or zeros. Copies with the same snapshots removed do the same: see
    /// [`Self::discard_at`].
    pub fn unmap_at(&mut self, offset: u64, len_bytes: u64) -> Result<u64, Error> {
        if self.unmap_mark_removed {
            self.mark_unmap_path()?;
        }
        let opened = self.take_over()?;
        opened.is_dirty = true;
        let reach = opened.chain.unmap_reach();
        let freed = opened.live.unmap(offset, len_bytes, reach)?;
        self.count_write()?;
        Ok(freed)
    }

    /// As [`Self::unmap_at`], with a number for the layers that decided the result: copies that
    /// give different numbers may read different bytes there.
    pub fn discard_at(&mut self, offset: u64, len_bytes: u64) -> Result<(u64, u64), Error> {
        let freed = self.unmap_at(offset, len_bytes)?;
        let layout = self.chain().map_or(0, Chain::unmap_layout);
        Ok((freed, layout))
    }

    /// Data, metadata and the counter are on disk when this returns. After an error
    /// the replica refuses all I/O until it is reopened: what was lost cannot be known.
    pub fn flush(&mut self) -> Result<(), Error> {
        let flushed = self.start_flush()?.run();
        self.end_flush(flushed)
    }

    /// A flush whose waiting may be done on another thread, while this one goes on with I/O. It is
    /// not done before [`Self::end_flush`] returned `Ok`.
    pub fn start_flush(&mut self) -> Result<Flush, Error> {
        let opened = self.opened_mut()?;
        let counter = match &mut opened.counter {
            Some(counter) => counter.syncing()?,
            None => None,
        };
        let images = opened.live.start_flush()?;
        Ok(Flush { images, made_by: opened.live.token(), counter })
    }

    pub fn end_flush(&mut self, flushed: Flushed) -> Result<(), Error> {
        // Closed or reloaded meanwhile: that synced everything itself.
        if let Some(opened) = &mut self.opened {
            opened.live.end_flush(&flushed.made_by, &flushed.result);
            if let (Ok(()), Some(counter), Some(value)) =
                (&flushed.result, &mut opened.counter, flushed.counter)
            {
                counter.synced(value);
            }
        }
        if let Err(error) = &flushed.result {
            self.condemn(error);
        }
        flushed.result
    }

    /// A flush failed: what was to be on disk may never get there, and the next flush would say
    /// that all is well. So that is remembered, over the end of the process too: this copy is
    /// replaced, or wanted explicitly.
    fn condemn(&mut self, why: &Error) {
        let text = format!("a flush failed, so data may be missing: {}", why.text());
        tracing::error!(dir = %self.dir.path().display(), "{text}");
        if let Err(error) = self.change_meta(|meta| meta.error.clone_from(&text)) {
            let error = error.text();
            tracing::error!(error, "that cannot be stored either; this process remembers it");
        }
        self.condemned = Some(text);
    }

    /// Puts the revision counter where the death of this process cannot lose it. To be called
    /// before acknowledging writes under [`CounterPolicy::OnSettle`]; one call serves many.
    pub fn settle(&mut self) -> Result<(), Error> {
        match self.opened.as_mut().and_then(|opened| opened.counter.as_mut()) {
            Some(counter) => counter.settle(),
            None => Ok(()),
        }
    }

    fn count_write(&mut self) -> Result<(), Error> {
        let policy = self.options.counter_policy;
        let Some(counter) = self.opened.as_mut().and_then(|opened| opened.counter.as_mut()) else {
            return Ok(());
        };
        counter.increment();
        if policy == CounterPolicy::EachWrite { counter.settle() } else { Ok(()) }
    }

    /// Ranges with and without data, in order, covering the range.
    pub fn block_status(
        &mut self,
        offset: u64,
        len_bytes: u64,
        each: impl FnMut(Stretch),
    ) -> Result<(), Error> {
        self.take_over()?.live.runs(offset..offset.saturating_add(len_bytes), each)
    }

    pub fn size_bytes(&self) -> Option<u64> {
        self.opened.as_ref().map(|opened| opened.live.layers().size_bytes())
    }

    /// Memory taken by the map of sectors.
    pub fn index_bytes(&self) -> usize {
        self.opened.as_ref().map_or(0, |opened| opened.live.layers().index_bytes())
    }

    /// Why no I/O is possible until the replica is opened anew, if that is so.
    pub fn rejection(&self) -> Option<String> {
        self.opened.as_ref().and_then(|opened| opened.live.rejection()).map(|error| error.text())
    }

    /// Says so if the head is not the file of that name any more: what is written goes nowhere that
    /// the next process would find.
    pub fn lost_head(&self) -> Option<String> {
        // While another process still works here it is free to change heads.
        let opened = self.opened.as_ref().filter(|opened| !opened.is_shared)?;
        let head = opened.live.head().ok()?;
        let open = head.identity().ok()?;
        let is_same = self.dir.look(head.name()).is_ok_and(|found| found.identity == open);
        (!is_same).then(|| format!("the head {} is gone from the directory", head.name()))
    }

    /// Where the head holds data of its own inside the range, in order.
    pub fn head_extents(
        &self,
        range: std::ops::Range<u64>,
        each: impl FnMut(Extent),
    ) -> Result<(), Error> {
        self.opened_ref()?.live.head()?.extents(range, false, each)
    }

    /// Where the head and the layers between it and the disk `above` hold data inside the range;
    /// layer by layer, so that a place may come more than once. An unknown disk: where any layer does.
    pub fn extents_above(
        &self,
        above: &str,
        range: std::ops::Range<u64>,
        mut each: impl FnMut(Extent),
    ) -> Result<(), Error> {
        let layers = self.opened_ref()?.live.layers();
        for (depth, image) in layers.images.iter().rev().enumerate() {
            if depth > 0 && image.name() == above {
                break;
            }
            image.extents(range.clone(), depth > 0, &mut each)?;
        }
        Ok(())
    }

    /// Another process may be at work in the directory: this one was opened to take over from it.
    pub fn is_shared(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.is_shared)
    }

    /// The disks while open.
    pub fn chain(&self) -> Option<&Chain> {
        self.opened.as_ref().map(|opened| &opened.chain)
    }

    pub fn set_rebuilding(&mut self, wanted: bool) -> Result<(), Error> {
        match (wanted, self.state()) {
            // Twice is once: the engine says so before it writes to a copy that is to be filled, and
            // whoever fills it says so too.
            (true, State::Open | State::Dirty | State::Rebuilding) | (false, State::Rebuilding) => {
            }
            (_, state) => return Err(Error::Rebuilding { wanted, state }),
        }
        self.change_meta(|meta| meta.rebuilding = wanted)
    }

    pub fn set_revision_counter(&mut self, value: i64) -> Result<(), Error> {
        match &mut self.opened_mut()?.counter {
            Some(counter) => counter.set(value.max(0)),
            None => Ok(()),
        }
    }

    pub(crate) fn opened_mut(&mut self) -> Result<&mut Opened, Error> {
        self.opened.as_mut().ok_or(Error::NotOpen)
    }

    /// For the first I/O after an upgrade: what the process before wrote since we opened counts.
    fn take_over(&mut self) -> Result<&mut Opened, Error> {
        if self.opened_ref()?.is_shared {
            self.reload()?;
        }
        self.opened_mut()
    }

    pub(crate) fn opened_ref(&self) -> Result<&Opened, Error> {
        self.opened.as_ref().ok_or(Error::NotOpen)
    }

    pub(crate) fn change_meta(
        &mut self,
        change: impl FnOnce(&mut VolumeMeta),
    ) -> Result<(), Error> {
        let mut meta = self.opened_ref()?.meta.clone();
        change(&mut meta);
        self.dir.write_meta(VOLUME_META, &meta)?;
        self.opened_mut()?.meta = meta;
        Ok(())
    }

    /// `volume.meta`, or what it must have been where it was lost; `None` if nothing is there.
    pub(crate) fn find_meta(&self) -> Result<Option<VolumeMeta>, Error> {
        if let Some(meta) = self.dir.read_meta::<VolumeMeta>(VOLUME_META)? {
            return Ok(Some(meta));
        }
        let names = self.dir.names()?.unwrap_or_default();
        let head = names.iter().filter_map(|name| disk_of_meta(name)).find(|disk| {
            disk.is_head()
                && names.binary_search_by(|name| name.as_str().cmp(disk.as_str())).is_ok()
        });
        let Some(head) = head else { return Ok(None) };
        let disk: DiskMeta = self.dir.read_meta(&meta_file(&head))?.unwrap_or_default();
        let size = match self.options.size_bytes {
            0 => {
                let found = self.dir.look(head.as_str()).during("inspect", &head)?;
                i64::try_from(found.len_bytes).unwrap_or(i64::MAX)
            }
            given => given,
        };
        let backing = self.options.backing_file.as_ref();
        Ok(Some(VolumeMeta {
            size,
            head: head.to_string(),
            dirty: true,
            parent: disk.parent,
            sector_size: REPORTED_SECTOR_BYTES,
            backing_file_path: backing.map(|path| path.display().to_string()).unwrap_or_default(),
            encrypted: self.options.encrypted,
            ..VolumeMeta::default()
        }))
    }

    fn load(&self, mut meta: VolumeMeta) -> Result<Opened, Error> {
        let size = checked_size(meta.size)?;
        let head = checked_head(&meta)?;
        let chain = read_chain(&self.dir, &head)?;
        // The head's own metadata is what counts; a peer may have changed only that.
        let parent = chain.get(&head).and_then(|disk| disk.parent.as_ref());
        meta.parent = parent.map(DiskName::to_string).unwrap_or_default();
        let layers = self.open_layers(&chain, &meta, size)?;
        let counter =
            if self.options.revision_counter { Some(Counter::open(&self.dir)?) } else { None };
        Ok(Opened {
            meta,
            chain,
            live: Live::new(layers),
            counter,
            is_dirty: false,
            is_shared: false,
        })
    }

    pub(crate) fn open_layers(
        &self,
        chain: &Chain,
        meta: &VolumeMeta,
        size_bytes: u64,
    ) -> Result<Layers, Error> {
        let mut images =
            open_images(&self.dir, chain.live(), &meta.backing_file_path, Access::Write)?;
        if let Some(head) = images.last_mut().filter(|head| head.len_bytes() < size_bytes) {
            head.resize(size_bytes)?;
        }
        Ok(Layers::new(images, size_bytes, self.options.index_budget_bytes))
    }
}

pub(crate) fn new_disk(parent: Option<DiskName>, created: &str) -> Disk {
    Disk { parent, removed: false, user_created: false, created: created.to_owned(), labels: None }
}

pub(crate) fn checked_size(size_bytes: i64) -> Result<u64, Error> {
    let is_good = size_bytes > 0 && size_bytes <= SIZE_MAX_BYTES && size_bytes % 512 == 0;
    u64::try_from(size_bytes).ok().filter(|_| is_good).ok_or(Error::BadSize(size_bytes))
}

pub(crate) fn checked_head(meta: &VolumeMeta) -> Result<DiskName, Error> {
    let head = DiskName::parse(&meta.head)?;
    if head.is_head() { Ok(head) } else { Err(Error::BadName(meta.head.clone())) }
}

/// Reads the metadata of every disk in the directory.
pub(crate) fn read_chain(dir: &Directory, head: &DiskName) -> Result<Chain, Error> {
    let mut disks = BTreeMap::new();
    for file in dir.names()?.unwrap_or_default() {
        let Some(name) = disk_of_meta(&file) else { continue };
        if disks.len() >= DISKS_MAX {
            return Err(Error::TooManyFiles { max: DISKS_MAX });
        }
        let meta = dir
            .read_meta::<DiskMeta>(&file)?
            .ok_or_else(|| Error::Damaged { file: file.clone(), why: "it is empty".to_owned() })?;
        disks.insert(name, Disk::from_meta(meta)?);
    }
    Chain::new(disks, head.clone())
}

/// The images of a chain given top first, root first in the result.
pub(crate) fn open_images(
    dir: &Directory,
    chain: &[DiskName],
    backing_file: &str,
    access: Access,
) -> Result<Vec<Image>, Error> {
    let mut images = Vec::with_capacity(chain.len() + 2);
    if !backing_file.is_empty() {
        images.push(open_backing(Path::new(backing_file))?);
    }
    for name in chain.iter().rev() {
        images.push(dir.image(name, access)?);
    }
    Ok(images)
}

fn open_backing(path: &Path) -> Result<Image, Error> {
    let name = path.display().to_string();
    // A link is fine here: the path comes from who runs us, not from a peer.
    let path = fs::canonicalize(path).during("find", &name)?;
    Image::open_path(&RealDisk, &path, &name, Access::Read)?.formatted()
}
