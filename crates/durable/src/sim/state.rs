//! The model: what is there now, what is on the medium, and the changes between the two.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::ops::Range;
use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use super::faults::{Faults, Verdict};
use crate::disk::{Entry, Mode, Stat};
use crate::sparse::{Details, Extent};

/// What the medium writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// What files are made of: a hole is whole blocks.
const BLOCK_BYTES: usize = 4096;
/// Longer files are a mistake in a test, and would be a real allocation.
const FILE_MAX_BYTES: u64 = 1 << 30;
const ROOT: u64 = 0;

#[derive(Debug)]
pub(super) struct State {
    inodes: BTreeMap<u64, Inode>,
    /// Changes of names that no sync has reached, oldest first.
    unsynced_names: Vec<NameChange>,
    /// The file system of what is not on the first one.
    devices: BTreeMap<u64, u64>,
    pub(super) has_barriers: bool,
    /// Which open file holds the lock of which inode.
    locks: BTreeMap<u64, u64>,
    last_number: u64,
    rng: SplitMix,
    pub(super) faults: Faults,
    /// Waits for the medium: of files, of directories, and of everything.
    pub(super) syncs: u64,
    pub(super) capacity_bytes: Option<u64>,
    /// What a failing write has done is a multiple of this.
    pub(super) write_unit_bytes: usize,
    /// Counts the runs of the machine: files opened in an earlier one are dead.
    pub(super) life: u64,
}

#[derive(Debug, Clone)]
pub(super) enum Inode {
    File(Content),
    Dir(Names),
}

#[derive(Debug, Clone)]
pub(super) struct Content {
    mode: Mode,
    modified_ns: u64,
    now: Body,
    on_medium: Body,
    unsynced: Vec<Change>,
}

/// The bytes of a file, and which of its blocks are no holes.
#[derive(Debug, Clone, Default)]
struct Body {
    bytes: Vec<u8>,
    blocks: BTreeMap<usize, Block>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Block {
    Written,
    /// It has its place and not its contents: what was preallocated, and what a machine leaves of a new
    /// block when it stops before the contents came.
    Unwritten,
}

impl Content {
    pub(super) fn contents(&self) -> &[u8] {
        &self.now.bytes
    }

    /// What is no hole inside the range, in order.
    pub(super) fn extents(&self, range: &Range<u64>) -> Vec<Extent> {
        let mut found: Vec<Extent> = Vec::new();
        for (index, block) in &self.now.blocks {
            let start = (index * BLOCK_BYTES) as u64;
            let end = start + BLOCK_BYTES as u64;
            let (start, end) = (start.max(range.start), end.min(range.end));
            let is_unwritten = *block == Block::Unwritten;
            match found.last_mut() {
                _ if start >= end => {}
                Some(last) if last.end == start && last.is_unwritten == is_unwritten => {
                    last.end = end;
                }
                _ => found.push(Extent { start, end, is_unwritten }),
            }
        }
        found
    }
}

#[derive(Debug, Clone)]
pub(super) struct Names {
    mode: Mode,
    now: BTreeMap<OsString, u64>,
    on_medium: BTreeMap<OsString, u64>,
}

#[derive(Debug, Clone)]
enum Change {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate {
        len: usize,
    },
    /// Blocks become holes.
    Punch {
        blocks: Range<usize>,
    },
    /// Blocks become zeros that are no holes.
    Preallocate {
        blocks: Range<usize>,
    },
}

/// A rename does both at once, and is kept or lost as one.
#[derive(Debug, Clone)]
struct NameChange {
    clear: Option<(u64, OsString)>,
    set: Option<(u64, OsString, u64)>,
}

impl Inode {
    pub(super) fn file(mode: Mode) -> Self {
        Self::File(Content {
            mode,
            modified_ns: 0,
            now: Body::default(),
            on_medium: Body::default(),
            unsynced: vec![],
        })
    }

    pub(super) fn dir(mode: Mode) -> Self {
        Self::Dir(Names { mode, now: BTreeMap::new(), on_medium: BTreeMap::new() })
    }
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            inodes: BTreeMap::from([(ROOT, Inode::dir(Mode(0o755)))]),
            unsynced_names: vec![],
            devices: BTreeMap::new(),
            has_barriers: true,
            locks: BTreeMap::new(),
            last_number: ROOT,
            rng: SplitMix(seed),
            faults: Faults::default(),
            syncs: 0,
            capacity_bytes: None,
            write_unit_bytes: 1,
            life: 0,
        }
    }

    pub(super) fn copy(&self, seed: u64) -> Self {
        Self {
            inodes: self.inodes.clone(),
            unsynced_names: self.unsynced_names.clone(),
            devices: self.devices.clone(),
            has_barriers: self.has_barriers,
            locks: BTreeMap::new(),
            last_number: self.last_number,
            rng: SplitMix(seed),
            faults: Faults::default(),
            syncs: 0,
            capacity_bytes: self.capacity_bytes,
            write_unit_bytes: self.write_unit_bytes,
            life: self.life,
        }
    }

    pub(super) fn unique(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn open_handle(&mut self) -> u64 {
        self.unique()
    }

    // Names.

    pub(super) fn find(&self, path: &Path) -> io::Result<u64> {
        let mut inode = ROOT;
        for component in path.components() {
            match component {
                Component::RootDir | Component::CurDir => {}
                Component::Normal(name) => {
                    let names = &self.dir(inode)?.now;
                    inode = *names.get(name).ok_or(io::ErrorKind::NotFound)?;
                }
                Component::ParentDir | Component::Prefix(_) => {
                    return Err(io::ErrorKind::InvalidFilename.into());
                }
            }
        }
        Ok(inode)
    }

    fn split<'p>(&self, path: &'p Path) -> io::Result<(u64, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let dir = self.find(path.parent().unwrap_or(Path::new("")))?;
        self.dir(dir)?;
        Ok((dir, name))
    }

    fn lookup(&self, dir: u64, name: &OsStr) -> io::Result<Option<u64>> {
        Ok(self.dir(dir)?.now.get(name).copied())
    }

    pub(super) fn create(&mut self, path: &Path, inode: Inode) -> io::Result<u64> {
        let (dir, name) = self.split(path)?;
        if self.lookup(dir, name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let number = self.unique();
        self.inodes.insert(number, inode);
        if let Some(device) = self.devices.get(&dir).copied() {
            self.devices.insert(number, device);
        }
        self.change_names(NameChange { clear: None, set: Some((dir, name.into(), number)) });
        Ok(number)
    }

    /// Which file system it is on.
    pub(super) fn device(&self, inode: u64) -> u64 {
        self.devices.get(&inode).copied().unwrap_or_default()
    }

    /// A directory that is there after every crash: where it begins is not for the disk to know.
    pub(super) fn mount(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.create(path, Inode::dir(Mode::PRIVATE_DIR))?;
        let (dir, _) = self.split(path)?;
        self.sync_dir(dir)?;
        let device = self.unique();
        self.devices.insert(inode, device);
        Ok(())
    }

    pub(super) fn link(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let inode = self.find(source)?;
        self.file(inode)?;
        let (dir, name) = self.split(target)?;
        if self.lookup(dir, name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if self.device(dir) != self.device(inode) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        self.change_names(NameChange { clear: None, set: Some((dir, name.into(), inode)) });
        Ok(())
    }

    pub(super) fn rename(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let inode = self.find(source)?;
        let (source_dir, source_name) = self.split(source)?;
        let (target_dir, target_name) = self.split(target)?;
        if self.device(target_dir) != self.device(inode) {
            return Err(io::ErrorKind::CrossesDevices.into());
        }
        if let Some(replaced) = self.lookup(target_dir, target_name)? {
            if replaced == inode {
                return Ok(());
            }
            // As rename(2): a directory takes the place of an empty directory, a file of a file.
            match (self.dir(inode), self.dir(replaced)) {
                (Ok(_), Ok(names)) if names.now.is_empty() => {}
                (Ok(_), Ok(_)) => return Err(io::ErrorKind::DirectoryNotEmpty.into()),
                (Ok(_), Err(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                (Err(_), Ok(_)) => return Err(io::ErrorKind::IsADirectory.into()),
                (Err(_), Err(_)) => {}
            }
        }
        self.change_names(NameChange {
            clear: Some((source_dir, source_name.into())),
            set: Some((target_dir, target_name.into(), inode)),
        });
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.file(self.find(path)?)?;
        self.clear_name(path)
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        if !self.dir(self.find(path)?)?.now.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.clear_name(path)
    }

    fn clear_name(&mut self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.split(path)?;
        self.change_names(NameChange { clear: Some((dir, name.into())), set: None });
        Ok(())
    }

    fn change_names(&mut self, change: NameChange) {
        self.apply_names(&change, |names| &mut names.now);
        self.unsynced_names.push(change);
    }

    fn apply_names(
        &mut self,
        change: &NameChange,
        side: fn(&mut Names) -> &mut BTreeMap<OsString, u64>,
    ) {
        if let Some((dir, name)) = &change.clear
            && let Some(Inode::Dir(names)) = self.inodes.get_mut(dir)
        {
            side(names).remove(name);
        }
        if let Some((dir, name, inode)) = &change.set
            && let Some(Inode::Dir(names)) = self.inodes.get_mut(dir)
        {
            side(names).insert(name.clone(), *inode);
        }
    }

    pub(super) fn sync_dir(&mut self, dir: u64) -> io::Result<()> {
        self.dir(dir)?;
        let touches = |change: &NameChange| {
            change.clear.as_ref().is_some_and(|(of, _)| *of == dir)
                || change.set.as_ref().is_some_and(|(of, _, _)| *of == dir)
        };
        let (synced, rest) =
            std::mem::take(&mut self.unsynced_names).into_iter().partition::<Vec<_>, _>(touches);
        self.unsynced_names = rest;
        for change in &synced {
            self.apply_names(change, |names| &mut names.on_medium);
        }
        Ok(())
    }

    pub(super) fn list(&self, dir: u64) -> io::Result<Vec<Entry>> {
        let names = &self.dir(dir)?.now;
        Ok(names
            .iter()
            .map(|(name, inode)| Entry { name: name.clone(), is_dir: self.dir(*inode).is_ok() })
            .collect())
    }

    pub(super) fn stat(&self, inode: u64) -> io::Result<Stat> {
        let (len_bytes, is_dir, mode, modified_ns) = match self.inode(inode)? {
            Inode::File(file) => (file.now.bytes.len() as u64, false, file.mode, file.modified_ns),
            Inode::Dir(dir) => (0, true, dir.mode, 0),
        };
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(modified_ns);
        Ok(Stat { len_bytes, is_dir, mode, inode, modified })
    }

    // Contents.

    pub(super) fn write(&mut self, inode: u64, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_MAX_BYTES);
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        self.make_room(inode, end)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.file_mut(inode)?.change(Change::Write { offset, bytes: bytes.to_vec() });
        Ok(bytes.len())
    }

    pub(super) fn truncate(&mut self, inode: u64, len_bytes: u64) -> io::Result<()> {
        if len_bytes > FILE_MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.file_mut(inode)?.change(Change::Truncate { len });
        Ok(())
    }

    /// Only whole blocks, and as far as the file reaches.
    pub(super) fn punch(&mut self, inode: u64, range: &Range<u64>) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(file.now.bytes.len());
        let (start, end) = (place(range.start), place(range.end));
        // The last block of a file goes whole with what there is of it.
        let last =
            if end == file.now.bytes.len() { end.div_ceil(BLOCK_BYTES) } else { end / BLOCK_BYTES };
        let blocks = start.div_ceil(BLOCK_BYTES)..last;
        let rest =
            [start..end.min(blocks.start * BLOCK_BYTES), (last * BLOCK_BYTES).max(start)..end];
        for part in rest.into_iter().filter(|part| part.start < part.end) {
            // Parts of blocks are zeroed where they are.
            if file.now.blocks.contains_key(&(part.start / BLOCK_BYTES)) {
                file.change(Change::Write { offset: part.start, bytes: vec![0; part.len()] });
            }
        }
        if blocks.start < blocks.end {
            file.change(Change::Punch { blocks });
        }
        Ok(())
    }

    pub(super) fn preallocate(&mut self, inode: u64, range: &Range<u64>) -> io::Result<()> {
        self.make_room(inode, range.end)?;
        let file = self.file_mut(inode)?;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX) / BLOCK_BYTES;
        file.change(Change::Preallocate { blocks: place(range.start)..place(range.end) });
        Ok(())
    }

    pub(super) fn details(&self, number: u64) -> io::Result<Details> {
        let (len_bytes, is_dir, blocks, modified_ns) = match self.inode(number)? {
            Inode::File(file) => {
                (file.now.bytes.len() as u64, false, file.now.blocks.len(), file.modified_ns)
            }
            Inode::Dir(_) => (0, true, 0, 0),
        };
        let names = |inode: &Inode| match inode {
            Inode::Dir(names) => names.now.values().filter(|it| **it == number).count(),
            Inode::File(_) => 0,
        };
        let links = self.inodes.values().map(names).sum::<usize>() as u64;
        let time = (0, i64::try_from(modified_ns).unwrap_or(i64::MAX));
        Ok(Details {
            len_bytes,
            is_file: !is_dir,
            is_dir,
            identity: (0, number),
            links,
            allocated_bytes: (blocks * BLOCK_BYTES) as u64,
            modified: time,
            changed: time,
        })
    }

    /// Time on this disk is the count of what was made on it: it only has to grow.
    pub(super) fn stamp(&mut self, inode: u64) -> io::Result<()> {
        let now = self.unique();
        self.file_mut(inode)?.modified_ns = now;
        Ok(())
    }

    fn make_room(&self, inode: u64, end: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity_bytes else { return Ok(()) };
        let len = |file: &Inode| match file {
            Inode::File(file) => file.now.bytes.len() as u64,
            Inode::Dir(_) => 0,
        };
        let others: u64 =
            self.inodes.iter().filter(|(number, _)| **number != inode).map(|(_, i)| len(i)).sum();
        if others.saturating_add(end) > capacity {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    pub(super) fn sync_file(&mut self, inode: u64) -> io::Result<()> {
        let file = self.file_mut(inode)?;
        for change in std::mem::take(&mut file.unsynced) {
            change.apply(&mut file.on_medium);
        }
        Ok(())
    }

    /// A failed sync writes some of it; the kernel then takes the rest for written, so no later
    /// sync brings it.
    pub(super) fn fail_sync(&mut self, inode: u64) -> io::Result<()> {
        let mut rng = self.rng.split();
        let file = self.file_mut(inode)?;
        file.settle(&mut rng);
        Ok(())
    }

    /// All files and all names of one file system. One that fails is as [`State::fail_sync`] of all its
    /// files; names are as unsynced as before.
    pub(super) fn sync_file_system(&mut self, device: u64) -> io::Result<()> {
        self.syncs += 1;
        let verdict = self.faults.next();
        let mut rng = self.rng.split();
        let devices = &self.devices;
        let is_there = |inode: &u64| devices.get(inode).copied().unwrap_or_default() == device;
        for (_, inode) in self.inodes.iter_mut().filter(|(number, _)| is_there(number)) {
            match (inode, verdict) {
                (Inode::File(file), Verdict::Fail(_)) => file.settle(&mut rng),
                (Inode::File(file), Verdict::Go) => {
                    for change in std::mem::take(&mut file.unsynced) {
                        change.apply(&mut file.on_medium);
                    }
                }
                (Inode::Dir(_), _) => {}
            }
        }
        if let Verdict::Fail(kind) = verdict {
            return Err(kind.into());
        }
        let is_synced = |change: &NameChange| {
            change.clear.as_ref().is_some_and(|(dir, _)| is_there(dir))
                || change.set.as_ref().is_some_and(|(dir, _, _)| is_there(dir))
        };
        let (synced, rest) =
            std::mem::take(&mut self.unsynced_names).into_iter().partition::<Vec<_>, _>(is_synced);
        self.unsynced_names = rest;
        for change in &synced {
            self.apply_names(change, |names| &mut names.on_medium);
        }
        Ok(())
    }

    /// What a failing write got through.
    pub(super) fn part_of<'b>(&mut self, bytes: &'b [u8], offset: u64) -> &'b [u8] {
        let len = self.rng.below(bytes.len().saturating_add(1));
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(len) / self.write_unit_bytes * self.write_unit_bytes;
        let is_whole = len == bytes.len();
        let len = if is_whole { len } else { end.saturating_sub(start) };
        bytes.get(..len).unwrap_or_default()
    }

    pub(super) fn rot(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        let inode = self.find(path)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let bit = 1_u8 << self.rng.below(8);
        let file = self.file_mut(inode)?;
        *file.now.bytes.get_mut(offset).ok_or(io::ErrorKind::InvalidInput)? ^= bit;
        if let Some(byte) = file.on_medium.bytes.get_mut(offset) {
            *byte ^= bit;
        }
        Ok(())
    }

    // Locks.

    pub(super) fn try_lock(&mut self, inode: u64, handle: u64) -> bool {
        *self.locks.entry(inode).or_insert(handle) == handle
    }

    pub(super) fn unlock(&mut self, inode: u64, handle: u64) {
        if self.locks.get(&inode) == Some(&handle) {
            self.locks.remove(&inode);
        }
    }

    // Ends.

    pub(super) fn kill(&mut self) {
        self.life += 1;
        self.locks.clear();
        self.faults.clear();
    }

    pub(super) fn crash(&mut self) {
        self.kill();
        let mut rng = self.rng.split();
        for change in std::mem::take(&mut self.unsynced_names) {
            if rng.chance(1, 2) {
                self.apply_names(&change, |names| &mut names.on_medium);
            }
        }
        for inode in self.inodes.values_mut() {
            match inode {
                Inode::File(file) => {
                    file.settle(&mut rng);
                    file.now = file.on_medium.clone();
                }
                Inode::Dir(names) => names.now = names.on_medium.clone(),
            }
        }
        self.forget_nameless();
    }

    /// Inodes that no name leads to are gone after a crash.
    fn forget_nameless(&mut self) {
        let mut reached = BTreeMap::new();
        let mut open = vec![ROOT];
        while let Some(number) = open.pop() {
            if let Some(inode) = self.inodes.remove(&number) {
                if let Inode::Dir(names) = &inode {
                    open.extend(names.now.values());
                }
                reached.insert(number, inode);
            }
        }
        self.inodes = reached;
    }

    // Inodes.

    fn inode(&self, number: u64) -> io::Result<&Inode> {
        self.inodes.get(&number).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    pub(super) fn file(&self, number: u64) -> io::Result<&Content> {
        match self.inode(number)? {
            Inode::File(file) => Ok(file),
            Inode::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    fn file_mut(&mut self, number: u64) -> io::Result<&mut Content> {
        match self.inodes.get_mut(&number) {
            Some(Inode::File(file)) => Ok(file),
            Some(Inode::Dir(_)) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn dir(&self, number: u64) -> io::Result<&Names> {
        match self.inode(number)? {
            Inode::Dir(names) => Ok(names),
            Inode::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }
}

impl Content {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push(change);
    }

    /// Chance decides about each unsynced change; nothing is unsynced afterwards.
    fn settle(&mut self, rng: &mut SplitMix) {
        for change in std::mem::take(&mut self.unsynced) {
            match rng.below(4) {
                0 => {}
                1 => change.apply(&mut self.on_medium),
                2 => change.apply_some(&mut self.on_medium, rng),
                // The length reached the medium and the contents did not.
                _ => change.apply_place(&mut self.on_medium),
            }
        }
    }
}

impl Body {
    fn resize(&mut self, len: usize) {
        self.bytes.resize(len, 0);
        let blocks = len.div_ceil(BLOCK_BYTES);
        drop(self.blocks.split_off(&blocks));
    }

    fn reach(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.resize(len);
        }
    }

    /// The block is there; its contents are, or they are those it had.
    fn place(&mut self, block: usize, is_whole: bool) {
        let found = self.blocks.entry(block).or_insert(Block::Unwritten);
        if is_whole {
            *found = Block::Written;
        }
    }

    fn zero(&mut self, block: usize, is_hole: bool) {
        let start = (block * BLOCK_BYTES).min(self.bytes.len());
        let end = (start + BLOCK_BYTES).min(self.bytes.len());
        self.bytes.get_mut(start..end).unwrap_or_default().fill(0);
        if is_hole {
            self.blocks.remove(&block);
        } else {
            self.blocks.insert(block, Block::Unwritten);
        }
    }
}

/// The blocks that these bytes touch.
fn blocks(offset: usize, len: usize) -> Range<usize> {
    offset / BLOCK_BYTES..(offset + len).div_ceil(BLOCK_BYTES)
}

impl Change {
    fn apply(&self, body: &mut Body) {
        match self {
            Self::Write { offset, bytes } => {
                body.reach(offset + bytes.len());
                write_into(&mut body.bytes, *offset, bytes);
                blocks(*offset, bytes.len()).for_each(|block| body.place(block, true));
            }
            Self::Truncate { len } => body.resize(*len),
            Self::Punch { blocks } => blocks.clone().for_each(|block| body.zero(block, true)),
            Self::Preallocate { blocks } => {
                body.reach(blocks.end * BLOCK_BYTES);
                blocks.clone().for_each(|block| body.zero(block, false));
            }
        }
    }

    /// What it takes place for reached the medium, and what is in there did not.
    fn apply_place(&self, body: &mut Body) {
        match self {
            Self::Write { offset, bytes } => {
                body.reach(offset + bytes.len());
                blocks(*offset, bytes.len()).for_each(|block| body.place(block, false));
            }
            Self::Truncate { len } => body.resize(*len),
            Self::Punch { .. } => {}
            Self::Preallocate { blocks } => body.reach(blocks.end * BLOCK_BYTES),
        }
    }

    /// Some of it: sectors as the medium counts them, from the start of the file, and blocks. A new block
    /// of which something is missing has its place and not its contents.
    fn apply_some(&self, body: &mut Body, rng: &mut SplitMix) {
        self.apply_place(body);
        match self {
            Self::Write { offset, bytes } => {
                let mut missing = std::collections::BTreeSet::new();
                let mut done = 0;
                while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
                    let at = offset + done;
                    let len = rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES);
                    if rng.chance(1, 2) {
                        write_into(&mut body.bytes, at, rest.get(..len).unwrap_or_default());
                    } else {
                        missing.insert(at / BLOCK_BYTES);
                    }
                    done += len;
                }
                blocks(*offset, bytes.len())
                    .filter(|block| !missing.contains(block))
                    .for_each(|block| body.place(block, true));
            }
            Self::Truncate { .. } => {}
            Self::Punch { blocks } | Self::Preallocate { blocks } => {
                let is_hole = matches!(self, Self::Punch { .. });
                for block in blocks.clone() {
                    if rng.chance(1, 2) {
                        body.zero(block, is_hole);
                    }
                }
            }
        }
    }
}

/// Into contents that are long enough.
fn write_into(contents: &mut [u8], offset: usize, bytes: &[u8]) {
    if let Some(target) = contents.get_mut(offset..offset + bytes.len()) {
        target.copy_from_slice(bytes);
    }
}

/// Enough chance for a disk, without a dependency.
#[derive(Debug)]
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.next() % limit).unwrap_or(0)
    }

    fn chance(&mut self, of: usize, out_of: usize) -> bool {
        self.below(out_of) < of
    }
}
