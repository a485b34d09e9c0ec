//! The real disk: `std` and `rustix`, nothing in between and nothing remembered.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    FlockOperation, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, fcntl_getfl, fcntl_setfl,
};

use crate::disk::{Barrier, Disk, Entry, File, Mode, Open, Reach, Stat};
use crate::sparse::{self, Details, Extent, Source, Sparse};

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn File>> {
        Ok(Box::new(RealFile(options(how).open(path)?, OnceLock::new())))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        fs::rename(source, target)
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        fs::hard_link(source, target)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path, Mode(mode): Mode) -> io::Result<()> {
        DirBuilder::new().mode(mode).create(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = fs::read_dir(path)?
            .map(|entry| {
                let entry = entry?;
                Ok(Entry { name: entry.file_name(), is_dir: entry.file_type()?.is_dir() })
            })
            .collect::<io::Result<Vec<_>>>()?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let found = fs::metadata(path).map_err(|error| match error.raw_os_error() {
            // A link that leads back to itself leads to nothing, as one whose target is gone.
            Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
                io::Error::new(io::ErrorKind::NotFound, error)
            }
            _ => error,
        })?;
        Ok(Stat {
            len_bytes: found.len(),
            is_dir: found.is_dir(),
            mode: Mode(found.permissions().mode() & 0o7777),
            inode: found.ino(),
            modified: found.modified()?,
        })
    }

    fn unique(&self) -> u64 {
        static DRAWN: AtomicU64 = AtomicU64::new(0);
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::from(since.subsec_nanos()) ^ (since.as_secs() << 30));
        let process = u64::from(std::process::id());
        // Spread over all bits, so that two processes counting from near places do not meet.
        (nanos ^ (process << 32))
            .wrapping_add(DRAWN.fetch_add(1, Ordering::Relaxed))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn reach(&self, path: &Path) -> io::Result<Reach> {
        let found = rustix::fs::statfs(path)?.f_type;
        let is_local = LOCAL.iter().any(|known| i128::from(*known) == i128::from(found));
        Ok(if is_local {
            Reach::ThisMachine
        } else if i128::from(found) == i128::from(NFS) {
            Reach::Server
        } else {
            Reach::Unknown
        })
    }

    fn barrier(&self, path: &Path) -> io::Result<Option<Box<dyn Barrier>>> {
        let dir = fs::File::open(path)?;
        let kind = rustix::fs::fstatfs(&dir)?.f_type;
        let tells = TELLING.iter().any(|known| i128::from(*known) == i128::from(kind));
        if !tells || !kernel_tells() {
            return Ok(None);
        }
        Ok(Some(Box::new(FileSystem(dir))))
    }

    fn open_sparse(&self, path: &Path, how: Open) -> io::Result<Box<dyn Sparse>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = options(how).custom_flags(flags).open(path)?;
        Ok(Box::new(RealFile(file, OnceLock::new())))
    }

    fn sync_file_systems(&self, paths: &[&Path]) -> io::Result<()> {
        let mut synced = Vec::new();
        for path in paths {
            let dir = fs::File::open(path)?;
            let device = dir.metadata()?.dev();
            if !synced.contains(&device) {
                sync_file_system(&dir)?;
                synced.push(device);
            }
        }
        Ok(())
    }

    fn look(&self, path: &Path) -> io::Result<Details> {
        Ok(details(&fs::symlink_metadata(path)?))
    }
}

fn options(how: Open) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    match how {
        Open::Read => {}
        Open::Write => {
            options.write(true);
        }
        Open::Create(Mode(mode)) => {
            options.write(true).create(true).truncate(false).mode(mode);
        }
        Open::CreateNew(Mode(mode)) => {
            options.write(true).create_new(true).mode(mode);
        }
    }
    options
}

fn details(found: &fs::Metadata) -> Details {
    Details {
        len_bytes: found.len(),
        is_file: found.is_file(),
        is_dir: found.is_dir(),
        identity: (found.dev(), found.ino()),
        links: found.nlink(),
        allocated_bytes: found.blocks().saturating_mul(512),
        modified: (found.mtime(), found.mtime_nsec()),
        changed: (found.ctime(), found.ctime_nsec()),
    }
}

/// A directory of the file system that is waited for. It is open as long as the barrier is there: what
/// is lost meanwhile is told to those who had it open.
#[derive(Debug)]
struct FileSystem(fs::File);

impl Barrier for FileSystem {
    fn wait(&self) -> io::Result<()> {
        sync_file_system(&self.0)
    }

    fn covers(&self, path: &Path) -> io::Result<bool> {
        let own = self.0.metadata()?.dev();
        let found = path.ancestors().find_map(|path| match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            found => Some(found),
        });
        // Parts of one file system that are told apart, as those of Btrfs, are taken for several.
        found.map_or(Ok(false), |found| Ok(found?.dev() == own))
    }
}

/// Waits for all of it. Some write the places of names, without a journal, after they have told the disk to
/// empty its memory: syncing any file does that once more.
fn sync_file_system(dir: &fs::File) -> io::Result<()> {
    rustix::fs::syncfs(dir)?;
    dir.sync_all()
}

/// Since then `syncfs` tells of all that could not be written: contents (5.8) and what the file system
/// itself says (5.17).
const KERNEL_TELLS: (u32, u32) = (5, 17);

fn kernel_tells() -> bool {
    let release = rustix::system::uname();
    release.release().to_str().ok().and_then(version_of).is_some_and(|it| it >= KERNEL_TELLS)
}

/// Of `6.1.0-rc1` or the like.
fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// File systems whose `syncfs` is known to wait and to tell: ext2 to ext4, XFS, Btrfs, tmpfs. A layer over
/// one of these does not tell, and F2FS says that all is well after it has given up writing.
const TELLING: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Its server gives files their times.
const NFS: u32 = 0x6969;

/// What disks want the places of memory and file to be multiples of.
const DIRECT_ALIGN: usize = 4096;
/// What is shorter is better left to the kernel.
const DIRECT_MIN_BYTES: usize = 256 * 1024;

/// File systems that no other machine writes: ext2 to ext4, XFS, Btrfs, ZFS, F2FS, bcachefs, tmpfs,
/// and layers over one of these.
const LOCAL: [u32; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x2fc1_2fc1,
    0xf2f5_2010,
    0xca45_1a4e,
    0x0102_1994,
    0x794c_7630,
];

/// With how its file system tells of holes, once that was asked.
#[derive(Debug)]
struct RealFile(fs::File, OnceLock<Source>);

impl RealFile {
    fn source(&self) -> io::Result<Source> {
        if let Some(source) = self.1.get() {
            return Ok(*source);
        }
        let source = Source::of(&self.0)?;
        Ok(*self.1.get_or_init(|| source))
    }
}

impl Sparse for RealFile {
    fn look(&self) -> io::Result<Details> {
        Ok(details(&self.0.metadata()?))
    }

    fn extents(
        &self,
        range: Range<u64>,
        sync: bool,
        each: &mut dyn FnMut(Extent),
    ) -> io::Result<()> {
        self.source()?.each(&self.0, range, sync, each)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        sparse::punch(&self.0, range)
    }

    fn preallocate(&self, range: Range<u64>) -> io::Result<bool> {
        self.source()?.preallocate(&self.0, range)
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn write_around_cache(&self, bytes: &[u8]) -> io::Result<usize> {
        let whole = bytes.len() - bytes.len() % DIRECT_ALIGN;
        let bytes = bytes.get(..whole).unwrap_or_default();
        if whole < DIRECT_MIN_BYTES || bytes.as_ptr().align_offset(DIRECT_ALIGN) != 0 {
            return Ok(0);
        }
        let usual = fcntl_getfl(&self.0)?;
        if fcntl_setfl(&self.0, usual | OFlags::DIRECT).is_err() {
            return Ok(0);
        }
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            match self.0.write_at(rest, done as u64) {
                // Whatever it is, writing as ever meets it as well, or does not mind.
                Ok(0) | Err(_) => break,
                Ok(written) => done += written,
            }
        }
        fcntl_setfl(&self.0, usual)?;
        Ok(done)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn truncate(&self, len_bytes: u64) -> io::Result<()> {
        self.0.set_len(len_bytes)
    }

    fn stamp(&self) -> io::Result<()> {
        let kind = rustix::fs::fstatfs(&self.0)?.f_type;
        if LOCAL.iter().any(|known| i128::from(*known) == i128::from(kind)) {
            return self.0.set_modified(SystemTime::now());
        }
        // Elsewhere our clock is one of many: "now" is then what the server says it is.
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let same = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access: same, last_modification: now };
        rustix::fs::futimens(&self.0, &times)?;
        Ok(())
    }

    fn try_lock(&self) -> io::Result<bool> {
        match rustix::fs::flock(&self.0, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kernels_are_read() {
        for (text, version) in [
            ("6.18.44-x", Some((6, 18))),
            ("5.17.0", Some((5, 17))),
            ("5.4", Some((5, 4))),
            ("6", None),
            ("next", None),
        ] {
            assert_eq!(version_of(text), version, "{text}");
        }
    }

    #[test]
    fn a_barrier_can_be_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        drop(fs::File::create(dir.path().join("a")).unwrap());
        match RealDisk.barrier(dir.path()).unwrap() {
            Some(barrier) => {
                barrier.wait().unwrap();
                assert!(barrier.covers(&dir.path().join("not/yet")).unwrap());
                assert!(!barrier.covers(Path::new("/proc/self")).unwrap());
            }
            None => println!("skipped: this file system, or kernel, has none that tells"),
        }
        assert!(RealDisk.barrier(&dir.path().join("gone")).is_err());
        RealDisk.sync_file_systems(&[dir.path(), dir.path()]).unwrap();
    }
}
