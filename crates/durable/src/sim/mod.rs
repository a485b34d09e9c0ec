//! A disk in memory that forgets what was not synced. For tests only.
//!
//! Owns: the model of what a crash may leave ([`state`]), faults by call number ([`faults`]), and
//! the [`Disk`] over both. Everything that is left to chance comes from the seed. The model is the
//! weakest a file system may be: an unsynced write is lost, kept, or kept in part by sectors; a new block
//! of which something is missing has its place without its contents, as file systems leave it; a hole that
//! was made is lost, kept, or kept in part by blocks; an
//! unsynced change of names is lost or kept, whatever happened to those before it; syncing a file
//! does not sync its name.

mod faults;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use faults::Verdict;
pub use state::SECTOR_BYTES;
use state::{Inode, State};

use crate::disk::{Barrier, Disk, Entry, File, Mode, Open, Reach, Stat};
use crate::sparse::{Details, Extent, Sparse};

/// Cheap to clone; clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

impl SimDisk {
    /// An empty disk with a root directory, all of whose chances come from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// A disk with the same files and other chances, which nothing is planned for.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        Self { state: Arc::new(Mutex::new(self.lock().copy(seed))) }
    }

    /// Writes that would take the files together over this fail with `StorageFull`.
    pub fn limit_bytes(&self, capacity_bytes: u64) {
        self.lock().capacity_bytes = Some(capacity_bytes);
    }

    /// Of a write that fails, whole units of this many bytes of the file have been done, as a kernel that
    /// takes writes by pages does them; single bytes unless this is said.
    pub fn write_by(&self, unit_bytes: usize) {
        self.lock().write_unit_bytes = unit_bytes.max(1);
    }

    /// The `nth` call from now (1 is the next) fails once with `kind`. A failing write may have
    /// written a part, and what a failing sync did not write is lost to every later sync.
    pub fn fail_call(&self, nth: u64, kind: io::ErrorKind) {
        self.lock().faults.fail_once(nth, kind);
    }

    /// The `nth` call from now (1 is the next) and all after it fail, until [`SimDisk::crash`] or
    /// [`SimDisk::kill`]: the process dies inside that call.
    pub fn die_at_call(&self, nth: u64) {
        self.lock().faults.die(nth);
    }

    /// Whether the planned fault has happened: a loop over every call ends when it has not.
    pub fn fault_fired(&self) -> bool {
        self.lock().faults.fired()
    }

    /// Whether the process died inside a call (see [`SimDisk::die_at_call`]) and nobody has
    /// cleaned up after it yet.
    pub fn is_dead(&self) -> bool {
        self.lock().faults.is_dead()
    }

    /// Calls made so far.
    pub fn calls(&self) -> u64 {
        self.lock().faults.calls()
    }

    /// How often somebody waited for the medium, for whatever.
    pub fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    /// From now on there is no barrier, as on file systems that do not tell.
    pub fn without_barriers(&self) {
        self.lock().has_barriers = false;
    }

    /// Makes a directory in which another file system begins.
    pub fn mount(&self, path: &Path) -> io::Result<()> {
        self.lock().mount(path)
    }

    /// Power fails and comes back: what was not synced is lost, kept or torn; open files are dead
    /// and locks are free.
    pub fn crash(&self) {
        self.lock().crash();
    }

    /// The process dies and the machine lives: everything written stays, synced or not; open
    /// files are dead and locks are free.
    pub fn kill(&self) {
        self.lock().kill();
    }

    /// Flips one bit of what the file holds, also of what it holds after a crash.
    pub fn rot(&self, path: &Path, offset: u64) -> io::Result<()> {
        self.lock().rot(path, offset)
    }

    fn open_file(&self, path: &Path, how: Open) -> io::Result<SimFile> {
        let mut state = self.enter()?;
        let inode = match (state.find(path), how) {
            (Ok(inode), Open::Read | Open::Write | Open::Create(_)) => inode,
            (Ok(_), Open::CreateNew(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Err(error), Open::Create(mode) | Open::CreateNew(mode))
                if error.kind() == io::ErrorKind::NotFound =>
            {
                state.create(path, Inode::file(mode))?
            }
            (Err(error), _) => return Err(error),
        };
        state.file(inode)?;
        let handle = state.open_handle();
        let may_write = how != Open::Read;
        Ok(SimFile { disk: self.clone(), inode, may_write, handle, life: state.life })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked elsewhere must not hide its message behind this one.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the call, and lets the planned fault have it.
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.lock();
        match state.faults.next() {
            Verdict::Go => Ok(state),
            Verdict::Fail(kind) => Err(kind.into()),
        }
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        Ok(Box::new(self.open_file(path, how)?))
    }

    fn open_sparse(&self, path: &Path, how: Open) -> io::Result<Box<dyn Sparse>> {
        Ok(Box::new(self.open_file(path, how)?))
    }

    fn look(&self, path: &Path) -> io::Result<Details> {
        let state = self.enter()?;
        state.details(state.find(path)?)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.enter()?.rename(source, target)
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.enter()?.link(source, target)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.enter()?.remove_file(path)
    }

    fn create_dir(&self, path: &Path, mode: Mode) -> io::Result<()> {
        self.enter()?.create(path, Inode::dir(mode)).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.enter()?.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.enter()?;
        state.syncs += 1;
        let inode = state.find(path)?;
        state.sync_dir(inode)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let state = self.enter()?;
        state.list(state.find(path)?)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.enter()?;
        state.stat(state.find(path)?)
    }

    fn unique(&self) -> u64 {
        self.lock().unique()
    }

    fn reach(&self, _: &Path) -> io::Result<Reach> {
        Ok(Reach::ThisMachine)
    }

    fn barrier(&self, path: &Path) -> io::Result<Option<Box<dyn Barrier>>> {
        let state = self.enter()?;
        let device = state.device(state.find(path)?);
        let barrier = SimBarrier { disk: self.clone(), life: state.life, device };
        Ok(state.has_barriers.then(|| Box::new(barrier) as Box<dyn Barrier>))
    }

    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()> {
        let mut state = self.lock();
        let devices: io::Result<BTreeSet<u64>> =
            paths.iter().map(|path| Ok(state.device(state.find(path)?))).collect();
        for device in devices? {
            state.sync_file_system(device)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct SimBarrier {
    disk: SimDisk,
    life: u64,
    device: u64,
}

impl Barrier for SimBarrier {
    fn wait(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        if state.life != self.life {
            return Err(io::Error::other("this barrier was made before the machine stopped"));
        }
        state.sync_file_system(self.device)
    }

    fn covers(&self, path: &Path) -> io::Result<bool> {
        let state = self.disk.enter()?;
        let found = path.ancestors().find_map(|path| state.find(path).ok());
        Ok(found.is_some_and(|inode| state.device(inode) == self.device))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: u64,
    may_write: bool,
    handle: u64,
    /// Which run of the machine opened it.
    life: u64,
}

impl SimFile {
    fn enter(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.disk.enter()?;
        self.alive(&state)?;
        Ok(state)
    }

    fn alive(&self, state: &State) -> io::Result<()> {
        if state.life == self.life {
            Ok(())
        } else {
            Err(io::Error::other("this file was open when the machine stopped"))
        }
    }

    fn writable(&self) -> io::Result<()> {
        if self.may_write { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.lock();
        self.alive(&state)?;
        state.syncs += 1;
        match state.faults.next() {
            Verdict::Go => state.sync_file(self.inode),
            Verdict::Fail(kind) => {
                state.fail_sync(self.inode)?;
                Err(kind.into())
            }
        }
    }
}

impl File for SimFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.enter()?;
        let contents = state.file(self.inode)?.contents();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let rest = contents.get(start..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        if let (Some(target), Some(source)) = (buffer.get_mut(..count), rest.get(..count)) {
            target.copy_from_slice(source);
        }
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.writable()?;
        let mut state = self.disk.lock();
        self.alive(&state)?;
        match state.faults.next() {
            Verdict::Go => state.write(self.inode, bytes, offset),
            Verdict::Fail(kind) => {
                let part = state.part_of(bytes, offset);
                state.write(self.inode, part, offset)?;
                Err(kind.into())
            }
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.enter()?.file(self.inode)?.contents().len() as u64)
    }

    fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        self.writable()?;
        self.enter()?.truncate(self.inode, len_bytes)
    }

    fn stamp(&self) -> io::Result<()> {
        self.writable()?;
        self.enter()?.stamp(self.inode)
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(self.enter()?.try_lock(self.inode, self.handle))
    }
}

impl Sparse for SimFile {
    fn look(&self) -> io::Result<Details> {
        self.enter()?.details(self.inode)
    }

    fn extents(
        &self,
        range: Range<u64>,
        _sync: bool,
        each: &mut dyn FnMut(Extent),
    ) -> io::Result<()> {
        // Not under the lock: whoever is told may ask this disk something.
        let found = self.enter()?.file(self.inode)?.extents(&range);
        found.into_iter().for_each(each);
        Ok(())
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.writable()?;
        self.enter()?.punch(self.inode, &range)?;
        Ok(true)
    }

    fn preallocate(&self, range: Range<u64>) -> io::Result<bool> {
        self.writable()?;
        let is_whole = range.start.is_multiple_of(4096) && range.end.is_multiple_of(4096);
        if is_whole {
            self.enter()?.preallocate(self.inode, &range)?;
        }
        Ok(is_whole)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if state.life == self.life {
            state.unlock(self.inode, self.handle);
        }
    }
}
