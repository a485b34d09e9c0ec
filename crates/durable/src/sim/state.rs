//! The model: what is there now, what is on the medium, and the changes between the two.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path};
use std::time::{Duration, SystemTime};

use super::faults::Faults;
use crate::disk::{Entry, Mode, Stat};

/// What the medium writes whole or not at all.
pub const SECTOR_BYTES: usize = 512;
/// Longer files are a mistake in a test, and would be a real allocation.
const FILE_MAX_BYTES: u64 = 1 << 30;
const ROOT: u64 = 0;

#[derive(Debug)]
pub(super) struct State {
    inodes: BTreeMap<u64, Inode>,
    /// Changes of names that no sync has reached, oldest first.
    unsynced_names: Vec<NameChange>,
    /// Which open file holds the lock of which inode.
    locks: BTreeMap<u64, u64>,
    last_number: u64,
    rng: SplitMix,
    pub(super) faults: Faults,
    /// Waits for the medium: of files, of directories, and of everything.
    pub(super) syncs: u64,
    pub(super) capacity_bytes: Option<u64>,
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
    now: Vec<u8>,
    on_medium: Vec<u8>,
    unsynced: Vec<Change>,
}

impl Content {
    pub(super) fn contents(&self) -> &[u8] {
        &self.now
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
    Write { offset: usize, bytes: Vec<u8> },
    Truncate { len: usize },
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
            now: vec![],
            on_medium: vec![],
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
            locks: BTreeMap::new(),
            last_number: ROOT,
            rng: SplitMix(seed),
            faults: Faults::default(),
            syncs: 0,
            capacity_bytes: None,
            life: 0,
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
        self.change_names(NameChange { clear: None, set: Some((dir, name.into(), number)) });
        Ok(number)
    }

    pub(super) fn link(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let inode = self.find(source)?;
        self.file(inode)?;
        let (dir, name) = self.split(target)?;
        if self.lookup(dir, name)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.change_names(NameChange { clear: None, set: Some((dir, name.into(), inode)) });
        Ok(())
    }

    pub(super) fn rename(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let inode = self.find(source)?;
        let (source_dir, source_name) = self.split(source)?;
        let (target_dir, target_name) = self.split(target)?;
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
            Inode::File(file) => (file.now.len() as u64, false, file.mode, file.modified_ns),
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
        let file = self.file_mut(inode)?;
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        change.apply(&mut file.now);
        file.unsynced.push(change);
        Ok(bytes.len())
    }

    pub(super) fn truncate(&mut self, inode: u64, len_bytes: u64) -> io::Result<()> {
        if len_bytes > FILE_MAX_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let len = usize::try_from(len_bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let file = self.file_mut(inode)?;
        let change = Change::Truncate { len };
        change.apply(&mut file.now);
        file.unsynced.push(change);
        Ok(())
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
            Inode::File(file) => file.now.len() as u64,
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

    /// All files and all names.
    pub(super) fn sync_all(&mut self) {
        for change in std::mem::take(&mut self.unsynced_names) {
            self.apply_names(&change, |names| &mut names.on_medium);
        }
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                for change in std::mem::take(&mut file.unsynced) {
                    change.apply(&mut file.on_medium);
                }
            }
        }
    }

    /// As [`State::fail_sync`], of all files; names are as unsynced as before.
    pub(super) fn fail_sync_all(&mut self) {
        let mut rng = self.rng.split();
        for inode in self.inodes.values_mut() {
            if let Inode::File(file) = inode {
                file.settle(&mut rng);
            }
        }
    }

    /// What a failing write got through.
    pub(super) fn part_of<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let len = self.rng.below(bytes.len().saturating_add(1));
        bytes.get(..len).unwrap_or_default()
    }

    pub(super) fn rot(&mut self, path: &Path, offset: u64) -> io::Result<()> {
        let inode = self.find(path)?;
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let bit = 1_u8 << self.rng.below(8);
        let file = self.file_mut(inode)?;
        *file.now.get_mut(offset).ok_or(io::ErrorKind::InvalidInput)? ^= bit;
        if let Some(byte) = file.on_medium.get_mut(offset) {
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
    /// Chance decides about each unsynced change; nothing is unsynced afterwards.
    fn settle(&mut self, rng: &mut SplitMix) {
        for change in std::mem::take(&mut self.unsynced) {
            match rng.below(4) {
                0 => {}
                1 => change.apply(&mut self.on_medium),
                2 => change.apply_some_sectors(&mut self.on_medium, rng),
                // The length reached the medium and the contents did not.
                _ => change.apply_length(&mut self.on_medium),
            }
        }
    }
}

impl Change {
    fn apply(&self, contents: &mut Vec<u8>) {
        self.apply_length(contents);
        if let Self::Write { offset, bytes } = self {
            write_into(contents, *offset, bytes);
        }
    }

    fn apply_length(&self, contents: &mut Vec<u8>) {
        match self {
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                if contents.len() < end {
                    contents.resize(end, 0);
                }
            }
            Self::Truncate { len } => contents.resize(*len, 0),
        }
    }

    /// Sectors as the medium counts them, from the start of the file.
    fn apply_some_sectors(&self, contents: &mut Vec<u8>, rng: &mut SplitMix) {
        self.apply_length(contents);
        let Self::Write { offset, bytes } = self else { return };
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done;
            let len = rest.len().min(SECTOR_BYTES - at % SECTOR_BYTES);
            if rng.chance(1, 2) {
                write_into(contents, at, rest.get(..len).unwrap_or_default());
            }
            done += len;
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
