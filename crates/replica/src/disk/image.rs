//! One open image file. Owns reading past its end (zeros), whole writes, holes, and what the file
//! system says about it. Never: layers, policy, what a format other than raw means.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use durable::{Details, Disk, Extent, Mode, Open, Sparse};
use rustix::io::Errno;

use crate::disk::error::{During, Error};
use crate::disk::flush::Syncing;
use crate::disk::names::DiskName;
use crate::disk::qcow2::{self, Qcow2, Qcow2Error};

/// The unit in which layers hide each other. Not the sector size that is reported to callers.
pub const SECTOR_BYTES: u64 = 4096;

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

impl Access {
    fn how(self) -> Open {
        match self {
            Self::Read => Open::Read,
            Self::Write => Open::Write,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Image {
    file: Arc<dyn Sparse>,
    name: String,
    len_bytes: u64,
    /// How the file is to be read; raw if it is not said.
    format: Option<Box<Qcow2>>,
}

impl Image {
    /// A new image without data; its length is synced.
    pub(crate) fn create(
        files: &dyn Disk,
        dir: &Path,
        disk: &DiskName,
        size_bytes: u64,
    ) -> Result<Self, Error> {
        let how = Open::CreateNew(Mode::PUBLIC);
        let file = files.open_sparse(&dir.join(disk.as_str()), how).during("create", disk)?;
        file.truncate(size_bytes).and_then(|()| file.sync_all()).during("size", disk)?;
        Self::of(file, disk.as_str())
    }

    pub(crate) fn open(
        files: &dyn Disk,
        dir: &Path,
        disk: &DiskName,
        access: Access,
    ) -> Result<Self, Error> {
        Self::open_path(files, &dir.join(disk.as_str()), disk.as_str(), access)
    }

    /// Links, pipes and devices are refused.
    pub(crate) fn open_path(
        files: &dyn Disk,
        path: &Path,
        name: &str,
        access: Access,
    ) -> Result<Self, Error> {
        match files.open_sparse(path, access.how()) {
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                Err(Error::NotAFile(name.to_owned()))
            }
            other => Self::of(other.during("open", name)?, name),
        }
    }

    fn of(file: Box<dyn Sparse>, name: &str) -> Result<Self, Error> {
        let found = file.look().during("inspect", name)?;
        if !found.is_file {
            return Err(Error::NotAFile(name.to_owned()));
        }
        let (file, name) = (Arc::from(file), name.to_owned());
        Ok(Self { file, name, len_bytes: found.len_bytes, format: None })
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
        if self.file.preallocate(range.clone()).during("zero", &self.name)? {
            return Ok(());
        }
        self.write_zeros(range)
    }

    /// Gives the space back: the range becomes a hole. `false` where the file system cannot.
    ///
    /// Not cut at the length the file had when it was opened: a coalesce beside us may have let it
    /// grow since. A hole behind the end is none.
    pub(crate) fn punch(&self, range: Range<u64>) -> Result<bool, Error> {
        self.file.punch(range).during("punch a hole in", &self.name)
    }

    pub(crate) fn resize(&mut self, len_bytes: u64) -> Result<(), Error> {
        self.file.truncate(len_bytes).during("size", &self.name)?;
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

    /// Data inside the range, in order. See [`Sparse::extents`] for `sync`.
    pub(crate) fn extents(
        &self,
        range: Range<u64>,
        sync: bool,
        mut each: impl FnMut(Extent),
    ) -> Result<(), Error> {
        let range = range.start..range.end.min(self.len_bytes);
        if let Some(format) = &self.format {
            return format.extents(range, each).map_err(|error| self.unreadable(error));
        }
        if range.is_empty() {
            return Ok(());
        }
        self.file.extents(range, sync, &mut each).during("map", &self.name)
    }

    pub(crate) fn allocated_bytes(&self) -> Result<u64, Error> {
        Ok(self.look()?.allocated_bytes)
    }

    /// Tells files apart, whatever their names.
    pub(crate) fn identity(&self) -> Result<(u64, u64), Error> {
        Ok(self.look()?.identity)
    }

    pub(crate) fn look(&self) -> Result<Details, Error> {
        self.file.look().during("inspect", &self.name)
    }
}
