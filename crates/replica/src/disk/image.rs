//! One open image file. Owns reading past its end (zeros), whole writes, holes, and what the file
//! system says about it. Never: layers, policy, what a format other than raw means.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

use crate::disk::error::{During, Error};
use crate::disk::extents::{Extent, Source};
use crate::disk::flush::Syncing;
use crate::disk::names::DiskName;
use crate::disk::qcow2::{self, Qcow2, Qcow2Error};

/// The unit in which layers hide each other. Not the sector size that is reported to callers.
pub const SECTOR_BYTES: u64 = 4096;

const IMAGE_MODE: u32 = 0o644;
/// Written in one system call at most. The page cache keeps what one call writes in one large page,
/// and every later small write into that page walks all its blocks: with calls of 1 MiB a random
/// write of 4 KiB costs ten times what it costs with these, and the long write gains nothing.
const WRITE_BYTES: usize = 64 * 1024;
static ZEROS: [u8; 128 * 1024] = [0; 128 * 1024];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Debug)]
pub(crate) struct Image {
    file: Arc<File>,
    name: String,
    len_bytes: u64,
    source: Source,
    /// How the file is to be read; raw if it is not said.
    format: Option<Box<Qcow2>>,
}

impl Image {
    /// A new image without data; its length is synced.
    pub(crate) fn create(dir: &Path, disk: &DiskName, size_bytes: u64) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(IMAGE_MODE)
            .open(dir.join(disk.as_str()))
            .during("create", disk)?;
        file.set_len(size_bytes).and_then(|()| file.sync_all()).during("size", disk)?;
        Self::of(file, disk.as_str())
    }

    pub(crate) fn open(dir: &Path, disk: &DiskName, access: Access) -> Result<Self, Error> {
        Self::open_path(&dir.join(disk.as_str()), disk.as_str(), access)
    }

    /// Links, pipes and devices are refused.
    pub(crate) fn open_path(path: &Path, name: &str, access: Access) -> Result<Self, Error> {
        // Without waiting: a pipe in the place of an image must not hold us up.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let opened = OpenOptions::new()
            .read(true)
            .write(access == Access::Write)
            .custom_flags(flags.bits().cast_signed())
            .open(path);
        match opened {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Err(Error::NotAFile(name.to_owned()))
            }
            other => Self::of(other.during("open", name)?, name),
        }
    }

    fn of(file: File, name: &str) -> Result<Self, Error> {
        let found = file.metadata().during("inspect", name)?;
        if !found.is_file() {
            return Err(Error::NotAFile(name.to_owned()));
        }
        let source = Source::of(&file).during("inspect", name)?;
        let (file, name, len_bytes) = (Arc::new(file), name.to_owned(), found.len());
        Ok(Self { file, name, len_bytes, source, format: None })
    }

    /// The same image, read as what the file says it is. Only for an image from elsewhere that is
    /// never written: in one of our own, the first bytes are the volume's and say nothing.
    pub(crate) fn formatted(mut self) -> Result<Self, Error> {
        let mut magic = [0; qcow2::MAGIC.len()];
        self.read(&mut magic, 0)?;
        if magic == *qcow2::MAGIC {
            let opened = Qcow2::open(Arc::clone(&self.file), self.len_bytes);
            let opened = opened.map_err(|error| self.unreadable(error))?;
            self.len_bytes = opened.len_bytes();
            self.format = Some(Box::new(opened));
        }
        Ok(self)
    }

    fn unreadable(&self, source: Qcow2Error) -> Error {
        Error::Qcow2 { file: self.name.clone(), source }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Fills the buffer; what lies behind the end of the file is zeros.
    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Error> {
        if let Some(format) = &self.format {
            return format.read(buffer, offset).map_err(|error| self.unreadable(error));
        }
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            match self.file.read_at(rest, at) {
                Ok(0) => {
                    rest.fill(0);
                    return Ok(());
                }
                Ok(read) => {
                    rest = rest.get_mut(read..).unwrap_or_default();
                    at = at.saturating_add(read as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).during("read", &self.name),
            }
        }
        Ok(())
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Error> {
        self.write_counting(bytes, offset, &mut 0)
    }

    /// Counts in `done` how many bytes were written, also where that was not all of them.
    pub(crate) fn write_counting(
        &self,
        bytes: &[u8],
        offset: u64,
        done: &mut u64,
    ) -> Result<(), Error> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let piece = rest.get(..WRITE_BYTES).unwrap_or(rest);
            match self.file.write_at(piece, offset.saturating_add(*done)) {
                Ok(0) => {
                    let stuck = io::Error::from(ErrorKind::WriteZero);
                    return Err(stuck).during("write", &self.name);
                }
                Ok(count) => {
                    *done = done.saturating_add(count as u64);
                    rest = rest.get(count..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).during("write", &self.name),
            }
        }
        Ok(())
    }

    /// Writes zeros as data: they hide what lies below, also after a crash.
    pub(crate) fn write_zeros(&self, range: Range<u64>) -> Result<(), Error> {
        let mut at = range.start;
        while at < range.end {
            let want = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(ZEROS.len());
            self.write(ZEROS.get(..want).unwrap_or_default(), at)?;
            at += want as u64;
        }
        Ok(())
    }

    /// Makes the range zeros that hide what lies below, without writing them where that works.
    pub(crate) fn preallocate_zeros(&self, range: Range<u64>) -> Result<(), Error> {
        if self.source == Source::Fiemap {
            let len = range.end.saturating_sub(range.start);
            match fallocate(&*self.file, FallocateFlags::ZERO_RANGE, range.start, len) {
                Err(Errno::OPNOTSUPP | Errno::INVAL) => {}
                other => return other.during("zero", &self.name),
            }
        }
        self.write_zeros(range)
    }

    /// Gives the space back: the range becomes a hole. `false` where the file system cannot.
    ///
    /// Not cut at the length the file had when it was opened: a coalesce beside us may have let it
    /// grow since. A hole behind the end is none.
    pub(crate) fn punch(&self, range: Range<u64>) -> Result<bool, Error> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Ok(true);
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&*self.file, mode, range.start, len) {
            Err(Errno::OPNOTSUPP) => Ok(false),
            other => other.during("punch a hole in", &self.name).map(|()| true),
        }
    }

    pub(crate) fn grow(&mut self, len_bytes: u64) -> Result<(), Error> {
        self.file.set_len(len_bytes).during("grow", &self.name)?;
        self.len_bytes = len_bytes;
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), Error> {
        self.syncing().run()
    }

    /// The sync, for whoever is to wait for it.
    pub(crate) fn syncing(&self) -> Syncing {
        Syncing { file: Arc::clone(&self.file), name: self.name.clone() }
    }

    /// Data inside the range, in order. See [`Source::each`] for `sync`.
    pub(crate) fn extents(
        &self,
        range: Range<u64>,
        sync: bool,
        each: impl FnMut(Extent),
    ) -> Result<(), Error> {
        let range = range.start..range.end.min(self.len_bytes);
        if let Some(format) = &self.format {
            return format.extents(range, each).map_err(|error| self.unreadable(error));
        }
        self.source.each(&self.file, range, sync, each).during("map", &self.name)
    }

    pub(crate) fn allocated_bytes(&self) -> Result<u64, Error> {
        let found = self.file.metadata().during("inspect", &self.name)?;
        Ok(found.blocks().saturating_mul(512))
    }

    /// Device and inode: tells files apart, whatever their names.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Error> {
        let found = self.file.metadata().during("inspect", &self.name)?;
        Ok((found.dev(), found.ino()))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}
