//! Where restored data goes. The calls block, and are made on threads that may, several at a time for
//! different places.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::format::DISK_ALIGN;

/// What is shorter is better gathered by the kernel.
const DIRECT_MIN_BYTES: usize = 64 * 1024;

/// A volume that is being restored.
pub trait Sink: Send + Sync + 'static {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros; a hole where it can be one.
    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()>;

    /// Whether the block at `offset` is there already: an earlier try has written it, or somebody
    /// beside this one.
    fn is_written(&self, _offset: u64) -> bool {
        false
    }

    /// Told after a block was written, for the record that a later try asks. Such a record must not
    /// outlive the data: sync the data before the record.
    fn written(&self, _offset: u64) -> io::Result<()> {
        Ok(())
    }

    /// Makes all of it durable.
    fn sync(&self) -> io::Result<()>;
}

/// A file, sparse where the volume is empty. What is long and lies right goes to the disk without the
/// memory of the kernel between: that would cost a copy, and turn out what others have there.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    /// The same file; none where its file system knows no other way.
    direct: Option<File>,
    /// Kernels let one write to a file at a time, and have the others burn their processors.
    writing: Mutex<()>,
}

impl FileSink {
    /// A new file of that size. One that exists is removed first.
    pub fn create(path: &Path, size_bytes: u64) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let text =
                    format!("failed to clean up the existing file {}: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
            Ok(()) | Err(_) => {}
        }
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.set_len(size_bytes)?;
        Ok(Self::new(file, path))
    }

    /// A file that holds the older backup.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        Ok(Self::new(file, path))
    }

    fn new(file: File, path: &Path) -> Self {
        let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let direct = File::options().write(true).custom_flags(flags).open(path).ok();
        Self { file, direct, writing: Mutex::default() }
    }

    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset)
    }

    /// The file, if the disk can take this from where it lies.
    fn direct_for(&self, offset: u64, bytes: &[u8]) -> Option<&File> {
        let is_right = offset.is_multiple_of(DISK_ALIGN as u64)
            && bytes.len().is_multiple_of(DISK_ALIGN)
            && bytes.len() >= DIRECT_MIN_BYTES
            && bytes.as_ptr().align_offset(DISK_ALIGN) == 0;
        self.direct.as_ref().filter(|_| is_right)
    }
}

impl Sink for FileSink {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if let Some(direct) = self.direct_for(offset, bytes) {
            match direct.write_all_at(bytes, offset) {
                // Its disk wants something else than most.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                done => return done,
            }
        }
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.file.write_all_at(bytes, offset)
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, offset, len_bytes) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                write_zeros(offset, len_bytes, |at, zeros| self.file.write_all_at(zeros, at))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

fn write_zeros(
    offset: u64,
    len_bytes: u64,
    write: impl Fn(u64, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 64 * 1024];
    let mut done = 0;
    while done < len_bytes {
        let left = usize::try_from(len_bytes - done).unwrap_or(usize::MAX);
        let piece = ZEROS.get(..left).unwrap_or(ZEROS);
        write(offset + done, piece)?;
        done += piece.len() as u64;
    }
    Ok(())
}

/// Several sinks that get the same: a block is fetched once for all of them. One that fails is left
/// behind, and the rest go on; only when all have failed the restore does.
pub struct FanOut {
    sinks: Vec<Copy>,
}

/// One of the sinks, and what went wrong with it.
type Copy = (Arc<dyn Sink>, Mutex<Option<io::Error>>);

impl FanOut {
    pub fn new(sinks: Vec<Arc<dyn Sink>>) -> Self {
        Self { sinks: sinks.into_iter().map(|sink| (sink, Mutex::default())).collect() }
    }

    /// What went wrong with each, in the order in which they were given.
    pub fn failures(&self) -> Vec<Option<String>> {
        let text = |(_, failed): &Copy| {
            let failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.as_ref().map(ToString::to_string)
        };
        self.sinks.iter().map(text).collect()
    }

    fn each(&self, call: impl Fn(&dyn Sink) -> io::Result<()>) -> io::Result<()> {
        let mut alive = 0;
        for (sink, failed) in &self.sinks {
            if failed.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
                continue;
            }
            match call(sink.as_ref()) {
                Ok(()) => alive += 1,
                Err(error) => {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
        if alive > 0 {
            return Ok(());
        }
        let first = self.failures().into_iter().flatten().next().unwrap_or_default();
        Err(io::Error::other(format!("all {} copies failed: {first}", self.sinks.len())))
    }
}

impl std::fmt::Debug for FanOut {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("FanOut").field("sinks", &self.sinks.len()).finish_non_exhaustive()
    }
}

impl Sink for FanOut {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.each(|sink| sink.write_at(offset, bytes))
    }

    fn zero(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        self.each(|sink| sink.zero(offset, len_bytes))
    }

    fn is_written(&self, offset: u64) -> bool {
        self.sinks.iter().all(|(sink, failed)| {
            sink.is_written(offset) || failed.lock().is_ok_and(|failed| failed.is_some())
        })
    }

    fn written(&self, offset: u64) -> io::Result<()> {
        self.each(|sink| sink.written(offset))
    }

    fn sync(&self) -> io::Result<()> {
        self.each(Sink::sync)
    }
}
