//! Where restored data goes. The calls block, and are made on threads that may, several at a time for
//! different places.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::buffers::DISK_ALIGN;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffers::BufferPool;

    /// From any place in memory to any place in the file, and over what was there.
    #[test]
    fn what_is_written_is_there_whichever_way_it_took() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("volume");
        let mut expected = vec![0; 3 << 20];
        let sink = FileSink::create(&path, expected.len() as u64).unwrap();
        let mut buffer = BufferPool::default().buffer(1 << 20);
        for (index, byte) in buffer.iter_mut().enumerate() {
            *byte = index.to_le_bytes()[1] | 1;
        }
        for (at, from, len) in [
            (0, 0, 1 << 20),
            (1 << 20, 0, DIRECT_MIN_BYTES),
            ((2 << 20) - 100, 0, 1 << 20),
            (4096, 1, DIRECT_MIN_BYTES),
            (8192, 4096, DIRECT_MIN_BYTES + 1),
            (12, 0, 5),
        ] {
            let bytes = &buffer[from..(from + len).min(buffer.len())];
            sink.write_at(at as u64, bytes).unwrap();
            expected[at..at + bytes.len()].copy_from_slice(bytes);
        }
        sink.zero(1 << 20, 4096).unwrap();
        expected[1 << 20..(1 << 20) + 4096].fill(0);
        sink.sync().unwrap();
        assert!(std::fs::read(&path).unwrap() == expected);
        let mut read = vec![0; expected.len()];
        FileSink::open(&path).unwrap().read_at(0, &mut read).unwrap();
        assert!(read == expected);
    }
}
